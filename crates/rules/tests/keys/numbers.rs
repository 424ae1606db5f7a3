//! Limits whose numbers come with each request.

use loudou_limiter::{Carry, Clock, Limits, Nanos};
use loudou_rules::config::{parse_edit, parse_rule};
use loudou_rules::evaluate::Outcome;
use loudou_rules::level::Level;
use loudou_rules::numbers::{FoundNumber, find};
use loudou_rules::rule::key::KEY_OF_ALL;
use loudou_store::{LiveRule, ReleaseReason, StoreStats};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::Fake;
use super::evaluating::World;

fn quota(max: u32) -> Value {
    json!({ "metadata": ["jwt", "quota"], "default": 10, "max": max })
}

fn pace(max: u32) -> Value {
    json!({ "amount": { "metadata": ["jwt", "pace"], "default": 1, "max": max }, "per": "1m" })
}

fn limited(limit: &Value) -> Value {
    json!({ "limits": [limit] })
}

fn funnel() -> Value {
    limited(
        &json!({ "name": "l", "algorithm": "funnel", "capacity": quota(1_000), "rate": pace(600) }),
    )
}

/// A request that carries these numbers. 0 stands for none.
fn bringing(capacity: u32, amount: u32) -> Fake {
    let mut request = Fake::default();
    for (name, number) in [("jwt/quota", capacity), ("jwt/pace", amount)] {
        if number > 0 {
            request
                .metadata
                .insert(name.to_string(), number.to_string().into());
        }
    }
    request
}

fn at(seconds: u64) -> Nanos {
    Nanos::from_secs(seconds)
}

/// Capacity, and remaining units after the request.
fn numbers(outcome: &Outcome) -> (u64, u64) {
    let rule = outcome.rules.first().expect("one rule");
    let loudou_rules::evaluate::Answer::Decided(decision) = &rule.answer else {
        panic!("{:?}", rule.answer);
    };
    let reported = decision.reported().expect("one limit");
    let limit = rule.limits().iter().next().expect("one limit");
    assert_eq!(limit.algorithm().capacity(), reported.capacity);
    (reported.capacity, reported.remaining)
}

#[test]
fn hostile_numbers_are_bounded() {
    let rule = super::rule(&funnel());
    let of = |value: &[u8]| {
        let mut request = bringing(0, 7);
        request
            .metadata
            .insert("jwt/quota".to_string(), value.to_vec());
        let found = find(&rule.limits, &mut request);
        assert_eq!(found[0].amount, Some(FoundNumber::Valid(7)));
        let mut world = World::new(&[funnel()]);
        let outcome = world.at(&request, Nanos::ZERO);
        let found = found[0].capacity.expect("it has a source");
        assert_eq!(outcome.rules[0].odd_numbers, found.is_odd());
        (found, numbers(&outcome).0)
    };
    for (value, found, capacity) in [
        (&b"42"[..], FoundNumber::Valid(42), 42),
        (b" 42 ", FoundNumber::Valid(42), 42),
        (b"1000", FoundNumber::Valid(1_000), 1_000),
        (b"1001", FoundNumber::TooLarge(1_001), 1_000),
        (b"4294967296", FoundNumber::TooLarge(u32::MAX), 1_000),
        (
            b"99999999999999999999999999",
            FoundNumber::TooLarge(u32::MAX),
            1_000,
        ),
        (b"0", FoundNumber::TooSmall, 1),
        (b"-1", FoundNumber::Invalid, 10),
        (b"2.5", FoundNumber::Invalid, 10),
        (b"1e3", FoundNumber::Invalid, 10),
        (b"1e21", FoundNumber::TooLarge(u32::MAX), 1_000),
        (b"1e300", FoundNumber::TooLarge(u32::MAX), 1_000),
        (b"-1e300", FoundNumber::Invalid, 10),
        (b"1e-300", FoundNumber::Invalid, 10),
        (b"inf", FoundNumber::Invalid, 10),
        (b"nan", FoundNumber::Invalid, 10),
        (b"many", FoundNumber::Invalid, 10),
        (b"true", FoundNumber::Invalid, 10),
        (b"", FoundNumber::Invalid, 10),
        (b"\xff", FoundNumber::Invalid, 10),
    ] {
        assert_eq!(of(value), (found, capacity), "{value:?}");
    }
    let found = find(&rule.limits, &mut Fake::default());
    assert_eq!(
        (found[0].capacity, found[0].amount),
        (Some(FoundNumber::Missing), Some(FoundNumber::Missing))
    );
}

