//! Compares the fast path with the general path. Equal requests get equal answers and receipts, and
//! leave equal bytes.

use alloc::vec;
use alloc::vec::Vec;
use core::cell::Cell;

use loudou_limiter::Decimal;
use loudou_limiter::algorithm::{
    Algorithm, Align, Concurrency, FixedWindow, Funnel, LeakyQueue, Refill, SlidingCounter,
    SlidingLog, TokenBucket,
};
use loudou_limiter::{Bucket, BucketRequest, Clock, Limit, Limits, Nanos, Penalty, Rate, Taken};
use proptest::prelude::*;

use super::*;
use crate::attempt::Acquire;
use crate::attempt::GaveUp;
use crate::attempt::StoreStats;
use crate::memory::MemoryStore;
use crate::page::FLAG_KEEPS_GAIN;
use crate::shared_data::{CAS_OVERWRITE, SharedData};
use crate::table::LiveRule;
use crate::table::Table;

/// A rule that keeps its limits when it is edited. Only its version changes.
#[derive(Debug)]
struct Fixed {
    limits: Limits,
    penalty: Option<Penalty>,
    version: Cell<u32>,
}

impl LiveRule for Fixed {
    fn tag(&self) -> u32 {
        7
    }

    fn version(&self) -> u32 {
        self.version.get()
    }

    fn age(&self, version: u32) -> Age {
        match version.cmp(&self.version()) {
            core::cmp::Ordering::Less => Age::Older,
            core::cmp::Ordering::Equal => Age::Current,
            core::cmp::Ordering::Greater => Age::Newer,
        }
    }

    fn limits_of(&self, _: &str) -> &Limits {
        &self.limits
    }

    fn bring_forward(&self, _: (&str, &Limits), _: (&Bucket, u32), _: Clock) -> Option<Bucket> {
        None
    }

    fn bring_taken_forward(&self, _: (&str, &Limits), _: (&Taken, u32), _: Clock) -> Option<Taken> {
        None
    }

    fn penalty(&self) -> Option<&Penalty> {
        self.penalty.as_ref()
    }
}

fn algorithm() -> impl Strategy<Value = Algorithm> {
    let rate = (1_u32..4, 1_u64..4)
        .prop_map(|(amount, seconds)| Rate::new(amount, Nanos::from_secs(seconds)).expect("valid"));
    (0..10, 1_u64..6, rate).prop_map(|(kind, capacity, rate)| {
        let second = Nanos::from_secs(1);
        match kind {
            0 | 1 => Funnel::new(capacity, rate).expect("valid").into(),
            2 => {
                let funnel = Funnel::new(capacity, rate).expect("valid");
                funnel.waiting(second).expect("valid").into()
            }
            3 => TokenBucket::new(capacity, rate, Refill::Greedy, capacity)
                .expect("valid")
                .into(),
            4 => TokenBucket::new(capacity, rate, Refill::Interval, 0)
                .expect("valid")
                .into(),
            5 => FixedWindow::new(capacity, second, Align::Clock)
                .expect("valid")
                .into(),
            6 => SlidingLog::new(capacity, second, capacity % 2 == 0)
                .expect("valid")
                .into(),
            7 => SlidingCounter::new(capacity, second).expect("valid").into(),
            8 => LeakyQueue::new(capacity, rate).expect("valid").into(),
            _ => Concurrency::new(capacity, second).expect("valid").into(),
        }
    })
}

fn rule() -> impl Strategy<Value = Fixed> {
    let limits = prop::collection::vec(algorithm(), 1..4).prop_map(|all| {
        let names = ["a", "b", "c"].into_iter();
        let limits = names.zip(all).map(|(name, one)| Limit::new(name, one));
        Limits::new(limits.collect()).expect("valid")
    });
    let penalty = prop::option::weighted(0.2, Just(()));
    (limits, penalty).prop_map(|(limits, penalty)| Fixed {
        limits,
        penalty: penalty.map(|()| Penalty {
            after: 3,
            within: Nanos::from_secs(2),
            ban: Nanos::from_secs(1),
            factor: Decimal::from_thousandths(1_000),
            max: Nanos::from_secs(4),
        }),
        version: Cell::new(1),
    })
}

/// An event before a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Before {
    Nothing,
    /// The rule is edited.
    Edit,
    /// Another worker's clock is ahead of the deciding worker's clock.
    Ahead,
    /// The slot belongs to a bucket with other limits.
    Flag,
    /// Units were given back to the bucket.
    Given,
    /// Requests in flight hold permits of an earlier limit.
    Held,
}

/// Generates a request with its time after the previous request, and an event before it.
fn request() -> impl Strategy<Value = (BucketRequest, Before)> {
    // Some times are long enough to end a run of refusals.
    let after_ms = prop_oneof![6 => 0_u64..50, 2 => 0_u64..3_000, 1 => 59_000_u64..62_000];
    let patience = prop_oneof![6 => Just(Nanos::MAX), 1 => Just(Nanos::ZERO)];
    let before = prop_oneof![
        12 => Just(Before::Nothing),
        1 => Just(Before::Edit),
        2 => Just(Before::Ahead),
        1 => Just(Before::Flag),
        1 => Just(Before::Given),
        1 => Just(Before::Held),
    ];
    (0_u64..4, after_ms, patience, before).prop_map(|(cost, after_ms, patience, before)| {
        let request = BucketRequest::new(cost, Nanos::from_millis(after_ms)).within(patience);
        (request, before)
    })
}

