//! `loudou check` on good and bad files.

use std::path::PathBuf;

use loudou_rules::config;
use serde_json::{Value, json};

use super::*;

const THREE_YAML: &str = "\
version: 1
rules:
  - name: per-user
    key: [ { header: x-user-id } ]
    limits:
      - { name: burst, algorithm: funel, capacity: 15, rate: 30/60s }
      - { name: steady, algorithm: funnel, capacty: 1000, rate: 0/d }
  - name: per-path
    mode: off
    key: [ path ]
    limits: []
";

const THREE_JSON: &str = r#"{
  "version": 1,
  "rules": [
    {
      "name": "per-user",
      "key": [{"header": "x-user-id"}],
      "limits": [
        {"name": "burst", "algorithm": "funel", "capacity": 15, "rate": "30/60s"},
        {"name": "steady", "algorithm": "funnel", "capacty": 1000, "rate": "0/d"}
      ]
    },
    {"name": "per-path", "mode": "off", "key": ["path"], "limits": []}
  ]
}
"#;

const GOOD: &str = "\
version: 1
store: { buckets: 4096 }
rules:
  - name: per-user
    match: { methods: [POST], path: { prefix: /reply } }
    key: [ { header: x-user-id }, path ]
    limits:
      - { name: burst, algorithm: funnel, capacity: 15, rate: 30/60s }
      - { algorithm: token_bucket, capacity: 1000, rate: 500/d, refill: interval }
  - name: everything
    mode: shadow
    cost: 2
    key: []
    limits: [ { algorithm: funnel, capacity: 100, rate: 7/s } ]
";

pub(super) fn check(text: &str, options: &str) -> Ran {
    let loudou = Loudou {
        input: text,
        ..Loudou::default()
    };
    loudou.run(&format!("check - {options}"))
}

#[test]
fn all_problems_are_reported_at_once() {
    assert_snapshot!("check_yaml", check(THREE_YAML, "").seen());
    assert_snapshot!("check_json", check(THREE_JSON, "").seen());
    assert_snapshot!("check_yaml_csv", check(THREE_YAML, "-o csv").seen());
    assert_snapshot!("check_yaml_jsonl", check(THREE_YAML, "-o jsonl").seen());
}

#[test]
fn the_text_of_a_problem_is_that_of_the_filter() {
    let document = crate::document::read(THREE_JSON.as_bytes()).expect("readable");
    let out = check(THREE_JSON, "").out;
    let problems = config::parse(&document.value).problems;
    assert!(problems.len() >= 3);
    for problem in problems {
        assert!(
            out.contains(&format!(": error: {problem}\n")),
            "{problem} in {out}"
        );
    }
}

#[test]
fn a_valid_file_is_described_in_words() {
    assert_snapshot!("check_good", check(GOOD, "").seen());
    assert_snapshot!("check_good_json", check(GOOD, "-o json").seen());
    assert_snapshot!("check_good_jsonl", check(GOOD, "-o jsonl").seen());
    assert_eq!(check(GOOD, "-o csv").out.lines().count(), 1);
}

/// Every algorithm with its options, and every warning.
#[test]
fn every_algorithm_is_described() {
    assert_snapshot!("check_every", check(include_str!("every.yaml"), "").seen());
}

/// The JSON output has the scaled limits too.
#[test]
fn scaled_numbers_are_printed() {
    let printed = check(include_str!("every.yaml"), "-o json").out;
    let printed: Value = serde_json::from_str(&printed).expect("JSON");
    let files = printed.as_array().cloned().unwrap_or_else(|| vec![printed]);
    let rules = files[0]["rules"].as_array().expect("rules");
    let scaled: Vec<_> = rules.iter().filter_map(|rule| rule.get("scaled")).collect();
    let alice =
        json!([{ "name": "funnel", "algorithm": "funnel", "capacity": 1000, "rate": "70/s" }]);
    assert_eq!(scaled, [&json!({ "alice": alice })]);
}

