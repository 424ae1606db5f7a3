//! Measures a decision on a single in-memory state, compared with the `governor` crate.
//!
//! A plain answer of governor is only yes or no. *With numbers* means that the remaining capacity
//! or the wait is also computed. Loudou always computes these, and also the time until the bucket
//! is full.
//!
//! A limit decides in two ways with the same result: *in place* on the words of a bucket, as the
//! store does for most requests, and on a decoded bucket, which covers all cases.

use std::hint::black_box;

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, BenchmarkId, Criterion};
use governor::middleware::StateInformationMiddleware;
use loudou_limiter::{BucketDecision, BucketRequest, Limits, Nanos};
use loudou_rules::config::parse_limits;
use serde_json::{Value, json};

use super::Checked;
use super::governed::{self, APART, BURST, START};

/// The two verdicts that are measured.
#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    /// The time between two requests.
    apart: u64,
    is_refused: bool,
}

const CASES: [Case; 2] = [
    Case {
        name: "admitted",
        apart: APART,
        is_refused: false,
    },
    // Time stands still, so no capacity comes back.
    Case {
        name: "refused",
        apart: 0,
        is_refused: true,
    },
];

pub(super) fn bench(criterion: &mut Criterion) -> Checked {
    let mut group = criterion.benchmark_group("decision");
    for case in CASES {
        of_governor(&mut group, case)?;
        for (name, limit) in algorithms() {
            let limits = parse_limits(&json!([limit]));
            let limits = limits.map_err(|_problems| format!("{name} is not valid"))?;
            of_limits(&mut group, case, name, &limits)?;
        }
    }
    group.finish();
    Ok(())
}

/// The algorithms with governor's numbers: [`BURST`] at once, and as many a second.
fn algorithms() -> Vec<(&'static str, Value)> {
    let rate = json!({ "rate": format!("{BURST}/s") });
    let bucket = json!({ "capacity": BURST, "rate": format!("{BURST}/s") });
    let window = json!({ "capacity": BURST, "window": "1s" });
    let all = [
        ("funnel", &bucket),
        ("token_bucket", &bucket),
        ("smooth_bursty", &rate),
        ("fixed_window", &window),
        ("sliding_window", &window),
        ("sliding_counter", &window),
        ("sliding_log", &window),
    ];
    let limit = |(name, numbers): (&'static str, &Value)| {
        let mut limit = numbers.clone();
        if let Some(limit) = limit.as_object_mut() {
            limit.insert("name".to_owned(), json!("limit"));
            limit.insert("algorithm".to_owned(), json!(name));
        }
        (name, limit)
    };
    all.into_iter().map(limit).collect()
}

fn of_governor(group: &mut BenchmarkGroup<'_, WallTime>, case: Case) -> Checked {
    let (limiter, clock) = governed::direct();
    measure(group, case, "governor", |now| {
        clock.set(now);
        black_box(&limiter.check()).is_err()
    })?;
    let (limiter, clock) = governed::direct();
    let limiter = limiter.with_middleware::<StateInformationMiddleware>();
    measure(group, case, "governor, with numbers", |now| {
        clock.set(now);
        match limiter.check() {
            Ok(state) => {
                black_box(state.remaining_burst_capacity());
                false
            }
            Err(until) => {
                black_box(until.wait_time_from(now.into()));
                true
            }
        }
    })?;
    let (limiter, clock) = governed::keyed();
    let key = "user-0000001".to_owned();
    measure(group, case, "governor, keyed", |now| {
        clock.set(now);
        black_box(&limiter.check_key(black_box(&key))).is_err()
    })
}

fn of_limits(
    group: &mut BenchmarkGroup<'_, WallTime>,
    case: Case,
    name: &str,
    limits: &Limits,
) -> Checked {
    let mut bucket = limits.start(Nanos::new(START));
    let mut words = bucket.words.clone();
    measure(group, case, &format!("{name}, in place"), |now| {
        let ask = BucketRequest::new(1, Nanos::new(now));
        let answer = limits.answer_fast(&mut words, &ask);
        // A case that cannot be decided in place would fail the check of its verdict.
        black_box(&answer)
            .as_ref()
            .map_or(!case.is_refused, BucketDecision::is_refused)
    })?;
    measure(group, case, name, |now| {
        let answer = limits.decide(&mut bucket, 1, Nanos::new(now));
        black_box(&answer).is_refused()
    })
}

/// Measures decisions that all have the verdict of the case. `is_refused` decides at an instant.
fn measure(
    group: &mut BenchmarkGroup<'_, WallTime>,
    case: Case,
    name: &str,
    mut is_refused: impl FnMut(u64) -> bool,
) -> Checked {
    let mut now = START;
    let mut next = || {
        now += case.apart;
        is_refused(black_box(now))
    };
    // Runs until the burst is spent if the case is a refusal, and until a window is as full as it
    // will be.
    for _ in 0..4 * BURST {
        next();
    }
    for is_after in [false, true] {
        if next() != case.is_refused {
            return Err(format!("{name} is not {}", case.name));
        }
        if !is_after {
            let id = BenchmarkId::new(name, case.name);
            group.bench_function(id, |bencher| bencher.iter(&mut next));
        }
    }
    Ok(())
}
