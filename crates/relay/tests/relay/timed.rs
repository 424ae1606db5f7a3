//! Runs `lease.lua` at a given time. The line that reads the engine's clock is replaced.

use anyhow::{Result, bail, ensure};
use loudou_api::{Lease, LeaseKey};
use loudou_relay::script::{self, LEASE};
use loudou_tests::valkey::{Reply, Resp};

const CLOCK: &str = "local clock = redis.call('TIME')";
const SECOND_US: u64 = 1_000_000;

/// Returns the script with a fixed time, in microseconds since the Unix epoch.
pub(crate) fn script_at(now_us: u64) -> Result<String> {
    ensure!(
        LEASE.matches(CLOCK).count() == 1,
        "the clock is read elsewhere"
    );
    let (seconds, rest) = (now_us / SECOND_US, now_us % SECOND_US);
    Ok(LEASE.replace(CLOCK, &format!("local clock = {{ '{seconds}', '{rest}' }}")))
}

/// Runs the script for a key at this time.
pub(crate) fn lease_at(resp: &mut Resp, key: &LeaseKey, now_us: u64) -> Result<Lease> {
    let call = script::lease("test", key);
    let text = script_at(now_us)?;
    let count = call.keys.len().to_string();
    let mut command = vec!["EVAL", &text, &count];
    command.extend(call.keys.iter().chain(&call.arguments).map(String::as_str));
    read(&resp.run(&command)?, key)
}

/// Parses a reply of the script.
pub(crate) fn read(reply: &Reply, key: &LeaseKey) -> Result<Lease> {
    let numbers = reply.numbers()?;
    let numbers: Vec<u64> = numbers
        .into_iter()
        .map(u64::try_from)
        .collect::<Result<_, _>>()?;
    let [granted, wait_us, ends_us, left @ ..] = numbers.as_slice() else {
        bail!("{numbers:?}");
    };
    Ok(Lease {
        granted: *granted,
        charged: key.debt,
        wait_us: *wait_us,
        left: left.to_vec(),
        ends_us: *ends_us,
    })
}
