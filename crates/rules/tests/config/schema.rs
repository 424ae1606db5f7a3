//! Compares the JSON Schema with the reader. It has the same fields, accepts every file that the
//! reader accepts, and rejects most invalid files.

use std::sync::LazyLock;

use jsonschema::Validator;
use loudou_limiter::algorithm::Algorithm;
use loudou_rules::config::{is_admin, parse, parse_admin, schema};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::valid::{valid_admin, valid_file};
use super::{file, rule};

static VALIDATOR: LazyLock<Validator> =
    LazyLock::new(|| jsonschema::draft202012::new(&schema()).expect("a schema"));

/// Returns true if the reader accepts a document.
fn is_read(document: &Value) -> bool {
    if is_admin(document) {
        parse_admin(document).is_ok()
    } else {
        parse(document).file.is_some()
    }
}

/// The schema's errors about a document, one line each.
fn objections(document: &Value) -> Vec<String> {
    let errors = VALIDATOR.iter_errors(document);
    errors
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect()
}

/// The schema accepts every document that the reader accepts, for all documents of these tests.
pub(super) fn agrees(document: &Value) {
    assert!(
        !is_read(document) || VALIDATOR.is_valid(document),
        "{:#?} in {document:#}",
        objections(document)
    );
}

fn admin(admin: &Value) -> Value {
    json!({ "version": 1, "admin": admin })
}

fn limit_of(algorithm: &str) -> Value {
    json!({ "algorithm": algorithm })
}

/// For each object of the schema, returns a document with the unknown field `zz` in such an object,
/// and the path of the object.
fn with_unknown_fields() -> Vec<(String, Value)> {
    let zz = || json!({ "zz": 1 });
    let in_rule = |fields: Value| file(&[rule(&fields)]);
    let in_store = |store: Value| json!({ "version": 1, "rules": [], "store": store });
    let mut cases = vec![
        ("rule_file", json!({ "version": 1, "rules": [], "zz": 1 })),
        ("store", in_store(zz())),
        ("fleet", json!({ "version": 1, "rules": [], "fleet": zz() })),
        ("waiting", in_store(json!({ "waiting": zz() }))),
        (
            "defaults",
            json!({ "version": 1, "rules": [], "defaults": zz() }),
        ),
        ("rule", in_rule(zz())),
        ("match", in_rule(json!({ "match": zz() }))),
        ("when", in_rule(json!({ "when": zz() }))),
        ("path", in_rule(json!({ "match": { "path": zz() } }))),
        ("header", in_rule(json!({ "match": { "headers": [zz()] } }))),
        ("host", in_rule(json!({ "match": { "host": zz() } }))),
        ("query", in_rule(json!({ "match": { "query": [zz()] } }))),
        ("cookie", in_rule(json!({ "match": { "cookies": [zz()] } }))),
        ("route", in_rule(json!({ "match": { "route": zz() } }))),
        (
            "metadata",
            in_rule(json!({ "match": { "metadata": [zz()] } })),
        ),
        ("key", in_rule(json!({ "key": [zz()] }))),
        ("key_path", in_rule(json!({ "key": [{ "path": zz() }] }))),
        (
            "key_source",
            in_rule(json!({ "key": [{ "source": zz() }] })),
        ),
        ("cost", in_rule(json!({ "cost": zz() }))),
        (
            "reserve",
            in_rule(json!({ "cost": { "settle": [], "reserve": zz(), "max": 1 } })),
        ),
        ("usage", in_rule(json!({ "cost": { "settle": zz() } }))),
        (
            "weights",
            in_rule(json!({ "cost": { "settle": "token_usage", "weights": zz() } })),
        ),
        (
            "model_weights",
            in_rule(
                json!({ "cost": { "settle": "token_usage", "weights": { "models": { "m": zz() } } } }),
            ),
        ),
        (
            "number_from_metadata",
            in_rule(json!({ "limits": [
            { "algorithm": "funnel", "capacity": zz(), "rate": "1/s" },
        ] })),
        ),
        (
            "rate_from_metadata",
            in_rule(json!({ "limits": [
            { "algorithm": "funnel", "capacity": 1, "rate": zz() },
        ] })),
        ),
        (
            "starts",
            in_rule(json!({ "limits": [
            { "algorithm": "fixed_window", "capacity": 1, "window": "week", "starts": zz() },
        ] })),
        ),
        (
            "override",
            in_rule(json!({ "overrides": { "alice": zz() } })),
        ),
        ("penalty", in_rule(json!({ "penalty": zz() }))),
        ("refuse", in_rule(json!({ "refuse": zz() }))),
        (
            "refuse_text",
            in_rule(json!({ "refuse": { "body": zz() } })),
        ),
        ("respond", in_rule(json!({ "respond": zz() }))),
    ];
    cases.extend(admin_with_unknown_fields());
    for name in Algorithm::NAMES {
        let mut limit = limit_of(name);
        limit["zz"] = json!(1);
        cases.push((name, in_rule(json!({ "limits": [limit] }))));
    }
    let named = cases.into_iter();
    named.map(|(name, case)| (name.to_string(), case)).collect()
}

