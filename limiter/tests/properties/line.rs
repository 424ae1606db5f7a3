//! Who waits passes before anybody who asks later, whatever is edited meanwhile.

use loudou_limiter::{Ask, Carry, Clock, Nanos, convert};
use proptest::prelude::*;

use super::changing::{Named, any_limits, of_named};
use super::config;

#[derive(Clone, Debug)]
enum Step {
    Edit(Named, Carry),
    /// A cost, and how long the request would wait instead of what the limits say.
    Ask(u64, Option<u64>),
}

fn steps() -> impl Strategy<Value = Vec<(u64, Step)>> {
    let carry = vec![Carry::Keep, Carry::Proportional, Carry::Reset];
    let edit = (any_limits(), prop::sample::select(carry));
    let wait = prop::option::of(prop_oneof![
        0..=60_u64,
        0..=5_000_000_000_u64,
        Just(u64::MAX)
    ]);
    let step = prop_oneof![
        1 => edit.prop_map(|(limits, carry)| Step::Edit(limits, carry)),
        3 => (1..=4_u64, wait).prop_map(|(cost, wait)| Step::Ask(cost, wait)),
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
        for (pause, step) in steps {
            now += pause;
            match step {
                Step::Edit(named, carry) => {
                    let new = of_named(&named);
                    bucket = convert(&limits, &new, carry, &bucket, Clock::at(Nanos::new(now)));
                    limits = new;
                }
                Step::Ask(cost, wait) => {
                    let ask = Ask::new(cost, Nanos::new(now)).waiting(wait.map(Nanos::new));
                    let answer = limits.answer(&mut bucket, &ask);
                    if answer.is_refused() {
                        continue;
                    }
                    let passes = answer.at().get() + answer.wait().get();
                    prop_assert!(passes >= passed, "{passes} before {passed}");
                    passed = passes;
                }
            }
        }
    }
}
