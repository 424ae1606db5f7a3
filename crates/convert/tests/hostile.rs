//! Hostile texts are refused with a sentence, or converted, and never cause a panic.
#![cfg(test)]

use loudou_convert::{Source, convert};
use proptest::prelude::*;

/// Returns the errors of a text, and fails if it is converted.
fn refused(text: impl AsRef<[u8]>) -> String {
    let bytes = text.as_ref();
    let errors = convert(&[Source {
        name: "file",
        bytes,
    }])
    .expect_err("an error");
    let errors: Vec<String> = errors.into_iter().map(|error| error.message).collect();
    errors.join("; ")
}

/// An Ingress with an annotation.
fn ingress(annotation: &str) -> String {
    format!(
        "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {{ name: a, annotations: {{ {annotation} }} }}\n\
         spec: {{ rules: [ {{ host: a.example }} ] }}\n"
    )
}

#[test]
fn texts_that_are_no_source() {
    for text in ["", "a: b", "hello", "[1, 2]", "version: 1\nrules: []\n"] {
        let error = refused(text);
        let expected = ["no known source of limits", "no limit"];
        assert!(
            expected.iter().any(|part| error.contains(part)),
            "{text}: {error}"
        );
    }
    assert_eq!(refused(b"limit_req_zone \xff;"), "not UTF-8");
}

#[test]
fn large_texts() {
    let nginx = "limit_req_zone $a zone=b:1m rate=1r/s;\n".repeat(10 << 20 >> 5);
    assert_eq!(refused(nginx), "larger than 1 MiB");
    let manifest = format!(
        "apiVersion: v1\nkind: A\nnote: \"{}\"\n",
        "a".repeat(17 << 20)
    );
    assert_eq!(refused(manifest), "larger than 16 MiB");
    let service = format!("domain: a\nnote: \"{}\"\n", "a".repeat(10 << 20));
    assert_eq!(refused(service), "larger than 1 MiB");
}

#[test]
fn deep_texts() {
    let nginx = format!("server {{ {} }}", "location / {".repeat(10_000));
    assert!(refused(nginx).contains("nested deeper than 32"));
    let yaml = |depth| format!("apiVersion: v1\na: {}", "[".repeat(depth));
    assert!(refused(yaml(100)).contains("nested deeper than 64"));
    assert!(refused(yaml(10_000)).contains("recursion limit exceeded"));
}

#[test]
fn many_servers() {
    let servers = "limit_req_zone $host zone=g:1m rate=1r/s;\n".to_owned()
        + &"server { limit_req zone=g; }\n".repeat(1_001);
    assert!(refused(servers).contains("more than 1000 servers"));
    let names = format!("server {{ server_name {}; }}\n", "a ".repeat(1_001));
    assert!(refused(names).contains("more than 1000 servers or names of servers"));
    let locations = format!("server {{ {} }}\n", "location /a { } ".repeat(1_001));
    assert!(refused(locations).contains("more than 1000 locations"));
}

#[test]
fn many_paths_of_kong() {
    let plugin = "plugins: [ { name: rate-limiting, config: { second: 1 } } ]";
    let route = format!("- {{ name: a, paths: [ {} ] }}\n", "/a, ".repeat(1_001));
    let text = format!("_format_version: '3.0'\n{plugin}\nroutes:\n{route}");
    let bytes = text.as_bytes();
    let problems = convert(&[Source {
        name: "kong.yaml",
        bytes,
    }])
    .expect_err("too many paths");
    let found = problems
        .iter()
        .any(|one| one.message.contains("more than 1000 paths"));
    assert!(found, "{problems:?}");
}

#[test]
fn aliases_that_expand() {
    let mut text = "apiVersion: v1\na0: &a0 [ \"0123456789\" ]\n".to_owned();
    for n in 1..20 {
        let last = n - 1;
        let nine = format!("*a{last}, ").repeat(9);
        text = format!("{text}a{n}: &a{n} [ {nine} ]\n");
    }
    assert!(refused(text).contains("aliases expand to more than 8 MiB"));
}

#[test]
fn unfinished_texts() {
    for (text, expected) in [
        ("server {\n", "a block without its `}`"),
        ("server { }\n}\n", "a `}` without a `{`"),
        ("a b;\nc d\n", "expected `;` after this directive"),
        ("server { listen 80 }\n", "expected `;` before `}`"),
        ("a b;\n;\n", "expected a directive"),
        ("a b;\nc \"d;\n", "a text without its end"),
        (
            "http {\n x_by_lua_block { {\n}\n",
            "a block without its `}`",
        ),
    ] {
        assert!(
            refused(text).contains(expected),
            "{text}: {}",
            refused(text)
        );
    }
}

