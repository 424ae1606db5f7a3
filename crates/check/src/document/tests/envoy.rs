//! Loudou configurations in Envoy files: search, positions and bounds.

use std::fmt::Write as _;

use loudou_rules::config::Step;
use proptest::prelude::*;
use serde_json::json;

use super::super::configuration::Configuration;
use super::super::envoy::configurations;
use super::*;

const WASM: &str = "type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm";

/// A listener's file with these filters, each as the text after `config:`.
fn listener(configs: &[&str]) -> String {
    let mut text = "\
resources:
  - name: front
    filter_chains:
      - filters:
          - typed_config:
              http_filters:
"
    .to_owned();
    for (n, config) in configs.iter().enumerate() {
        writeln!(
            text,
            "                - name: f{n}\n                  typed_config: {{ \"@type\": {WASM}, config: {config} }}"
        )
        .expect("a text");
    }
    text
}

/// A `configuration` of a type in `google.protobuf`.
fn of(kind: &str, value: &str) -> String {
    format!(
        "{{ configuration: {{ \"@type\": type.googleapis.com/google.protobuf.{kind}, value: {value} }} }}"
    )
}

fn found(text: &str) -> Vec<Configuration> {
    let document = read(text.as_bytes()).expect(text);
    assert_eq!(document.kind, Kind::Envoy, "{text}");
    configurations(&document).expect(text)
}

#[test]
fn earlier_filters_may_end_preflights() {
    let rules = of("Struct", "{ version: 1, rules: [] }");
    let filter = |kind: &str| {
        format!("  - name: other\n    typed_config: {{ \"@type\": type.googleapis.com/{kind} }}\n")
    };
    let limiter = format!("  - typed_config: {{ \"@type\": {WASM}, config: {rules} }}\n");
    let cors = filter("envoy.extensions.filters.http.cors.v3.Cors");
    let gzip = filter("envoy.extensions.filters.http.compressor.v3.Compressor");
    let of = |lists: &[&[&str]]| {
        let lists: Vec<String> = lists
            .iter()
            .map(|list| format!("- name: l\n  http_filters:\n{}", list.concat()))
            .collect();
        let text = format!("resources:\n{}", lists.concat());
        let found = found(&text).into_iter();
        found
            .map(|one| one.is_without_preflights)
            .collect::<Vec<_>>()
    };
    assert_eq!(of(&[&[&cors, &gzip, &limiter]]), [true]);
    assert_eq!(of(&[&[&gzip, &limiter, &cors]]), [false]);
    // Filters of another listener do not count.
    assert_eq!(of(&[&[&cors, &limiter], &[&limiter]]), [true, false]);
}

/// The title of each configuration, and its value or its problem.
fn results(text: &str) -> Vec<(String, Result<Value, String>)> {
    let found = found(text).into_iter();
    let results = found.map(|one| {
        let document = one.document.map(|document| document.value);
        (one.title, document.map_err(|fault| fault.message))
    });
    results.collect()
}

/// Line and column of a path in the only configuration.
fn place(text: &str, steps: &[Step]) -> (usize, usize) {
    let path = steps.iter().fold(Path::root(), |path, step| match step {
        Step::Field(name) => path.field(name),
        Step::Index(index) => path.index(*index),
    });
    let found = found(text);
    let document = found[0].document.as_ref().expect("readable");
    let Position { line, column } = document.locate(&path, false);
    (line, column)
}

#[test]
fn only_envoy_files_are_read_as_such() {
    for text in [
        "static_resources: {}",
        "!ignore a: &a {}\nstatic_resources: {}",
        "admin: { access_log: [], address: 1 }",
        "{\"configs\": []}",
        "name: f\ntyped_config: {}",
    ] {
        assert_eq!(
            read(text.as_bytes()).expect(text).kind,
            Kind::Envoy,
            "{text}"
        );
    }
    for text in [
        "",
        "version: 1\nrules: [ { name: node, key: [ { static_resources: address } ] } ]",
        "admin: { role: admin, tokens: [ { name: address } ] }",
        "store: { address: 1 }\nadmin: { role: admin }",
        "- node\n- { node: 1 }",
        "node",
    ] {
        assert_eq!(
            read(text.as_bytes()).expect(text).kind,
            Kind::Loudou,
            "{text}"
        );
    }
}

