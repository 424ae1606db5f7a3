//! The needs against the core's own funnel, and a log with a known answer.

use std::io;

use loudou_limiter::algorithm::Funnel;
use loudou_limiter::{Limit, Limits};
use loudou_rules::config::{self, parse_rule};
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::decisions::Decided;

/// Watches nothing.
struct Quiet;

impl Observer for Quiet {
    fn decided(&mut self, _: &Decided<'_>) -> io::Result<()> {
        Ok(())
    }

    fn progress(&mut self, _: Progress) -> io::Result<()> {
        Ok(())
    }
}

fn rule() -> Rule {
    let limits = json!([{ "algorithm": "funnel", "capacity": 9, "rate": "1/s" }]);
    parse_rule(&json!({ "name": "r", "key": [], "limits": limits })).expect("valid")
}

/// The requests that a funnel refuses.
fn refused(capacity: u32, rate: Rate, cost: u64, times: &[u64]) -> usize {
    let Ok(funnel) = Funnel::new(capacity.into(), rate) else {
        return times.len();
    };
    let limits = Limits::new(vec![Limit::new("l", funnel)]).expect("one");
    let mut bucket = limits.start(Nanos::ZERO);
    let mut decide = |at: &u64| limits.decide(&mut bucket, cost, Nanos::new(*at));
    times.iter().filter(|at| decide(at).is_refused()).count()
}

proptest! {
    /// With the need nobody is refused, with one less somebody is: so says the code that decides in Envoy.
    #[test]
    fn the_need_is_the_least_capacity_that_refuses_nothing(
        gaps in prop::collection::vec(0_u64..5_000_000_000, 1..60),
        amount in 1_u32..2_000,
        period in prop::sample::select(vec![1_000_000_000_u64, 60_000_000_000, 3_600_000_000_000, 7]),
        cost in 1_u32..4,
    ) {
        let rate = Rate::new(amount, Nanos::new(period)).expect("positive");
        let mut at = 0;
        let times: Vec<u64> = gaps.iter().map(|gap| { at += gap; at }).collect();
        let capacities = vec![1, 2, 3, 5, 8];
        let tried = Candidates { rates: vec![rate], capacities };
        let mut needs = RuleNeeds::new(&rule(), &tried);
        let mut room = MOST_KEYS;
        for at in &times {
            prop_assert!(needs.add(("k", Nanos::new(*at), cost.into()), &[rate], &mut room));
        }
        let need = needs.at(0, 1).capacity(0);
        prop_assert_eq!(refused(need, rate, cost.into(), &times), 0, "capacity {}", need);
        if need > 1 {
            prop_assert!(refused(need - 1, rate, cost.into(), &times) > 0, "capacity {}", need - 1);
        }
        for (capacity, found) in tried.capacities.iter().zip(needs.refused()) {
            let count = refused(*capacity, rate, cost.into(), &times);
            prop_assert_eq!(*found, u64::try_from(count).expect("few"), "capacity {}", capacity);
        }
    }
}

/// A thousand users with bursts of 1 to 10, and one with 500: the answer is known.
#[test]
fn a_known_answer_is_found() {
    let rates = ["1/s", "10/s"].map(|text| Rate::parse(text).expect("a rate"));
    let tried = Candidates {
        rates: rates.to_vec(),
        capacities: vec![9, 10, 500],
    };
    let mut needs = RuleNeeds::new(&rule(), &tried);
    let mut room = MOST_KEYS;
    let mut send = |key: &str, times: u64, at: u64| {
        for _ in 0..times {
            assert!(needs.add((key, Nanos::from_secs(at), 1), &rates, &mut room));
        }
    };
    for user in 0..999 {
        // Idle for an hour, and the same again.
        send(&format!("u{user}"), user % 10 + 1, 10);
        send(&format!("u{user}"), user % 10 + 1, 3_610);
    }
    send("abuser", 500, 20);
    assert_eq!(needs.keys(), 1_000);
    assert_eq!(needs.refused(), [689, 490, 0, 689, 490, 0]);
    for rate in 0..2 {
        let at = needs.at(rate, 2);
        assert_eq!(at.capacity(0), 500);
        assert_eq!(at.capacity(1), 10, "one of a thousand is refused");
        assert_eq!(
            (at.refused(10), at.refused(9), at.refused(500)),
            (1, 100, 0)
        );
        assert_eq!((at.per_mille(500), at.per_mille(999)), (5, 10));
    }
}

