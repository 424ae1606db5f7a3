//! Conversions between all limits, from any state that a page may hold, and counters at their end.

use loudou_limiter::algorithm::Algorithm;
use loudou_limiter::bounds::MAX_AMOUNT;
use loudou_limiter::{
    Bucket, BucketRequest, Carry, Clock, Limits, MAX_BUCKET_WORDS, Nanos, convert,
};
use loudou_rules::config::parse_limits;
use loudou_store::SharedData as _;
use loudou_store::page::{Page, Slot};
use serde_json::{Value, json};

use super::World;

/// Maximum count of a slot.
const MAX_U40: u64 = (1 << 40) - 1;

const CARRIES: [Carry; 3] = [Carry::Keep, Carry::Proportional, Carry::Reset];

fn with(fields: &Value, more: &Value) -> Value {
    let mut limit = fields.clone();
    for (name, value) in more.as_object().expect("fields") {
        limit[name.as_str()] = value.clone();
    }
    limit
}

/// The algorithms that have a capacity and a time.
fn windows(capacity: u64, span: &str) -> Vec<Value> {
    let window = json!({ "capacity": capacity, "window": span });
    vec![
        with(&window, &json!({ "algorithm": "fixed_window" })),
        with(
            &window,
            &json!({ "algorithm": "fixed_window", "align": "clock" }),
        ),
        with(
            &window,
            &json!({ "algorithm": "sliding_window", "slots": 2 }),
        ),
        with(
            &window,
            &json!({ "algorithm": "sliding_window", "slots": 64 }),
        ),
        with(
            &window,
            &json!({ "algorithm": "sliding_window", "align": "clock", "slots": 7 }),
        ),
        with(
            &window,
            &json!({ "algorithm": "sliding_counter", "align": "clock" }),
        ),
        with(&window, &json!({ "algorithm": "sliding_log" })),
        with(&window, &json!({ "algorithm": "sliding_counter" })),
        json!({ "algorithm": "concurrency", "capacity": capacity, "lease": span }),
    ]
}

/// Of each algorithm the smallest and the largest numbers that are valid.
fn all() -> Vec<Limits> {
    let amounts = [1, 255, u64::from(MAX_AMOUNT)];
    let spans = ["1ns", "7s", "366d"];
    let mut all: Vec<Value> = Vec::new();
    for amount in amounts {
        for span in spans {
            let rate = format!("{amount}/{span}");
            for capacity in amounts {
                let leak = json!({ "capacity": capacity, "rate": rate, "max_wait": "1h" });
                all.extend([
                    with(&leak, &json!({ "algorithm": "funnel" })),
                    with(&leak, &json!({ "algorithm": "token_bucket", "initial": 1 })),
                    with(
                        &leak,
                        &json!({ "algorithm": "token_bucket", "refill": "interval" }),
                    ),
                    with(
                        &leak,
                        &json!({
                            "algorithm": "token_bucket", "refill": "interval", "align": "clock"
                        }),
                    ),
                    with(
                        &leak,
                        &json!({ "algorithm": "leaky_queue", "immediate": 1 }),
                    ),
                ]);
                if amount == 1 {
                    all.extend(windows(capacity, span));
                }
            }
            for seconds in [json!(0), json!(0.001), json!(86_400)] {
                all.push(json!({
                    "algorithm": "smooth_bursty", "rate": rate, "burst_seconds": seconds
                }));
            }
            for (warmup, factor) in [("1ns", 1), ("366d", 1_000)] {
                all.push(json!({
                    "algorithm": "smooth_warmup", "rate": rate, "warmup": warmup,
                    "cold_factor": factor, "max_wait": "1h"
                }));
            }
        }
    }
    let valid = |mut limit: Value| {
        limit["name"] = json!("x");
        parse_limits(&json!([limit])).ok()
    };
    all.into_iter().filter_map(valid).collect()
}

