//! For any rules and requests, the explanation agrees with the later decision, and explaining leaves
//! no trace.

use std::cell::Cell;

use loudou_limiter::convert::Carry;
use loudou_limiter::{Clock, Nanos};
use loudou_rules::config::{parse_edit, parse_sample};
use loudou_rules::evaluate::{Answer, Outcome};
use loudou_rules::explain::{Allowance, Explanation, Standing};
use loudou_rules::rule::Mode;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};

use super::World;
use super::arbitrary::{rules, sample};

/// A pause in milliseconds, whether the first rule is edited before, and a request.
type Step = (u64, bool, Value);

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let pause = prop_oneof![3 => 0..300_u64, 1 => 300..9_000_u64];
    prop::collection::vec((pause, prop::bool::weighted(0.05), sample()), 1..16)
}

/// Counts of observed outcomes, so that the agreement is not vacuous.
#[derive(Debug, Default)]
struct Seen {
    requests: Cell<u32>,
    refused: Cell<u32>,
    held: Cell<u32>,
    stopped: Cell<u32>,
    missing: Cell<u32>,
    overruled: Cell<u32>,
    not_asked: Cell<u32>,
    banned: Cell<u32>,
    unlimited: Cell<u32>,
}

fn count(counter: &Cell<u32>, yes: bool) {
    counter.set(counter.get() + u32::from(yes));
}

impl Seen {
    fn add(&self, explained: &Explanation) {
        let outcome = &explained.outcome;
        count(&self.requests, true);
        count(&self.refused, outcome.is_refused());
        count(&self.held, outcome.wait() > Nanos::ZERO);
        count(&self.stopped, outcome.stopped_by.is_some());
        count(
            &self.overruled,
            outcome.rules.iter().any(|said| said.overruled),
        );
        let mut rules = explained.rules.iter();
        count(
            &self.missing,
            rules.clone().any(|rule| rule.missing.is_some()),
        );
        for rule in rules.clone() {
            count(&self.banned, matches!(rule.allowance, Allowance::Banned(_)));
            count(&self.unlimited, rule.allowance == Allowance::Unlimited);
        }
        let behind = |standing| matches!(standing, Standing::BehindRefusal(_));
        count(&self.not_asked, rules.any(|rule| behind(rule.standing)));
    }

    fn is_enough(&self) -> bool {
        let Self {
            requests,
            refused,
            held,
            stopped,
            missing,
            overruled,
            not_asked,
            banned,
            unlimited,
        } = self;
        let all = [
            refused, held, stopped, missing, overruled, not_asked, banned, unlimited,
        ];
        requests.get() >= 1_000 && all.iter().all(|seen| seen.get() >= 20)
    }
}

/// Each rule is explained with its answer, or with the reason why it was skipped.
fn check_rules(world: &World, sample: &Value, explained: &Explanation, outcome: &Outcome) {
    assert_eq!(explained.rules.len(), world.rules.len());
    for (index, (rule, active)) in explained.rules.iter().zip(world.rules.iter()).enumerate() {
        let mut request = parse_sample(sample).expect("a sample");
        let holds = active.rule().matches.holds(&mut request);
        assert_eq!(rule.failing.is_none(), holds, "{rule:?}");
        let said = outcome.rules.iter().find(|said| said.rule == index);
        let Some(said) = said else {
            let reason = match rule.standing {
                Standing::Asked(_) => false,
                Standing::Off => active.rule().mode == Mode::Off,
                Standing::NotFor => !holds,
                Standing::NotNow => holds && active.rule().when.is_some(),
                Standing::BehindStop(by) => holds && by < index && outcome.stopped_by == Some(by),
                Standing::BehindRefusal(by) => {
                    holds && by < index && outcome.refusal().map(|said| said.rule) == Some(by)
                }
            };
            assert!(reason, "rule {index}: {rule:?}");
            continue;
        };
        let Standing::Asked(place) = rule.standing else {
            panic!("rule {index} was asked: {rule:?}");
        };
        assert_eq!(explained.outcome.rules[place].rule, index);
        assert_eq!((&rule.key, rule.price), (&said.key, said.price));
        let lacks = matches!(
            said.answer,
            Answer::Skipped | Answer::KeyMissing | Answer::KeyAmbiguous
        );
        let shares = said.key.as_deref() == Some("~missing");
        assert_eq!(rule.missing.is_some(), lacks || shares, "{rule:?}");
        let allowance = match &said.answer {
            Answer::Banned(ban) => Allowance::Banned(*ban),
            Answer::Unlimited => Allowance::Unlimited,
            _ => Allowance::Limits,
        };
        assert_eq!(rule.allowance, allowance);
        if let Answer::Decided(decision) = &said.answer {
            let bucket = rule.bucket.as_ref().expect("a bucket");
            let told: Vec<_> = bucket.limits.iter().map(|limit| limit.answer).collect();
            let answered: Vec<_> = decision.decisions().copied().collect();
            assert_eq!(told, answered);
            assert_eq!(bucket.reported, decision.reported_index());
        }
    }
}

fn play(rules: &Value, steps: &[Step], buckets: u32, seen: &Seen) {
    let mut world = World::new(rules, buckets);
    let mut now = Nanos::from_secs(1_000);
    let limits = json!([{ "name": "l0", "algorithm": "funnel", "capacity": 2, "rate": "1/s" }]);
    for (pause, edits, sample) in steps {
        now = now.saturating_add(Nanos::from_millis(*pause));
        let wall = now.saturating_add(Nanos::from_millis(1_700_000_000_123));
        let clock = Clock { now, wall };
        if *edits {
            let edit = parse_edit(&json!({ "limits": limits })).expect("an edit");
            world.rules.edit("r0", &edit, Carry::Proportional, now);
        }
        let before = world.store.clone();
        let explained = world.explain(sample, clock);
        assert_eq!(world.store, before, "the store is as it was");
        let outcome = world.send(sample, clock);
        let told = format!("{:?}", explained.outcome);
        assert_eq!(told, format!("{outcome:?}"), "{sample}");
        check_rules(&world, sample, &explained, &outcome);
        seen.add(&explained);
    }
}

#[test]
fn what_is_explained_happens() {
    let config = Config {
        failure_persistence: None,
        ..Config::with_cases(400)
    };
    let seen = Seen::default();
    // With only one page of buckets, some are evicted.
    let input = (rules(), steps(), prop_oneof![Just(16), Just(1_024)]);
    let outcome = TestRunner::new(config).run(&input, |(rules, steps, buckets)| {
        play(&rules, &steps, buckets, &seen);
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error}"));
    assert!(seen.is_enough(), "{seen:?}");
}
