//! Converts the keys of zones. A key consists of text and nginx variables, and `map` and `geo`
//! blocks can define more variables.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::syntax::Directive;
use crate::conditions::{any_of, escaped, named, whole};
use crate::locations::Key;
use crate::out::quoted;

/// Maximum length of a chain of maps, each of which refers to the next.
const MAX_MAPS: usize = 8;

/// The `map` and `geo` blocks, by the variable that each block defines.
#[derive(Default)]
pub(super) struct Variables {
    blocks: BTreeMap<String, Directive>,
}

const NOBODY: &str = "no request has a key, so nginx limits nobody";

/// A request property that a `map` reads.
enum Input {
    Method,
    Host,
    Header(String),
    Query(String),
    Cookie(String),
}

impl Variables {
    /// Stores a block that defines a variable.
    pub(super) fn define(&mut self, block: &Directive) {
        if let Some(variable) = block.args.last() {
            self.blocks.insert(variable.clone(), block.clone());
        }
    }

    /// Returns the key of a zone, with conditions for the requests that the zone counts. The error
    /// names the part of the key that has no counterpart.
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

    /// Adds the key of a `map` whose values are either one key or empty. nginx does not limit
    /// requests with an empty key.
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
        let is_counted_by_default = !default.is_empty();
        let source = map.arg(0);
        if let Some(geo) = self.blocks.get(source).filter(|block| block.name == "geo") {
            if entries.iter().any(|(name, _)| name.starts_with('~')) {
                return fail("regular expressions for the value of a `geo`");
            }
            entries.retain(|(_, value)| value.is_empty() == is_counted_by_default);
            by_network(geo, &entries, is_counted_by_default, key)?;
        } else if let Some(input) = input(source) {
            let decides = |value: &str| value.is_empty() == is_counted_by_default;
            by_value(&input, &entries, &decides, is_counted_by_default, key)
                .or_else(|why| fail(&why))?;
        } else {
            return fail(&format!(
                "the variable `{}` has no counterpart",
                quoted(source)
            ));
        }
        self.add(counted, key, depth.saturating_add(1))
    }
}

/// Adds a condition for the networks of a `geo` block that a `map` reads.
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
        // The map lists the default of the `geo` block, so its entries apply to all requests from
        // outside the other networks.
        let others = networks.iter().filter(|(_, value)| !is_listed(value));
        let others: Vec<String> = others.map(|(network, _)| (*network).to_owned()).collect();
        if !listed.is_empty() {
            return fail("networks inside of other networks");
        }
        return restrict_networks(others, !is_counted_by_default, key);
    }
    // nginx uses the value of the smallest network that contains the address. Networks with other values therefore
    // matter if they lie inside a listed network.
    if networks.iter().any(|(_, value)| !is_listed(value)) && !listed.is_empty() {
        key.differences.push(
            "networks that nginx lists inside of others do not count as exceptions here".to_owned(),
        );
    }
    restrict_networks(listed, is_counted_by_default, key)
}

/// Excludes the networks, or restricts the key to them.
fn restrict_networks(networks: Vec<String>, excludes: bool, key: &mut Key) -> Result<(), String> {
    if networks.is_empty() {
        return if excludes {
            Ok(())
        } else {
            Err(NOBODY.to_owned())
        };
    }
    if !excludes {
        key.conditions.source = networks;
    } else if !key.conditions.exclude(json!({ "source": networks })) {
        return Err("two kinds of exceptions".to_owned());
    }
    Ok(())
}

/// Adds conditions for the entries of a `map`. An entry decides if its result differs from the
/// default's. nginx first looks for an exact string, and then tries regular expressions in file
/// order, so an entry with the default's result can take values from an entry that decides.
fn by_value(
    input: &Input,
    entries: &[(&str, &str)],
    decides: &impl Fn(&str) -> bool,
    excludes: bool,
    key: &mut Key,
) -> Result<(), String> {
    let is_regex = |name: &str| name.starts_with('~');
    let mut deciding: Vec<&str> = Vec::new();
    let mut others: Vec<&str> = Vec::new();
    // Number of entries in `others` before the first regular expression that decides.
    let mut first = None;
    let mut is_empty_deciding = false;
    for (name, value) in entries {
        // nginx tries no regular expressions on an empty value.
        if name.is_empty() || *name == "~^$" || *name == "~*^$" {
            is_empty_deciding |= name.is_empty() && decides(value);
        } else if !decides(value) {
            others.push(name);
        } else {
            if is_regex(name) {
                first.get_or_insert(others.len());
                if others
                    .iter()
                    .skip(first.unwrap_or(0))
                    .any(|name| is_regex(name))
                {
                    return Err("its regular expressions alternate between answers".to_owned());
                }
            }
            deciding.push(name);
        }
    }
    let before = first.unwrap_or(0);
    let mut index = 0_usize;
    // An entry can take values from a regular expression that decides only if the entry is an exact
    // string or an earlier regular expression.
    others.retain(|name| {
        index = index.saturating_add(1);
        first.is_some() && (!is_regex(name) || index <= before)
    });
    if others.iter().any(|name| is_regex(name)) && deciding.iter().any(|name| !is_regex(name)) {
        return Err("texts and regular expressions with both answers".to_owned());
    }
    if let Input::Method = input {
        if !others.is_empty() || deciding.iter().any(|name| is_regex(name)) {
            return Err("regular expressions for methods".to_owned());
        }
        if deciding.is_empty() {
            return restrict(None, excludes, key);
        }
        return restrict(Some(json!({ "methods": deciding })), excludes, key);
    }
    let (field, name) = match input {
        Input::Header(name) => ("headers", name.as_str()),
        Input::Query(name) => ("query", name.as_str()),
        Input::Cookie(name) => ("cookies", name.as_str()),
        Input::Host | Input::Method => ("headers", ":authority"),
    };
    let is_host = matches!(input, Input::Host);
    let mut tests = Map::new();
    if !deciding.is_empty() {
        tests.insert(field.to_owned(), json!([test(name, &deciding, is_host)]));
        if !others.is_empty() {
            let not = json!({ field: [test(name, &others, is_host)] });
            tests.insert("not".to_owned(), not);
        }
    }
    // A request always has a host, so the host cannot be absent.
    if !is_empty_deciding || is_host {
        let tests = (!tests.is_empty()).then_some(Value::Object(tests));
        return restrict(tests, excludes, key);
    }
    key.differences.push(
        "a value that is present but empty is not absent here, and nginx treats both alike"
            .to_owned(),
    );
    let present = json!({ field: [named(name, "present", true)] });
    if excludes {
        restrict(Some(present), false, key)?;
        return if tests.is_empty() {
            Ok(())
        } else {
            restrict(Some(Value::Object(tests)), true, key)
        };
    }
    if tests.is_empty() {
        let absent = json!({ field: [named(name, "present", false)] });
        return restrict(Some(absent), false, key);
    }
    // The key applies if the value is absent or passes the tests.
    let not = json!({ field: [named(name, "present", true)], "not": tests });
    restrict(Some(not), true, key)
}

