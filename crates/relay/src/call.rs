//! Handles calls from Envoys. Runs one script per key and one script for the fleet's shared record, all concurrently.

use std::collections::HashSet;

use futures_util::future::{join, join_all};
use loudou_api::{
    Change, KeyAnswer, Lease, LeaseAnswer, LeaseError, LeaseKey, LeaseRequest, MAX_CHANGE_BYTES,
    MAX_CHANGE_NAME, RejectedChange, SHOWN_CHANGE_NAME,
};
use redis::Value;
use tokio::time::Instant;

use crate::engine::{Engine, Which};
use crate::metrics::Metrics;
use crate::script;

/// Responds to a call. Keys whose scripts have not replied by the deadline fail with [`LeaseError::Timeout`].
pub async fn answer(
    engine: &Engine,
    metrics: &Metrics,
    request: &LeaseRequest,
    deadline: Instant,
) -> LeaseAnswer {
    let mut seen = HashSet::new();
    let leases = request.keys.iter().map(|key| {
        // No second lease is granted for a duplicate key, because the Envoy expects one grant per key.
        let is_first = seen.insert((key.rule.as_str(), key.key.as_str()));
        (key, is_first)
    });
    let leases = leases.map(|(key, is_first)| async move {
        if !is_first {
            metrics.keys_error.inc();
            return KeyAnswer::Failed(LeaseError::Refused);
        }
        let call = script::lease(&request.namespace, key);
        let reply = engine.call(Which::Lease, &call, deadline).await;
        let answer = reply.and_then(|reply| lease(&reply, key));
        count(metrics, key, &answer);
        answer.map_or_else(KeyAnswer::Failed, KeyAnswer::Lease)
    });
    let (mut answer, keys) =
        join(record(engine, metrics, request, deadline), join_all(leases)).await;
    answer.keys = keys;
    answer
}

/// Parses the reply from `lease.lua`: granted units, wait, end of the first window, and units left for each limit.
fn lease(reply: &Value, key: &LeaseKey) -> Result<Lease, LeaseError> {
    let Value::Array(numbers) = reply else {
        return Err(LeaseError::Refused);
    };
    let numbers: Vec<u64> = numbers.iter().filter_map(number).collect();
    let [granted, wait_us, ends_us, left @ ..] = numbers.as_slice() else {
        return Err(LeaseError::Refused);
    };
    if left.len() != key.limits.len() {
        return Err(LeaseError::Refused);
    }
    Ok(Lease {
        granted: (*granted).min(key.want),
        charged: key.debt,
        wait_us: *wait_us,
        left: left.to_vec(),
        ends_us: *ends_us,
    })
}

fn count(metrics: &Metrics, key: &LeaseKey, answer: &Result<Lease, LeaseError>) {
    metrics.units_wanted.inc_by(key.want);
    if let Ok(lease) = answer {
        metrics.units_granted.inc_by(lease.granted);
        metrics.units_charged.inc_by(lease.charged);
    }
    let outcome = match answer {
        Ok(lease) if lease.granted == key.want => &metrics.keys_granted,
        Ok(lease) if lease.granted > 0 => &metrics.keys_partly,
        Ok(_) => &metrics.keys_denied,
        Err(LeaseError::Timeout) => &metrics.keys_timeout,
        Err(LeaseError::Unreachable) => &metrics.keys_unreachable,
        Err(_) => &metrics.keys_error,
    };
    outcome.inc();
}

/// Runs `fleet.lua` and returns a response whose keys have not been filled in yet.
async fn record(
    engine: &Engine,
    metrics: &Metrics,
    request: &LeaseRequest,
    deadline: Instant,
) -> LeaseAnswer {
    if request.instance.is_empty() {
        let without = |change| {
            reject(
                change,
                "changes are accepted only from a caller with an instance",
            )
        };
        return LeaseAnswer {
            rejected: request.changes.iter().map(without).collect(),
            ..LeaseAnswer::default()
        };
    }
    let (accepted, mut rejected) = sort(request);
    let call = script::fleet(request, &accepted);
    let reply = engine.call(Which::Fleet, &call, deadline).await;
    let Some((mut answer, verdicts)) = reply.as_ref().ok().and_then(read) else {
        metrics.record_failed.inc();
        let why = match reply {
            Err(LeaseError::Timeout) => "the engine did not answer in time; send the change again",
            Err(LeaseError::Unreachable) => "the engine is unreachable; send the change again",
            _ => "the engine refused the change; send it again",
        };
        rejected.extend(accepted.iter().map(|change| reject(change, why)));
        return LeaseAnswer {
            rejected,
            ..LeaseAnswer::default()
        };
    };
    for (change, why) in accepted.iter().zip(&verdicts) {
        if why.is_empty() {
            metrics.changes_written.inc();
        } else {
            rejected.push(reject(change, why));
        }
    }
    answer.rejected = rejected;
    answer
}

fn reject(change: &Change, why: &str) -> RejectedChange {
    RejectedChange {
        name: change.name.chars().take(SHOWN_CHANGE_NAME).collect(),
        why: why.to_owned(),
    }
}

/// Separates the accepted changes from changes whose name or size is out of bounds.
fn sort(request: &LeaseRequest) -> (Vec<&Change>, Vec<RejectedChange>) {
    let (mut accepted, mut rejected) = (Vec::new(), Vec::new());
    for change in &request.changes {
        let name = change.name.len();
        let bytes = script::stored(change, &request.instance).len();
        if name == 0 || name > MAX_CHANGE_NAME {
            let why = format!("name: {name} bytes; allowed: 1 to {MAX_CHANGE_NAME}");
            rejected.push(reject(change, &why));
        } else if bytes > MAX_CHANGE_BYTES {
            let why = format!("{bytes} bytes; allowed: 1 to {MAX_CHANGE_BYTES}");
            rejected.push(reject(change, &why));
        } else {
            accepted.push(change);
        }
    }
    (accepted, rejected)
}

/// Parses the reply from `fleet.lua`. Returns a response, and one verdict per change (empty if the change was
/// accepted).
fn read(reply: &Value) -> Option<(LeaseAnswer, Vec<String>)> {
    let Value::Array(parts) = reply else {
        return None;
    };
    let [envoys, epoch, generation, more, verdicts, found] = parts.as_slice() else {
        return None;
    };
    let (Value::Array(verdicts), Value::Array(found)) = (verdicts, found) else {
        return None;
    };
    let mut changes = Vec::new();
    for found in found.chunks_exact(4) {
        let [generation, age_ms, ends_in_ms, json] = found else {
            return None;
        };
        changes.push(Change {
            generation: number(generation)?,
            age_ms: number(age_ms)?,
            ends_in_ms: number(ends_in_ms)?,
            ..serde_json::from_str(&text(json)?).ok()?
        });
    }
    let answer = LeaseAnswer {
        envoys: number(envoys)?,
        epoch: text(epoch)?,
        generation: number(generation)?,
        changes,
        more: number(more)? != 0,
        ..LeaseAnswer::default()
    };
    Some((answer, verdicts.iter().filter_map(text).collect()))
}

/// Parses a number from a reply. Scripts return large numbers as strings.
fn number(value: &Value) -> Option<u64> {
    match value {
        Value::Int(number) => u64::try_from(*number).ok(),
        other => text(other)?.parse().ok(),
    }
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => String::from_utf8(bytes.clone()).ok(),
        Value::SimpleString(text) => Some(text.clone()),
        _ => None,
    }
}
