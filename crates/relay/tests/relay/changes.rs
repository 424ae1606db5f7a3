//! Distribution of edits, overrides and bans, and the number of Envoys.

use std::collections::BTreeMap;

use anyhow::Result;
use loudou_api::{Change, LeaseAnswer, LeaseRequest, MAX_ANSWER_CHANGES, MAX_CHANGES};
use loudou_tests::{Relay, Valkey};
use serde_json::{Value, json};

use crate::support::{ONE, TWO, call, start};

const FAR_MS: u64 = 40_000_000_000;

/// A simulated Envoy that stores the changes that it receives.
pub(crate) struct Envoy<'a> {
    relay: &'a Relay,
    instance: &'static str,
    epoch: String,
    pub(crate) generation: u64,
    pub(crate) known: BTreeMap<String, Value>,
}

impl<'a> Envoy<'a> {
    pub(crate) fn new(relay: &'a Relay, instance: &'static str) -> Self {
        Self {
            relay,
            instance,
            epoch: String::new(),
            generation: 0,
            known: BTreeMap::new(),
        }
    }

    pub(crate) fn call(&mut self, changes: Vec<Change>) -> Result<LeaseAnswer> {
        let request = LeaseRequest {
            epoch: self.epoch.clone(),
            generation: self.generation,
            changes,
            ..LeaseRequest::new("test", self.instance)
        };
        let answer = call(self.relay, &request)?;
        self.epoch.clone_from(&answer.epoch);
        self.generation = answer.generation;
        for change in &answer.changes {
            if change.value.is_null() {
                self.known.remove(&change.name);
            } else {
                self.known.insert(change.name.clone(), change.value.clone());
            }
        }
        Ok(answer)
    }

    /// Calls until the answer has no `more`. Returns the number of calls.
    pub(crate) fn catch_up(&mut self) -> Result<u32> {
        for calls in 1.. {
            if !self.call(Vec::new())?.more {
                return Ok(calls);
            }
        }
        Ok(0)
    }
}

pub(crate) fn change(name: &str, value: Value) -> Change {
    Change {
        name: name.to_owned(),
        value,
        ..Change::default()
    }
}

pub(crate) fn generations(answer: &LeaseAnswer) -> Vec<u64> {
    answer
        .changes
        .iter()
        .map(|change| change.generation)
        .collect()
}

#[test]
fn what_one_changes_all_know() -> Result<()> {
    let valkey = Valkey::start()?;
    let (here, there) = (start(&valkey)?, start(&valkey)?);
    let (mut one, mut two) = (Envoy::new(&here, ONE), Envoy::new(&there, TWO));
    let ban = Change {
        ends_in_ms: FAR_MS,
        ..change("ban/r/mallory", json!({ "by": "ops" }))
    };
    let answer = one.call(vec![change("edit/r", json!(1)), ban.clone()])?;
    assert_eq!((generations(&answer), answer.generation), (vec![1, 2], 2));
    let expected = Change {
        generation: 2,
        instance: ONE.to_owned(),
        ..ban
    };
    let without_times = |change: &Change| Change {
        age_ms: 0,
        ends_in_ms: FAR_MS,
        ..change.clone()
    };
    assert_eq!(without_times(&answer.changes[1]), expected);
    let told = two.call(Vec::new())?.changes;
    assert_eq!(without_times(&told[1]), expected);
    let (age, left) = (told[1].age_ms, told[1].ends_in_ms);
    assert_eq!(age + left, FAR_MS, "one clock measures both");
    // A change is sent once to each Envoy.
    assert_eq!(generations(&two.call(Vec::new())?), Vec::<u64>::new());
    assert_eq!(two.generation, 2);
    // The last writer wins. The removal of a ban is distributed, too.
    two.call(vec![
        change("edit/r", json!(2)),
        change("ban/r/mallory", Value::Null),
    ])?;
    let answer = one.call(Vec::new())?;
    assert_eq!((generations(&answer), answer.envoys), (vec![3, 4], 2));
    assert_eq!(one.known, two.known);
    assert_eq!(one.known, BTreeMap::from([("edit/r".to_owned(), json!(2))]));
    // A new Envoy gets both changes. It needs the removal, too, because it may have stored the ban earlier.
    let mut three = Envoy::new(&here, "0000000000000003");
    let answer = three.call(Vec::new())?;
    assert_eq!((generations(&answer), answer.envoys), (vec![3, 4], 3));
    assert_eq!(three.known, one.known);
    Ok(())
}

