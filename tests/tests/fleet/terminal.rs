//! Output of `loudou` about a fleet, in normal operation and in an outage.

use std::process::Output;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use loudou_tests::{EDIT_TOKEN, Envoy, Fleet, Request, eventually, loudou_command};
use serde_json::{Value, json};

const SOON: Duration = Duration::from_secs(30);

/// Runs `loudou` with the words of `line` as arguments.
fn loudou(envoy: &Envoy, line: &str) -> Result<Output> {
    let output = loudou_command()?
        .args(line.split_whitespace())
        .env("LOUDOU_URL", envoy.admin_url())
        .env("LOUDOU_TOKEN", EDIT_TOKEN)
        .output()?;
    Ok(output)
}

/// Returns the output of a command. Fails if the command failed.
fn printed(envoy: &Envoy, line: &str) -> Result<String> {
    let output = loudou(envoy, line)?;
    let (out, err) = (&output.stdout, String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "{line}: {}: {err}", output.status);
    Ok(String::from_utf8_lossy(out).into_owned())
}

fn number(value: &Value, pointer: &str) -> Result<u64> {
    let number = value.pointer(pointer).and_then(Value::as_u64);
    number.with_context(|| format!("no {pointer}: {value}"))
}

fn json_of(envoy: &Envoy, line: &str) -> Result<Value> {
    let text = printed(envoy, &format!("{line} --output json"))?;
    Ok(serde_json::from_str(&text)?)
}

#[test]
fn leases_the_fleet_and_an_outage_are_shown() -> Result<()> {
    // At this low rate, no tokens are leased in advance, so the balance is known exactly.
    let rule = json!([{
        "name": "per-user", "scope": "fleet", "key": [{ "header": "x-user-id" }],
        "limits": [{ "algorithm": "funnel", "capacity": 100, "rate": "1/d" }],
    }]);
    let mut fleet = Fleet::start(2, &rule, &json!({ "timeout": "1s" }))?;
    for (envoy, left) in fleet.envoys.iter().zip([99, 98]) {
        let answer = envoy
            .data()
            .send(&Request::get("/").header("x-user-id", "nina"))?;
        ensure!(answer.status == 200, "{answer:?}");
        let seen = json_of(envoy, "get per-user nina --fleet")?;
        ensure!(number(&seen, "/lease/left/0")? == left, "{seen}");
        ensure!(number(&seen, "/lease/tokens")? == 0, "{seen}");
        let bucket = printed(envoy, "get per-user nina")?;
        let line = format!("0 here, {left} left for all Envoys ");
        ensure!(bucket.contains(&line), "{bucket}");
    }
    let [one, ..] = fleet.envoys.as_slice() else {
        bail!("no Envoy");
    };
    eventually(SOON, "both Envoys to be known", || {
        let status = printed(one, "status")?;
        Ok(status.contains("2 Envoys; last answer ").then_some(()))
    })?;
    let none = loudou(one, "get per-user nobody --fleet")?;
    let none = String::from_utf8_lossy(&none.stderr).into_owned();
    ensure!(none.contains("send a request with this key"), "{none}");

    fleet.relay.kill();
    eventually(SOON, "the outage to be shown", || {
        one.data()
            .send(&Request::get("/").header("x-user-id", "nina"))?;
        let status = printed(one, "status")?;
        let is_shown = status.contains(" down, decided by fleet.on_outage");
        Ok((is_shown && printed(one, "events")?.contains("fleet_down")).then_some(()))
    })?;
    fleet.stop()
}