#[test]
fn another_number_applies_from_the_next_request_on() {
    let mut world = World::new(&[funnel()]);
    assert_eq!(numbers(&world.at(&bringing(5, 60), at(0))), (5, 4));
    assert_eq!(numbers(&world.at(&bringing(100, 60), at(0))), (100, 98));
    assert_eq!(
        numbers(&world.at(&bringing(0, 60), at(0))),
        (10, 7),
        "the default"
    );
    // Two units left in two seconds, at the rate of the request before.
    assert_eq!(numbers(&world.at(&bringing(100, 600), at(2))), (100, 98));
    // Ten leave in a second now.
    for _ in 0..50 {
        world.at(&bringing(100, 600), at(2));
    }
    assert_eq!(numbers(&world.at(&bringing(100, 1), at(3))), (100, 57));
}

/// Numbers that are no valid limit together count as wrong.
#[test]
fn numbers_have_to_fit_together() {
    let mut rule = funnel();
    let amount = json!({ "metadata": ["jwt", "pace"], "default": 10, "max": 10 });
    rule["limits"][0]["rate"] = json!({ "amount": amount, "per": "366d" });
    rule["limits"][0]["capacity"]["max"] = json!(100);
    let own = super::rule(&rule);
    let found = find(&own.limits, &mut bringing(100, 1));
    let invalid = Some(FoundNumber::Invalid);
    assert_eq!((found[0].capacity, found[0].amount), (invalid, invalid));
    let mut world = World::new(&[rule]);
    let outcome = world.at(&bringing(100, 1), at(0));
    assert!(outcome.rules[0].odd_numbers);
    assert_eq!(numbers(&outcome), (10, 9));
    assert_eq!(numbers(&world.at(&bringing(100, 10), at(0))), (100, 98));
}

#[test]
fn overrides_know_the_numbers() {
    let mut rule = funnel();
    rule["key"] = json!([{ "header": "user" }]);
    rule["overrides"] = json!({
        "twice": { "scale": 2 },
        "own": { "limits": [{ "name": "l", "algorithm": "funnel", "capacity": 3, "rate": "1/s" }] },
    });
    let mut world = World::new(&[rule]);
    for (user, capacity) in [("alice", 50), ("twice", 100), ("own", 3)] {
        let outcome = world.at(&bringing(50, 1).with("user", user), at(0));
        assert_eq!(numbers(&outcome), (capacity, capacity - 1), "{user}");
    }
    assert_eq!(
        numbers(&world.at(&bringing(9, 1).with("user", "twice"), at(0))),
        (18, 16)
    );
}

/// A refused request of a later rule gets its units back, also if the request before brought other numbers.
#[test]
fn what_another_rule_refuses_is_given_back() {
    let mut full = limited(&json!({ "algorithm": "funnel", "capacity": 1, "rate": "1/d" }));
    full["name"] = json!("full");
    let mut world = World::new(&[funnel(), full]);
    assert_eq!(numbers(&world.at(&bringing(5, 1), at(0))), (5, 4));
    assert!(world.at(&bringing(50, 1), at(0)).is_refused());
    let level = level(&world, at(0));
    assert_eq!(level, (50, 1));
}

