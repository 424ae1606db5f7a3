//! Compares heavy hitters with exact counting. The guarantees of the counters hold for any stream,
//! split among any workers and merged in any order. The shared counts are tested as time passes.
#![cfg(test)]

use std::collections::{BTreeMap, BTreeSet};

use loudou_store::top::Summary;
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;

mod bytes;
mod flow;
mod merges;
mod streams;

const RULE: u32 = 7;

/// Failing cases are stored next to the source, so that they are always tried first.
fn config(cases: u32) -> ProptestConfig {
    let regressions = FileFailurePersistence::WithSource("regressions");
    ProptestConfig {
        failure_persistence: Some(Box::new(regressions)),
        ..ProptestConfig::with_cases(cases)
    }
}

/// Exact counts, by key.
type Exact = BTreeMap<u64, u64>;

/// A number as unlike its neighbours as a hash.
fn fingerprint(key: u64) -> u64 {
    loudou_limiter::mix(key)
}

fn add(summary: &mut Summary, exact: &mut Exact, key: u64, times: u64) {
    summary.add(RULE, fingerprint(key), &key.to_string(), times);
    *exact.entry(key).or_default() += times;
}

fn number(n: usize) -> u64 {
    u64::try_from(n).expect("small")
}

fn sum(numbers: impl Iterator<Item = u64>) -> u128 {
    numbers.map(u128::from).sum()
}

/// The guarantees of a summary with this many places.
fn holds(summary: &Summary, exact: &Exact, places: usize) {
    let floor = summary.floor();
    let counted = sum(exact.values().copied());
    let mut seen = BTreeSet::new();
    for entry in summary.entries() {
        let key: u64 = entry.key.parse().expect("a key of this test");
        assert_eq!(entry.fingerprint, fingerprint(key));
        assert!(seen.insert(key), "{key} has two counters");
        let truth = exact.get(&key).copied().unwrap_or(0);
        assert!(truth <= entry.count, "{entry:?} is {truth}");
        assert!(entry.count - entry.error <= truth, "{entry:?} is {truth}");
        assert!(
            entry.error <= floor && floor <= entry.count,
            "{floor} {entry:?}"
        );
    }
    for (key, truth) in exact {
        assert!(
            seen.contains(key) || *truth <= floor,
            "{key} {truth} {floor}"
        );
    }
    let above = sum(summary.entries().iter().map(|entry| entry.count - floor));
    assert!(
        u128::from(number(places)) * u128::from(floor) + above <= counted,
        "{places} places, floor {floor}, {above} above it, {counted} counted"
    );
    assert!(exact.len() > places || floor == 0);
}
