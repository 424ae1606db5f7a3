//! Reads the targets of a config file: named Envoys with the settings to reach them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::NamedTarget;
use super::reader::{Node, Reader};
use loudou_client::{BAD_TOKEN, is_token};

const FIELDS: [&str; 7] = [
    "url",
    "token",
    "token_file",
    "tls_ca",
    "tls_cert",
    "tls_key",
    "tls_name",
];

pub(super) fn read(reader: &mut Reader<'_>, node: &Node<'_>) -> BTreeMap<String, NamedTarget> {
    let mut targets = BTreeMap::new();
    for (name, _, node) in reader.entries(node) {
        // A name must not contain a comma, which separates the values of LOUDOU_URL.
        if name.is_empty()
            || !name
                .chars()
                .all(|c| c.is_alphanumeric() || "-_.".contains(c))
        {
            reader.wrong(
                &node,
                "a name of a target has letters, digits, - _ .",
                |p| p,
            );
        }
        targets.insert(name, target(reader, &node));
    }
    targets
}

fn target(reader: &mut Reader<'_>, node: &Node<'_>) -> NamedTarget {
    let fields = reader.fields(node, &FIELDS);
    let token = fields.get("token").and_then(|node| {
        let token = reader.secret(node)?;
        if !is_token(&token) {
            reader.wrong_secret(node, BAD_TOKEN);
        }
        Some(token)
    });
    let mut text = |name: &str| {
        let node = fields.get(name)?;
        reader.text(node).map(ToOwned::to_owned)
    };
    let [token_file, tls_ca, tls_cert, tls_key, tls_name] =
        ["token_file", "tls_ca", "tls_cert", "tls_key", "tls_name"].map(&mut text);
    let url = if let Some(url) = fields.get("url") {
        urls(reader, url, None)
    } else {
        reader.wrong(node, "`url` is missing", |p| p);
        Vec::new()
    };
    if let (Some(_), Some(file)) = (fields.get("token"), fields.get("token_file")) {
        reader.wrong(file, "there is a `token` already", |p| p);
    }
    for (one, other) in [("tls_cert", "tls_key"), ("tls_key", "tls_cert")] {
        if let (Some(one), None) = (fields.get(one), fields.get(other)) {
            reader.wrong(one, format!("it needs `{other}`"), |p| p);
        }
    }
    NamedTarget {
        url,
        token,
        token_file: token_file.map(PathBuf::from),
        tls_ca: tls_ca.map(PathBuf::from),
        tls_cert: tls_cert.map(PathBuf::from),
        tls_key: tls_key.map(PathBuf::from),
        tls_name,
    }
}

/// Prefixes of valid addresses.
const SCHEMES: [&str; 5] = [
    "http://",
    "https://",
    "unix:",
    "dns:http://",
    "dns:https://",
];

/// Reads a list of addresses. If `targets` is given, the list may also contain names of targets
/// (`@NAME`).
pub(super) fn urls(
    reader: &mut Reader<'_>,
    node: &Node<'_>,
    targets: Option<&BTreeMap<String, NamedTarget>>,
) -> Vec<String> {
    let mut urls = Vec::new();
    for (text, node) in reader.texts(node) {
        let is_address = SCHEMES.iter().any(|scheme| text.starts_with(scheme));
        match (text.strip_prefix('@'), targets) {
            (Some(name), Some(targets)) if targets.contains_key(name) => {}
            (Some(_), Some(targets)) => {
                let names: Vec<String> = targets.keys().map(|name| format!("@{name}")).collect();
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                reader.none_of(&node, "no such target", &names);
            }
            _ if is_address => {}
            _ => reader.wrong(&node, "expected an address", |problem| {
                problem.allowed(
                    "http://HOST:PORT, https://HOST:PORT, unix:/PATH, dns:http://HOST:PORT",
                )
            }),
        }
        urls.push(text.to_owned());
    }
    if node.is_empty_list() {
        reader.wrong(node, "it names no address", |problem| problem);
    }
    urls
}