/// Returns a slot as any page may contain it, with these words as the state of its bucket.
fn slot(template: &Slot, last: u64, word: u64, words: usize) -> Slot {
    let mut bytes = Vec::new();
    let page = Page {
        origins: 1,
        slots: vec![template.clone()],
    };
    page.encode(&mut bytes);
    // The bytes after the page's head and the slot's head, with these lengths and flags.
    bytes.truncate(8 + 49);
    bytes[8 + 16..8 + 24].copy_from_slice(&last.to_le_bytes());
    // The flag of a queue.
    bytes[8 + 42] = if last < u64::MAX { 32 } else { 0 };
    let count = u16::try_from(words).expect("few").to_le_bytes();
    bytes[8 + 47..8 + 49].copy_from_slice(&count);
    if last < u64::MAX {
        bytes.extend(u64::MAX.to_le_bytes());
    }
    for _ in 0..words {
        bytes.extend(word.to_le_bytes());
    }
    let mut page = Page::decode(&bytes).expect("well-formed");
    page.slots.remove(0)
}

/// The slot is within bounds, is read back unchanged, and decides.
fn check(template: &Slot, limits: &Limits, bucket: &Bucket, now: Nanos) {
    assert!(bucket.words().len() <= MAX_BUCKET_WORDS, "{limits:?}");
    let slot = Slot {
        bucket: bucket.clone(),
        ..template.clone()
    };
    let page = Page {
        origins: 1,
        slots: vec![slot],
    };
    let mut bytes = Vec::new();
    page.encode(&mut bytes);
    let read = Page::decode(&bytes).expect("well-formed");
    let read = &read.slots[0].bucket;
    assert_eq!((read.last, read.words()), (bucket.last, bucket.words()));
    let ask = BucketRequest::new(1, now).waiting(Some(Nanos::MAX));
    let answers = [bucket, read].map(|bucket| limits.answer(&mut bucket.clone(), &ask));
    assert_eq!(answers[0], answers[1], "{limits:?}");
    for limit in answers[0].decisions() {
        assert!(limit.remaining <= limit.capacity);
    }
}

#[test]
fn everything_becomes_everything() {
    let mut world = World::new(16);
    assert!(world.admits(&super::per_day(1), "k", 0));
    let template = world.slot("k").expect("a bucket");
    let all = all();
    let algorithms = |limits: &Limits| {
        let limit = limits.iter().next().expect("one");
        Algorithm::NAMES
            .iter()
            .position(|name| *name == limit.algorithm().name())
    };
    let seen: std::collections::BTreeSet<_> = all.iter().map(algorithms).collect();
    assert_eq!(seen.len(), 10, "each algorithm has valid numbers");
    // Any state at the start of time, in the middle and at its end.
    let instants = [0, 1 << 62, u64::MAX];
    for (place, old) in all.iter().enumerate() {
        let now = instants[place % 3];
        let mut full = old.start(Nanos::new(now));
        let capacity = old.iter().next().expect("one").algorithm().capacity();
        old.decide(&mut full, capacity, Nanos::new(now));
        let words = old.words() + place % 3;
        let wild =
            [u64::MAX, now.saturating_add(5)].map(|word| slot(&template, now, word, words).bucket);
        for bucket in [full].iter().chain(&wild) {
            for (other, new) in all.iter().enumerate() {
                let carry = CARRIES[(place + other) % 3];
                let clock = Clock {
                    now: Nanos::new(instants[other % 3]),
                    wall: Nanos::new(instants[(place + other) % 3]),
                };
                let there = convert(old, new, carry, bucket, clock);
                check(&template, new, &there, clock.now);
                let back = convert(new, old, CARRIES[other % 2], &there, clock);
                check(&template, old, &back, clock.now);
            }
        }
    }
}

