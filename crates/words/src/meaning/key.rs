//! Describes a rule's key, and how the rule treats requests that lack the key or have several values for it.

use loudou_rules::rule::{KeyPart, Mode, OnAmbiguousKey, OnMissingKey, Rule, SourcePrefix};

use super::list;

/// Describes the requests that share a bucket: `each x-user-id`.
pub fn group(rule: &Rule) -> String {
    let parts: Vec<String> = rule.key.iter().filter_map(part).collect();
    match parts.as_slice() {
        [] => "all requests together".to_owned(),
        [part] => format!("each {part}"),
        parts => format!("each combination of {}", list(parts, "and")),
    }
}

/// Describes a part of a key. Returns `None` for a literal, because a literal is the same for all requests.
fn part(part: &KeyPart) -> Option<String> {
    Some(match part {
        KeyPart::Literal(_) => return None,
        KeyPart::Header(name) => name.clone(),
        KeyPart::Query(name) => format!("query parameter {name}"),
        KeyPart::Cookie(name) => format!("cookie {name}"),
        KeyPart::Metadata(path) => format!("metadata {}", path.join(".")),
        KeyPart::Source(prefix) => source(*prefix),
        KeyPart::Path {
            segments,
            normalize,
        } => path(*segments, *normalize),
        KeyPart::Route => "route".to_owned(),
        KeyPart::Method => "method".to_owned(),
        KeyPart::Host => "host".to_owned(),
        KeyPart::ClientCert => "client certificate".to_owned(),
    })
}

fn path(segments: Option<u8>, normalize: bool) -> String {
    let segments = match segments {
        None => "path".to_owned(),
        Some(1) => "first segment of the path".to_owned(),
        Some(n) => format!("first {n} segments of the path"),
    };
    let raw = if normalize { "" } else { " as it is" };
    segments + raw
}

/// Describes the client addresses that share a bucket: `client address (IPv4 /24, IPv6 /64)`.
fn source(prefix: SourcePrefix) -> String {
    let SourcePrefix { v4, v6 } = prefix;
    match (v4, v6) {
        _ if prefix == SourcePrefix::default() => "client address".to_owned(),
        (32, _) => format!("client address (IPv6 /{v6})"),
        _ => format!("client address (IPv4 /{v4}, IPv6 /{v6})"),
    }
}

/// States that requests with several values for a part of the key are refused. Returns `None` if the rule does not
/// refuse such requests.
pub(super) fn ambiguous(rule: &Rule) -> Option<String> {
    if rule.on_ambiguous_key != OnAmbiguousKey::Refuse {
        return None;
    }
    let repeated = |part: &&KeyPart| {
        matches!(
            part,
            KeyPart::Header(_) | KeyPart::Cookie(_) | KeyPart::Query(_)
        )
    };
    let parts: Vec<String> = rule.key.iter().filter(repeated).filter_map(part).collect();
    let verdict = match rule.mode {
        Mode::Enforce => "are refused",
        Mode::Shadow | Mode::Off => "count as refused",
    };
    let parts = list(&parts, "or");
    (!parts.is_empty()).then(|| format!("requests with several values of {parts} {verdict}"))
}

/// Describes `on_missing_key`. Parts that almost every request has, such as an address or a path, are mentioned only if
/// the key has no other parts and the setting differs from the default.
pub(super) fn missing(rule: &Rule) -> Option<String> {
    let often = |part: &&KeyPart| {
        !matches!(
            part,
            KeyPart::Source(_) | KeyPart::Path { .. } | KeyPart::Method | KeyPart::Host
        )
    };
    let what = |part: &KeyPart| match part {
        KeyPart::Header(_) | KeyPart::Metadata(_) => self::part(part),
        KeyPart::Source(_) => Some("a client address".to_owned()),
        _ => self::part(part).map(|word| format!("a {word}")),
    };
    let mut parts: Vec<String> = rule.key.iter().filter(often).filter_map(what).collect();
    if parts.is_empty() && rule.on_missing_key != OnMissingKey::Skip {
        parts = rule.key.iter().filter_map(what).collect();
    }
    if parts.is_empty() {
        return None;
    }
    let without = format!("without {}", list(&parts, "or"));
    Some(match (rule.on_missing_key, rule.mode) {
        (OnMissingKey::Skip, _) => format!("requests {without} are not limited by this rule"),
        (OnMissingKey::Share, _) => format!("requests {without} share one bucket"),
        (OnMissingKey::Refuse, Mode::Enforce) => format!("requests {without} are refused"),
        (OnMissingKey::Refuse, _) => format!("requests {without} count as refused"),
    })
}
