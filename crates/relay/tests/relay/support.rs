//! Helpers that call a relay like an Envoy.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use loudou_api::{
    KeyAnswer, LEASE_PATH, Lease, LeaseAnswer, LeaseError, LeaseKey, LeaseLimit, LeaseRequest,
    RELAY_HEADER,
};
use loudou_tests::{Relay, Request, Response, Valkey, eventually};
use serde_json::Value;

/// Timeout of an event that usually takes at most two seconds. The rest is a margin for a busy machine.
pub(crate) const SOON: Duration = Duration::from_mins(1);
/// Read timeout. A longer wait means that no answer is coming.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
/// Instances of two callers.
pub(crate) const ONE: &str = "0000000000000001";
pub(crate) const TWO: &str = "0000000000000002";

/// Starts a relay with a timeout that a busy machine does not exceed.
pub(crate) fn start(valkey: &Valkey) -> Result<Relay> {
    start_with(valkey, &[])
}

/// Like [`start`], with additional options.
pub(crate) fn start_with(valkey: &Valkey, options: &[&str]) -> Result<Relay> {
    Relay::start_with(valkey, &[&["--timeout-ms", "10000"], options].concat())
}

/// A limit that returns no unit during a test.
pub(crate) fn daily(capacity: u64) -> LeaseLimit {
    LeaseLimit::Leak {
        capacity,
        amount: 1,
        period_ns: 86_400_000_000_000,
    }
}

/// A key of the rule `r` that requests units.
pub(crate) fn wants(key: &str, want: u64, limit: LeaseLimit) -> LeaseKey {
    LeaseKey {
        want,
        ..LeaseKey::new("r", key, vec![limit])
    }
}

/// A call by [`ONE`] with these keys.
pub(crate) fn with_keys(keys: Vec<LeaseKey>) -> LeaseRequest {
    LeaseRequest {
        keys,
        ..LeaseRequest::new("test", ONE)
    }
}

/// The HTTP request of a call.
pub(crate) fn post(request: &LeaseRequest) -> Result<Request> {
    let body = serde_json::to_vec(request)?;
    Ok(Request::post(LEASE_PATH).body(body))
}

/// Sends a request and checks that the answer has the relay's header.
pub(crate) fn send(relay: &Relay, request: &Request) -> Result<Response> {
    let response = relay.http().send(request)?;
    let version = response.header(RELAY_HEADER);
    ensure!(version == Some(env!("CARGO_PKG_VERSION")), "{response:?}");
    Ok(response)
}

/// Command that creates a user with the name and password of the documents, and with all commands.
pub(crate) const USER: [&str; 7] = [
    "ACL",
    "SETUSER",
    "loudou",
    "on",
    ">wine",
    "~loudou:*",
    "+@all",
];

/// Makes a call and parses the answer.
pub(crate) fn call(relay: &Relay, request: &LeaseRequest) -> Result<LeaseAnswer> {
    let response = send(relay, &post(request)?)?;
    ensure!(
        response.status == 200,
        "{}: {}",
        response.status,
        response.text()
    );
    let answer = LeaseAnswer::read(&response.body, &request.keys);
    answer.with_context(|| response.text())
}

/// Makes a call with one key and returns its lease or its error.
pub(crate) fn ask(relay: &Relay, key: LeaseKey) -> Result<Result<Lease, LeaseError>> {
    let answer = call(relay, &with_keys(vec![key]))?;
    Ok(match answer.keys.into_iter().next().context("no key")? {
        KeyAnswer::Lease(lease) => Ok(lease),
        KeyAnswer::Failed(error) => Err(error),
    })
}

/// Makes a call with one key and returns the granted units. An error of the key is an error.
pub(crate) fn granted(relay: &Relay, key: LeaseKey) -> Result<u64> {
    let lease = ask(relay, key)?;
    lease
        .map(|lease| lease.granted)
        .map_err(|error| anyhow::anyhow!("{error:?}"))
}

/// Returns the value of a metric, without the prefix in its name.
pub(crate) fn metric(relay: &Relay, name: &str) -> Result<u64> {
    let text = send(relay, &Request::get("/metrics"))?.text();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(&format!("loudou_relay_{name} ")));
    let value = line.with_context(|| format!("no {name} in {text}"))?;
    Ok(value.parse()?)
}

/// Returns the path of a file in `certs/`.
pub(crate) fn file(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/relay/certs");
    folder.join(name).display().to_string()
}

fn launch(engine: &str, options: &[&str]) -> Result<Relay> {
    let options = [&["--engine", engine, "--timeout-ms", "10000"], options].concat();
    Relay::launch(&options)
}

/// Asserts that a relay with these options connects to its engine and leases.
pub(crate) fn works(engine: &str, options: &[&str]) -> Result<()> {
    let relay = launch(engine, options)?;
    relay
        .await_engine()
        .with_context(|| relay.log().unwrap_or_default())?;
    assert_eq!(granted(&relay, wants("works", 1, daily(1_000)))?, 1);
    Ok(())
}

/// Asserts that a relay with these options cannot connect to its engine and logs this advice.
pub(crate) fn fails(engine: &str, options: &[&str], advice: &str) -> Result<()> {
    let relay = launch(engine, options)?;
    let line = eventually(SOON, "the relay to be refused", || {
        relay.logged("cannot connect to the engine")
    })?;
    let said = line.get("advice").and_then(Value::as_str);
    assert_eq!(said, Some(advice), "{line}");
    let status = relay.http().get("/healthz")?.status;
    assert_eq!(status, 503);
    Ok(())
}
