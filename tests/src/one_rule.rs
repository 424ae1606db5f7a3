//! The set-up that most tests of edits and of the admin API want: one rule, `r`, with one limit,
//! `l`, by the header `x-user-id`. It refills by one a day, so what a test takes stays taken.

use anyhow::{Result, bail, ensure};
use serde_json::{Value, json};

use crate::config::{Config, EDIT_TOKEN};
use crate::envoy::Envoy;
use crate::http::{Http, Request};
use crate::operator::Operator;

/// Where [`admitted`] stops counting.
const ENOUGH: u32 = 100;

/// The limits of the rule.
pub fn limits(capacity: u32) -> Value {
    json!([{ "name": "l", "algorithm": "funnel", "capacity": capacity, "rate": "1/d" }])
}

/// A configuration with just this rule.
pub fn config(capacity: u32) -> Config {
    let key = json!([{ "header": "x-user-id" }]);
    Config::new(json!([{ "name": "r", "key": key, "limits": limits(capacity) }]))
}

/// The body of an edit to another capacity.
pub fn edit(capacity: u32) -> Value {
    json!({ "limits": limits(capacity) })
}

/// A `PUT` by an editor, whatever the generation.
pub fn put(path: &str) -> Request {
    let request = Request::new("PUT", path).token(EDIT_TOKEN);
    request.header("if-match", "*")
}

/// A request that the rule limits.
pub fn user(name: &str) -> Request {
    Request::get("/").header("x-user-id", name)
}

/// How many requests in a row are admitted; 100 when there is no end.
pub fn admitted(http: &mut Http, name: &str) -> Result<u32> {
    for count in 0..ENOUGH {
        match http.send(&user(name))?.status {
            200 => {}
            429 => return Ok(count),
            other => bail!("{other} for {name}"),
        }
    }
    Ok(ENOUGH)
}

/// Fails when anybody has changed the rule, or the filter has panicked.
pub fn unharmed(envoy: &Envoy) -> Result<()> {
    let mut ops = Operator::editor(envoy);
    ensure!(ops.generation()? == 1, "something was changed");
    let rule = ops.get("/v1/rules/r")?;
    ensure!(
        rule.get("edit").is_none() && rule.get("rule") == rule.get("base"),
        "{rule}"
    );
    ensure!(
        !envoy.log()?.contains("panicked"),
        "the log tells of a panic"
    );
    Ok(())
}