#[test]
fn admin_configurations_are_checked_too() {
    let hash = "0f".repeat(32);
    let tokens = format!(
        "version: 1\nadmin:\n  role: admin\n  tokens:\n    - {{ name: ops, sha256: {hash}, may: edit }}\n    \
         - {{ name: wall, sha256: {hash}, may: view }}\n"
    );
    assert_snapshot!("check_admin", check(&tokens, "").seen());
    let none = "store: { namespace: team }\nadmin: { role: admin }\n";
    assert_snapshot!("check_admin_open", check(none, "").seen());
    let wrong = "admin: { rol: admin, tokens: [ { name: a b, sha256: 12, may: all } ] }\n";
    assert_snapshot!("check_admin_wrong", check(wrong, "").seen());
}

#[test]
fn warnings_leave_a_file_valid() {
    let text = GOOD.replace("cost: 2", "cost: 200");
    assert_snapshot!("check_warning", check(&text, "").seen());
}

#[test]
fn texts_that_cannot_be_read() {
    assert_snapshot!(
        "check_syntax",
        check("{\"version\": 1,\n \"rules\": [}\n", "").seen()
    );
    assert_snapshot!("check_empty", check("", "").seen());
    assert_snapshot!(
        "check_twice",
        check(&GOOD.replace("cost: 2", "mode: off"), "").seen()
    );
    let large = "#".repeat(config::MAX_FILE_BYTES + 1);
    assert_snapshot!("check_large", check(&large, "").seen());
}

#[test]
fn long_lines_and_control_characters_stay_in_place() {
    let text = format!("{{{}\"rul\u{1b}s\":\t1}}", " ".repeat(300));
    let ran = check(&text, "");
    assert_snapshot!("check_long_line", ran.seen());
    assert!(!ran.out.contains('\u{1b}'));
}

#[test]
fn files_are_named_and_all_are_checked() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/cli/tests");
    let (good, bad) = (folder.join("good.yaml"), folder.join("bad.json"));
    let line = format!("check {} {}", bad.display(), good.display());
    let ran = Loudou::default().run(&line);
    let seen = ran.seen().replace(&format!("{}/", folder.display()), "");
    assert_snapshot!("check_files", seen);
}

#[test]
fn a_missing_file() {
    assert_snapshot!(
        "check_missing",
        Loudou::default().run("check no/such/file.yaml").seen()
    );
}

/// The schema is published with the sources.
#[test]
fn the_published_schema_is_the_printed_one() {
    let ran = Loudou::default().run("schema");
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    let published = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../docs/schema/loudou.schema.json"
    );
    let published = std::fs::read_to_string(published).unwrap_or_default();
    assert!(
        published == ran.out,
        "docs/schema/loudou.schema.json is not what `loudou schema` prints; update it with \
         `cargo run --package loudou -- schema > docs/schema/loudou.schema.json`"
    );
}

/// The tables of fields are published too.
#[test]
fn the_published_fields_are_the_printed_ones() {
    const BEGIN: &str = "<!-- begin: loudou schema --markdown -->\n\n";
    const END: &str = "\n<!-- end: loudou schema --markdown -->\n";
    let ran = Loudou::default().run("schema --markdown");
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    let published = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/fields.md");
    let published = std::fs::read_to_string(published).unwrap_or_default();
    let tables = published.split_once(BEGIN).map(|(_, rest)| rest);
    let tables = tables.and_then(|rest| rest.split_once(END));
    assert!(
        tables.is_some_and(|(tables, _)| tables == ran.out),
        "docs/fields.md does not have what `loudou schema --markdown` prints between its marks:\n{}",
        ran.out
    );
}

/// The file of each example in `envoy/` that is for Envoy itself; the others have manifests.
fn in_envoy() -> Vec<PathBuf> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../envoy");
    let entries = std::fs::read_dir(folder).expect("examples");
    let files = entries.map(|entry| entry.expect("an example").path().join("envoy.yaml"));
    let files: Vec<PathBuf> = files.filter(|file| file.is_file()).collect();
    assert!(files.len() >= 8, "{files:?}");
    files
}

#[test]
fn the_examples_of_envoy_pass_without_a_warning() {
    for file in in_envoy() {
        let file = file.display();
        let ran = Loudou::default().run(&format!("check {file} -o json"));
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{file}: {}", ran.out);
        let printed: Value = serde_json::from_str(&ran.out).expect("JSON");
        let printed = printed.as_array().expect("a list");
        let filters: Vec<_> = printed.iter().map(|one| one["filter"].as_str()).collect();
        assert_eq!(
            filters,
            [
                Some("listener data, filter loudou, data role"),
                Some("listener admin, filter loudou-admin, admin role"),
            ],
            "{file}"
        );
        assert!(
            printed.iter().all(|one| one["problems"] == json!([])),
            "{file}: {}",
            ran.out
        );
        assert_ne!(printed[0]["rules"], Value::Null, "{file}");
    }
}

