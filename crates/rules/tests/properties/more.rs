//! The reported time until more capacity is available is the first instant at which one more unit
//! would be admitted, whether the request was admitted or refused.

use loudou_limiter::{BucketRequest, Nanos, NeedsMoreAfter, Verdict};
use proptest::prelude::*;

use super::spec::{Kind, spec};
use super::{config, one, only, timed, train};

proptest! {
    #![proptest_config(config(512))]

    #[test]
    fn more_is_there_then_and_not_before(spec in spec(), train in train(40)) {
        let limits = one(spec);
        let mut bucket = limits.start(Nanos::ZERO);
        for (now, cost) in timed(&train, spec.period, 0) {
            let ask = BucketRequest::new(cost, Nanos::new(now)).needing_more_after(NeedsMoreAfter::Always);
            let answer = limits.answer(&mut bucket, &ask);
            let decision = only(&answer);
            let more = |after: Nanos| {
                let at = answer.at().saturating_add(after);
                let ask = BucketRequest::new(decision.remaining + 1, at).waiting(Some(Nanos::ZERO));
                limits.answer(&mut bucket.clone(), &ask).verdict()
            };
            let Some(after) = answer.more_after() else {
                // The bucket is full, the time depends on other requests, or the next request pays
                // for this one.
                let most = match spec.kind {
                    Kind::SlidingWindow => spec.slot_capacity().min(decision.capacity),
                    _ => decision.capacity,
                };
                let is_unknown = spec.kind == Kind::InFlight || spec.kind.pays_later();
                prop_assert!(decision.remaining >= most || is_unknown, "{decision:?}");
                continue;
            };
            prop_assert!(after > Nanos::ZERO, "{decision:?}");
            prop_assert_eq!(more(after), Verdict::Admit, "{:?}", decision);
            let before = Nanos::new(after.get() - 1);
            prop_assert_eq!(more(before), Verdict::Refuse, "{:?}", decision);
        }
    }
}

/// A refusal reports as much as an admission, and nothing is reported unless it is requested.
#[test]
fn only_those_tell_that_are_asked() {
    use loudou_limiter::algorithm::Funnel;
    use loudou_limiter::{Limit, Limits, Rate};

    let funnel = Funnel::new(2, Rate::parse("1/s").expect("a rate")).expect("valid");
    let limits = Limits::new(vec![Limit::new("burst", funnel)]).expect("one");
    for (tells, admitted, refused) in [
        (NeedsMoreAfter::Never, None, None),
        (NeedsMoreAfter::IfRefused, None, Some(1)),
        (NeedsMoreAfter::Always, Some(1), Some(1)),
    ] {
        let mut bucket = limits.start(Nanos::ZERO);
        let ask = BucketRequest::new(2, Nanos::ZERO).needing_more_after(tells);
        let mut told = || limits.answer(&mut bucket, &ask).more_after();
        // A second refusal, for two units, would wait two seconds. The first unit is available
        // after one second.
        for expected in [admitted, refused, refused] {
            assert_eq!(told(), expected.map(Nanos::from_secs), "{tells:?}");
        }
    }
}
