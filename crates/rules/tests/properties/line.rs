//! Waiting requests pass before later requests, with any edits in between. An edit delays no
//! request that the new numbers admit sooner.

use loudou_limiter::bounds::MAX_WAIT;
use loudou_limiter::{BucketRequest, Carry, Clock, Nanos, Plan, Taken, convert};
use proptest::prelude::*;

use super::changing::{Named, any_limits, of_named};
use super::config;

#[derive(Clone, Debug)]
enum Step {
    Edit(Named, Carry),
    /// A cost, and a maximum wait that replaces the limit's.
    BucketRequest(u64, Option<u64>),
}

fn steps() -> impl Strategy<Value = Vec<(u64, Step)>> {
    let carry = vec![Carry::Keep, Carry::Proportional, Carry::Reset];
    let edit = (any_limits(), prop::sample::select(carry));
    let wait = prop::option::of(prop_oneof![
        0..=60_u64,
        0..=5_000_000_000_u64,
        Just(MAX_WAIT.get())
    ]);
    let step = prop_oneof![
        1 => edit.prop_map(|(limits, carry)| Step::Edit(limits, carry)),
        3 => (1..=4_u64, wait).prop_map(|(cost, wait)| Step::BucketRequest(cost, wait)),
    ];
    let pause = prop_oneof![5 => Just(0), 4 => 0..=20_u64, 1 => 0..=2_000_000_000_u64];
    prop::collection::vec((pause, step), 1..60)
}

proptest! {
    #![proptest_config(config(1_024))]

    #[test]
    fn instants_of_passing_are_in_the_order_of_asking(first in any_limits(), steps in steps()) {
        let mut limits = of_named(&first);
        let mut bucket = limits.start(Nanos::ZERO);
        let (mut now, mut passed) = (0, 0);
        let mut waiting: Vec<(Nanos, Taken)> = Vec::new();
        for (pause, step) in steps {
            now += pause;
            while waiting.first().is_some_and(|(due, _)| due.get() <= now) {
                passed = waiting.remove(0).0.get();
            }
            match step {
                Step::Edit(named, carry) => {
                    let new = of_named(&named);
                    let clock = Clock::at(Nanos::new(now));
                    let mut planned = Vec::new();
                    for (due, taken) in &waiting {
                        let taken = taken.converted(&limits, &new, carry, clock);
                        if let Plan::At(due) = new.plan(&limits, &taken, *due) {
                            prop_assert!(due.get() >= now);
                            planned.push((due, taken));
                        }
                    }
                    prop_assert!(planned.is_sorted_by_key(|(due, _)| *due), "{planned:?}");
                    waiting = planned;
                    bucket = convert(&limits, &new, carry, &bucket, clock);
                    limits = new;
                }
                Step::BucketRequest(cost, wait) => {
                    let ask = BucketRequest::new(cost, Nanos::new(now)).waiting(wait.map(Nanos::new));
                    let taken = Taken::new(&bucket, &ask);
                    let answer = limits.answer(&mut bucket, &ask);
                    if answer.is_refused() {
                        continue;
                    }
                    let passes = answer.at().saturating_add(answer.wait());
                    let last = waiting.last().map_or(passed, |(due, _)| due.get());
                    // A limit that holds no request has no queue. A request with a lower cost may
                    // fit before a request that waits since an earlier edit.
                    let has_line = limits.iter().all(|limit| limit.algorithm().may_hold());
                    let costs_less = waiting.iter().any(|(_, taken)| taken.cost() > cost);
                    let may_overtake = costs_less && !has_line;
                    prop_assert!(may_overtake || passes.get() >= last, "{passes:?} before {last}");
                    if answer.wait() > Nanos::ZERO {
                        waiting.push((passes, taken));
                    } else {
                        passed = passes.get();
                    }
                }
            }
        }
    }
}
