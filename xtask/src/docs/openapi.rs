//! Writes `docs/schema/openapi.json`, the `OpenAPI` 3.1 document of the admin API. The document is
//! generated from the filter's route table, the types of its responses, the grammar of rule files
//! and the table in `docs/reference/admin-api.md`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use loudou_api::{
    BODY_HEADER, BanAnswer, BucketNames, BucketState, BucketView, BucketsPage, DEFAULT_PAGE,
    DEFAULT_TOP, EditAnswer, EventSource, Events, ExplainAnswer, MAX_BODY_HEADER, MAX_PAGE,
    MAX_REASON, MAX_TOP, ResetAnswer, RuleView, Rules, Status, Top, TopBy,
};
use loudou_filter::admin::{ROUTES, Route};
use loudou_limiter::Carry;
use schemas::{EDIT, EXPORT, EditJson, OVERRIDE, RuleJson, SAMPLE, Schemas, at};
use serde_json::{Map, Value, json};

mod schemas;

const FILE: &str = "docs/schema/openapi.json";
/// Page with a table that describes each call.
const PAGE: &str = "docs/reference/admin-api.md";
const PROBLEM: &str = "#/components/responses/Problem";

/// Writes the `OpenAPI` document.
pub(super) fn write(root: &Path) -> Result<()> {
    fs::write(root.join(FILE), text(root)?).context(FILE)
}

/// Returns a problem if the committed document is out of date.
pub(super) fn stale(root: &Path) -> Result<Option<String>> {
    let found = fs::read_to_string(root.join(FILE)).unwrap_or_default();
    let is_stale = found != text(root)?;
    Ok(is_stale.then(|| format!("{FILE}: stale; `cargo xtask docs` writes it")))
}

fn text(root: &Path) -> Result<String> {
    let page = fs::read_to_string(root.join(PAGE)).context(PAGE)?;
    Ok(format!("{:#}\n", document(&page)?))
}

/// Returns the document; the descriptions of the calls are taken from `page`.
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
            "description": "docs/reference/admin-api.md explains the calls. HEAD answers every GET with the same status and \
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

/// Returns a path in `OpenAPI` notation, for example `/v1/rules/{rule}`.
fn template(path: &str) -> String {
    path.replace("RULE", "{rule}").replace("KEY", "{key}")
}