#[test]
fn many_changes_come_in_parts() -> Result<()> {
    let valkey = Valkey::start()?;
    let relay = start(&valkey)?;
    let mut one = Envoy::new(&relay, ONE);
    let small = (0..200).map(|at| change(&format!("ban/r/{at}"), json!(at)));
    let answer = one.call(small.collect())?;
    assert!(answer.more && answer.rejected.is_empty(), "{answer:?}");
    assert_eq!(answer.changes.len(), MAX_ANSWER_CHANGES);
    assert_eq!(answer.generation, 64);
    assert_eq!(one.catch_up()?, 3);
    assert_eq!((one.known.len(), one.generation), (200, 200));
    // Two of five changes of 60 KiB fit into an answer.
    let text = "x".repeat(60 * 1024);
    let large = (0..5).map(|at| change(&format!("edit/{at}"), json!(text)));
    let answer = one.call(large.collect())?;
    assert_eq!((generations(&answer), answer.more), (vec![201, 202], true));
    assert_eq!(one.catch_up()?, 2);
    assert_eq!(one.known.len(), 205);
    Ok(())
}

#[test]
fn a_lost_record_is_another_epoch() -> Result<()> {
    let mut valkey = Valkey::start()?;
    let relay = start(&valkey)?;
    let mut one = Envoy::new(&relay, ONE);
    one.call(vec![change("edit/r", json!(1)), change("edit/s", json!(1))])?;
    let epoch = one.epoch.clone();
    valkey.restart()?;
    relay.await_engine()?;
    loudou_tests::eventually(crate::support::SOON, "another epoch", || {
        // An answer without an epoch means that the engine has not answered.
        let request = LeaseRequest::new("test", TWO);
        let answer = call(&relay, &request)?;
        Ok((!answer.epoch.is_empty() && answer.epoch != epoch).then_some(()))
    })?;
    let mut two = Envoy::new(&relay, TWO);
    two.call(vec![change("edit/t", json!(3))])?;
    // The caller's generation is higher, but belongs to the old epoch, so the caller gets the change.
    let answer = one.call(Vec::new())?;
    assert_eq!(generations(&answer), vec![1]);
    assert_ne!(one.epoch, epoch);
    Ok(())
}

/// If a replica without the last changes takes over, the epoch changes, so that no generation is used twice.
#[test]
fn a_record_that_went_back_is_another_epoch() -> Result<()> {
    let valkey = Valkey::start()?;
    let relay = start(&valkey)?;
    let (mut one, mut two) = (Envoy::new(&relay, ONE), Envoy::new(&relay, TWO));
    one.call(vec![change("edit/r", json!(1)), change("edit/s", json!(1))])?;
    two.call(Vec::new())?;
    let (epoch, key) = (one.epoch.clone(), "loudou:fleet:{test}:");
    valkey.run(&["HSET", &format!("{key}record"), "generation", "1"])?;
    valkey.run(&["HDEL", &format!("{key}changes"), "edit/s"])?;
    valkey.run(&["ZREM", &format!("{key}order"), "edit/s"])?;
    one.call(vec![change("edit/t", json!(1))])?;
    assert_ne!(one.epoch, epoch);
    let answer = two.call(Vec::new())?;
    let names: Vec<&str> = answer
        .changes
        .iter()
        .map(|change| change.name.as_str())
        .collect();
    assert_eq!(names, ["edit/r", "edit/t"]);
    Ok(())
}

/// If the engine evicts a part of the record, the epoch changes, so that Envoys send their changes again.
#[test]
fn a_record_in_part_is_another_epoch() -> Result<()> {
    let valkey = Valkey::start()?;
    let relay = start(&valkey)?;
    let mut one = Envoy::new(&relay, ONE);
    for part in ["record", "changes", "order"] {
        one.call(vec![change("edit/r", json!(1))])?;
        let epoch = one.epoch.clone();
        valkey.run(&["DEL", &format!("loudou:fleet:{{test}}:{part}")])?;
        let answer = one.call(Vec::new())?;
        assert_ne!(one.epoch, epoch, "{part}");
        assert_eq!(answer.changes, Vec::new(), "{part}");
    }
    Ok(())
}

#[test]
fn changes_end_at_their_time() -> Result<()> {
    let valkey = Valkey::start()?;
    let relay = start(&valkey)?;
    let mut one = Envoy::new(&relay, ONE);
    let ending = |name: &str, ends_in_ms| Change {
        ends_in_ms,
        ..change(name, json!(1))
    };
    one.call(vec![ending("ban/r/a", FAR_MS), ending("ban/r/b", FAR_MS)])?;
    one.call(vec![change("ban/r/a", Value::Null)])?;
    assert_eq!(one.known.len(), 1);
    let ends = "loudou:fleet:{test}:ends";
    let now = valkey.run(&["TIME"])?.numbers()?[0] * 1_000;
    let score = |name: &str| valkey.run(&["ZSCORE", ends, name])?.number();
    // A tombstone is kept for an hour.
    let kept = score("ban/r/a")? - now;
    assert!((3_590_000..3_700_000).contains(&kept), "{kept}");
    let left = score("ban/r/b")? - now;
    let far = i64::try_from(FAR_MS)?;
    assert!((far - 60_000..far + 1_000).contains(&left), "{left}");
    // Both expire now.
    valkey.run(&["ZADD", ends, "1", "ban/r/a", "1", "ban/r/b"])?;
    let mut two = Envoy::new(&relay, TWO);
    assert_eq!(two.call(Vec::new())?.changes, Vec::new());
    let bytes = valkey.run(&["HGET", "loudou:fleet:{test}:record", "bytes"])?;
    assert_eq!(bytes.number()?, 0);
    // A change without an end replaces a change with an end, and its end.
    one.call(vec![ending("ban/r/c", FAR_MS)])?;
    one.call(vec![ending("ban/r/c", 0)])?;
    assert_eq!(valkey.run(&["ZCARD", ends])?.number()?, 0);
    Ok(())
}