/// Excludes the requests that a match selects, or restricts the key to them.
fn restrict(tests: Option<Value>, excludes: bool, key: &mut Key) -> Result<(), String> {
    let tests = match tests {
        Some(tests) => tests,
        None if excludes => return Ok(()),
        None => return Err(NOBODY.to_owned()),
    };
    let conditions = &mut key.conditions;
    if excludes {
        return if conditions.exclude(tests) {
            Ok(())
        } else {
            Err("two kinds of exceptions".to_owned())
        };
    }
    let Value::Object(fields) = tests else {
        return Ok(());
    };
    for (field, value) in fields {
        let list = value.as_array().cloned().unwrap_or_default();
        match field.as_str() {
            "methods" => {
                let methods = list.iter().filter_map(Value::as_str);
                conditions.methods = methods.map(str::to_owned).collect();
            }
            "query" => conditions.query.extend(list),
            "cookies" => conditions.cookies.extend(list),
            "headers" => conditions.headers.extend(list),
            _ if conditions.exclude(value) => {}
            _ => return Err("two kinds of exceptions".to_owned()),
        }
    }
    Ok(())
}

/// Returns a test of a value against the entries of a `map`.
fn test(value: &str, entries: &[&str], is_host: bool) -> Value {
    // A leading backslash escapes the next character of an exact string.
    let unescaped = entries.iter().map(|name| match name.strip_prefix('\\') {
        Some(rest) => (rest, false),
        None => (*name, name.starts_with('~')),
    });
    let entries: Vec<(&str, bool)> = unescaped.collect();
    let is_plain =
        |(name, is_regex): &(&str, bool)| !is_regex && !name.contains(|c: char| c.is_alphabetic());
    let (kind, text) = if entries.iter().all(is_plain) {
        let texts = entries.iter().map(|(name, _)| (*name).to_owned());
        any_of(&texts.collect::<Vec<String>>())
    } else {
        // nginx also ignores case when it compares exact strings.
        let regexes = entries.iter().map(|(name, is_regex)| {
            if !is_regex {
                format!("(?i:{})", escaped(name))
            } else if let Some(regex) = name.strip_prefix("~*") {
                format!("(?i:{})", whole(regex))
            } else {
                whole(name.strip_prefix('~').unwrap_or(name))
            }
        });
        let regexes: Vec<String> = regexes.collect();
        let regex = regexes.join("|");
        // The `:authority` header may include a port, but nginx's `$host` does not.
        let regex = if is_host {
            format!("(?:{regex})(?::[0-9]+)?")
        } else {
            regex
        };
        ("regex", regex)
    };
    named(value, kind, text)
}

/// Returns the request property that a variable reads, if a match can test it.
fn input(variable: &str) -> Option<Input> {
    let name = variable.strip_prefix('$')?;
    // A text with several variables is not a single variable.
    if name.contains(|c: char| !c.is_ascii_alphanumeric() && c != '_') {
        return None;
    }
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

/// Adds the key part for a built-in nginx variable.
fn variable(name: &str, key: &mut Key) -> Result<(), String> {
    let part = match name {
        // nginx counts by the full IPv6 address.
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
        "uri" | "document_uri" => {
            key.differences.push(
                "nginx decodes and normalizes $uri, and the key has the path as Envoy passes it: set normalize_path and merge_slashes in Envoy"
                    .to_owned(),
            );
            json!({ "path": { "normalize": false } })
        }
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

/// Splits a text into fixed strings and variables, which are written as `$name` or `${name}`.
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