/// Capacity and used units of the bucket of the first rule, as a screen shows them.
fn level(world: &World, now: Nanos) -> (u64, u64) {
    let rule = &world.rules[0];
    let id = world.table.id(rule.tag(), KEY_OF_ALL);
    let slot = world
        .table
        .get(&mut world.store.clone(), id)
        .expect("reads")
        .expect("a bucket");
    let level = Level::of(rule, KEY_OF_ALL, Some(&slot), Clock::at(now), None);
    let look = level.answer(&loudou_limiter::BucketRequest::new(0, now));
    (
        look.reported().expect("one limit").capacity,
        level.used(&look, now)[0],
    )
}

#[test]
fn edits_keep_what_was_used_and_the_numbers() {
    let mut world = World::new(&[funnel()]);
    for _ in 0..6 {
        world.at(&bringing(500, 1), at(0));
    }
    assert_eq!(level(&world, at(0)), (500, 6));
    let edit = |world: &mut World, limit: Value, carry: Carry| {
        let edit = parse_edit(&limited(&limit)).expect("valid");
        assert!(world.rules.edit("r", &edit, carry, at(0)));
    };
    let mut smaller = funnel()["limits"][0].clone();
    smaller["capacity"] = quota(100);
    edit(&mut world, smaller.clone(), Carry::Keep);
    assert_eq!(
        level(&world, at(0)),
        (100, 6),
        "the same number, and the new maximum"
    );
    edit(
        &mut world,
        funnel()["limits"][0].clone(),
        Carry::Proportional,
    );
    assert_eq!(level(&world, at(0)), (500, 30));
    // Fixed numbers, and back: the request brings its number again.
    let fixed = json!({ "name": "l", "algorithm": "funnel", "capacity": 20, "rate": "1/m" });
    edit(&mut world, fixed, Carry::Keep);
    assert_eq!(level(&world, at(0)), (20, 30));
    edit(&mut world, smaller, Carry::Keep);
    assert_eq!(
        level(&world, at(0)),
        (10, 30),
        "the default, until a request brings a number"
    );
    assert_eq!(numbers(&world.at(&bringing(50, 1), at(0))), (50, 19));
}

#[test]
fn untouched_buckets_are_swept_with_their_numbers() {
    let mut world = World::new(&[funnel()]);
    world.at(&bringing(500, 1), at(0));
    let mut other = funnel()["limits"][0].clone();
    other["capacity"]["default"] = json!(7);
    let edit = parse_edit(&limited(&other)).expect("valid");
    world.rules.edit("r", &edit, Carry::Keep, at(0));
    let (table, rule) = (&world.table, &world.rules[0]);
    let page = table.id(rule.tag(), KEY_OF_ALL).page;
    let brought = table.bring_page_forward(&mut world.store, page, &**rule, Clock::at(at(0)));
    assert_eq!(brought, Ok(1));
    assert_eq!(level(&world, at(0)), (500, 1));
}

