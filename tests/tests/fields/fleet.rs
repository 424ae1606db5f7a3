//! Fleet settings, as Envoy reads them.

use anyhow::{Result, ensure};
use loudou_tests::{Config, Envoy};
use serde_json::{Value, json};

/// Returns a configuration with one fleet-wide rule and these fleet settings.
fn config(fleet: &Value) -> Config {
    Config::new(json!([])).data_plugin(json!({
        "version": 1,
        "fleet": fleet,
        "rules": [{
            "name": "shared", "scope": "fleet", "key": [],
            "limits": [{ "algorithm": "funnel", "capacity": 1, "rate": "1/d" }],
        }],
    }))
}

fn settings() -> Value {
    json!({
        "cluster": "relay", "lease": "1s", "timeout": "50ms", "credit": 1, "envoys": 2, "on_outage": "admit",
        "token": "geheim",
    })
}

#[test]
fn envoy_reads_a_fleet_and_refuses_a_wrong_one() -> Result<()> {
    let good = Envoy::validate(&config(&settings()))?;
    ensure!(good.status.success(), "{good:?}");
    for (field, wrong, place) in [
        ("cluster", json!(""), "fleet.cluster"),
        ("lease", json!("1ms"), "fleet.lease"),
        ("timeout", json!("0s"), "fleet.timeout"),
        ("credit", json!(-1), "fleet.credit"),
        ("envoys", json!(0), "fleet.envoys"),
        ("on_outage", json!("pass"), "fleet.on_outage"),
        ("token", json!("geheim geheim"), "fleet.token"),
    ] {
        let mut fleet = settings();
        fleet[field] = wrong;
        let bad = Envoy::validate(&config(&fleet))?;
        let log = String::from_utf8_lossy(&bad.stderr);
        ensure!(
            !bad.status.success() && log.contains(place),
            "{place}: {log}"
        );
        ensure!(!log.contains("geheim"), "{log}");
    }
    let alone = Envoy::validate(&config(&Value::Null))?;
    let log = String::from_utf8_lossy(&alone.stderr);
    ensure!(
        !alone.status.success() && log.contains("rules[0].scope"),
        "{log}"
    );
    Ok(())
}
