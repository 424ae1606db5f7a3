//! Every field of the rule file has a test in a real Envoy.
//!
//! [`TESTED`] lists these tests, and [`every_field_has_a_test`] compares the list with the schema.
//! A field without a test fails, and so does a listed test that is missing or does not use its
//! field. [`rest`] tests the fields that no other module tests.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use loudou_rules::config::schema;
use serde_json::Value;

mod fleet;
mod rest;
mod tested;

use tested::TESTED;

/// Collects the fields below `schema`. Each field is listed only at its first path.
fn fields(
    place: &str,
    schema: &Value,
    root: &Value,
    within: &[&str],
    found: &mut BTreeSet<String>,
) {
    for choice in ["anyOf", "oneOf"] {
        for schema in schema[choice].as_array().into_iter().flatten() {
            fields(place, schema, root, within, found);
        }
    }
    if let Some(name) = schema["$ref"]
        .as_str()
        .and_then(|path| path.rsplit('/').next())
    {
        // Skip repeated definitions: `not` contains a match again, and overrides contain limits
        // again.
        if within.contains(&name) || (name == "limits" && place != "limits") {
            return;
        }
        let within = [within, &[name]].concat();
        let algorithm = &root["$defs"][name]["properties"]["algorithm"];
        let place = if algorithm.is_object() {
            format!("{place}.{name}")
        } else if name.ends_with("_from_metadata") {
            // Every algorithm may have such numbers, which one module reads.
            name.to_owned()
        } else {
            place.to_owned()
        };
        fields(&place, &root["$defs"][name], root, &within, found);
    }
    if schema["items"].is_object() {
        fields(place, &schema["items"], root, within, found);
    }
    if schema["additionalProperties"].is_object() {
        fields(place, &schema["additionalProperties"], root, within, found);
    }
    let properties = schema["properties"].as_object().into_iter().flatten();
    // Skip deprecated aliases, which the tests of the reader cover.
    for (name, schema) in properties.filter(|(_, schema)| schema["deprecated"] != true) {
        let place = if place.is_empty() {
            name.clone()
        } else {
            format!("{place}.{name}")
        };
        fields(&place, schema, root, within, found);
        found.insert(place);
    }
}

/// Returns all fields that a rule, a rule file, a fleet or the configuration of the admin role can
/// have.
fn all_fields() -> BTreeSet<String> {
    let schema = schema();
    let mut found = BTreeSet::new();
    for name in ["rule", "admin_file"] {
        fields("", &schema["$defs"][name], &schema, &[name], &mut found);
    }
    fields(
        "fleet",
        &schema["$defs"]["fleet"],
        &schema,
        &["fleet"],
        &mut found,
    );
    let top = schema["$defs"]["rule_file"]["properties"].as_object();
    found.extend(top.into_iter().flatten().map(|(name, _)| name.clone()));
    // A part of a key may also be a plain word.
    let words = &schema["$defs"]["key"]["items"]["oneOf"][0]["enum"];
    let words = words.as_array().into_iter().flatten();
    found.extend(
        words
            .filter_map(Value::as_str)
            .map(|word| format!("key.{word}")),
    );
    found
}

#[test]
fn every_field_has_a_test() -> Result<()> {
    let mut tested = BTreeSet::new();
    for (_, _, fields) in TESTED {
        for field in *fields {
            ensure!(tested.insert((*field).to_owned()), "{field} stands twice");
        }
    }
    let all = all_fields();
    let missing: Vec<&String> = all.difference(&tested).collect();
    ensure!(missing.is_empty(), "no test for {missing:#?}");
    let gone: Vec<&String> = tested.difference(&all).collect();
    ensure!(gone.is_empty(), "no such field: {gone:#?}");
    Ok(())
}

#[test]
fn the_tests_are_there_and_have_their_fields() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    for (file, test, fields) in TESTED {
        let text = fs::read_to_string(root.join(file)).with_context(|| (*file).to_owned())?;
        let head = format!("fn {test}(");
        let is_test = text.match_indices(&head).any(|(at, _)| {
            let before = text.get(..at).unwrap_or_default().trim_end();
            before.ends_with(']')
                && before
                    .rsplit('\n')
                    .next()
                    .is_some_and(|line| line.contains("test"))
        });
        // A scene is called by a test. An unused scene would fail to compile as dead code.
        let is_scene = text.contains(&format!("{head}envoy: &Envoy)"));
        ensure!(is_test || is_scene, "{file} has no test {test}");
        for field in *fields {
            let name = field.rsplit('.').next().unwrap_or(field);
            let harness = [
                "version", "rules", "admin", "role", "tokens", "hosts", "waiting", "file",
            ];
            let is_there = text.contains(&format!("\"{name}\"")) || harness.contains(&name);
            ensure!(is_there, "{file} does not have {field}");
        }
    }
    Ok(())
}
