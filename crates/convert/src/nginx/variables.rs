//! The keys of zones: nginx's variables, and the `map` and `geo` blocks that define more of them.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::syntax::Directive;
use crate::conditions::{any_of, escaped, named, whole};
use crate::locations::Key;
use crate::out::quoted;

/// Maximum number of maps from one variable to the next.
const MAX_MAPS: usize = 8;

/// The `map` and `geo` blocks, by the variable that they define.
#[derive(Default)]
pub(super) struct Variables {
    blocks: BTreeMap<String, Directive>,
}

/// A value that a map reads.
enum Input {
    Method,
    Host,
    Header(String),
    Query(String),
    Cookie(String),
}

impl Variables {
    /// Keeps a block that defines a variable.
    pub(super) fn define(&mut self, block: &Directive) {
        if let Some(variable) = block.args.last() {
            self.blocks.insert(variable.clone(), block.clone());
        }
    }

    /// Returns the requests that a zone counts, and their key. The error says which part has no
    /// counterpart.
    pub(super) fn key(&self, text: &str) -> Result<Key, String> {
        let mut key = Key::default();
        self.add(text, &mut key, 0)?;
        let is_optional = |part: &Value| {
            ["header", "query", "cookie"]
                .iter()
                .any(|name| part.get(name).is_some())
        };
        if key.parts.len() > 1 && key.parts.iter().any(is_optional) {
            key.differences.push(
                "a request without a part of the key is not limited here, and nginx counts it with an empty part"
                    .to_owned(),
            );
        }
        Ok(key)
    }

    fn add(&self, text: &str, key: &mut Key, depth: usize) -> Result<(), String> {
        if depth > MAX_MAPS {
            return Err("more than 8 maps".to_owned());
        }
        for part in parts(text) {
            match part {
                Part::Text(text) => key.parts.push(json!({ "literal": text })),
                Part::Variable(name) => match self.blocks.get(&format!("${name}")) {
                    Some(block) if block.name == "map" => self.mapped(block, key, depth)?,
                    Some(block) => {
                        return Err(format!("`{}` as a part of the key", quoted(&block.text())));
                    }
                    None => variable(&name, key)?,
                },
            }
        }
        Ok(())
    }

    /// Adds the key of a map whose values are one key, or empty for requests that are not limited.
    fn mapped(&self, map: &Directive, key: &mut Key, depth: usize) -> Result<(), String> {
        let fail = |why: &str| Err(format!("`{}`: {why}", quoted(&map.text())));
        let mut default = String::new();
        let mut entries: Vec<(&str, &str)> = Vec::new();
        for entry in map.inner() {
            match entry.name.as_str() {
                "default" => entry.arg(0).clone_into(&mut default),
                "hostnames" | "volatile" | "include" => {
                    return fail(&format!("`{}` in it", entry.name));
                }
                name => entries.push((name, entry.arg(0))),
            }
        }
        let mut keys: Vec<&str> = entries.iter().map(|(_, value)| *value).collect();
        keys.push(&default);
        keys.retain(|key| !key.is_empty());
        keys.dedup();
        keys.sort_unstable();
        keys.dedup();
        let [counted] = keys.as_slice() else {
            return fail("its values are not one key and an empty text");
        };
        // Entries with another answer than the default decide.
        let is_counted_by_default = !default.is_empty();
        entries.retain(|(_, value)| value.is_empty() == is_counted_by_default);
        let source = map.arg(0);
        if let Some(geo) = self.blocks.get(source).filter(|block| block.name == "geo") {
            by_network(geo, &entries, is_counted_by_default, key)?;
        } else if let Some(input) = input(source) {
            add_test(&input, &entries, is_counted_by_default, key).or_else(|why| fail(&why))?;
        } else {
            return fail(&format!(
                "the variable `{}` has no counterpart",
                quoted(source)
            ));
        }
        self.add(counted, key, depth.saturating_add(1))
    }
}

/// Adds the networks of a `geo` block to which a map refers.
fn by_network(
    geo: &Directive,
    entries: &[(&str, &str)],
    is_counted_by_default: bool,
    key: &mut Key,
) -> Result<(), String> {
    let fail = |why: &str| Err(format!("`{}`: {why}", quoted(&geo.text())));
    if geo.args.len() > 1 && !matches!(geo.arg(0), "$remote_addr" | "$binary_remote_addr") {
        return fail("only the client address has a counterpart");
    }
    let mut default = "";
    let mut networks: Vec<(&str, &str)> = Vec::new();
    for entry in geo.inner() {
        match entry.name.as_str() {
            "default" => default = entry.arg(0),
            "ranges" | "proxy" | "proxy_recursive" | "include" | "delete" => {
                return fail(&format!("`{}` in it", entry.name));
            }
            name => networks.push((name, entry.arg(0))),
        }
    }
    let is_listed = |value: &str| entries.iter().any(|(name, _)| *name == value);
    let listed: Vec<String> = networks
        .iter()
        .filter(|(_, value)| is_listed(value))
        .map(|(network, _)| (*network).to_owned())
        .collect();
    if is_listed(default) {
        // All requests but the other networks.
        let others = networks.iter().filter(|(_, value)| !is_listed(value));
        let others: Vec<String> = others.map(|(network, _)| (*network).to_owned()).collect();
        if !listed.is_empty() {
            return fail("networks inside of other networks");
        }
        return restrict_networks(others, !is_counted_by_default, key);
    }
    // nginx uses the value of the smallest network that contains the address, so networks of other values matter if they are inside.
    if networks.iter().any(|(_, value)| !is_listed(value)) && !listed.is_empty() {
        key.differences.push(
            "networks that nginx lists inside of others do not count as exceptions here".to_owned(),
        );
    }
    restrict_networks(listed, is_counted_by_default, key)
}

