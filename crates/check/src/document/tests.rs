//! The reader on good, bad and random texts.

use loudou_rules::config::Path;
use proptest::prelude::*;
use serde::Serialize as _;
use serde_json::ser::{PrettyFormatter, Serializer};
use serde_json::{Value, json};

use super::*;

mod envoy;

fn fault(text: &str) -> String {
    let fault = match read(text.as_bytes()) {
        Err(fault) => fault,
        Ok(document) => document.faults.into_iter().next().expect(text),
    };
    let Position { line, column } = fault.position;
    format!("{line}:{column}: {}", fault.message)
}

fn value(text: &str) -> Value {
    let document = read(text.as_bytes()).expect(text);
    assert_eq!(document.faults, Vec::new(), "{text}");
    document.value
}

fn at(text: &str, path: &Path, at_name: bool) -> (usize, usize) {
    let position = read(text.as_bytes()).expect(text).locate(path, at_name);
    (position.line, position.column)
}

#[test]
fn json_and_yaml_say_the_same() {
    let json = "{\"version\": 1,\n\t\"rules\": [\n\t\t{\"name\":\"a\", \"x\": [1, -2.5, null, true]},\n\t\t{}]\n}\n";
    let yaml = "version: 1\nrules:\n  - name: a\n    x: [1, -2.5, ~, true]\n  - {}\n";
    let meant = json!({"version": 1, "rules": [{"name": "a", "x": [1, -2.5, null, true]}, {}]});
    assert_eq!(value(json), meant);
    assert_eq!(value(yaml), meant);
    assert_eq!(value(&yaml.replace('\n', "\r\n")), meant);
    assert_eq!(
        value(&format!("\u{feff}---\n# a comment\n{yaml}...\n")),
        meant
    );
    assert_eq!(value("{\t\"a\"\t:\t1\t}"), json!({"a": 1}));
    assert_eq!(value(""), Value::Null);
    let long = format!("{{\"{}\": 1}}", "k".repeat(3000));
    assert_eq!(value(&long).as_object().expect("an object").len(), 1);
    assert_eq!(value("\"\\u0041\\/\\n\\t\\\"ü\""), json!("A/\n\t\"ü"));
}

#[test]
fn positions_of_names_and_values() {
    let rate = Path::root()
        .field("rules")
        .index(0)
        .field("limits")
        .index(1)
        .field("rate");
    let limit = Path::root()
        .field("rules")
        .index(0)
        .field("limits")
        .index(1);
    let yaml =
        "rules:\n- name: a\n  limits:\n    - { rate: 1/s }\n    - capacity: 1\n      rate: 0/s\n";
    assert_eq!(at(yaml, &rate, false), (6, 13));
    assert_eq!(at(yaml, &rate, true), (6, 7));
    assert_eq!(at(yaml, &limit, false), (5, 7));
    assert_eq!(at(yaml, &limit.field("algorithm"), false), (5, 7));
    assert_eq!(at(yaml, &Path::root(), false), (1, 1));
    let json = "{\n  \"rules\": [\n    {\"limits\": [{}, {\"rate\": \"0/s\"}]}\n  ]\n}";
    assert_eq!(at(json, &rate, false), (3, 30));
    assert_eq!(at(json, &rate, true), (3, 22));
    assert_eq!(at(json, &limit, false), (3, 21));
    assert_eq!(
        at("ü: [ö, 0]", &Path::root().field("ü").index(1), false),
        (1, 8)
    );
}

#[test]
fn yaml_beyond_json_is_refused() {
    assert_eq!(
        fault("a: &x 1\nb: 2"),
        "1:4: anchors are not supported; repeat the value"
    );
    assert_eq!(
        fault("a: !!str 1"),
        "1:4: tags are not supported; remove the `!`"
    );
    assert!(fault("a: *x").starts_with("1:4: "), "{}", fault("a: *x"));
    assert!(fault("? [1]\n: 2").ends_with("expected a field name, found a list or object"));
    assert!(fault("a: 1\n---\nb: 2").ends_with("a second document; a file must contain only one"));
    assert_eq!(fault("a: .nan"), "1:4: `.nan` is not a number in JSON");
    assert_eq!(
        fault("mode: off"),
        "1:7: `off` without quotes is true or false to Envoy; write \"off\""
    );
}

#[test]
fn half_characters_are_refused_with_advice() {
    assert!(fault("\"\\ud83d\\ude00\"").ends_with("; write the character itself"));
}

#[test]
fn a_duplicate_name_is_a_fault_and_the_first_one_counts() {
    let document = read(b"a: 1\nb: 2\na: 3\n").expect("readable");
    assert_eq!(document.value, json!({"a": 1, "b": 2}));
    assert_eq!(
        fault("a: 1\nb: 2\na: 3\n"),
        "3:1: duplicate `a`, first in line 1"
    );
    assert_eq!(
        fault("{\"a\": 1, \"a\": 3}"),
        "1:10: duplicate `a`, first in line 1"
    );
}

#[test]
fn bounds_hold() {
    let deep = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
    assert!(read(deep(MAX_DEPTH).as_bytes()).is_ok());
    assert!(fault(&deep(MAX_DEPTH + 1)).ends_with("nested deeper than 64"));
    assert!(read(deep(400_000).as_bytes()).is_err());
    assert!(read("- ".repeat(400_000).as_bytes()).is_err());
    let large = vec![b' '; MAX_FILE_BYTES + 1];
    assert_eq!(
        read(&large).expect_err("large").message,
        "larger than 1 MiB"
    );
    let cut = read(b"a: 1\nb: \xff").expect_err("not UTF-8");
    assert_eq!((cut.position.line, cut.position.column), (2, 4));
}

#[test]
fn broken_texts_name_the_place() {
    for text in [
        "{\"a\": 1",
        "a: [1, 2",
        "a: \"x",
        "a: b: c",
        "a:\n\t- b",
        "{\"a\" 1}",
        "\u{0}",
        "%",
    ] {
        assert!(
            fault(text).contains(": invalid syntax: "),
            "{text}: {}",
            fault(text)
        );
    }
}

/// Any JSON value, with awkward texts in it.
fn any_json() -> impl Strategy<Value = Value> {
    let text = prop_oneof![
        any::<String>(),
        "[a-z0-9.:/ -]{0,12}",
        Just("off".to_owned())
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        text.clone().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::btree_map(text.clone(), inner, 0..6)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn json_reads_as_json(value in any_json()) {
        let tabs = PrettyFormatter::with_indent(b"\t");
        let mut tabbed = Serializer::with_formatter(Vec::new(), tabs);
        value.serialize(&mut tabbed).expect("writes");
        let tabbed = String::from_utf8(tabbed.into_inner()).expect("UTF-8");
        let pretty = serde_json::to_string_pretty(&value).expect("writes");
        for text in [value.to_string(), pretty, tabbed] {
            let read = read(text.as_bytes());
            prop_assert_eq!(read.expect("JSON is YAML").value, value.clone(), "{}", text);
        }
    }

    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        drop(read(&bytes));
    }

    #[test]
    fn random_marks_never_panic(
        text in "([-?:,\\[\\]{}#&*!|>'\"%@` \n\t\\\\a0~.=<]|- |: |\r\n|\u{0}|\u{85}|---\n|\\.\\.\\.\n){0,60}"
    ) {
        drop(read(text.as_bytes()));
    }
}
