//! The setup of most tests of edits and of the admin API: one rule, `r`, with one limit, `l`, and
//! the header `x-user-id` as its key. The limit refills one unit a day, so units that a test takes
//! do not come back.

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};

use crate::config::{Config, EDIT_TOKEN};
use crate::envoy::Envoy;
use crate::http::{Http, Request};
use crate::operator::Operator;

/// Number of admitted requests at which [`admitted`] stops.
const ENOUGH: u32 = 100;

/// Returns the limits of the rule.
pub fn limits(capacity: u32) -> Value {
    json!([{ "name": "l", "algorithm": "funnel", "capacity": capacity, "rate": "1/d" }])
}

/// Creates a configuration with only this rule.
pub fn config(capacity: u32) -> Config {
    let key = json!([{ "header": "x-user-id" }]);
    Config::new(json!([{ "name": "r", "key": key, "limits": limits(capacity) }]))
}

/// Returns the body of an edit that sets another capacity.
pub fn edit(capacity: u32) -> Value {
    json!({ "limits": limits(capacity) })
}

/// Creates a `PUT` by an editor, for any generation.
pub fn put(path: &str) -> Request {
    let request = Request::new("PUT", path).token(EDIT_TOKEN);
    request.header("if-match", "*")
}

/// Creates a request that the rule limits.
pub fn user(name: &str) -> Request {
    Request::get("/").header("x-user-id", name)
}

/// Returns how many requests in a row are admitted, but at most 100.
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

/// Fails if the rule was changed, or if the filter has panicked.
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

/// A part of a test that shares its Envoy with other parts, and its name.
pub type Scene = (&'static str, fn(&Envoy) -> Result<()>);

/// Runs scenes on one Envoy, and checks Envoy after each scene. They share it, because its start
/// takes longer than most scenes.
pub fn play(config: &Config, scenes: &[Scene], check: fn(&Envoy) -> Result<()>) -> Result<()> {
    let envoy = Envoy::start(config)?;
    for (name, scene) in scenes {
        scene(&envoy).context(*name)?;
        check(&envoy).context(*name)?;
    }
    envoy.stop()
}