#[test]
fn structs_and_texts_are_found_and_named() {
    let rules = "{ version: 1, rules: [] }";
    let admin = "{ admin: { role: admin } }";
    let text = listener(&[
        &of("Struct", rules),
        &of("Struct", admin),
        &of("StringValue", "'{\"version\": 1, \"rules\": []}'"),
        "{ name: other, configuration: 1 }",
    ]);
    let rules = json!({"version": 1, "rules": []});
    let titled = |n: u8, role: &str| format!("listener front, filter f{n}, {role} role");
    assert_eq!(
        results(&text),
        [
            (titled(0, "data"), Ok(rules.clone())),
            (titled(1, "admin"), Ok(json!({"admin": {"role": "admin"}}))),
            (titled(2, "data"), Ok(rules)),
        ]
    );
}

#[test]
fn other_spellings_and_wrappers_are_read() {
    let camel = listener(&[&of("Struct", "{ version: 1, rules: [] }")]);
    let camel = camel
        .replace("filter_chains", "filterChains")
        .replace("typed_config", "typedConfig");
    assert_eq!(found(&camel).len(), 1);
    let wrapped = format!(
        "resources: [ {{ name: f, typed_config: {{ \"@type\": a/xds.type.v3.TypedStruct, type_url: {WASM}, \
         value: {{ config: {} }} }} }} ]",
        of("Struct", "{ version: 1, rules: [] }")
    );
    assert_eq!(results(&wrapped)[0].0, "filter f, data role");
}

#[test]
fn filters_with_invalid_configurations_are_found_by_name() {
    for config in [
        "{ name: my-Loudou }",
        "{ root_id: loudou }",
        "{ vm_config: { vm_id: loudou } }",
        "{ vm_config: { code: { local: { filename: /lib/loudou_filter.wasm } } } }",
        "{ vm_config: { code: { remote: { http_uri: { uri: http://x/loudou.wasm } } } } }",
    ] {
        let results = results(&listener(&[config]));
        let wrong = results[0].1.as_ref().expect_err(config);
        assert!(
            wrong.starts_with("no `configuration` with a `value`"),
            "{wrong}"
        );
    }
    let named = |value: &str, kind| of(kind, value).replacen('{', "{ name: loudou, ", 1);
    let wrong = |config: &str| {
        results(&listener(&[config]))[0]
            .1
            .clone()
            .expect_err(config)
    };
    assert!(
        wrong(&named("1", "Any"))
            .starts_with("a configuration of google.protobuf.Any is not supported")
    );
    assert!(wrong(&named("1", "Struct")).starts_with("a configuration of google.protobuf.Struct"));
    let not_json = wrong(&named("'version: 1'", "StringValue"));
    assert!(
        not_json.ends_with("to the filter unchanged: expected value"),
        "{not_json}"
    );
}

#[test]
fn a_file_without_a_loudou_filter_is_an_error() {
    let none = |text: &str| {
        let document = read(text.as_bytes()).expect(text);
        configurations(&document).expect_err(text).message
    };
    assert!(none("static_resources: {}").contains(WASM.rsplit('/').next().unwrap_or_default()));
    assert!(none(&listener(&["{ name: x }"])).ends_with("; the file has 1 other wasm filter"));
}

#[test]
fn aliases_count_once_and_keep_their_place() {
    let struct_of = |value| of("Struct", value);
    let text = listener(&[
        &struct_of("&rules { version: 1, rules: [ { name: a } ] }"),
        &struct_of("*rules"),
        &struct_of("{ version: 1, rules: [ { name: a } ] }"),
    ]);
    let found: Vec<_> = results(&text).into_iter().map(|(title, _)| title).collect();
    let titled = |n: u8| format!("listener front, filter f{n}, data role");
    assert_eq!(
        found,
        [format!("{} and {}", titled(0), titled(1)), titled(2)]
    );
    let before = format!(
        "!ignore limits: &limits\n  - {{ capacity: 1 }}\n{}",
        listener(&[&struct_of("{ version: 1, rules: [ { limits: *limits } ] }")])
    );
    let rule = [
        Step::Field("rules".into()),
        Step::Index(0),
        Step::Field("limits".into()),
    ];
    assert_eq!(place(&before, &rule), (1, 17));
    let capacity = [&rule[..], &[Step::Index(0), Step::Field("capacity".into())]].concat();
    assert_eq!(place(&before, &capacity), (2, 17));
}