/// Logs of the maximum length that a bucket can have, cut down to the minimum and restored in any
/// order. Entries beyond a capacity are kept after the words of all limits, as far as there is
/// room.
#[test]
fn the_longest_logs_stay_within_bounds() {
    let mut world = World::new(16);
    assert!(world.admits(&super::per_day(1), "k", 0));
    let template = world.slot("k").expect("a bucket");
    let log = |name: &str, capacity: u64| json!({ "name": name, "algorithm": "sliding_log", "capacity": capacity, "window": "1d" });
    let logs = |names: &[&str], capacity: u64| {
        let list: Vec<Value> = names.iter().map(|name| log(name, capacity)).collect();
        parse_limits(&Value::from(list)).expect("valid")
    };
    let four = ["a", "b", "c", "d"];
    let (now, clock) = (Nanos::new(5), Clock::at(Nanos::new(5)));
    let full = logs(&four, 256);
    let mut bucket = full.start(now);
    assert!(!full.decide(&mut bucket, 256, now).is_refused());
    assert_eq!(bucket.words().len(), MAX_BUCKET_WORDS);
    let cut = logs(&["d", "c", "b", "a"], 1);
    let short = convert(&full, &cut, Carry::Keep, &bucket, clock);
    check(&template, &cut, &short, now);
    // 255 of each are behind the four words, with their number.
    let used = cut.used(&short, now);
    assert_eq!(used.iter().sum::<u64>(), 1_024 - 4, "{used:?}");
    let back = convert(&cut, &full, Carry::Keep, &short, clock);
    check(&template, &full, &back, now);
    let used = full.used(&back, now);
    assert_eq!(used.iter().sum::<u64>(), 1_024 - 4, "{used:?}");
    // One log loses nothing.
    let (one, less) = (logs(&["a"], 256), logs(&["a"], 3));
    let mut bucket = one.start(now);
    assert!(!one.decide(&mut bucket, 256, now).is_refused());
    let short = convert(&one, &less, Carry::Keep, &bucket, clock);
    check(&template, &less, &short, now);
    assert_eq!(less.used(&short, now), [256]);
    let back = convert(&less, &one, Carry::Keep, &short, clock);
    assert_eq!(back, bucket);
    // Eight limits, each with a surplus or without one.
    let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let eight = logs(&names, 100);
    let mut bucket = eight.start(now);
    assert!(!eight.decide(&mut bucket, 100, now).is_refused());
    let cut = logs(&names, 50);
    let short = convert(&eight, &cut, Carry::Keep, &bucket, clock);
    check(&template, &cut, &short, now);
    assert_eq!(cut.used(&short, now), [100; 8]);
    let back = convert(&cut, &eight, Carry::Keep, &short, clock);
    assert_eq!(eight.used(&back, now), [100; 8]);
}

/// Counters stop at their largest number instead of starting over.
#[test]
fn counters_saturate() {
    let mut world = World::new(16);
    let limits = super::per_day(1);
    assert!(world.admits(&limits, "k", 0));
    world.edit("k", |slot| {
        slot.refused = MAX_U40;
        slot.admitted = u64::MAX;
    });
    assert_eq!(world.slot("k").map(|slot| slot.admitted), Some(MAX_U40));
    assert!(!world.admits(&limits, "k", 0));
    assert_eq!(world.slot("k").map(|slot| slot.refused), Some(MAX_U40));
}

#[test]
fn a_funnel_takes_57_to_65_bytes() {
    let mut world = World::new(16);
    // With three in a day and 1 ns, the arrival time has a remainder below a nanosecond.
    let uneven = json!([{ "algorithm": "funnel", "capacity": 3, "rate": "3/86400000000001ns" }]);
    let (even, uneven) = (super::per_day(1), super::rule(&uneven));
    let mut bytes = Vec::new();
    for (key, limits, size) in [("a", &even, 8 + 57), ("b", &uneven, 8 + 57 + 65)] {
        assert!(world.admits(limits, key, 0));
        world
            .store
            .get(&super::page_key(0), &mut bytes)
            .expect("works");
        assert_eq!(bytes.len(), size);
    }
}