#[test]
fn limits_that_the_largest_number_breaks_are_refused() {
    let refused = |limit: Value| {
        let mut rule = limited(&limit);
        rule["name"] = json!("r");
        rule["key"] = json!([]);
        let problems = parse_rule(&rule).expect_err("wrong");
        problems
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join("; ")
    };
    for (limit, place, words) in [
        (
            json!({ "algorithm": "sliding_log", "capacity": quota(1_000), "window": "1m" }),
            "capacity.max",
            "10 to 256",
        ),
        (
            json!({ "algorithm": "leaky_queue", "capacity": 5, "rate": pace(9) }),
            "rate",
            "holds requests",
        ),
        (
            json!({ "algorithm": "funnel", "capacity": 5, "rate": pace(9), "max_wait": "1s" }),
            "rate",
            "holds requests",
        ),
        (
            json!({ "algorithm": "smooth_warmup", "rate": pace(9), "warmup": "1m" }),
            "rate",
            "warm-up belongs to one rate",
        ),
        (
            json!({ "algorithm": "funnel", "capacity": quota(1_000_000_000), "rate": "1/d" }),
            "rate",
            "requests may bring",
        ),
        (
            json!({ "algorithm": "token_bucket", "capacity": quota(50), "rate": "1/d", "initial": 5 }),
            "initial",
            "follows",
        ),
        (
            json!({ "algorithm": "sliding_window", "capacity": quota(50), "window": "1m", "slot_capacity": 5 }),
            "slot_capacity",
            "follows",
        ),
        (
            json!({ "algorithm": "funnel", "capacity": quota(5), "rate": "1/d" }),
            "capacity.max",
            "10 to",
        ),
        (
            json!({ "algorithm": "funnel", "capacity": { "metadata": ["jwt", "q"], "max": 5 }, "rate": "1/d" }),
            "capacity",
            "`default` is missing",
        ),
        (
            json!({ "algorithm": "funnel", "capacity": 5, "rate": { "amount": quota(50) } }),
            "rate",
            "`per` is missing",
        ),
        (
            json!({ "algorithm": "funnel", "capacity": 5, "rate": { "amount": 5, "per": "1m" } }),
            "rate.amount",
            "an object",
        ),
        (
            json!({ "algorithm": "fixed_window", "capacity": 5, "window": quota(9) }),
            "window",
            "duration",
        ),
    ] {
        let problems = refused(limit);
        assert!(
            problems.contains(place) && problems.contains(words),
            "{problems}"
        );
    }
}

/// A rule is written as it was read, so that an exported rule can be imported.
#[test]
fn limits_are_written_as_they_were_read() {
    for limit in kinds(1_000) {
        let rule = super::rule(&limited(&limit));
        let written = serde_json::to_value(&rule).expect("serialises");
        assert_eq!(parse_rule(&written).as_ref(), Ok(&rule), "{written}");
        let own = &written["limits"][0];
        assert_eq!(own.get("capacity"), limit.get("capacity"));
        assert_eq!(own.get("rate"), limit.get("rate"));
    }
}

/// A limit of each algorithm.
fn kinds(max: u32) -> Vec<Value> {
    let (capacity, rate) = (quota(max), pace(600));
    vec![
        json!({ "algorithm": "funnel", "capacity": capacity, "rate": rate }),
        json!({ "algorithm": "funnel", "capacity": capacity, "rate": "5/m", "max_wait": "30s" }),
        json!({ "algorithm": "token_bucket", "capacity": capacity, "rate": rate }),
        json!({ "algorithm": "token_bucket", "capacity": capacity, "rate": rate, "refill": "interval" }),
        json!({ "algorithm": "fixed_window", "capacity": capacity, "window": "1m" }),
        json!({ "algorithm": "fixed_window", "capacity": capacity, "window": "1m", "align": "clock" }),
        json!({ "algorithm": "sliding_window", "capacity": capacity, "window": "1m" }),
        json!({ "algorithm": "sliding_log", "capacity": quota(max.min(100)), "window": "1m" }),
        json!({ "algorithm": "sliding_counter", "capacity": capacity, "window": "1m" }),
        json!({ "algorithm": "leaky_queue", "capacity": capacity, "rate": "5/m" }),
        json!({ "algorithm": "smooth_bursty", "rate": rate }),
        json!({ "algorithm": "concurrency", "capacity": capacity, "lease": "1m" }),
    ]
}

/// A request: the pause before it in seconds, the numbers that it carries, and its outcome.
type Step = (u64, u32, u32, Option<ReleaseReason>);

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let pause = prop_oneof![3 => Just(0), 2 => 0..20_u64, 1 => 0..200_u64];
    let capacity = prop_oneof![1 => Just(0), 2 => 1..5_u32, 2 => 1..60_u32];
    let amount = prop_oneof![1 => Just(0), 3 => 1..30_u32];
    let ends = prop_oneof![
        6 => Just(None),
        1 => Just(Some(ReleaseReason::Ended)),
        1 => Just(Some(ReleaseReason::Refused)),
        1 => Just(Some(ReleaseReason::Left)),
    ];
    prop::collection::vec((pause, capacity, amount, ends), 1..120)
}

