use std::collections::BTreeSet;

use loudou_tests::openapi;
use loudou_tests::paths::workspace_root;

use super::*;

/// An example, and the schema that it follows: of the answer to a call, of its body, or of problems.
const EXAMPLES: [(&str, &str, &str); 12] = [
    ("status", "GET /v1/status", "answer"),
    ("rules", "GET /v1/rules", "answer"),
    ("edit", "PUT /v1/rules/RULE", "answer"),
    ("edit", "DELETE /v1/overrides/RULE/KEY", "answer"),
    ("buckets", "GET /v1/buckets", "answer"),
    ("ban", "POST /v1/buckets/RULE/KEY/ban", "answer"),
    ("reset", "POST /v1/buckets/RULE/KEY/reset", "answer"),
    ("top", "GET /v1/top", "answer"),
    ("explain", "POST /v1/explain", "answer"),
    ("explain-request", "POST /v1/explain", "body"),
    ("events", "GET /v1/events", "answer"),
    ("problem", "PUT /v1/rules/RULE", "problem"),
];

fn made() -> Value {
    let page = fs::read_to_string(workspace_root().join(PAGE)).expect("the page");
    document(&page).expect("a document")
}

#[test]
fn every_route_has_an_operation_and_no_other_does() {
    let document = made();
    let routes: BTreeSet<(String, String)> = ROUTES
        .iter()
        .map(|route| (template(route.path), route.method.to_lowercase()))
        .collect();
    let paths = document["paths"].as_object().expect("paths");
    let operations: BTreeSet<(String, String)> = paths
        .iter()
        .flat_map(|(path, methods)| {
            let methods = methods.as_object().expect("methods").keys();
            methods.map(|method| (path.clone(), method.clone()))
        })
        .collect();
    assert_eq!(operations, routes);
    let ids: BTreeSet<String> = ROUTES.iter().map(id).collect();
    assert_eq!(ids.len(), ROUTES.len(), "{ids:?}");
}

#[test]
fn every_example_follows_the_schema_of_its_route() {
    let document = made();
    let mut used = BTreeSet::new();
    for (name, call, which) in EXAMPLES {
        let schema = match which {
            "body" => openapi::body(&document, &template(call)),
            "problem" => openapi::problem(&document),
            _ => openapi::answer(&document, &template(call)),
        };
        let schema = openapi::strict(&document, schema.expect("a schema"));
        let validator = jsonschema::draft202012::new(&schema).expect("a schema");
        let file = workspace_root().join(format!("crates/api/examples/{name}.json"));
        let text = fs::read_to_string(&file).expect("an example");
        let example: Value = serde_json::from_str(&text).expect("JSON");
        let errors: Vec<String> = validator
            .iter_errors(&example)
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect();
        assert!(errors.is_empty(), "{name}.json: {errors:#?}");
        // The schema really looks: it refuses a field of another type, and one that it does not know.
        for wrong in spoiled(&example) {
            assert!(!validator.is_valid(&wrong), "{name}.json accepts {wrong}");
        }
        used.insert(format!("{name}.json"));
    }
    let files = fs::read_dir(workspace_root().join("crates/api/examples")).expect("examples");
    for file in files {
        let name = file
            .expect("a file")
            .file_name()
            .to_string_lossy()
            .into_owned();
        // Leases are a contract with the relay, and no call of the admin API.
        assert!(
            name.starts_with("lease-") || used.contains(&name),
            "{name} is not checked"
        );
    }
}

/// The example with an unknown field, and with its first field of another type.
fn spoiled(example: &Value) -> [Value; 2] {
    let mut unknown = example.clone();
    unknown["no_such_field"] = json!(1);
    let mut other = example.clone();
    let first = other
        .as_object_mut()
        .expect("an object")
        .values_mut()
        .next();
    *first.expect("a field") = json!([{}]);
    [unknown, other]
}

/// Every reference leads somewhere.
#[test]
fn every_reference_leads_to_a_definition() {
    fn check(value: &Value, document: &Value) {
        if let Some(Value::String(place)) = value.get("$ref") {
            let pointer = place.strip_prefix('#').expect("a local reference");
            assert!(document.pointer(pointer).is_some(), "{place} leads nowhere");
        }
        match value {
            Value::Array(list) => list.iter().for_each(|one| check(one, document)),
            Value::Object(fields) => fields.values().for_each(|one| check(one, document)),
            _ => {}
        }
    }
    let document = made();
    check(&document, &document);
}

#[test]
fn the_file_in_docs_is_up_to_date() {
    assert_eq!(stale(&workspace_root()).expect("a document"), None);
}