#[test]
fn changes_are_bounded() -> Result<()> {
    let valkey = Valkey::start()?;
    let relay = start(&valkey)?;
    let mut one = Envoy::new(&relay, ONE);
    let text = |bytes: usize| json!("x".repeat(bytes));
    let long = "n".repeat(32 * 1024 + 1);
    let wrong = vec![
        change("", json!(1)),
        change(&long, json!(1)),
        change("edit/r", text(64 * 1024)),
        change("edit/s", json!(1)),
    ];
    let answer = one.call(wrong)?;
    let whys: Vec<&str> = answer
        .rejected
        .iter()
        .map(|rejected| rejected.why.as_str())
        .collect();
    assert_eq!(whys[0], "name: 0 bytes; allowed: 1 to 32768");
    assert_eq!(whys[1], "name: 32769 bytes; allowed: 1 to 32768");
    assert!(whys[2].ends_with(" bytes; allowed: 1 to 65536"), "{whys:?}");
    assert_eq!((whys.len(), one.known.len()), (3, 1));
    assert_eq!(answer.rejected[1].name.len(), 256);
    // All changes together may have 2 MiB.
    let mut rejected = Vec::new();
    for at in 0..6 {
        let some = (0..7).map(|part| change(&format!("ban/{at}/{part}"), text(60 * 1024)));
        rejected.extend(one.call(some.collect())?.rejected);
    }
    assert_eq!(rejected.len(), 42 - 34);
    let why = &rejected[0].why;
    assert!(
        why.ends_with(" bytes of changes in the record; allowed: 2097152"),
        "{why}"
    );
    // A removal frees memory for another change.
    one.call(vec![change("ban/0/0", Value::Null)])?;
    assert_eq!(
        one.call(vec![change("ban/9/9", text(60 * 1024))])?.rejected,
        Vec::new()
    );
    Ok(())
}

#[test]
fn so_many_changes_are_kept() -> Result<()> {
    let valkey = Valkey::start()?;
    let relay = start(&valkey)?;
    let mut one = Envoy::new(&relay, ONE);
    let mut rejected = Vec::new();
    for part in 0..5 {
        let some = (0..1_000).map(|at| change(&format!("ban/{part}/{at}"), json!(1)));
        rejected.extend(one.call(some.collect())?.rejected);
    }
    assert_eq!(rejected.len(), 5_000 - MAX_CHANGES);
    assert_eq!(rejected[0].name, "ban/4/96");
    assert_eq!(rejected[0].why, "4097 changes in the record; allowed: 4096");
    // A stored change can still be replaced.
    assert_eq!(
        one.call(vec![change("ban/0/0", json!(2))])?.rejected,
        Vec::new()
    );
    one.catch_up()?;
    assert_eq!(one.known.len(), MAX_CHANGES);
    Ok(())
}

#[test]
fn envoys_are_counted_for_ten_seconds() -> Result<()> {
    let valkey = Valkey::start()?;
    let relay = start(&valkey)?;
    let (mut one, mut two) = (Envoy::new(&relay, ONE), Envoy::new(&relay, TWO));
    assert_eq!(one.call(Vec::new())?.envoys, 1);
    assert_eq!(two.call(Vec::new())?.envoys, 2);
    let callers = "loudou:fleet:{test}:callers";
    let now = valkey.run(&["TIME"])?.numbers()?[0] * 1_000;
    // The last call of the second Envoy is now more than ten seconds ago.
    let ago = (now - 10_001).to_string();
    valkey.run(&["ZADD", callers, &ago, TWO])?;
    assert_eq!(one.call(Vec::new())?.envoys, 1);
    assert_eq!(two.call(Vec::new())?.envoys, 2);
    // The key has no expiry, because a full engine evicts keys with an expiry first.
    assert_eq!(valkey.run(&["PTTL", callers])?.number()?, -1);
    // Each namespace counts its callers separately.
    assert_eq!(call(&relay, &LeaseRequest::new("other", ONE))?.envoys, 1);
    Ok(())
}