#[test]
fn places_in_a_text_are_places_in_the_file() {
    let block = "|\n\n                        {\n                          \"version\": 1,\n                          \"rules\": []\n                        }";
    let text = format!(
        "name: loudou\ntyped_config:\n  \"@type\": {WASM}\n  config:\n    configuration:\n      \
         \"@type\": google.protobuf.StringValue\n      value: {block}\n"
    );
    assert_eq!(place(&text, &[Step::Field("rules".into())]), (11, 36));
    let broken = text.replace("1,", "1");
    let fault = found(&broken)[0].document.clone().expect_err("not JSON");
    assert_eq!(fault.position.line, 11, "{fault:?}");
    // A quoted string is not a block of lines.
    let quoted = listener(&[&of("StringValue", "'{\"version\": 1, \"rules\": []}'")]);
    let (line, column) = place(&quoted, &[Step::Field("rules".into())]);
    assert_eq!(
        quoted
            .lines()
            .nth(line - 1)
            .and_then(|l| l.chars().nth(column - 1)),
        Some('\'')
    );
}

#[test]
fn words_and_numbers_are_those_that_envoy_passes_on() {
    let text = "node: { a: off, b: 2147483648, c: -1, d: .inf, e: 1.5, f: \"off\", g: !foo 1, <<: { h: 1 } }";
    let document = read(text.as_bytes()).expect("readable");
    let meant = json!({"node": {
        "a": false, "b": "2147483648", "c": -1, "d": ".inf", "e": 1.5, "f": "off", "g": 1, "<<": {"h": 1}
    }});
    assert_eq!(document.value, meant);
    let merge = document.faults.last().map(|fault| fault.message.as_str());
    assert_eq!(
        merge,
        Some("Envoy does not support `<<` merges; repeat the fields")
    );
    // Envoy uses the last of duplicate names.
    let twice = read(b"node: 1\nnode: 2\n").expect("readable");
    assert_eq!(twice.value, json!({"node": 2}));
    assert_eq!(twice.faults.len(), 1);
}

#[test]
fn only_faults_in_a_configuration_are_reported() {
    let text = listener(&[&of("Struct", "{ version: 1, rules: [ { mode: on } ] }")]);
    let text = format!("node: {{ a: off, a: 1 }}\n{text}");
    assert_eq!(read(text.as_bytes()).expect("readable").faults.len(), 3);
    let found = found(&text);
    let faults = &found[0].document.as_ref().expect("readable").faults;
    assert_eq!(faults.len(), 1, "{faults:?}");
    assert!(
        faults[0].message.starts_with("`on` without quotes"),
        "{faults:?}"
    );
}

#[test]
fn aliases_are_bounded() {
    let mut bomb = "node: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for n in 1..20 {
        let aliases = vec![format!("*a{}", n - 1); 10].join(", ");
        writeln!(bomb, "n{n}: &a{n} [{aliases}]").expect("a text");
    }
    assert!(fault(&bomb).ends_with("aliases expand to more than 8 MiB"));
    let long = format!(
        "node: &a \"{}\"\nb: [{}]",
        "x".repeat(500_000),
        "*a, ".repeat(1000)
    );
    assert!(fault(&long).ends_with("aliases expand to more than 8 MiB"));
    let mut deep = "node: &a0 [[]]\n".to_owned();
    for n in 1..80 {
        writeln!(deep, "n{n}: &a{n} [*a{}]", n - 1).expect("a text");
    }
    assert!(fault(&deep).ends_with("nested deeper than 64"));
    let own = "node: &a [*a]";
    assert!(fault(own).ends_with("an alias inside its own anchor"));
    assert!(fault("node: { ? *x : 1 }").contains("unknown anchor"));
    assert!(
        fault("node: &x []\nb: { *x : 1 }")
            .ends_with("expected a field name, found a list or object")
    );
    let nested = format!("node: {}{}", "[".repeat(65), "]".repeat(65));
    assert!(fault(&nested).ends_with("nested deeper than 64"));
}

proptest! {
    #[test]
    fn random_marks_never_panic(
        text in "([-?:,\\[\\]{}#&*!|>'\"%@` \n\\\\a0<=]|- |&a |\\*a|a: |\n  ){0,60}"
    ) {
        let file = format!("node: 1\n{text}");
        if let Ok(document) = read(file.as_bytes()) {
            drop(configurations(&document));
        }
        let inside = listener(&[&of("Struct", "{ version: 1, rules: [] }"), &text]);
        if let Ok(document) = read(inside.as_bytes()) {
            drop(configurations(&document));
        }
    }
}