fn admin_with_unknown_fields() -> [(&'static str, Value); 4] {
    let zz = json!({ "zz": 1 });
    [
        (
            "admin_file",
            json!({ "admin": { "role": "admin" }, "zz": 1 }),
        ),
        ("admin", admin(&zz)),
        (
            "embedded_admin",
            json!({ "version": 1, "rules": [], "admin": zz }),
        ),
        ("token", admin(&json!({ "role": "admin", "tokens": [zz] }))),
    ]
}

/// The fields that the reader allows in place of `zz`.
fn allowed_beside_zz(document: &Value) -> Vec<String> {
    let problems = if is_admin(document) {
        parse_admin(document).expect_err("zz is unknown")
    } else {
        parse(document).problems
    };
    let unknown = problems
        .into_iter()
        .find(|problem| problem.at_name && problem.path.to_string().ends_with("zz"));
    let allowed = unknown.and_then(|problem| problem.allowed);
    let allowed = allowed.expect("the allowed names");
    allowed.split(", ").map(str::to_string).collect()
}

#[test]
fn the_schema_has_the_fields_that_the_reader_knows() {
    let schema = schema();
    let cases = with_unknown_fields();
    for (name, document) in &cases {
        let definition = &schema["$defs"][name];
        let object = if name == "key" {
            &definition["items"]["oneOf"][1]
        } else {
            definition
        };
        let properties = object["properties"].as_object().expect(name);
        let names = properties
            .iter()
            .filter(|(_, field)| field["deprecated"] != true);
        let mut names: Vec<String> = names.map(|(name, _)| name.clone()).collect();
        let mut allowed = allowed_beside_zz(document);
        // Without `preserve_order`, a map does not keep the order of its fields.
        names.sort();
        allowed.sort();
        assert_eq!(names, allowed, "{name}");
        assert_eq!(object["additionalProperties"], false, "{name}");
    }
    // All objects of the schema are covered.
    let objects = schema
        .to_string()
        .matches("\"additionalProperties\"")
        .count();
    // The objects of overrides, of costs by status and of weights by model have arbitrary keys.
    assert_eq!(objects, cases.len() + 3);
}

/// Every property has a description, in itself or in its definition.
#[test]
fn everything_is_described() {
    fn look(at: &str, schema: &Value) {
        let properties = schema["properties"].as_object().into_iter().flatten();
        for (name, property) in properties {
            let at = format!("{at}.{name}");
            let text = property["description"].as_str().unwrap_or_default();
            let said = text.len() > 8 || name == "algorithm";
            assert!(said, "{at}: {property}");
            assert!(text.is_empty() || text.ends_with('.'), "{at}: {text}");
        }
    }
    let schema = schema();
    for (name, definition) in schema["$defs"].as_object().expect("definitions") {
        look(name, definition);
        look(name, &definition["items"]["oneOf"][1]);
        if Algorithm::NAMES.contains(&name.as_str()) {
            let text = definition["description"].as_str().unwrap_or_default();
            assert!(text.ends_with('.'), "{name}: {text:?}");
        }
    }
}

#[test]
fn it_is_a_schema() {
    assert!(jsonschema::meta::is_valid(&schema()));
}

#[test]
fn examples_pass() {
    let minimal = file(&[rule(&json!({}))]);
    let from_defaults = json!({
        "version": 1,
        "defaults": { "key": ["source"], "limits": rule(&json!({}))["limits"] },
        "rules": [{ "name": "a" }, { "name": "b", "mode": false, "cost": 2.0 }],
    });
    let hash = "0f".repeat(32);
    let tokens = admin(&json!({
        "role": "admin", "tokens": [{ "name": "ops", "sha256": hash, "may": "edit" }]
    }));
    let nulls = file(&[rule(&json!({
        "match": { "methods": null, "path": null, "headers": [{ "name": "x", "present": true, "exact": null }] },
        "key": [{ "header": "x", "literal": null }], "mode": null, "respond": null,
    }))]);
    for document in [minimal, from_defaults, tokens, nulls] {
        assert!(is_read(&document), "{document:#}");
        assert_eq!(objections(&document), [""; 0], "{document:#}");
    }
}

/// Invalid responses to clients.
fn wrong_answers() -> Vec<Value> {
    let of_rule = |fields: Value| file(&[rule(&fields)]);
    let respond = [
        json!({ "ratelimit_headers": "draft-11" }),
        json!({ "retry_after_jitter": 1.5 }),
    ];
    let respond = respond.map(|respond| of_rule(json!({ "respond": respond })));
    let refuse = [
        json!({ "status": 399 }),
        json!({ "status": 600 }),
        json!({ "body": "problems" }),
        json!({ "body": {} }),
        json!({ "body": { "text": "" } }),
        json!({ "body": { "text": "no", "content_type": "html" } }),
        json!({ "headers": [] }),
        json!({ "headers": { "x y": "z" } }),
        json!({ "headers": { "connection": "close" } }),
        json!({ "headers": { "x-ratelimit-limit": "1" } }),
        json!({ "headers": { "x": " y" } }),
        json!({ "headers": { "x": 1 } }),
        json!({ "grpc": "ok" }),
    ];
    let refuse = refuse.map(|refuse| of_rule(json!({ "refuse": refuse })));
    respond.into_iter().chain(refuse).collect()
}

/// Invalid conditions in `when`.
fn wrong_whens() -> [Value; 5] {
    let whens = [
        json!({}),
        json!({ "upstream_error_rate_over": 0 }),
        json!({ "upstream_error_rate_over": 1.5 }),
        json!({ "upstream_error_rate_over": 0.5, "within": "0s" }),
        json!({ "upstream_error_rate_over": 0.5, "least": 0 }),
    ];
    whens.map(|when| file(&[rule(&json!({ "when": when }))]))
}

/// Invalid settings of a fleet, and an invalid scope.
fn wrong_fleets() -> Vec<Value> {
    let fleets = [
        json!({}),
        json!({ "cluster": "" }),
        json!({ "cluster": "c", "timeout": "0s" }),
        json!({ "cluster": "c", "credit": 1001 }),
        json!({ "cluster": "c", "on_outage": "pass" }),
        json!({ "cluster": "c", "token": "a b" }),
    ];
    let fleets = fleets.map(|fleet| json!({ "version": 1, "rules": [], "fleet": fleet }));
    let scope = file(&[rule(&json!({ "scope": "all" }))]);
    fleets.into_iter().chain([scope]).collect()
}

/// Errors that a schema can detect.
#[test]
fn wrong_ones_are_refused() {
    let of_rule = |fields: Value| file(&[rule(&fields)]);
    let of_limit = |limit: Value| of_rule(json!({ "limits": [limit] }));
    let funnel = |field: &str, value: Value| {
        let mut limit = json!({ "algorithm": "funnel", "capacity": 5, "rate": "5/s" });
        limit[field] = value;
        of_limit(limit)
    };
    let mut wrong = vec![
        json!(null),
        json!([]),
        json!({}),
        json!({ "version": 2, "rules": [] }),
        json!({ "version": 1, "rulez": [] }),
        json!({ "version": 1, "rules": [{ "name": "a" }] }),
        json!({ "version": 1, "rules": [], "store": { "buckets": 63 } }),
        json!({ "version": 1, "rules": [], "store": { "namespace": "a:b" } }),
        json!({ "version": 1, "admin": { "role": "data" } }),
        of_limit(json!({ "algorithm": "fixed_window", "capacity": 5, "window": "fortnight" })),
        of_limit(
            json!({ "algorithm": "fixed_window", "capacity": 5, "window": "day", "zone": "Europe/Berlin" }),
        ),
        of_limit(
            json!({ "algorithm": "fixed_window", "capacity": 5, "window": "month", "starts": { "day": 0 } }),
        ),
        of_rule(json!({ "name": "Reply_Per User" })),
        of_rule(json!({ "key": null })),
        of_rule(json!({ "key": ["sourc"] })),
        of_rule(json!({ "key": [{ "header": "x", "literal": "y" }] })),
        of_rule(json!({ "match": { "path": { "prefx": "/x" } } })),
        of_rule(json!({ "match": { "path": { "prefix": "/a", "exact": "/a" } } })),
        of_rule(json!({ "match": { "methods": ["get"] } })),
        of_rule(json!({ "match": { "headers": [{ "name": "x" }] } })),
        of_rule(json!({ "match": { "headers": [{ "name": "x y", "present": true }] } })),
        of_rule(json!({ "mode": "Enforce" })),
        of_rule(json!({ "mode": true })),
        of_rule(json!({ "cost": 0 })),
        of_rule(json!({ "limits": [] })),
        of_limit(json!({ "algorithm": "funel", "capacity": 5, "rate": "5/s" })),
        of_limit(json!({ "capacity": 5, "rate": "5/s" })),
        funnel("refill", json!("greedy")),
        funnel("name", json!("Burst!")),
    ];
    let capacities = [
        json!(0),
        json!(1.5),
        json!("15"),
        json!(1_000_000_001),
        Value::Null,
    ];
    wrong.extend(capacities.map(|capacity| funnel("capacity", capacity)));
    let rates = [
        "0/s",
        "00/1s",
        "5/0s",
        "5/00ms",
        "5/0.5s",
        "5",
        "",
        "5/fortnight",
        "-1/s",
    ];
    wrong.extend([wrong_answers(), wrong_whens().into(), wrong_fleets()].concat());
    wrong.extend(rates.map(|rate| funnel("rate", json!(rate))));
    for document in wrong {
        assert!(!is_read(&document), "{document:#}");
        assert!(!VALIDATOR.is_valid(&document), "{document:#}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(512) })]

    #[test]
    fn valid_files_pass(document in prop_oneof![4 => valid_file(), 1 => valid_admin()]) {
        prop_assert!(is_read(&document), "{:#?} {:#}", parse(&document).problems, document);
        let objections = objections(&document);
        prop_assert!(objections.is_empty(), "{:#?} in {:#}", objections, document);
        // The written form passes, too.
        if let Some(file) = parse(&document).file {
            let written = serde_json::to_value(&file).expect("serialises");
            prop_assert!(VALIDATOR.is_valid(&written), "{:#?} in {:#}", self::objections(&written), written);
        }
    }

    #[test]
    fn what_is_refused_here_is_refused_there(document in super::arbitrary::document()) {
        agrees(&document);
    }

    /// A valid file with one value changed is mostly near enough to be interesting.
    #[test]
    fn one_changed_value(
        mut document in valid_file(),
        place in any::<prop::sample::Index>(),
        value in super::arbitrary::any_json(),
    ) {
        let mut places = Vec::new();
        pointers(&document, String::new(), &mut places);
        let place = place.get(&places);
        *document.pointer_mut(place).expect("a place") = value;
        agrees(&document);
    }
}

/// The places of all values in a document.
fn pointers(value: &Value, at: String, places: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                // A JSON pointer separates names by `/`, and escapes by `~`.
                let name = name.replace('~', "~0").replace('/', "~1");
                pointers(value, format!("{at}/{name}"), places);
            }
        }
        Value::Array(list) => {
            for (index, value) in list.iter().enumerate() {
                pointers(value, format!("{at}/{index}"), places);
            }
        }
        _ => {}
    }
    places.push(at);
}
