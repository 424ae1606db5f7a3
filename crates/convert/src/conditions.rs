//! The conditions of a rule's `match`, and helpers that build their regular expressions.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde_json::{Map, Value, json};

use crate::out::quoted;
use crate::yaml::At;

/// Conditions that a request must all meet.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Conditions {
    pub(crate) methods: Vec<String>,
    pub(crate) path: Option<Value>,
    pub(crate) host: Option<Value>,
    pub(crate) headers: Vec<Value>,
    pub(crate) query: Vec<Value>,
    pub(crate) cookies: Vec<Value>,
    pub(crate) metadata: Vec<Value>,
    pub(crate) source: Vec<String>,
    pub(crate) route: Option<Value>,
    pub(crate) not: Option<Value>,
}

impl Conditions {
    /// Excludes the requests that `excluded` matches. Returns false if the match already excludes
    /// other requests, because a match has only one `not`.
    pub(crate) fn exclude(&mut self, excluded: Value) -> bool {
        match &self.not {
            None => self.not = Some(excluded),
            Some(same) if *same == excluded => {}
            Some(_) => return false,
        }
        true
    }

    /// Adds the conditions of a route. Returns false if it leaves a condition out because the match
    /// already uses the field for another value.
    pub(crate) fn meet(&mut self, route: &Self) -> bool {
        let mut is_met = true;
        let fields = [
            (&mut self.path, &route.path),
            (&mut self.host, &route.host),
            (&mut self.route, &route.route),
        ];
        for (own, other) in fields {
            if own.is_none() {
                own.clone_from(other);
            } else if other.is_some() && own != other {
                is_met = false;
            }
        }
        let lists = [
            (&mut self.headers, &route.headers),
            (&mut self.query, &route.query),
        ];
        for (own, others) in lists {
            for other in others {
                if !own.contains(other) {
                    own.push(other.clone());
                }
            }
        }
        // A test of the route name already excludes all other routes.
        if let Some(not) = &route.not
            && !(self.route.is_some() && not.get("route").is_some())
        {
            is_met &= self.exclude(not.clone());
        }
        is_met
    }

    /// Returns the value of `match`, or `None` if the conditions are empty and match all requests.
    pub(crate) fn value(&self) -> Option<Value> {
        let list = |values: &[Value]| (!values.is_empty()).then(|| json!(values));
        let texts = |texts: &[String]| (!texts.is_empty()).then(|| json!(texts));
        let fields = [
            ("methods", texts(&self.methods)),
            ("path", self.path.clone()),
            ("host", self.host.clone()),
            ("headers", list(&self.headers)),
            ("query", list(&self.query)),
            ("cookies", list(&self.cookies)),
            ("metadata", list(&self.metadata)),
            ("source", texts(&self.source)),
            ("route", self.route.clone()),
            ("not", self.not.clone()),
        ];
        let fields = fields.into_iter();
        let fields: Map<String, Value> = fields
            .filter_map(|(name, value)| Some((name.to_owned(), value?)))
            .collect();
        (!fields.is_empty()).then_some(Value::Object(fields))
    }

    /// Sets the condition on the path. Returns false if the match already tests a different path.
    pub(crate) fn set_path(&mut self, path: Value) -> bool {
        match &self.path {
            None => self.path = Some(path),
            Some(same) => return *same == path,
        }
        true
    }
}

/// Returns overrides that exempt the addresses in the given networks. The rule's key must be the
/// whole client address. Returns `None` if address patterns cannot express a network.
pub(crate) fn exempt(networks: &[Value]) -> Option<Map<String, Value>> {
    let mut overrides = Map::new();
    for network in networks {
        let network = network.as_str()?;
        let (address, length) = match network.split_once('/') {
            Some((address, length)) => (address, Some(length.parse::<u32>().ok()?)),
            None => (network, None),
        };
        let patterns = match address.parse::<IpAddr>().ok()? {
            IpAddr::V4(address) => v4_patterns(address, length.unwrap_or(32))?,
            IpAddr::V6(address) => vec![v6_pattern(address, length.unwrap_or(128))?],
        };
        for pattern in patterns {
            overrides.insert(pattern, json!("unlimited"));
        }
    }
    Some(overrides)
}

