//! `docs/schema/openapi.json`: the admin API as `OpenAPI` 3.1, made from the filter's table of routes, the types of its
//! answers, the grammar of rule files and the table in `docs/admin-api.md`.

mod calls;
mod parameters;
mod schemas;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use loudou_filter::admin::{ROUTES, Route};
use serde_json::{Map, Value, json};

use self::schemas::Schemas;

const FILE: &str = "docs/schema/openapi.json";
/// The page whose table has a line for each call.
const PAGE: &str = "docs/admin-api.md";
const PROBLEM: &str = "#/components/responses/Problem";

/// Writes the document.
pub(super) fn write(root: &Path) -> Result<()> {
    fs::write(root.join(FILE), text(root)?).context(FILE)
}

/// A problem if the document is not what would be written.
pub(super) fn stale(root: &Path) -> Result<Option<String>> {
    let found = fs::read_to_string(root.join(FILE)).unwrap_or_default();
    let is_stale = found != text(root)?;
    Ok(is_stale.then(|| format!("{FILE}: stale; `cargo xtask docs` writes it")))
}

fn text(root: &Path) -> Result<String> {
    let page = fs::read_to_string(root.join(PAGE)).context(PAGE)?;
    Ok(format!("{:#}\n", document(&page)?))
}

/// The document, with the answers' descriptions of this page.
fn document(page: &str) -> Result<Value> {
    let mut schemas = Schemas::new();
    let mut paths: BTreeMap<String, Map<String, Value>> = BTreeMap::new();
    for route in &ROUTES {
        let operation = operation(route, page, &mut schemas)?;
        let path = paths.entry(template(route.path)).or_default();
        path.insert(route.method.to_lowercase(), operation);
    }
    let problem = schemas.problem();
    Ok(json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Loudou admin API",
            "version": loudou_api::API_VERSION,
            "summary": "Rate limits in Envoy: state, edits, bans and explanations.",
            "description": "docs/admin-api.md explains the calls. HEAD answers every GET with the same status and \
                            headers. Answers only grow: ignore fields that you do not know. Times in answers are \
                            nanoseconds of the server's monotonic clock, as `now_ns`.",
        },
        "jsonSchemaDialect": "https://json-schema.org/draft/2020-12/schema",
        "servers": [
            { "url": "http://127.0.0.1:9911", "description": "The admin listener of the quickstart." },
            {
                "url": "http://127.0.0.1:8080/.loudou",
                "description": "A listener that limits and has `admin.at: /.loudou`: JSON only in a header.",
            },
        ],
        "paths": paths,
        "components": {
            "schemas": schemas.into_definitions()?,
            "responses": { "Problem": {
                "description": "A problem, with a remedy.",
                "content": { "application/problem+json": { "schema": problem } },
            } },
            "securitySchemes": { "token": {
                "type": "http", "scheme": "bearer",
                "description": "A token that may `view` makes the calls with that role, one that may `edit` all calls.",
            } },
        },
    }))
}

/// A path as in `OpenAPI`: `/v1/rules/{rule}`.
fn template(path: &str) -> String {
    path.replace("RULE", "{rule}").replace("KEY", "{key}")
}

fn operation(route: &Route, page: &str, schemas: &mut Schemas) -> Result<Value> {
    let call = format!("{} {}", route.method, route.path);
    let answer = calls::answer(schemas, route);
    let answer = answer.with_context(|| format!("no schema of the answer to {call}"))?;
    let mut operation = Map::new();
    operation.insert("operationId".to_owned(), json!(id(route)));
    operation.insert("description".to_owned(), json!(described(page, &call)?));
    operation.insert("security".to_owned(), json!([{ "token": [route.access] }]));
    operation.insert("parameters".to_owned(), json!(parameters::of(route)?));
    if route.takes_body {
        let body = calls::body(schemas, route);
        let body = body.with_context(|| format!("no schema of the body of {call}"))?;
        let body = json!({ "content": { "application/json": { "schema": body } } });
        operation.insert("requestBody".to_owned(), body);
    }
    operation.insert("responses".to_owned(), responses(route, &answer));
    Ok(Value::Object(operation))
}

fn responses(route: &Route, answer: &Value) -> Value {
    let done = json!({
        "description": "Done.", "content": { "application/json": { "schema": answer } },
    });
    let mut all = Map::from_iter([("200".to_owned(), done)]);
    let changed = "It has changed since: `current` has the rule.";
    let missing = "`If-Match` is missing.";
    for (status, is_special, about) in [
        ("412", route.takes_if_match, changed),
        ("428", parameters::needs_if_match(route), missing),
    ] {
        if is_special {
            all.insert(
                status.to_owned(),
                json!({ "$ref": PROBLEM, "description": about }),
            );
        }
    }
    for others in ["4XX", "5XX"] {
        all.insert(others.to_owned(), json!({ "$ref": PROBLEM }));
    }
    Value::Object(all)
}

/// `PUT /v1/rules/RULE` is `put_rules_rule`.
fn id(route: &Route) -> String {
    let steps = route.path.split('/').skip(2);
    let words = std::iter::once(route.method).chain(steps);
    words.collect::<Vec<_>>().join("_").to_lowercase()
}

/// The last cell of the call's line in the page, as a sentence.
fn described(page: &str, call: &str) -> Result<String> {
    let begin = format!("| `{call}` |");
    let line = page.lines().find(|line| line.starts_with(&begin));
    let last = line.and_then(|line| line.trim_end_matches(" |").rsplit(" | ").next());
    let mut letters = last
        .with_context(|| format!("{PAGE} has no line {begin}"))?
        .chars();
    let first = letters.next().map(|first| first.to_ascii_uppercase());
    Ok(first.into_iter().chain(letters).chain(['.']).collect())
}

#[cfg(test)]
mod tests;
