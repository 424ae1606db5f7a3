//! The effect of a scale on each field of a rule's limits.

use loudou_limiter::bounds::{MAX_AMOUNT, MAX_DRAIN, MAX_PERIOD};
use loudou_limiter::{Decimal, Limit, Limits, Nanos, Rate};
use loudou_rules::config::{parse_limits, scaled};
use proptest::prelude::*;
use serde_json::{Value, json};

fn limits(limits: &Value) -> Limits {
    parse_limits(limits).expect("valid")
}

/// The only limit of `limit`, scaled by this many thousandths.
fn times(limit: &Value, thousandths: u32) -> Option<Value> {
    let scale = Decimal::from_thousandths(thousandths);
    let scaled = scaled(&limits(&json!([limit])), scale)?;
    let mut list = serde_json::to_value(scaled).expect("serialises");
    Some(list[0].take())
}

#[test]
fn scaled_limits_are_exact() {
    let funnel = |capacity: u32, rate: &str| json!({ "name": "n", "algorithm": "funnel", "capacity": capacity, "rate": rate });
    assert_eq!(
        times(&funnel(15, "30/m"), 10_000),
        Some(funnel(150, "300/m"))
    );
    assert_eq!(times(&funnel(15, "30/m"), 500), Some(funnel(8, "15/m")));
    assert_eq!(times(&funnel(15, "5/s"), 500), Some(funnel(8, "5/2s")));
    assert_eq!(times(&funnel(1, "1/s"), 1), Some(funnel(1, "1/1000s")));
    assert_eq!(times(&funnel(8, "1/8s"), 125), Some(funnel(1, "1/64s")));
    assert_eq!(times(&funnel(4_000_000, "1/s"), 1_000_000), None);
    let bucket = |capacity: u32, initial: u32| {
        json!({
            "name": "n", "algorithm": "token_bucket", "capacity": capacity, "rate": "1/s",
            "refill": "interval", "initial": initial
        })
    };
    // A refill at intervals keeps its instants.
    let larger = times(&bucket(10, 5), 3_000).expect("fits");
    assert_eq!(
        (&larger["capacity"], &larger["initial"]),
        (&json!(30), &json!(15))
    );
    assert_eq!(larger["rate"], "3/s");
    let window = json!({ "algorithm": "sliding_window", "capacity": 10, "window": "1m", "slots": 3, "slot_capacity": 4 });
    let half = times(&window, 500).expect("fits");
    assert_eq!(
        (&half["capacity"], &half["slot_capacity"]),
        (&json!(5), &json!(2))
    );
    let places = json!({ "algorithm": "concurrency", "capacity": 3 });
    assert_eq!(times(&places, 2_000).expect("fits")["capacity"], 6);
    // A log keeps a word for each request.
    let log = json!({ "algorithm": "sliding_log", "capacity": 100, "window": "1m" });
    assert!(times(&log, 2_000).is_some());
    assert_eq!(times(&log, 3_000), None);
}

proptest! {
    /// Scaling back restores numbers that divide evenly.
    #[test]
    fn scaling_up_and_down_again_is_nothing(capacity in 1_u32..1_000, amount in 1_u32..1_000, by in prop::sample::select(vec![1_u32, 2, 4, 5, 8, 10, 20, 25, 40, 50])) {
        let limit = json!([{ "algorithm": "funnel", "capacity": capacity, "rate": format!("{amount}/m") }]);
        let limits = limits(&limit);
        let up = scaled(&limits, Decimal::from_thousandths(by * 1_000)).expect("fits");
        let down = scaled(&up, Decimal::from_thousandths(1_000 / by));
        prop_assert_eq!(down, Some(limits));
    }
}

/// The fields of these limits, scaled by this many thousandths.
fn becomes(cases: &[(Value, u32, Value)]) {
    for (limit, thousandths, expected) in cases {
        let scaled = times(limit, *thousandths).expect("fits");
        for (field, value) in expected.as_object().expect("fields") {
            assert_eq!(&scaled[field.as_str()], value, "{field} of {limit}");
        }
    }
}