/// Two rules with three places. Requests of the first keys are counted however late they come, and requests of other
/// keys are not.
#[test]
fn keys_beyond_the_bound_are_left_out_with_a_warning() {
    let limits = json!([{ "algorithm": "funnel", "capacity": 9, "rate": "1/s" }]);
    let rule = |name: &str, header: &str| json!({ "name": name, "key": [{ "header": header }], "limits": limits });
    let rules = json!({ "version": 1, "rules": [rule("a", "x-a"), rule("b", "x-b")] });
    let file = config::parse(&rules).file.expect("valid");
    let lines = [("1", "1"), ("2", "1"), ("3", "2"), ("1", "1"), ("3", "1")].map(|(a, b)| {
        let line = json!({ "at_ns": 0, "headers": { "x-a": a, "x-b": b } });
        format!("{line}\n")
    });
    let log = lines.concat();
    let found = |most_keys: usize| {
        let tried = Candidates {
            rates: vec![Rate::parse("1/s").expect("a rate")],
            capacities: vec![1],
        };
        let input = Input::new("trace", log.as_bytes());
        let recording = read(vec![input], &Reading::default(), &mut Quiet).expect("a log");
        let found = needs(recording, (&file, tried), most_keys, &mut Quiet).expect("a log");
        let rules = found.rules.iter();
        let rules = rules.map(|rule| (rule.requests, rule.keys(), rule.refused()[0]));
        (rules.collect::<Vec<_>>(), found.warnings)
    };
    let (rules, warnings) = found(3);
    assert_eq!(rules, [(3, 2, 1), (4, 1, 3)]);
    let left_out = "2 requests of keys beyond the first 3 are left out; a part of the log (--from, --to) has fewer";
    assert_eq!(warnings, [left_out]);
    let (rules, warnings) = found(5);
    assert_eq!(rules, [(5, 3, 2), (5, 2, 3)]);
    assert!(warnings.is_empty(), "{warnings:?}");
}

#[test]
fn shares_are_read_and_written() {
    for (text, shown, of_1000) in [
        ("0.1%users", "0.1 % of the keys", 1),
        ("0.150 % users", "0.15 % of the keys", 1),
        ("5%requests", "5 % of the requests", 50),
        ("0%users", "0 % of the keys", 0),
        ("100%users", "100 % of the keys", 1_000),
    ] {
        let share = Share::parse(text).expect(text);
        assert_eq!(
            (share.to_string().as_str(), share.of(1_000)),
            (shown, of_1000),
            "{text}"
        );
    }
    for wrong in [
        "",
        "1",
        "1%",
        "users",
        "%users",
        "-1%users",
        "0.0001%users",
        "101%users",
        "1%user",
        "1%%users",
        "1e1%users",
    ] {
        assert!(Share::parse(wrong).is_err(), "{wrong}");
    }
}

/// The knee is where the curve bends, not at its ends.
#[test]
fn the_knee_is_where_the_curve_bends() {
    let rates =
        ["1/m", "6/m", "1/s", "10/s", "100/s"].map(|text| Rate::parse(text).expect("a rate"));
    assert_eq!(knee(&rates, &[900, 850, 20, 18, 17]), Some(2));
    assert_eq!(
        knee(&rates, &[5, 5, 5, 5, 5]).map(|at| at < rates.len()),
        Some(true)
    );
    assert_eq!(knee(&[], &[]), None);
}