/// The level of a funnel, in sixtieths of a unit: the model with which a real funnel is compared.
#[derive(Default)]
struct Model {
    level: u64,
    amount: u64,
}

impl Model {
    fn admits(&mut self, pause: u64, capacity: u32, amount: u32) -> bool {
        self.level = self.level.saturating_sub(pause * self.amount);
        self.amount = amount.into();
        let fits = self.level + 60 <= u64::from(capacity) * 60;
        self.level += if fits { 60 } else { 0 };
        fits
    }
}

proptest! {
    /// A funnel with numbers of the requests is a bucket of units, which leave at the rate of the last request.
    #[test]
    fn a_funnel_is_the_model(steps in steps()) {
        let mut world = World::new(&[funnel()]);
        let (mut model, mut now) = (Model::default(), 0);
        for (pause, capacity, amount, _) in steps {
            now += pause;
            let outcome = world.at(&bringing(capacity, amount), at(now));
            let in_force = |number: u32, default: u32| if number == 0 { default } else { number };
            let expected = model.admits(pause, in_force(capacity, 10), in_force(amount, 1));
            prop_assert_eq!(!outcome.is_refused(), expected, "at {}", now);
        }
    }

    /// With any numbers of requests and any returned costs, a bucket admits no more than with the
    /// largest numbers all the time.
    #[test]
    fn alternating_numbers_gain_nothing(kind in 0..12_usize, steps in steps()) {
        let limit = &kinds(1_000)[kind];
        let mut world = World::new(&[limited(limit)]);
        let (mut now, mut kept) = (0, Vec::new());
        let largest = |of: fn(&Step) -> u32, least: u32| steps.iter().map(of).max().unwrap_or(0).max(least);
        let (capacity, amount) = (largest(|step| step.1, 10), largest(|step| step.2, 1));
        let mut in_flight: u64 = 0;
        for (pause, capacity_now, amount_now, end) in &steps {
            now += pause;
            let mut outcome = world.at(&bringing(*capacity_now, *amount_now), at(now));
            let one = outcome.rules.first_mut().expect("one rule");
            let Some(receipt) = one.receipt.take() else { continue };
            let why = match end {
                Some(ReleaseReason::Ended) | None => None,
                other => *other,
            };
            if let Some(why) = why {
                let give = one.active.release(KEY_OF_ALL, &receipt, why, Clock::at(at(now)));
                world.table.release(&mut world.store, &give, &mut StoreStats::default()).expect("works");
            } else {
                kept.push(now + outcome.wait().as_millis() / 1_000);
                in_flight += 1;
            }
        }
        let rule = super::rule(&limited(limit));
        let numbers = loudou_limiter::RequestNumbers { capacity, amount }.to_word();
        let most: &Limits = &rule.limits.with(&[numbers]);
        let most = most.iter().next().expect("one").algorithm();
        // Every window of time holds at most the capacity, twice for counters, and what the rate gives.
        let per_minute = u64::from(match most.rate() {
            Some(rate) if limit.get("rate").is_some() => rate.amount(),
            _ => 0,
        });
        let windows = if limit.get("window").is_some() { 2 } else { 1 };
        for (place, begin) in kept.iter().enumerate() {
            for (count, end) in kept[place..].iter().enumerate() {
                let minutes = end.saturating_sub(*begin).div_ceil(60) + 1;
                let may = match limit.get("window") {
                    Some(_) => most.capacity() * minutes.max(windows),
                    None => most.capacity() + 1 + per_minute * minutes,
                };
                if limit["algorithm"] != "concurrency" {
                    prop_assert!(u64::try_from(count).expect("few") < may, "more than {may} in {minutes} min: {limit}");
                }
            }
        }
        prop_assert!(limit["algorithm"] != "concurrency" || in_flight <= most.capacity() * (now / 60 + 1) * 2);
    }
}