/// Field by field, as the writer of a scale expects it.
#[test]
fn what_leaks_grows_and_keeps_its_times() {
    becomes(&[
        (
            json!({ "algorithm": "token_bucket", "capacity": 100, "rate": "100/h", "refill": "interval" }),
            1_125,
            json!({ "capacity": 113, "rate": "113/h", "initial": 113 }),
        ),
        (
            json!({ "algorithm": "token_bucket", "capacity": 5, "rate": "5/m", "refill": "interval", "initial": 0 }),
            1_234,
            json!({ "capacity": 7, "rate": "7/m", "initial": 0 }),
        ),
        (
            json!({ "algorithm": "token_bucket", "capacity": 5, "rate": "5/m", "refill": "interval" }),
            500,
            json!({ "capacity": 3, "rate": "3/m" }),
        ),
        (
            json!({ "algorithm": "token_bucket", "capacity": 5, "rate": "5/m" }),
            1_125,
            json!({ "capacity": 6, "rate": "45/8m" }),
        ),
        (
            json!({ "algorithm": "leaky_queue", "capacity": 10, "rate": "2/s", "immediate": 4, "max_wait": "9s" }),
            2_500,
            json!({ "capacity": 25, "rate": "5/s", "immediate": 10, "max_wait": "9s" }),
        ),
        // If at least the capacity is immediate, no request waits.
        (
            json!({ "algorithm": "leaky_queue", "capacity": 10, "rate": "2/s", "immediate": MAX_AMOUNT }),
            2_000,
            json!({ "capacity": 20, "rate": "4/s", "immediate": MAX_AMOUNT }),
        ),
        (
            json!({ "algorithm": "smooth_bursty", "rate": "2/s", "burst_seconds": 3, "max_wait": "1s" }),
            1_500,
            json!({ "rate": "3/s", "burst_seconds": 3, "max_wait": "1s" }),
        ),
        (
            json!({ "algorithm": "smooth_warmup", "rate": "2/s", "warmup": "3s", "cold_factor": 4 }),
            1_500,
            json!({ "rate": "3/s", "warmup": "3s", "cold_factor": 4 }),
        ),
    ]);
}

#[test]
fn windows_and_places_grow_and_keep_their_times() {
    becomes(&[
        (
            json!({ "algorithm": "concurrency", "capacity": 3, "lease": "9m" }),
            1_500,
            json!({ "capacity": 5, "lease": "9m" }),
        ),
        (
            json!({ "algorithm": "fixed_window", "capacity": 3, "window": "1d", "align": "clock" }),
            1_500,
            json!({ "capacity": 5, "window": "1d", "align": "clock" }),
        ),
        (
            json!({ "algorithm": "sliding_counter", "capacity": 3, "window": "1d", "align": "clock" }),
            10_000,
            json!({ "capacity": 30, "window": "1d", "align": "clock" }),
        ),
        (
            json!({ "algorithm": "sliding_log", "capacity": 3, "window": "1d", "count_refused": true }),
            10_000,
            json!({ "capacity": 30, "window": "1d", "count_refused": true }),
        ),
        (
            json!({ "algorithm": "sliding_window", "capacity": 10, "window": "1m", "slots": 3, "slot_capacity": 4 }),
            1_100,
            json!({ "capacity": 11, "window": "1m", "slots": 3, "slot_capacity": 5 }),
        ),
    ]);
}

/// Periods are bounded. A rate that would need a longer period becomes the nearest higher rate.
#[test]
fn no_scale_is_refused_for_its_period() {
    let funnel = |rate: &str, thousandths: u32| {
        let funnel = json!({ "algorithm": "funnel", "capacity": 7, "rate": rate });
        let scaled = times(&funnel, thousandths).expect("fits");
        scaled["rate"].as_str().expect("a rate").to_owned()
    };
    assert_eq!(funnel("1/366d", 2_000), "2/366d");
    assert_eq!(funnel("8/300d", 125), "1/300d");
    // 8.638 in 30 days, accurate to the nanosecond, and never less.
    let rate = Rate::parse(&funnel("7/30d", 1_234)).expect("a rate");
    let thirty_days = u128::from(30 * 86_400_000_000_000_u64);
    let (amount, period) = (u128::from(rate.amount()), u128::from(rate.period().get()));
    assert!(amount * 1_000 * thirty_days >= 8_638 * period);
    assert!(amount * 1_000 * thirty_days < 8_638 * (period + 1));
    // The slowest rate is one in the longest period.
    assert_eq!(funnel("1/300d", 1), "1/366d");
    assert_eq!(funnel("999999999/s", 1_000), "999999999/s");
    let fast = Rate::parse(&funnel("999999999/s", 1_500)).expect("a rate");
    assert!(fast.amount() <= MAX_AMOUNT, "{fast}");
}