fn operation(route: &Route, page: &str, schemas: &mut Schemas) -> Result<Value> {
    let call = format!("{} {}", route.method, route.path);
    let answer = answer(schemas, route);
    let answer = answer.with_context(|| format!("no schema of the answer to {call}"))?;
    let mut operation = Map::new();
    operation.insert("operationId".to_owned(), json!(id(route)));
    operation.insert("description".to_owned(), json!(described(page, &call)?));
    operation.insert("security".to_owned(), json!([{ "token": [route.access] }]));
    operation.insert("parameters".to_owned(), json!(of(route)?));
    if route.takes_body {
        let body = body(schemas, route);
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
        ("428", needs_if_match(route), missing),
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

/// Returns the `operationId` of a route. For example, `PUT /v1/rules/RULE` becomes
/// `put_rules_rule`.
fn id(route: &Route) -> String {
    let steps = route.path.split('/').skip(2);
    let words = std::iter::once(route.method).chain(steps);
    words.collect::<Vec<_>>().join("_").to_lowercase()
}

/// Returns the description of a call, from the last cell of its row in the page's table, as a
/// sentence.
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

// Response and request bodies of each route.

/// Returns the schema of the response, or `None` if this function has no entry for the route.
fn answer(schemas: &mut Schemas, route: &Route) -> Option<Value> {
    Some(match (route.method, route.path) {
        ("GET", "/v1/status") => schemas.of::<Status>(),
        ("GET", "/v1/rules") => schemas.of::<Rules<RuleJson, EditJson>>(),
        ("GET", "/v1/rules/RULE") => schemas.of::<RuleView<RuleJson, EditJson>>(),
        ("PUT" | "DELETE", "/v1/rules/RULE" | "/v1/overrides/RULE/KEY") => {
            schemas.of::<EditAnswer<RuleJson, EditJson>>()
        }
        ("GET" | "POST", "/v1/buckets") => schemas.of::<BucketsPage>(),
        ("GET", "/v1/buckets/RULE/KEY") => schemas.of::<BucketView>(),
        ("POST", "/v1/buckets/RULE/KEY/reset") => schemas.of::<ResetAnswer>(),
        ("POST", "/v1/buckets/RULE/KEY/ban" | "/v1/buckets/RULE/KEY/unban") => {
            schemas.of::<BanAnswer>()
        }
        ("GET", "/v1/top") => schemas.of::<Top>(),
        ("POST", "/v1/explain") => schemas.of::<ExplainAnswer>(),
        ("GET", "/v1/events") => schemas.of::<Events>(),
        ("GET", "/v1/export") => at(EXPORT),
        _ => return None,
    })
}

/// Returns the schema of the request body, or `None` if this function has no entry for the route.
fn body(schemas: &mut Schemas, route: &Route) -> Option<Value> {
    Some(match (route.method, route.path) {
        ("PUT", "/v1/rules/RULE") => at(EDIT),
        ("PUT", "/v1/overrides/RULE/KEY") => at(OVERRIDE),
        ("POST", "/v1/explain") => at(SAMPLE),
        ("POST", "/v1/buckets") => schemas.of::<BucketNames>(),
        _ => return None,
    })
}

// Parameters of the calls: in the path, in the query, and the header `If-Match`.

/// Pattern for a duration other than zero.
const DURATION: &str = "^0*[1-9][0-9]*(d|h|m|s|ms|us|ns)$";

/// Returns the parameters of a route in `OpenAPI` notation.
fn of(route: &Route) -> Result<Vec<Value>> {
    let mut all = Vec::new();
    for (step, name, about) in [
        ("RULE", "rule", "The name of the rule."),
        (
            "KEY",
            "key",
            "The key as buckets show it, percent-encoded: `a%3Ab` is `a%253Ab`.",
        ),
    ] {
        if route.path.split('/').any(|part| part == step) {
            all.push(json!({
                "name": name, "in": "path", "required": true, "description": about,
                "schema": { "type": "string" },
            }));
        }
    }
    for name in route.query {
        let (schema, about) = of_query(route, name)?;
        all.push(json!({ "name": name, "in": "query", "description": about, "schema": schema }));
    }
    if route.takes_if_match {
        all.push(json!({
            "name": "If-Match", "in": "header", "required": needs_if_match(route),
            "description": "The `ETag` of what was read, or `*`.",
            "schema": { "type": "string" },
        }));
    }
    if route.takes_body {
        let about = "The body as ASCII (`\\u00e9` for é), in place of a body: for listeners whose plugin gets none.";
        all.push(json!({
            "name": BODY_HEADER, "in": "header", "description": about,
            "schema": { "type": "string", "maxLength": MAX_BODY_HEADER },
        }));
    }
    Ok(all)
}

/// Returns true if the API rejects the call without `If-Match`.
fn needs_if_match(route: &Route) -> bool {
    route.takes_if_match && matches!(route.method, "PUT" | "DELETE")
}

fn of_query(route: &Route, name: &str) -> Result<(Value, String)> {
    let text = json!({ "type": "string" });
    let flag = json!({ "enum": ["true", "false", ""], "type": "string", "default": "false" });
    let (schema, about) = match name {
        "carry" => (
            json!({ "enum": Carry::NAMES, "default": carry() }),
            "What live buckets keep.",
        ),
        "for" => (
            json!({ "type": "string", "pattern": DURATION }),
            "How long it lasts, such as `30m`; without it, until it is taken back.",
        ),
        "reason" => (
            json!({ "type": "string", "maxLength": MAX_REASON }),
            "Why, in one line, for the audit.",
        ),
        "dry_run" => (
            flag,
            "Answer as if, and change nothing. The name alone sets it.",
        ),
        "replace" => (
            flag,
            "A ban that ends earlier replaces the one in force. The name alone sets it.",
        ),
        "with_temporary" => (flag, "With the edits and overrides that end."),
        "rule" => (text, "Only of this rule."),
        "key" => (text, "Only keys that contain this text."),
        "state" => (
            json!({ "enum": BucketState::NAMES }),
            "Only buckets in this state.",
        ),
        "by" => (
            json!({ "enum": TopBy::NAMES, "default": TopBy::default().name() }),
            "The counted outcome.",
        ),
        "of" => (
            json!({ "enum": EventSource::NAMES }),
            "Only events from this source.",
        ),
        "after" => (
            text,
            "The last event that was seen: `INSTANCE-SEQ`, or its number alone.",
        ),
        "cursor" => (text, "The `next_cursor` of the page before."),
        "limit" => {
            let (default, most) = match route.path {
                "/v1/top" => (DEFAULT_TOP, MAX_TOP),
                _ => (DEFAULT_PAGE, MAX_PAGE),
            };
            (
                json!({ "type": "integer", "minimum": 1, "maximum": most, "default": default }),
                "The most entries in the answer.",
            )
        }
        other => bail!(
            "no description of the query parameter `{other}` of {}",
            route.path
        ),
    };
    Ok((schema, about.to_owned()))
}

/// Returns the default of the query parameter `carry`.
fn carry() -> Option<&'static str> {
    let is_default = |name: &&str| Carry::parse(name) == Some(Carry::default());
    Carry::NAMES.into_iter().find(is_default)
}

#[cfg(test)]
mod tests;
