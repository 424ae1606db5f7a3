//! Extracts schemas from an `OpenAPI` document, for validators.

use std::fs;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use crate::paths::workspace_root;

/// Returns the document of the admin API in `docs/`.
pub fn document() -> Result<Value> {
    let path = workspace_root().join("docs/schema/openapi.json");
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    Ok(serde_json::from_str(&text)?)
}

/// Returns the schema of the answer to a call, such as `GET /v1/rules/{rule}`.
pub fn answer<'a>(document: &'a Value, call: &str) -> Option<&'a Value> {
    let ok = operation(document, call)?.pointer("/responses/200")?;
    ok.pointer("/content/application~1json/schema")
}

/// Returns the schema of a call's body.
pub fn body<'a>(document: &'a Value, call: &str) -> Option<&'a Value> {
    operation(document, call)?.pointer("/requestBody/content/application~1json/schema")
}

/// Returns the schema of every answer that reports a failure.
pub fn problem(document: &Value) -> Option<&Value> {
    document.pointer("/components/responses/Problem/content/application~1problem+json/schema")
}

/// Returns the description of a call.
pub fn operation<'a>(document: &'a Value, call: &str) -> Option<&'a Value> {
    let (method, path) = call.split_once(' ')?;
    let methods = document.get("paths")?.get(path)?;
    methods.get(method.to_lowercase())
}

/// Returns a schema that contains all its references and forbids undocumented fields. Clients must
/// ignore such fields, but the tests must find every field that the document lacks.
pub fn strict(document: &Value, schema: &Value) -> Value {
    let components = document.get("components");
    let mut alone = json!({ "components": components, "allOf": [schema] });
    close(&mut alone);
    alone
}

fn close(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            fields.values_mut().for_each(close);
            let is_object = fields.get("type").is_some_and(|kind| kind == "object");
            if is_object
                && fields.contains_key("properties")
                && !fields.contains_key("additionalProperties")
            {
                fields.insert("additionalProperties".to_owned(), json!(false));
            }
        }
        Value::Array(list) => list.iter_mut().for_each(close),
        _ => {}
    }
}