/// The way to decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Never the fast path.
    General,
    /// The fast path where it applies, in a copy of the page.
    Fast,
    /// The fast path where it applies, in the store.
    InPlace,
}

/// Decides a request on a store. Returns the outcome, true if the fast path decided it, and the
/// bytes of the page.
fn step(
    (table, store): (&Table, &mut MemoryStore),
    rule: &Fixed,
    request: BucketRequest,
    (way, before): (Way, Before),
) -> (Result<alloc::string::String, GaveUp>, bool, Vec<u8>) {
    let acquire = Acquire {
        rule,
        limits: &rule.limits,
        key: "key",
        request,
        lease: None,
    };
    let mut attempt = Attempt::new(table, acquire);
    attempt.change.read(store).expect("memory");
    let id = attempt.change.id;
    if let Some((index, mut slot)) = attempt.change.page.find(id.fingerprint) {
        match before {
            Before::Flag => slot.flags ^= FLAG_KEEPS_GAIN,
            Before::Given => slot.bucket.given ^= 3,
            Before::Held => slot.held_until_ms = request.now.millis_ceil().saturating_add(5_000),
            Before::Nothing | Before::Edit | Before::Ahead => {}
        }
        attempt.change.page.replace(index, &slot);
        if way == Way::InPlace {
            let bytes = attempt.change.page.bytes();
            let written = store.set(&attempt.change.page_key, bytes, CAS_OVERWRITE);
            assert_eq!(written, Ok(Written::Done));
            attempt.change.read(store).expect("memory");
        }
    }
    let in_store = match way {
        Way::InPlace => attempt.decide_in_place(store),
        Way::General | Way::Fast => None,
    };
    let fast = match way {
        Way::Fast => attempt.plan_fast(),
        Way::General | Way::InPlace => None,
    };
    let was_in_place = in_store.is_some() || fast.is_some();
    let charge = in_store.map_or_else(
        || {
            let planned = fast.map_or_else(|| attempt.plan(), Ok)?;
            attempt.planned = Some(planned);
            let done = attempt.write(store, &mut StoreStats::default());
            done.expect("no other worker")
        },
        Ok,
    );
    let mut bytes = Vec::new();
    store
        .get(&table.page_key(id.page), &mut bytes)
        .expect("memory");
    (
        charge.map(|charge| alloc::format!("{charge:?}")),
        was_in_place,
        bytes,
    )
}

proptest! {
    #[test]
    fn it_decides_as_the_other_way(rule in rule(), requests in prop::collection::vec(request(), 1..40)) {
        let mut stores = [Way::General, Way::Fast, Way::InPlace].map(|way| (way, MemoryStore::new()));
        let mut now = Nanos::from_secs(1_000);
        for (mut request, before) in requests {
            let at = match before {
                Before::Ahead => now.since(request.now),
                _ => now.saturating_add(request.now),
            };
            now = now.max(at);
            (request.now, request.wall) = (at, at.saturating_add(Nanos::from_secs(77)));
            if before == Before::Edit {
                rule.version.set(rule.version().saturating_add(1));
            }
            let [general, fast, in_place] = stores.each_mut().map(|(way, store)| {
                let table = Table::open(store, "t", 16, [3; 16], Nanos::ZERO).expect("memory");
                step((&table, store), &rule, request, (*way, before))
            });
            prop_assert_eq!(&general.0, &fast.0);
            prop_assert_eq!(&general.2, &fast.2);
            prop_assert_eq!(fast, in_place);
        }
    }
}

/// Most requests of usual rules are decided in place, which is necessary for their speed. The first
/// refusal of a run records its beginning, which cannot be done in place.
#[test]
fn admissions_and_refusals_are_decided_in_place() {
    let rate = Rate::new(1, Nanos::from_secs(1)).expect("valid");
    let funnel = |capacity| Funnel::new(capacity, rate).expect("valid");
    let window = FixedWindow::new(9, Nanos::from_secs(9), Align::First).expect("valid");
    for limits in [
        vec![Limit::new("a", funnel(5))],
        vec![Limit::new("a", funnel(5)), Limit::new("b", window)],
    ] {
        let rule = Fixed {
            limits: Limits::new(limits).expect("valid"),
            penalty: None,
            version: Cell::new(1),
        };
        let mut store = MemoryStore::new();
        let table = Table::open(&mut store, "t", 16, [3; 16], Nanos::ZERO).expect("memory");
        let mut in_place = |at_s| {
            let request = BucketRequest::new(1, Nanos::from_secs(at_s));
            step(
                (&table, &mut store),
                &rule,
                request,
                (Way::Fast, Before::Nothing),
            )
            .1
        };
        assert!(!in_place(1_000), "the bucket is new");
        let refused_by_one = rule.limits.iter().len() > 1;
        assert!((0..4).all(|_| in_place(1_000)));
        assert!(!in_place(1_000), "the run begins");
        assert!((0..2).all(|_| in_place(1_000) != refused_by_one));
        // Admitted, then refused again, in the same run and in the next one.
        assert!(in_place(1_001));
        assert!((0..2).all(|_| in_place(1_001) != refused_by_one));
        assert!((0..5).all(|_| in_place(1_100)));
        assert!(!in_place(1_100), "another run begins");
        assert!((0..2).all(|_| in_place(1_100) != refused_by_one));
    }
}