#[test]
fn numbers_out_of_range() {
    for number in [
        "99999999999999999999",
        "18446744073709551615",
        "1000000001",
        "-1",
        "1.5",
        "1e3",
    ] {
        let error = refused(ingress(&format!(
            "nginx.ingress.kubernetes.io/limit-rps: \"{number}\""
        )));
        assert!(error.contains("not converted"), "{number}: {error}");
    }
    let huge = u64::MAX;
    for text in [
        format!("CL.THROTTLE a {huge} {huge} {huge} {huge}\n"),
        format!("limit_req_zone $binary_remote_addr zone=a:1m rate={huge}r/s;\nlimit_req zone=a burst={huge};\nserver {{ }}\n"),
        format!("domain: a\ndescriptors: [ {{ key: remote_address, rate_limit: {{ unit: year, requests_per_unit: {huge} }} }} ]\n"),
        "domain: a\ndescriptors: [ { key: remote_address, rate_limit: { unit: day, requests_per_unit: 0 } } ]\n".to_owned(),
    ] {
        assert!(refused(&text).contains("not converted"), "{text}: {}", refused(&text));
    }
}

/// Text of a source cannot end a comment, leave quotes, or control a terminal.
#[test]
fn texts_are_escaped() {
    let text = "CL.THROTTLE a\u{1b}[31m\u{202e}\u{9b}\"b'\\ 1 2 3\n";
    let bytes = text.as_bytes();
    let converted = convert(&[Source {
        name: "a\u{1b}\nb",
        bytes,
    }])
    .expect("a rule file");
    let is_unsafe = |c: char| c != '\n' && loudou_words::text::is_unsafe(c);
    assert!(!converted.text.contains(is_unsafe), "{}", converted.text);
    let lines = converted
        .text
        .lines()
        .filter(|line| !line.trim_start().starts_with('#'));
    assert_eq!(lines.clone().next(), Some("version: 1"));
    for warning in &converted.warnings {
        let line = format!("{}: {}", warning.place, warning.message);
        assert!(!line.contains(loudou_words::text::is_unsafe), "{line}");
    }
    let checked = loudou_check::check("rules.yaml", converted.text.as_bytes(), |_| Vec::new());
    assert!(
        checked.iter().all(|(_, content)| content.is_some()),
        "{}",
        converted.text
    );
}

#[test]
fn more_rules_than_a_file_can_have() {
    let lines: Vec<String> = (0..300)
        .map(|n| format!("CL.THROTTLE key{n} 1 2 3"))
        .collect();
    assert!(refused(lines.join("\n")).contains("300 rules, but a rule file has at most 256"));
}

proptest! {
    /// Any bytes, and any mix of words that the readers know.
    #[test]
    fn nothing_panics(
        bytes in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..200),
            prop::collection::vec(prop::sample::select(&WORDS[..]), 0..60).prop_map(|words| words.concat().into_bytes()),
        ]
    ) {
        if let Ok(converted) = convert(&[Source { name: "file", bytes: &bytes }]) {
            let checked = loudou_check::check("rules.yaml", converted.text.as_bytes(), |_| Vec::new());
            prop_assert!(checked.iter().all(|(_, content)| content.is_some()), "{}", converted.text);
        }
    }
}

const WORDS: [&str; 44] = [
    "server ",
    "{ ",
    "} ",
    "; ",
    "\n",
    "location ",
    "/a ",
    "= ",
    "~ ",
    "limit_req ",
    "zone=a ",
    "zone=a:1m ",
    "burst=5 ",
    "nodelay",
    "limit_req_zone ",
    "$binary_remote_addr ",
    "rate=1r/s",
    "rate=1r/m",
    "limit_conn ",
    "map ",
    "geo ",
    "$a ",
    "default ",
    "CL.THROTTLE ",
    "a ",
    "1 ",
    "domain: a\n",
    "descriptors:\n",
    "  - key: remote_address\n",
    "    rate_limit: { unit: day, requests_per_unit: 5 }\n",
    "    value: b*\n",
    "apiVersion: v1\n",
    "kind: Ingress\n",
    "metadata:\n",
    "  annotations:\n",
    "    nginx.ingress.kubernetes.io/limit-rps: \"5\"\n",
    "spring:\n",
    "---\n",
    "http_filters:\n",
    "${",
    "\"",
    "\\",
    "limit_conn_zone ",
    "server_name *.a .b c.* ~d ",
];