/// Excludes networks, or limits only them.
fn restrict_networks(networks: Vec<String>, excludes: bool, key: &mut Key) -> Result<(), String> {
    if networks.is_empty() {
        return Ok(());
    }
    if !excludes {
        key.conditions.source = networks;
    } else if !key.conditions.exclude(json!({ "source": networks })) {
        return Err("two kinds of exceptions".to_owned());
    }
    Ok(())
}

/// Adds a test for the entries of a map.
fn add_test(
    input: &Input,
    entries: &[(&str, &str)],
    excludes: bool,
    key: &mut Key,
) -> Result<(), String> {
    if entries.is_empty() {
        return Ok(());
    }
    if let Input::Method = input {
        let methods: Vec<String> = entries.iter().map(|(name, _)| (*name).to_owned()).collect();
        if !excludes {
            key.conditions.methods = methods;
        } else if !key.conditions.exclude(json!({ "methods": methods })) {
            return Err("two kinds of exceptions".to_owned());
        }
        return Ok(());
    }
    let is_plain =
        |name: &str| !name.starts_with('~') && !name.contains(|c: char| c.is_alphabetic());
    let (test, value) = if entries.iter().all(|(name, _)| is_plain(name)) {
        let texts: Vec<String> = entries.iter().map(|(name, _)| (*name).to_owned()).collect();
        any_of(&texts)
    } else {
        // nginx ignores the case of texts, too.
        let regexes = entries.iter().map(|(name, _)| {
            if let Some(regex) = name.strip_prefix("~*") {
                format!("(?i:{})", whole(regex))
            } else if let Some(regex) = name.strip_prefix('~') {
                whole(regex)
            } else {
                format!("(?i:{})", escaped(name))
            }
        });
        let regexes: Vec<String> = regexes.collect();
        let regex = regexes.join("|");
        // Only `$host` has no port.
        let is_host = matches!(input, Input::Host);
        let regex = if is_host {
            format!("(?:{regex})(?::[0-9]+)?")
        } else {
            regex
        };
        ("regex", regex)
    };
    let (field, name) = match input {
        Input::Header(name) => ("headers", name.as_str()),
        Input::Host => ("headers", ":authority"),
        Input::Query(name) => ("query", name.as_str()),
        Input::Cookie(name) => ("cookies", name.as_str()),
        Input::Method => return Ok(()),
    };
    let test = named(name, test, value);
    let conditions = &mut key.conditions;
    if excludes {
        if !conditions.exclude(json!({ field: [test] })) {
            return Err("two kinds of exceptions".to_owned());
        }
        return Ok(());
    }
    match field {
        "query" => conditions.query.push(test),
        "cookies" => conditions.cookies.push(test),
        _ => conditions.headers.push(test),
    }
    Ok(())
}

/// Returns the value that a variable reads, if a match can test it.
fn input(variable: &str) -> Option<Input> {
    let name = variable.strip_prefix('$')?;
    Some(match name {
        "request_method" => Input::Method,
        "host" => Input::Host,
        _ => {
            if let Some(name) = name.strip_prefix("http_") {
                Input::Header(name.replace('_', "-"))
            } else if let Some(name) = name.strip_prefix("arg_") {
                Input::Query(name.to_owned())
            } else {
                Input::Cookie(name.strip_prefix("cookie_")?.to_owned())
            }
        }
    })
}

/// Adds the key part of a variable of nginx itself.
fn variable(name: &str, key: &mut Key) -> Result<(), String> {
    let part = match name {
        // nginx counts whole IPv6 addresses.
        "binary_remote_addr" | "remote_addr" | "realip_remote_addr" => {
            json!({ "source": { "v6_prefix": 128 } })
        }
        "host" => json!("host"),
        "http_host" => {
            key.differences.push(
                "the key has no port, and nginx's $http_host has one if the client sends it"
                    .to_owned(),
            );
            json!("host")
        }
        "server_name" => {
            key.differences
                .push("the key is the requested host, and nginx's $server_name is the server's first name".to_owned());
            json!("host")
        }
        "request_method" => json!("method"),
        "uri" | "document_uri" => json!("path"),
        "request_uri" => {
            key.differences
                .push("the key has no query, and nginx's $request_uri has it".to_owned());
            json!({ "path": { "normalize": false } })
        }
        "" => return Err("a `$` without a name".to_owned()),
        _ => match input(&format!("${name}")) {
            Some(Input::Header(name)) => json!({ "header": name }),
            Some(Input::Query(name)) => json!({ "query": name }),
            Some(Input::Cookie(name)) => json!({ "cookie": name }),
            _ => return Err(format!("the variable `${}`", quoted(name))),
        },
    };
    key.parts.push(part);
    Ok(())
}

enum Part {
    Text(String),
    Variable(String),
}

/// Splits a text with variables, `$name` or `${name}`.
fn parts(text: &str) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        if !before.is_empty() {
            parts.push(Part::Text(before.to_owned()));
        }
        let braced = after
            .strip_prefix('{')
            .and_then(|after| after.split_once('}'));
        let (name, after) = braced.unwrap_or_else(|| {
            let end = after.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            let end = end.unwrap_or(after.len());
            after.split_at_checked(end).unwrap_or((after, ""))
        });
        parts.push(Part::Variable(name.to_owned()));
        rest = after;
    }
    if !rest.is_empty() {
        parts.push(Part::Text(rest.to_owned()));
    }
    parts
}