fn limit() -> impl Strategy<Value = Value> {
    let capacity = 1_u32..=9;
    let period = prop_oneof![
        1_u64..=1_000,
        prop::sample::select(vec![1_000_000_000, 60_000_000_000, 30 * 86_400_000_000_000]),
        1_u64..=MAX_PERIOD.get(),
    ];
    let amount = prop_oneof![1_u32..=10, 1..=40_000_000_u32];
    (0..11_u32, capacity, amount, period, 0..10_u32).prop_map(
        |(kind, capacity, amount, period, seed)| {
            let (rate, window) = (format!("{amount}/{period}ns"), format!("{period}ns"));
            let part = capacity.min(seed);
            match kind {
                0 => json!({ "algorithm": "funnel", "capacity": capacity, "rate": rate }),
                1 => json!({ "algorithm": "token_bucket", "capacity": capacity, "rate": rate, "initial": part }),
                2 => json!({ "algorithm": "token_bucket", "capacity": capacity, "rate": rate, "refill": "interval" }),
                3 => json!({ "algorithm": "fixed_window", "capacity": capacity, "window": window }),
                4 => json!({ "algorithm": "sliding_window", "capacity": capacity, "window": window, "slots": seed.max(2) }),
                5 => json!({ "algorithm": "sliding_log", "capacity": capacity, "window": window }),
                6 => json!({ "algorithm": "sliding_counter", "capacity": capacity, "window": window }),
                7 => json!({ "algorithm": "leaky_queue", "capacity": capacity, "rate": rate, "immediate": seed }),
                8 => json!({ "algorithm": "smooth_bursty", "rate": rate, "burst_seconds": 0 }),
                9 => json!({ "algorithm": "smooth_warmup", "rate": rate, "warmup": window }),
                _ => json!({ "algorithm": "concurrency", "capacity": capacity }),
            }
        },
    )
}

/// `rate` as two numbers, of which the second one is a multiple of a nanosecond.
fn ratio(rate: Rate, of: u64) -> [u128; 2] {
    [
        rate.amount().into(),
        u128::from(rate.period().get()) * u128::from(of),
    ]
}

/// Returns true if the first rate is at least the second.
fn at_least([a, p]: [u128; 2], [b, q]: [u128; 2]) -> bool {
    a * q >= b * p
}

fn gcd(a: u128, b: u128) -> u128 {
    if b == 0 { a } else { gcd(b, a % b) }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1_024) })]

    /// A larger scale never gives less, and a smaller scale never gives more. This holds for the
    /// capacity and in the long run.
    #[test]
    fn scales_are_monotonous_and_exact(
        limit in limit(), by in prop_oneof![1..=25_000_u32, 990..=1_010_u32, Just(1_000_u32)],
    ) {
        let old = limits(&json!([limit]));
        let Some(new) = scaled(&old, Decimal::from_thousandths(by)) else {
            // A capacity is rounded up, so that a bucket which empties as slowly as is allowed may not fit.
            let drains = old.iter().map(|limit| limit.algorithm().drain_time()).max();
            prop_assert!(drains > Some(Nanos::new(MAX_DRAIN.get() / 2)), "no number is too large");
            return Ok(());
        };
        let [old, new] = [&old, &new].map(|limits| limits.iter().next().expect("one").clone());
        let lesser_first = |a: Limit, b: Limit| if by >= 1_000 { [a, b] } else { [b, a] };
        let [small, large] = lesser_first(old.clone(), new.clone());
        let [small, large] = [small.algorithm(), large.algorithm()];
        prop_assert!(small.capacity() <= large.capacity() && small.max_cost() <= large.max_cost());
        let (Some(rate), Some(times)) = (old.algorithm().rate(), new.algorithm().rate()) else {
            return Ok(());
        };
        let rates = [small, large].map(|algorithm| algorithm.rate().map(|rate| ratio(rate, 1)));
        let [Some(small), Some(large)] = rates else {
            return Ok(());
        };
        prop_assert!(at_least(large, small), "{times}");
        // Never less than the scale demands.
        let [amount, period] = ratio(rate, 1_000);
        let meant = [amount * u128::from(by), period];
        let is = ratio(times, 1);
        prop_assert!(at_least(is, meant), "{times}");
        let is_whole = limit.get("window").is_some() && limit.get("rate").is_none();
        if is_whole || limit["refill"] == "interval" {
            // Less than one more, in the same period.
            prop_assert_eq!(times.period(), rate.period());
            prop_assert!(!at_least([is[0] - 1, is[1]], meant), "{times}");
            return Ok(());
        }
        let common = gcd(meant[0], meant[1]);
        let [amount, period] = meant.map(|n| n / common);
        if amount <= MAX_AMOUNT.into() && period <= MAX_PERIOD.get().into() {
            prop_assert!(at_least(meant, is), "{times} is not exact");
        } else {
            let is_longest = times.period() == MAX_PERIOD;
            let later = Nanos::new(times.period().get() + 1);
            let slower = Rate::new(times.amount(), later).expect("positive");
            let is_nearest = !at_least(ratio(slower, 1), meant);
            prop_assert!(is_longest || is_nearest || times == rate, "{times}");
        }
    }
}