/// Two listeners with the same rules, one with others, and a filter other than Loudou.
const ENVOY: &str = include_str!("envoy.yaml");

#[test]
fn problems_in_an_envoy_file_have_positions() {
    assert_snapshot!("check_envoy", check(ENVOY, "").seen());
    let wrong = ENVOY.replace("capacity: 5,", "capacty: 5,");
    let wrong = wrong
        .replace("\"rate\": \"1/s\"", "\"rate\": \"1/x\"")
        .replace("mode: shadow", "mode: on");
    assert_snapshot!("check_envoy_wrong", check(&wrong, "").seen());
    assert_snapshot!("check_envoy_wrong_csv", check(&wrong, "-o csv").seen());
    assert_snapshot!(
        "check_envoy_none",
        check("static_resources: {}\n", "").seen()
    );
}

#[test]
fn other_commands_read_rules_from_an_envoy_file() {
    let explain = |text: &str| {
        let loudou = Loudou {
            input: text,
            ..Loudou::default()
        };
        loudou.run("explain --config - --path /a -o json")
    };
    let several = explain(ENVOY);
    assert_snapshot!("explain_envoy_several", several.seen());
    // The same rules in two listeners are one rule file.
    let (one, _) = ENVOY
        .split_once("    - name: third")
        .expect("a third listener");
    let one = explain(one);
    assert_eq!(one.code, 0, "{}", one.err);
    assert!(one.out.contains("\"per-address\""), "{}", one.out);
    let none = explain("node: { id: x }\n");
    assert_eq!(none.code, 1, "{}", none.out);
}

/// Every rule file inside a document.
fn configurations(value: &Value, found: &mut Vec<Value>) {
    let fields = value.as_object();
    if fields.is_some_and(|f| f.contains_key("version") && f.contains_key("rules")) {
        found.push(value.clone());
    }
    let inner = fields.into_iter().flat_map(|fields| fields.values());
    let inner = inner.chain(value.as_array().into_iter().flatten());
    inner.for_each(|value| configurations(value, found));
}

#[test]
fn examples_keep_to_the_schema() {
    let validator = jsonschema::draft202012::new(&config::schema()).expect("a schema");
    let documents = [
        include_str!("../../../../README.md"),
        include_str!("../../../../docs/rules.md"),
    ];
    let blocks = documents.iter().flat_map(|text| {
        let blocks = text.split("```yaml\n").skip(1);
        blocks.filter_map(|rest| rest.split("```").next())
    });
    // Some examples show only a rule, or the place of the filter in Envoy.
    let written: Vec<String> = blocks
        .map(|block| {
            let rules = if block.starts_with("  - name: ") {
                "version: 1\nrules:\n"
            } else {
                ""
            };
            format!("{rules}{block}")
        })
        .collect();
    let own = [include_str!("good.yaml"), include_str!("every.yaml")];
    let texts = own.into_iter().chain(written.iter().map(String::as_str));
    let mut found = Vec::new();
    for text in texts {
        let document = crate::document::read(text.as_bytes()).expect("readable");
        configurations(&document.value, &mut found);
    }
    assert_eq!(found.len(), 8);
    for file in in_envoy() {
        let text = std::fs::read(file).expect("an envoy.yaml");
        let document = crate::document::read(&text).expect("readable");
        let filters = crate::document::envoy::configurations(&document).expect("filters");
        let documents = filters.into_iter().map(|filter| filter.document);
        found.extend(documents.map(|document| document.expect("readable").value));
    }
    for document in &found {
        let errors = validator.iter_errors(document);
        let errors: Vec<String> = errors.map(|error| error.to_string()).collect();
        assert_eq!(errors, [""; 0], "{document:#}");
    }
    // Invalid files are invalid for the schema, too.
    for text in [THREE_YAML, THREE_JSON, include_str!("bad.json")] {
        let document = crate::document::read(text.as_bytes()).expect("readable");
        assert!(!validator.is_valid(&document.value), "{text}");
    }
}
