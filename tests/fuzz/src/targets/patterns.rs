//! Regular expressions of rules, with the values of clients.

use std::borrow::Cow;

use loudou_rules::config;
use loudou_rules::request::Sample;
use serde_json::json;

use super::{Bounds, Target, split};

pub(super) const PATTERN: Target = Target {
    name: "pattern",
    about: "a regular expression, and after the first line break a value that it is tried on",
    run,
    seeds,
    words: &[
        b"(?:",
        b")",
        b"{60}",
        b"{1,99}",
        b".*",
        b"+",
        b"?",
        b"|",
        b"[^a]",
        b"\\d",
        b"\\w+",
        b"(?i)",
        b"\\b",
        b"^",
        b"$",
        b"(?s-u)",
        b"\\pL",
        b"\\x{10ffff}",
        b"aaaaaaaaaaaaaaaa",
        b"\n",
    ],
    longest: 64 * 1024,
    bounds: Bounds {
        us: 40_000,
        ns_per_byte: 300,
        kib: 4 * 1024,
        bytes_per_byte: 16,
    },
};

fn run(input: &[u8]) {
    let (pattern, value) = split(input, b'\n');
    let pattern = String::from_utf8_lossy(pattern);
    let rules = json!({ "version": 1, "rules": [{
        "name": "r",
        "match": { "headers": [{ "name": "x", "regex": pattern }] },
        "key": [],
        "limits": [{ "algorithm": "funnel", "capacity": 1, "rate": "1/s" }],
    }] });
    let Some(file) = config::parse(&rules).file else {
        return;
    };
    let mut request = Sample {
        headers: vec![(Cow::Borrowed("x"), Cow::Borrowed(value))],
        ..Sample::default()
    };
    for rule in &file.rules {
        rule.matches.holds(&mut request);
    }
}

fn seeds() -> Vec<Vec<u8>> {
    vec![
        b"/api/v[0-9]+/.*\n/api/v12/users".to_vec(),
        b"(?:.*a){6}x\naaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa".to_vec(),
        b"(a|b|[c-f]+)*\\.(png|jpg)\nabc/def.png".to_vec(),
        b"(?i)mozilla/.*bot\nMozilla/5.0 (compatible; \xffBot)".to_vec(),
    ]
}
