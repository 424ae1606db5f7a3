//! Requests without a relay are decided by `on_outage`. A relay can also require a token.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use loudou_tests::{
    Config, Envoy, Http, Operator, Relay, Request, TempDir, Valkey, eventually, expect,
};
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_mins(1);
const CAPACITY: usize = 5;
const TOKEN: &str = "token-of-the-relay-in-tests";

fn config(relay: &Relay, settings: &Value) -> Config {
    let rules = json!([{
        "name": "per-user", "scope": "fleet", "key": [{ "header": "x-user-id" }],
        "limits": [{ "algorithm": "funnel", "capacity": CAPACITY, "rate": "1/d" }],
    }]);
    Config::new(rules).fleet(settings, relay.address())
}

fn request(user: &str) -> Request {
    Request::get("/").header("x-user-id", user)
}

/// Sends some requests of one new key and returns their statuses.
fn statuses(http: &mut Http, user: &str) -> Result<Vec<u16>> {
    let ask = |_| Ok(http.send(&request(user))?.status);
    (0..CAPACITY + 2).map(ask).collect()
}

fn limited() -> Vec<u16> {
    [vec![200; CAPACITY], vec![429; 2]].concat()
}

fn fleet_status(envoy: &Envoy, field: &str) -> Result<u64> {
    let status = Operator::viewer(envoy).get("/v1/status")?;
    let value = status.pointer(&format!("/fleet/{field}"));
    let value = value.and_then(Value::as_u64);
    value.with_context(|| format!("no {field}: {status}"))
}

fn await_up(envoy: &Envoy) -> Result<()> {
    eventually(PATIENCE, "answers", || {
        // Before a worker has called the relay, the status has no fleet.
        let is_up = ["workers_down", "envoys"].map(|field| fleet_status(envoy, field));
        Ok(matches!(is_up, [Ok(0), Ok(1)]).then_some(()))
    })
}

/// Sends requests of new keys before, during and after an outage. `check` sends and checks the
/// requests during the outage.
fn outage(on_outage: &str, check: impl Fn(&mut Http, &str) -> Result<()>) -> Result<()> {
    let valkey = Valkey::start()?;
    let mut relay = Relay::start_with(&valkey, &["--timeout-ms", "900"])?;
    let envoy = Envoy::start(&config(
        &relay,
        &json!({ "on_outage": on_outage, "timeout": "1s" }),
    ))?;
    await_up(&envoy)?;
    let mut http = envoy.data();
    ensure!(statuses(&mut http, "before")? == limited());
    relay.kill();
    for user in 0..20 {
        check(&mut http, &format!("during-{user}"))?;
    }
    ensure!(fleet_status(&envoy, "local")? >= 20);
    ensure!(fleet_status(&envoy, "workers_down")? > 0);
    seen_in_outage(&envoy, "before", on_outage)?;
    seen_in_outage(&envoy, "during-19", on_outage)?;
    relay.restart()?;
    relay.await_engine()?;
    await_up(&envoy)?;
    ensure!(statuses(&mut http, "after")? == limited());
    let after = Operator::viewer(&envoy).get("/v1/buckets/per-user/after")?;
    ensure!(after.get("outage").is_none(), "{after}");
    envoy.stop()
}

/// Fails unless all views of a key show who decides without the relay, and with which limits.
fn seen_in_outage(envoy: &Envoy, user: &str, on_outage: &str) -> Result<()> {
    let mut admin = Operator::viewer(envoy);
    let bucket = admin.get(&format!("/v1/buckets/per-user/{user}"))?;
    let listed = admin.buckets(&format!("key={user}"))?;
    let listed = listed.first().and_then(|bucket| bucket.get("outage"));
    let sample = json!({ "headers": { "x-user-id": user } });
    let explained = admin.send(Request::post("/v1/explain").json(&sample))?;
    let explained = expect(&explained, 200)?;
    let verdict = explained.get("verdict").and_then(Value::as_str);
    let of_rule = explained.pointer("/rules/0/outage");
    let decides = match on_outage {
        "local" => json!({ "decides": "local", "envoys": 1 }),
        other => json!({ "decides": other }),
    };
    for outage in [bucket.get("outage"), listed, of_rule] {
        ensure!(outage == Some(&decides), "{user}: {bucket} {explained}");
    }
    let left = bucket
        .pointer("/limits/0/remaining")
        .and_then(Value::as_u64);
    let expected = match (on_outage, user) {
        // The lease had no tokens left, and this Envoy's share has none left either.
        ("local", _) => (Some(0), Some("refuse")),
        ("admit", "before") => (Some(0), Some("admit")),
        ("admit", _) => (left, Some("admit")),
        _ => (left, Some("refuse")),
    };
    ensure!((left, verdict) == expected, "{user}: {bucket} {explained}");
    Ok(())
}

#[test]
fn an_outage_admits() -> Result<()> {
    outage("admit", |http, user| {
        let all = statuses(http, user)?;
        ensure!(all.iter().all(|status| *status == 200), "{all:?}");
        Ok(())
    })
}

#[test]
fn an_outage_refuses() -> Result<()> {
    outage("refuse", |http, user| {
        for _ in 0..=CAPACITY {
            let answer = http.send(&request(user))?;
            let problem = expect(&answer, 429)?.to_string();
            ensure!(problem.contains("cannot be asked for"), "{problem}");
        }
        Ok(())
    })
}

#[test]
fn an_outage_limits_each_envoy_alone() -> Result<()> {
    outage("local", |http, user| {
        ensure!(statuses(http, user)? == limited());
        Ok(())
    })
}

#[test]
fn a_relay_asks_for_its_token() -> Result<()> {
    let valkey = Valkey::start()?;
    let dir = TempDir::new("relay-token")?;
    let file = dir.write("token", TOKEN)?;
    let file = file.to_str().context("no path in UTF-8")?;
    let relay = Relay::start_with(&valkey, &["--token-file", file, "--timeout-ms", "900"])?;
    let with = |token: &str| {
        let settings = json!({ "on_outage": "refuse", "timeout": "1s", "token": token });
        Envoy::start(&config(&relay, &settings))
    };
    let right = with(TOKEN)?;
    await_up(&right)?;
    ensure!(statuses(&mut right.data(), "nina")? == limited());
    let counts = ["failed", "local"].map(|field| fleet_status(&right, field));
    ensure!(matches!(counts, [Ok(0), Ok(0)]), "{counts:?}");

    let wrong = with("token-of-another-relay-in-tests")?;
    let none = Envoy::start(&config(
        &relay,
        &json!({ "on_outage": "refuse", "timeout": "1s" }),
    ))?;
    for envoy in [wrong, none] {
        let all = statuses(&mut envoy.data(), "max")?;
        ensure!(all.iter().all(|status| *status == 429), "{all:?}");
        eventually(PATIENCE, "the Envoy to notice", || {
            Ok((fleet_status(&envoy, "workers_down")? > 0).then_some(()))
        })?;
        ensure!(fleet_status(&envoy, "granted")? == 0);
        envoy.stop()?;
    }
    // Envoys with a wrong token or without a token took no units.
    ensure!(statuses(&mut right.data(), "max")? == limited());
    right.stop()
}
