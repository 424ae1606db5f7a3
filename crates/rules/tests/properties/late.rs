//! A bucket may be converted at any later time, with the same result as an immediate conversion for
//! each change.

use loudou_limiter::{Bucket, BucketRequest, Nanos};
use proptest::prelude::*;

use super::changing::{
    Change, Changing, KEYS, any_limits, at_once, change, has_bucket, limits_of, of_named,
};
use super::config;

#[derive(Clone, Debug)]
enum Step {
    Change(Change),
    /// A request with a key, its cost, and its maximum wait.
    Touch(usize, u64, Option<u64>),
    /// Forgets the changes that no bucket needs any more.
    Forget,
}

fn steps() -> impl Strategy<Value = Vec<(u64, Step)>> {
    let pause = prop_oneof![
        3 => Just(0), 4 => 1..=40_u64, 2 => 0..=3_000_000_000_u64, 1 => 0..=1_u64 << 50,
    ];
    let wait = prop::option::weighted(0.3, 0..=4_000_000_000_u64);
    let touch = (0..KEYS.len(), 0..=4_u64, wait);
    let step = prop_oneof![
        4 => change().prop_map(Step::Change),
        6 => touch.prop_map(|(key, cost, wait)| Step::Touch(key, cost, wait)),
        1 => Just(Step::Forget),
    ];
    prop::collection::vec((pause, step), 1..40)
}

proptest! {
    #![proptest_config(config(512))]

    #[test]
    fn a_late_touch_is_an_immediate_one(
        first in any_limits(), ahead in 0..=1_u64 << 60, steps in steps(),
    ) {
        let first = of_named(&first);
        let mut rule = Changing::new(&first, ahead);
        let start = first.start(Nanos::ZERO);
        let mut late: [(Bucket, u32); 3] = std::array::from_fn(|_| (start.clone(), 0));
        let mut soon: [Bucket; 3] = std::array::from_fn(|_| start.clone());
        let mut now = 0;
        for (pause, step) in steps {
            now += pause;
            match step {
                Step::Change(change) => {
                    let before = rule.rule.clone();
                    rule.change(&change, now);
                    let (clock, rules) = (rule.clock(now), (&before, &rule.rule));
                    for (key, bucket) in KEYS.iter().zip(&mut soon) {
                        *bucket = at_once(rules, (key, bucket), change.carry, clock);
                    }
                }
                Step::Touch(index, cost, wait) => {
                    let key = KEYS[index];
                    if !has_bucket(&rule.rule, key) {
                        continue;
                    }
                    let (bucket, version) = &mut late[index];
                    *bucket = rule.forward(key, bucket, *version, now);
                    *version = rule.history.version;
                    prop_assert_eq!(&*bucket, &soon[index]);
                    let clock = rule.clock(now);
                    let ask = BucketRequest::new(cost, clock.now).at_wall(clock.wall).waiting(wait.map(Nanos::new));
                    let limits = limits_of(&rule.rule, key);
                    let answer = limits.answer(bucket, &ask);
                    prop_assert_eq!(limits.answer(&mut soon[index], &ask), answer);
                }
                Step::Forget => {
                    let oldest = late.iter().map(|(_, version)| *version).min();
                    rule.history.forget(oldest.expect("three"));
                }
            }
        }
        for (key, ((bucket, version), soon)) in KEYS.iter().zip(late.iter().zip(&soon)) {
            prop_assert_eq!(&rule.forward(key, bucket, *version, now), soon);
        }
    }
}
