//! The request that the explain form begins with when it is opened on a bucket: one that matches the bucket's rule and
//! has its key. The user types what neither the rule nor the key determines.

use loudou_rules::config::parse_rule;
use loudou_rules::rule::{KeyPart, Match, NamedTest, PathMatch, Rule, Test};
use serde_json::Value;

use super::TypedRequest;

/// The request; `None` if this version cannot read the rule.
pub(super) fn request(rule: &Value, key: Option<&str>) -> Option<TypedRequest> {
    let rule = parse_rule(rule).ok()?;
    let mut request = TypedRequest::default();
    let (mut query, mut cookies) = of_key(&mut request, &rule, key);
    let matches = &rule.matches;
    if request.method.is_none() {
        request.method = matches.methods.first().cloned();
    }
    if request.path.is_none() {
        request.path = matches.path.as_ref().and_then(path);
    }
    if request.host.is_none() {
        request.host = matches.host.as_ref().and_then(passing);
    }
    if request.route.is_none() {
        request.route = matches.route.as_ref().and_then(passing);
    }
    if request.source.is_none() {
        let first = matches.source.first();
        request.source = first.map(|network| address(&network.to_string()));
    }
    named(&mut request, matches);
    let pairs = |tests: &[NamedTest]| -> Vec<String> {
        let known = tests
            .iter()
            .filter_map(|named| Some((named, passing(&named.test)?)));
        known
            .map(|(named, value)| format!("{}={value}", named.name))
            .collect()
    };
    query.extend(pairs(&matches.query));
    cookies.extend(pairs(&matches.cookies));
    if !query.is_empty() {
        let path = request.path.take().unwrap_or_else(|| "/".to_owned());
        request.path = Some(format!("{path}?{}", query.join("&")));
    }
    if !cookies.is_empty() {
        request
            .headers
            .push(("cookie".to_owned(), cookies.join("; ")));
    }
    Some(request)
}

/// Puts the parts of the key into the request; returns query parameters and cookies.
fn of_key(
    request: &mut TypedRequest,
    rule: &Rule,
    key: Option<&str>,
) -> (Vec<String>, Vec<String>) {
    let (mut query, mut cookies) = (Vec::new(), Vec::new());
    let values = key.and_then(|key| values(rule, key));
    for (number, part) in rule.key.iter().enumerate() {
        let value = values.as_ref().and_then(|values| values.get(number));
        let known = value.filter(|value| !value.is_empty()).cloned();
        let value = value.cloned().unwrap_or_default();
        match part {
            KeyPart::Header(name) => request.headers.push((name.clone(), value)),
            KeyPart::Query(name) => query.push(format!("{name}={value}")),
            KeyPart::Cookie(name) => cookies.push(format!("{name}={value}")),
            KeyPart::Metadata(path) => request.metadata.push((path.join("."), value)),
            // Any address of the network has this key.
            KeyPart::Source(_) => request.source = known.as_deref().map(address),
            KeyPart::Path { .. } => request.path = known,
            KeyPart::Route => request.route = known,
            KeyPart::Method => request.method = known,
            KeyPart::Host => request.host = known,
            KeyPart::ClientCert => request.client_cert = known,
            KeyPart::Literal(_) => {}
        }
    }
    (query, cookies)
}

/// Adds the headers and metadata that the match needs and that the key did not give.
fn named(request: &mut TypedRequest, matches: &Match) {
    for named in &matches.headers {
        let is_there = request.headers.iter().any(|(name, _)| *name == named.name);
        if let Some(value) = passing(&named.test).filter(|_| !is_there) {
            request.headers.push((named.name.clone(), value));
        }
    }
    for named in &matches.metadata {
        let path = named.path.join(".");
        let is_there = request.metadata.iter().any(|(name, _)| *name == path);
        if let Some(value) = passing(&named.test).filter(|_| !is_there) {
            request.metadata.push((path, value));
        }
    }
}

/// A text that passes a test; `None` for absence, and where it would have to be invented.
fn passing(test: &Test) -> Option<String> {
    match test {
        Test::Exact(value) | Test::Prefix(value) | Test::Suffix(value) => Some(value.clone()),
        Test::Present(true) => Some("x".to_owned()),
        Test::Present(false) | Test::Regex(_) => None,
    }
}

fn path(path: &PathMatch) -> Option<String> {
    match path {
        PathMatch::Prefix(text) | PathMatch::Exact(text) => Some(text.clone()),
        PathMatch::Suffix(text) if text.starts_with('/') => Some(text.clone()),
        PathMatch::Suffix(text) => Some(format!("/{text}")),
        PathMatch::Template(text) => Some(text.replace(['{', '}'], "")),
        PathMatch::Regex(_) => None,
    }
}

/// The first address of a network.
fn address(network: &str) -> String {
    network.split('/').next().unwrap_or_default().to_owned()
}

/// The values of the parts of a key; `None` if it was cut or has another number of parts.
fn values(rule: &Rule, key: &str) -> Option<Vec<String>> {
    if key.contains('~') {
        return None;
    }
    let values: Vec<String> = key.split(':').map(decoded).collect();
    (values.len() == rule.key.len()).then_some(values)
}

/// The text of a part of a key, whose other characters are written `%XX`.
fn decoded(part: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = part;
    while let Some(c) = rest.chars().next() {
        let hex = rest.strip_prefix('%').and_then(|rest| rest.get(..2));
        let byte = hex.and_then(|hex| u8::from_str_radix(hex, 16).ok());
        let step = if let Some(byte) = byte {
            bytes.push(byte);
            3
        } else {
            bytes.extend(c.to_string().bytes());
            c.len_utf8()
        };
        rest = rest.get(step..).unwrap_or_default();
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
