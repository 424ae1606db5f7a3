//! Describes the requests that a rule matches.

use loudou_rules::rule::{Cidr, Match, MetadataTest, NamedTest, PathMatch, Test};

use super::list;

/// Describes a match: `POST requests to /reply and below`.
pub fn requests(matches: &Match) -> String {
    if matches.is_everything() {
        return "every request".to_owned();
    }
    let mut words = match matches.methods.as_slice() {
        [] => "requests".to_owned(),
        methods => format!("{} requests", list(methods, "and")),
    };
    if let Some(path) = &matches.path {
        words.extend([" ", path_words(path).as_str()]);
    }
    if let Some(host) = &matches.host {
        words.extend([" to ", value("host", host).as_str()]);
    }
    if !matches.source.is_empty() {
        let networks: Vec<String> = matches.source.iter().map(Cidr::to_string).collect();
        words.extend([" from ", list(&networks, "or").as_str()]);
    }
    if let Some(route) = &matches.route {
        words.extend([" on ", value("route", route).as_str()]);
    }
    let tests = tests(matches);
    if !tests.is_empty() {
        words.extend([" ", &list(&tests, "and")]);
    }
    if let Some(not) = &matches.not {
        words.extend([", but not ", &requests(not)]);
    }
    words
}

fn path_words(path: &PathMatch) -> String {
    match path {
        PathMatch::Prefix(path) => format!("to {path} and below"),
        PathMatch::Exact(path) => format!("to exactly {path}"),
        PathMatch::Suffix(end) => format!("to paths that end with {end}"),
        PathMatch::Template(template) => format!("to {template}"),
        PathMatch::Regex(pattern) => format!("to paths that match {}", pattern.text()),
    }
}

/// Describes a test on a value that every request has exactly once: `host example.com`.
fn value(name: &str, test: &Test) -> String {
    match test {
        Test::Present(true) => format!("any {name}"),
        Test::Present(false) => format!("no {name}"),
        Test::Exact(wanted) => format!("{name} {wanted}"),
        Test::Prefix(wanted) => format!("a {name} that starts with {wanted}"),
        Test::Suffix(wanted) => format!("a {name} that ends with {wanted}"),
        Test::Regex(pattern) => format!("a {name} that matches {}", pattern.text()),
    }
}

fn tests(matches: &Match) -> Vec<String> {
    let named = |kind: &'static str| {
        move |NamedTest { name, test }: &NamedTest| with(&format!("{kind}{name}"), test)
    };
    let metadata = |MetadataTest { path, test }: &MetadataTest| {
        with(&format!("metadata {}", path.join(".")), test)
    };
    let headers = matches.headers.iter().map(named(""));
    let query = matches.query.iter().map(named("query parameter "));
    let cookies = matches.cookies.iter().map(named("cookie "));
    let metadata = matches.metadata.iter().map(metadata);
    headers
        .chain(query)
        .chain(cookies)
        .chain(metadata)
        .collect()
}

/// Describes a test on a value that a request may lack: `with x-plan: free`.
fn with(name: &str, test: &Test) -> String {
    match test {
        Test::Present(true) => format!("with {name}"),
        Test::Present(false) => format!("without {name}"),
        Test::Exact(wanted) => format!("with {name}: {wanted}"),
        Test::Prefix(wanted) => format!("with {name}: {wanted}…"),
        Test::Suffix(wanted) => format!("with {name}: …{wanted}"),
        Test::Regex(pattern) => format!("with {name} that matches {}", pattern.text()),
    }
}

#[cfg(test)]
mod tests {
    use loudou_rules::config::parse_rule;
    use serde_json::{Value, json};

    use super::*;

    fn say(matches: &Value) -> String {
        let rule = json!({
            "name": "r", "key": [], "match": matches,
            "limits": [{ "algorithm": "funnel", "capacity": 15, "rate": "30/60s" }],
        });
        requests(&parse_rule(&rule).expect("valid").matches)
    }

    #[test]
    fn methods_paths_and_headers() {
        assert_eq!(say(&json!({})), "every request");
        assert_eq!(say(&json!({ "methods": ["GET"] })), "GET requests");
        let path = json!({ "methods": ["GET", "PUT", "POST"], "path": { "prefix": "/a" } });
        assert_eq!(say(&path), "GET, PUT and POST requests to /a and below");
        let headers = json!({ "path": { "exact": "/a" }, "headers": [
            { "name": "x-plan", "exact": "free" }, { "name": "x-in", "present": false },
            { "name": "x-out", "present": true },
        ] });
        assert_eq!(
            say(&headers),
            "requests to exactly /a with x-plan: free, without x-in and with x-out"
        );
    }

    #[test]
    fn every_other_part() {
        let all = json!({
            "path": { "template": "/users/{id}" },
            "headers": [{ "name": "x-v", "regex": "v[0-9]+" }],
            "host": { "suffix": ".example.com" },
            "source": ["10.0.0.0/8", "::1/128"],
            "route": { "exact": "main" },
            "query": [{ "name": "q", "prefix": "a" }],
            "cookies": [{ "name": "c", "suffix": "z" }],
            "metadata": [{ "path": ["jwt", "plan"], "exact": "free" }],
            "not": { "path": { "suffix": ".png" } },
        });
        assert_eq!(
            say(&all),
            "requests to /users/{id} to a host that ends with .example.com from 10.0.0.0/8 or ::1 \
             on route main with x-v that matches v[0-9]+, with query parameter q: a…, with cookie c: …z and with metadata jwt.plan: free, \
             but not requests to paths that end with .png"
        );
    }
}