/// Returns the patterns that cover an IPv4 network, such as `10.*`. A network whose prefix ends
/// within a byte needs a pattern for each possible value of that byte.
fn v4_patterns(address: Ipv4Addr, length: u32) -> Option<Vec<String>> {
    let octets = address.octets();
    let whole = usize::try_from(length.div_euclid(8)).ok()?;
    let start = octets.iter().take(whole);
    let start = start.fold(String::new(), |start, octet| format!("{start}{octet}."));
    let free = 8_u32.checked_sub(length.rem_euclid(8))?;
    let Some(octet) = octets.get(whole) else {
        return (length == 32).then(|| vec![address.to_string()]);
    };
    if free == 8 {
        return Some(vec![format!("{start}*")]);
    }
    let many = 1_u32.checked_shl(free)?;
    let first = u32::from(*octet) & !many.checked_sub(1)?;
    let end = if whole == 3 { "" } else { ".*" };
    let values = first..first.saturating_add(many);
    Some(values.map(|value| format!("{start}{value}{end}")).collect())
}

/// Returns the pattern for an IPv6 network whose prefix ends at a group boundary. The groups of the
/// prefix must not be 0, because IPv6 addresses abbreviate runs of zero groups in different ways.
fn v6_pattern(address: Ipv6Addr, length: u32) -> Option<String> {
    if length == 128 {
        return Some(bucket_key(&[address.to_string()]));
    }
    let whole = usize::try_from(length.div_euclid(16)).ok()?;
    let groups: Vec<u16> = address.segments().into_iter().take(whole).collect();
    if length == 0 || !length.is_multiple_of(16) || groups.contains(&0) {
        return None;
    }
    let groups: Vec<String> = groups.iter().map(|group| format!("{group:x}:")).collect();
    Some(format!("{}*", bucket_key(&[groups.concat()])))
}

/// Returns the key that the values form, escaped in the same way as bucket keys.
pub(crate) fn bucket_key(values: &[String]) -> String {
    let part = |value: &String| {
        let mut out = String::new();
        for byte in value.bytes() {
            match byte {
                b'%' | b':' | b'~' | 0..=b' ' | 0x7f.. => {
                    out.extend(format!("%{byte:02X}").chars());
                }
                byte => out.push(char::from(byte)),
            }
        }
        out
    };
    let parts: Vec<String> = values.iter().map(part).collect();
    parts.join(":")
}

/// Escapes a string for use in a regular expression.
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        if r"\.+*?()|[]{}^$#&-~".contains(c) && !matches!(c, '-' | '#' | '&' | '~') {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

/// Converts a regular expression that matches any part of a value into one that matches the whole
/// value.
pub(crate) fn whole(regex: &str) -> String {
    let parts: Vec<String> = alternatives(regex).into_iter().map(whole_one).collect();
    parts.join("|")
}

fn whole_one(regex: &str) -> String {
    let (start, regex) = match regex.strip_prefix('^') {
        Some(rest) => ("", rest),
        None => (".*", regex),
    };
    let slashes = |text: &str| text.chars().rev().take_while(|c| *c == '\\').count();
    match regex.strip_suffix('$') {
        // After an even number of backslashes, the `$` is not escaped and anchors the end.
        Some(rest) if slashes(rest).is_multiple_of(2) => format!("{start}{rest}"),
        _ => format!("{start}{regex}.*"),
    }
}

/// Splits a regular expression at each `|` outside groups and character classes.
fn alternatives(regex: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut depth, mut in_class, mut is_escaped, mut start) = (0_usize, false, false, 0);
    for (index, c) in regex.char_indices() {
        if is_escaped {
            is_escaped = false;
            continue;
        }
        match c {
            '\\' => is_escaped = true,
            '[' => in_class = true,
            ']' => in_class = false,
            '(' if !in_class => depth = depth.saturating_add(1),
            ')' if !in_class => depth = depth.saturating_sub(1),
            '|' if !in_class && depth == 0 => {
                parts.extend(regex.get(start..index));
                start = index.saturating_add(1);
            }
            _ => {}
        }
    }
    parts.extend(regex.get(start..));
    parts
}

