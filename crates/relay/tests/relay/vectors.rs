//! Runs the public vectors of governor and redis-cell through the script, call by call.
//!
//! Their limiters take all requested units or none, so a call here has `need` equal to `want`. Their times are in
//! nanoseconds, and the script's are in microseconds. Where the numbers stay small enough, times and periods are
//! multiplied by 1000, so that nothing is rounded.

use anyhow::{Context as _, Result};
use loudou_api::{Lease, LeaseKey, LeaseLimit};
use loudou_tests::Valkey;
use loudou_tests::valkey::Resp;
use serde_json::Value;

use crate::timed::lease_at;

const GOVERNOR: &str = include_str!("../../../rules/tests/conformance/vectors/governor.json");
const CELL: &str = include_str!("../../../rules/tests/conformance/vectors/redis_cell_pure.json");
const CELL_TTL: &str =
    include_str!("../../../rules/tests/conformance/vectors/redis_cell_ttl_ms.json");
/// Time of the first call, so that the clock of a trace can go back.
const ORIGIN_US: u64 = 1_000_000_000_000;
/// Exclusive maximum of the script's numerators and denominators.
const MOST_DEN: u64 = 1 << 45;
const SECOND_NS: u64 = 1_000_000_000;
const MICRO: u64 = 1_000;

fn whole(value: &Value, field: &str) -> Result<u64> {
    let number = value.get(field).and_then(Value::as_u64);
    number.with_context(|| format!("no {field} in {value}"))
}

/// A trace, which has its own key.
struct Trace<'a> {
    resp: &'a mut Resp,
    name: String,
    limit: LeaseLimit,
    /// Microseconds of the script per microsecond of the trace.
    stretch: u64,
}

impl<'a> Trace<'a> {
    fn new(
        resp: &'a mut Resp,
        name: String,
        capacity: u64,
        (amount, period_ns): (u64, u64),
    ) -> Self {
        let stretch = if period_ns < MOST_DEN { MICRO } else { 1 };
        let limit = LeaseLimit::Leak {
            capacity,
            amount,
            period_ns: period_ns * stretch,
        };
        Self {
            resp,
            name,
            limit,
            stretch,
        }
    }

    /// Requests units. Returns the script's answer, and true if all units were granted. Otherwise none were taken.
    fn ask(&mut self, t_ns: u64, units: u64) -> Result<(Lease, bool)> {
        assert!(
            self.stretch == MICRO || t_ns.is_multiple_of(MICRO),
            "{t_ns} ns"
        );
        let now = ORIGIN_US + t_ns * self.stretch / MICRO;
        let key = LeaseKey {
            want: units,
            need: units,
            ..LeaseKey::new("rule", &self.name, vec![self.limit])
        };
        let lease = lease_at(self.resp, &key, now)?;
        let all = lease.granted == units;
        assert!(all || lease.granted == 0, "a part is of no use: {lease:?}");
        Ok((lease, all))
    }

    /// Returns true if the wait of an answer is within a microsecond of the vector's wait, or the vector has none.
    fn waits(&self, lease: &Lease, theirs: Option<u64>) -> bool {
        let ours = lease.wait_us * MICRO / self.stretch;
        theirs.is_none_or(|theirs| ours.abs_diff(theirs) <= MICRO)
    }
}

fn traces(json: &str) -> Result<Vec<Value>> {
    let file: Value = serde_json::from_str(json)?;
    let traces = file.get("traces").and_then(Value::as_array);
    traces.cloned().context("no traces")
}

fn calls(trace: &Value) -> Result<&Vec<Value>> {
    trace
        .get("calls")
        .and_then(Value::as_array)
        .context("no calls")
}

#[test]
fn governor() -> Result<()> {
    let valkey = Valkey::start()?;
    let mut resp = Resp::unix(&valkey.socket())?;
    let mut agreed = 0;
    for (at, trace) in traces(GOVERNOR)?.iter().enumerate() {
        let period = (1, whole(trace, "replenish_interval_ns")?);
        let name = format!("governor-{at}");
        let mut ours = Trace::new(&mut resp, name, whole(trace, "burst")?, period);
        for call in calls(trace)? {
            let (lease, all) = ours.ask(whole(call, "t_ns")?, whole(call, "quantity")?)?;
            let theirs = call.get("outcome").and_then(Value::as_str) == Some("allowed");
            assert_eq!(all, theirs, "{}: {call}, {lease:?}", trace["name"]);
            let wait = call.get("wait_ns").and_then(Value::as_u64);
            assert!(
                ours.waits(&lease, wait),
                "{}: {call}, {lease:?}",
                trace["name"]
            );
            agreed += 1;
        }
    }
    assert_eq!(agreed, 975);
    Ok(())
}

/// Returns true if redis-cell's number of remaining units is inexact because redis-cell divides whole microseconds.
fn is_cut(trace: &Value, call: &Value) -> Result<bool> {
    let interval = whole(trace, "period_s")? * SECOND_NS / whole(trace, "count_per_period")?;
    let Some(reset) = call.get("reset_after_ns").and_then(Value::as_u64) else {
        // If a request exceeds the capacity of an idle key, redis-cell reports more units than the capacity.
        return Ok(true);
    };
    let left = (interval * whole(call, "limit")?).saturating_sub(reset);
    Ok(whole(call, "remaining")? == (left / MICRO) / (interval / MICRO).max(1))
}

/// Returns the number of calls that agree, and the number of calls skipped because the clock went back. redis-cell
/// then waits for the difference again, but here the level stays the same.
fn cell(json: &str) -> Result<(u64, u64)> {
    let valkey = Valkey::start()?;
    let mut resp = Resp::unix(&valkey.socket())?;
    let (mut agreed, mut after_jump) = (0, 0);
    for (at, trace) in traces(json)?.iter().enumerate() {
        let rate = (
            whole(trace, "count_per_period")?,
            whole(trace, "period_s")? * SECOND_NS,
        );
        let capacity = whole(trace, "max_burst")? + 1;
        let mut ours = Trace::new(&mut resp, format!("cell-{at}"), capacity, rate);
        let mut latest = 0;
        for call in calls(trace)? {
            let t_ns = whole(call, "t_ns")?;
            if t_ns < latest {
                // The rest of this trace is skipped.
                latest = u64::MAX;
                after_jump += 1;
                continue;
            }
            latest = t_ns;
            let units = whole(call, "quantity")?;
            let (lease, all) = ours.ask(t_ns, units)?;
            let place = format!("{}: {call}, {lease:?}", trace["name"]);
            let limited = call.get("limited").and_then(Value::as_bool);
            assert_eq!(Some(!all), limited, "{place}");
            let left = lease.left.first().context("no limit")?;
            let left = left + if all { 0 } else { lease.granted };
            let remaining = call.get("remaining").and_then(Value::as_u64);
            assert!(Some(left) == remaining || is_cut(trace, call)?, "{place}");
            let wait = call.get("retry_after_ns").and_then(Value::as_u64);
            assert!(all || ours.waits(&lease, wait), "{place}");
            agreed += 1;
        }
    }
    Ok((agreed, after_jump))
}

#[test]
fn redis_cell() -> Result<()> {
    assert_eq!(cell(CELL)?, (1_329, 7));
    Ok(())
}

#[test]
fn redis_cell_with_expiry() -> Result<()> {
    assert_eq!(cell(CELL_TTL)?, (1_239, 7));
    Ok(())
}
