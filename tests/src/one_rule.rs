//! The setup of most tests of edits and of the admin API: one rule, `r`, with one limit, `l`, by the
//! header `x-user-id`. It refills by one a day, so tokens that a test takes do not come back.

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};

use crate::config::{Config, EDIT_TOKEN};
use crate::envoy::Envoy;
use crate::http::{Http, Request};
use crate::operator::Operator;

/// The count at which [`admitted`] stops.
const ENOUGH: u32 = 100;

/// The limits of the rule.
pub fn limits(capacity: u32) -> Value {
    json!([{ "name": "l", "algorithm": "funnel", "capacity": capacity, "rate": "1/d" }])
}

/// A configuration with only this rule.
pub fn config(capacity: u32) -> Config {
    let key = json!([{ "header": "x-user-id" }]);
    Config::new(json!([{ "name": "r", "key": key, "limits": limits(capacity) }]))
}

/// The body of an edit that sets another capacity.
pub fn edit(capacity: u32) -> Value {
    json!({ "limits": limits(capacity) })
}

/// A `PUT` by an editor, for any generation.
pub fn put(path: &str) -> Request {
    let request = Request::new("PUT", path).token(EDIT_TOKEN);
    request.header("if-match", "*")
}

/// A request that the rule limits.
pub fn user(name: &str) -> Request {
    Request::get("/").header("x-user-id", name)
}

/// The number of requests in a row that are admitted; 100 when there is no end.
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

/// Fails when the rule was changed, or the filter has panicked.
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

/// A part of a test that shares its Envoy with others, and its name.
pub type Scene = (&'static str, fn(&Envoy) -> Result<()>);

/// Plays scenes on one Envoy, and checks it after each. A start takes longer than most scenes.
pub fn play(config: &Config, scenes: &[Scene], check: fn(&Envoy) -> Result<()>) -> Result<()> {
    let envoy = Envoy::start(config)?;
    for (name, scene) in scenes {
        scene(&envoy).context(*name)?;
        check(&envoy).context(*name)?;
    }
    envoy.stop()
}