/// Converts Envoy's `StringMatcher` into the name of a test and its value. The error names the
/// field that has no counterpart in a rule file.
pub(crate) fn string_test(matcher: &At) -> Result<(&'static str, String), String> {
    let ignores_case = matcher.proto("ignore_case").truth() == Some(true);
    let field = |name: &str| matcher.proto(name).text();
    let regex = matcher.proto("safe_regex").proto("regex").text();
    let (test, value, pattern) = if let Some(exact) = field("exact") {
        let pattern = escaped(&exact);
        ("exact", exact, pattern)
    } else if let Some(prefix) = field("prefix") {
        let pattern = format!("{}.*", escaped(&prefix));
        ("prefix", prefix, pattern)
    } else if let Some(suffix) = field("suffix") {
        let pattern = format!(".*{}", escaped(&suffix));
        ("suffix", suffix, pattern)
    } else if let Some(part) = field("contains") {
        let pattern = format!(".*{}.*", escaped(&part));
        ("regex", pattern.clone(), pattern)
    } else if let Some(regex) = regex {
        ("regex", regex.clone(), regex)
    } else {
        return Err(format!("the test {}", quoted(&matcher.json())));
    };
    if ignores_case {
        return Ok(("regex", format!("(?i:{pattern})")));
    }
    Ok((test, value))
}

/// Returns a test of a header or another value that is identified by its name.
pub(crate) fn named(name: &str, test: &str, value: impl Into<Value>) -> Value {
    let mut fields = Map::new();
    fields.insert("name".to_owned(), json!(name));
    fields.insert(test.to_owned(), value.into());
    Value::Object(fields)
}

/// Returns the name and value of a test that passes if a value equals one of the strings.
pub(crate) fn any_of(texts: &[String]) -> (&'static str, String) {
    match texts {
        [text] => ("exact", text.clone()),
        texts => {
            let texts: Vec<String> = texts.iter().map(|text| escaped(text)).collect();
            ("regex", texts.join("|"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_become_patterns_of_addresses() {
        let keys = |networks: &[&str]| -> Option<Vec<String>> {
            let networks: Vec<Value> = networks.iter().map(|one| json!(one)).collect();
            let overrides = exempt(&networks)?;
            Some(overrides.into_iter().map(|(key, _)| key).collect())
        };
        let texts = |texts: &[&str]| Some(texts.iter().map(|text| (*text).to_owned()).collect());
        assert_eq!(
            keys(&[
                "10.0.0.0/8",
                "192.168.1.7",
                "192.168.4.0/23",
                "192.0.2.254/31"
            ]),
            texts(&[
                "10.*",
                "192.168.1.7",
                "192.168.4.*",
                "192.168.5.*",
                "192.0.2.254",
                "192.0.2.255"
            ])
        );
        assert_eq!(
            keys(&["2001:db8::/32", "2001:db8::7"]),
            texts(&["2001%3Adb8%3A*", "2001%3Adb8%3A%3A7"])
        );
        for wrong in [
            "2001:db8::/33",
            "2001:0:1::/48",
            "::/0",
            "unix:",
            "10.0.0.0/33",
            "10.0.0.0/x",
        ] {
            assert_eq!(keys(&[wrong]), None, "{wrong}");
        }
    }

    #[test]
    fn a_search_becomes_a_match_of_the_whole_value() {
        for (regex, expected) in [
            ("^/api", "/api.*"),
            (r"\.php$", r".*\.php"),
            (r"^/a$|b", r"/a|.*b.*"),
            (r"^/(a|b)", r"/(a|b).*"),
            (r"costs\$", r".*costs\$.*"),
            (r"back\\$", r".*back\\"),
            (r"[|]$", r".*[|]"),
        ] {
            assert_eq!(whole(regex), expected, "{regex}");
        }
    }
}
