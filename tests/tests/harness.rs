//! Tests of the harness with a real Envoy: start, counters, updates and validation.

use anyhow::{Result, ensure};
use loudou_tests::{Config, Envoy, Request, Update};
use serde_json::json;

fn config() -> Config {
    Config::new(json!([{
        "name": "per-user",
        "key": [{ "header": "x-user-id" }],
        "limits": [{ "name": "burst", "algorithm": "funnel", "capacity": 3, "rate": "1/d" }],
    }]))
}

/// Returns a configuration with an unknown field.
fn wrong() -> Config {
    config().data_plugin(json!({ "version": 1, "rulez": [] }))
}

#[test]
fn a_filter_of_its_own_is_updated_under_open_connections() -> Result<()> {
    let envoy = Envoy::start(&config().extension())?;
    let mut http = envoy.data();
    let listeners = envoy.counter("listener_manager.listener_modified")?;
    let alice = Request::get("/").header("x-user-id", "alice");
    ensure!(http.send(&alice)?.status == 200);
    ensure!(envoy.push_extension(&wrong().extension())? == Update::Rejected);
    ensure!(http.send(&alice)?.status == 200, "the old filter serves on");
    let closed = config().data_plugin(json!({ "version": 1, "rules": [{
        "name": "nobody", "key": [], "mode": "enforce",
        "limits": [{ "algorithm": "funnel", "capacity": 1, "rate": "1/d" }],
    }] }));
    ensure!(envoy.push_extension(&closed.extension())? == Update::Accepted);
    let statuses = [http.send(&alice)?.status, http.send(&alice)?.status];
    ensure!(statuses == [200, 429], "{statuses:?}");
    // Envoy may read the listeners again, but finds them unchanged.
    ensure!(envoy.counter("listener_manager.listener_modified")? == listeners);
    envoy.stop()
}

#[test]
fn validation_refuses_what_the_filter_refuses() -> Result<()> {
    let good = Envoy::validate(&config())?;
    ensure!(good.status.success(), "{good:?}");
    let bad = Envoy::validate(&wrong())?;
    ensure!(!bad.status.success(), "{bad:?}");
    ensure!(
        String::from_utf8_lossy(&bad.stderr).contains("rulez"),
        "{bad:?}"
    );
    Ok(())
}
