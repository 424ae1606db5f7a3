//! The answers of the admin API conform to `docs/schema/openapi.json`. The test makes each
//! documented call at a real Envoy.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use jsonschema::Validator;
use loudou_tests::one_rule::edit;
use loudou_tests::{Config, Envoy, Operator, Request, Response, openapi};
use serde_json::{Value, json};

/// Returns rules that use most features that the answers can show.
fn rules() -> Value {
    json!([
        {
            "name": "r",
            "match": { "methods": ["GET"], "path": { "prefix": "/" } },
            "key": [{ "header": "x-user-id" }],
            "limits": [
                { "name": "l", "algorithm": "funnel", "capacity": 3, "rate": "1/d" },
                { "name": "at-once", "algorithm": "concurrency", "capacity": 5 },
            ],
            "overrides": { "vip": { "scale": 10 }, "eve": "banned" },
            "penalty": { "after": 100, "within": "1m", "ban": "10m" },
        },
        {
            "name": "brake",
            "when": { "upstream_error_rate_over": 0.2, "within": "10s" },
            "key": [],
            "limits": [{ "algorithm": "leaky_queue", "capacity": 5, "rate": "1/s" }],
        },
    ])
}

/// Makes calls and validates their answers against the document.
struct Checked<'a> {
    document: &'a Value,
    ops: Operator,
    called: BTreeSet<String>,
}

fn validator(document: &Value, schema: Option<&Value>) -> Result<Validator> {
    let schema = openapi::strict(document, schema.context("no schema")?);
    Ok(jsonschema::draft202012::new(&schema)?)
}

fn follows(validator: &Validator, value: &Value) -> Result<()> {
    let errors = validator.iter_errors(value);
    let errors: Vec<String> = errors
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect();
    ensure!(errors.is_empty(), "{errors:#?}: {value}");
    Ok(())
}

impl Checked<'_> {
    /// Makes a documented call, such as `GET /v1/rules/{rule}`, at this path. Validates the body
    /// and the answer.
    fn call(&mut self, call: &str, path: &str, body: Option<&Value>) -> Result<Value> {
        let (method, template) = call.split_once(' ').context("no method")?;
        let of_path = path.split('?').next().unwrap_or_default();
        let fits = template.split('/').count() == of_path.split('/').count();
        ensure!(fits, "{path} is not {template}");
        let mut request = Request::new(method, path);
        if matches!(method, "PUT" | "DELETE") {
            request = request.header("if-match", "*");
        }
        if let Some(body) = body {
            follows(
                &validator(self.document, openapi::body(self.document, call))?,
                body,
            )?;
            request = request.json(body);
        }
        let answer = self.ops.send(request)?;
        ensure!(answer.status == 200, "{call}: {}", answer.text());
        let value = answer.json()?;
        let validator = validator(self.document, openapi::answer(self.document, call))?;
        follows(&validator, &value).with_context(|| call.to_owned())?;
        self.called.insert(call.to_owned());
        Ok(value)
    }

    fn problem(&mut self, request: Request, status: u16) -> Result<()> {
        let answer: Response = self.ops.send(request)?;
        ensure!(answer.status == status, "{}", answer.text());
        let validator = validator(self.document, openapi::problem(self.document))?;
        follows(&validator, &answer.json()?)
    }

    fn edits(&mut self) -> Result<()> {
        self.call(
            "PUT /v1/rules/{rule}",
            "/v1/rules/r?for=1h&reason=more",
            Some(&edit(5)),
        )?;
        let bucket = "/v1/overrides/{rule}/{key}";
        for body in [json!({ "scale": 2 }), json!("unlimited"), edit(7)] {
            self.call(&format!("PUT {bucket}"), "/v1/overrides/r/kim", Some(&body))?;
        }
        Ok(())
    }

    fn reads(&mut self) -> Result<()> {
        for call in ["status", "rules", "buckets", "top", "events", "export"] {
            self.call(&format!("GET /v1/{call}"), &format!("/v1/{call}"), None)?;
        }
        self.call("GET /v1/rules/{rule}", "/v1/rules/r", None)?;
        let names = json!({ "buckets": [["r", "alice"], ["r", "nobody"], ["r", "vip"]] });
        let read = self.call("POST /v1/buckets", "/v1/buckets", Some(&names))?;
        let found = read.pointer("/buckets").and_then(Value::as_array);
        let found = found.map_or(0, Vec::len);
        ensure!(found == 2, "{read}");
        let bucket = "GET /v1/buckets/{rule}/{key}";
        for key in ["alice", "mallory", "vip"] {
            self.call(bucket, &format!("/v1/buckets/r/{key}"), None)?;
        }
        for user in ["alice", "mallory", "eve"] {
            let sample = json!({ "path": "/x", "headers": { "x-user-id": user }, "cost": 1 });
            self.call("POST /v1/explain", "/v1/explain", Some(&sample))?;
        }
        Ok(())
    }

    /// Undoes the changes.
    fn undo(&mut self) -> Result<()> {
        let bucket = "POST /v1/buckets/{rule}/{key}";
        self.call(
            &format!("{bucket}/unban"),
            "/v1/buckets/r/mallory/unban",
            None,
        )?;
        self.call(
            &format!("{bucket}/reset"),
            "/v1/buckets/r/alice/reset",
            None,
        )?;
        self.call(
            "DELETE /v1/overrides/{rule}/{key}",
            "/v1/overrides/r/kim",
            None,
        )?;
        self.call("DELETE /v1/rules/{rule}", "/v1/rules/r", None)?;
        Ok(())
    }
}

#[test]
fn every_call_is_answered_as_described() -> Result<()> {
    let document = openapi::document()?;
    let envoy = Envoy::start(&Config::new(rules()))?;
    for user in ["alice", "mallory", "vip", "eve"] {
        envoy.load(5, 1, |_| Request::get("/").header("x-user-id", user))?;
    }
    let mut checked = Checked {
        document: &document,
        ops: Operator::editor(&envoy),
        called: BTreeSet::new(),
    };
    checked.reads()?;
    checked.edits()?;
    let ban = "POST /v1/buckets/{rule}/{key}/ban";
    checked.call(ban, "/v1/buckets/r/mallory/ban?for=1h&reason=spam", None)?;
    checked.reads()?;
    checked.problem(Request::get("/v1/rules/none"), 404)?;
    checked.problem(Request::new("PUT", "/v1/rules/r").json(&edit(5)), 428)?;
    let stale = Request::new("PUT", "/v1/rules/r").header("if-match", "\"1\"");
    checked.problem(stale.json(&edit(5)), 412)?;
    let wrong = Request::new("PUT", "/v1/rules/r").header("if-match", "*");
    checked.problem(wrong.json(&json!({ "limits": [{ "capacty": 3 }] })), 400)?;
    checked.undo()?;
    let called = checked.called;
    let paths = document
        .get("paths")
        .and_then(Value::as_object)
        .context("no paths")?;
    let all: BTreeSet<String> = paths
        .iter()
        .flat_map(|(path, methods)| {
            let methods = methods.as_object().into_iter().flat_map(|all| all.keys());
            methods.map(move |method| format!("{} {path}", method.to_uppercase()))
        })
        .collect();
    ensure!(called == all, "not called: {:?}", all.difference(&called));
    envoy.stop()
}
