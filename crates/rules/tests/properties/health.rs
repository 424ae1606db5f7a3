//! Compares the health of an upstream with a list of its responses.

use loudou_limiter::{Decimal, Nanos};
use loudou_store::UpstreamCondition;
use loudou_store::health::Health;
use proptest::prelude::*;

/// A tenth of a second, which is the slot length in a window of one second.
const SLOT: u64 = 100_000_000;

fn when(over: u32, under: u32, least: u32) -> UpstreamCondition {
    UpstreamCondition {
        over: Decimal::from_thousandths(over),
        until_under: Decimal::from_thousandths(under),
        within: Nanos::from_secs(1),
        least,
    }
}

fn any_when() -> impl Strategy<Value = UpstreamCondition> {
    (1..=1_000_u32, 1..=1_000_u32, 1..8_u32)
        .prop_map(|(one, two, least)| when(one.max(two), one.min(two), least))
}

/// All responses with their times, and a state that is recomputed from all of them.
#[derive(Default)]
struct Naive {
    responses: Vec<(u64, bool)>,
    looked: u64,
    fails: bool,
    since: u64,
}

impl Naive {
    /// Responses and errors that are in the window at `now`, of the first `known`.
    fn count(&self, now: u64) -> (u64, u64) {
        let counts = |at: &&(u64, bool)| at.0 / SLOT + 10 > now / SLOT;
        let (mut all, mut errors) = (0, 0);
        for (_, is_error) in self.responses.iter().filter(counts) {
            all += 1;
            errors += u64::from(*is_error);
        }
        (all, errors)
    }

    fn look(&mut self, when: &UpstreamCondition, now: u64) {
        let (all, errors) = self.count(now);
        let of = |share: Decimal| u64::from(share.thousandths()) * all;
        let fails = if self.fails {
            all > 0 && errors * 1_000 >= of(when.until_under)
        } else {
            all >= u64::from(when.least) && errors * 1_000 > of(when.over)
        };
        if fails != self.fails {
            (self.fails, self.since) = (fails, now);
        }
    }

    /// Looks at each start of a slot up to `now`.
    fn pass(&mut self, when: &UpstreamCondition, now: u64) {
        for slot in self.looked / SLOT + 1..=now / SLOT {
            self.look(when, slot * SLOT);
        }
        self.looked = self.looked.max(now);
    }

    fn respond(&mut self, when: &UpstreamCondition, is_error: bool, now: u64) {
        self.pass(when, now);
        self.responses.push((now, is_error));
        self.look(when, now);
    }
}

/// Pauses in milliseconds, and responses: `None` only looks.
fn steps() -> impl Strategy<Value = Vec<(u64, Option<bool>)>> {
    let pause = prop_oneof![4 => 0..=30_u64, 2 => 31..=300_u64, 1 => 301..=2_500_u64];
    let what = prop_oneof![3 => Just(Some(true)), 3 => Just(Some(false)), 1 => Just(None)];
    prop::collection::vec((pause, what), 1..120)
}

proptest! {
    #![proptest_config(super::config(512))]

    /// Reading in between makes no difference, nor does writing.
    #[test]
    fn it_is_as_a_list_of_all_responses_has_it(when in any_when(), steps in steps()) {
        let mut naive = Naive::default();
        let mut health = Health::new(&when, Nanos::ZERO);
        let mut now = 0;
        for (pause, what) in steps {
            now += pause * 1_000_000;
            let mut seen = health.clone();
            if let Some(is_error) = what {
                naive.respond(&when, is_error, now);
                health.respond(&when, is_error, Nanos::new(now));
                seen = health.clone();
            } else {
                naive.pass(&when, now);
                seen.advance(&when, Nanos::new(now));
            }
            let count = seen.count();
            prop_assert_eq!((count.responses.into(), count.errors.into()), naive.count(now));
            prop_assert_eq!((seen.fails(), seen.since().get()), (naive.fails, naive.since), "at {}", now);
            let last = naive.responses.last().map_or(0, |last| last.0);
            prop_assert_eq!(health.is_stale(Nanos::new(now)), now / SLOT >= last / SLOT + 10);
        }
    }

    /// A response that leaves the share between the thresholds, both included, changes nothing.
    #[test]
    fn it_does_not_flutter(
        under in 1..400_u32,
        gap in 0..400_u32,
        responses in prop::collection::vec((0..90_u64, any::<bool>()), 1..300),
    ) {
        let when = when(under + gap, under, 1);
        let mut health = Health::new(&when, Nanos::ZERO);
        let mut now = 0;
        for (pause, is_error) in responses {
            now += pause * 1_000_000;
            health.advance(&when, Nanos::new(now));
            let before = (health.fails(), health.since());
            health.respond(&when, is_error, Nanos::new(now));
            let count = health.count();
            let bounds = [under, under + gap].map(|share| share * count.responses);
            if (bounds[0]..=bounds[1]).contains(&(count.errors * 1_000)) {
                prop_assert_eq!((health.fails(), health.since()), before);
            }
        }
    }

    #[test]
    fn any_times_and_any_bytes(
        when in any_when(),
        within in 1..=u64::MAX,
        times in prop::collection::vec((any::<u64>(), any::<bool>()), 1..20),
        bytes in prop::collection::vec(any::<u8>(), 0..140),
    ) {
        let when = UpstreamCondition { within: Nanos::new(within), ..when };
        let mut healths = vec![Health::new(&when, Nanos::new(times[0].0))];
        healths.extend(Health::decode(&bytes).map(|(health, _)| health));
        let mut written = bytes;
        written.splice(..written.len().min(2), [1, 1]);
        healths.extend(Health::decode(&written).map(|(health, _)| health));
        for mut health in healths {
            for (at, is_error) in &times {
                health.respond(&when, *is_error, Nanos::new(*at));
                let mut bytes = Vec::new();
                health.encode(&mut bytes);
                bytes.push(7);
                prop_assert_eq!(Health::decode(&bytes), Some((health.clone(), &[7][..])));
                health.advance(&when, Nanos::new(*at ^ u64::MAX));
            }
        }
    }
}

/// If the clock goes back, responses count in the newest slot.
#[test]
fn time_that_goes_back() {
    let when = when(500, 250, 2);
    let mut health = Health::new(&when, Nanos::from_secs(100));
    health.respond(&when, true, Nanos::from_secs(100));
    health.respond(&when, true, Nanos::from_secs(3));
    assert!(health.fails());
    assert_eq!(health.since(), Nanos::from_secs(100));
    assert_eq!(health.count().responses, 2);
}

#[test]
fn of_another_version_or_damaged() {
    let when = when(500, 250, 2);
    let mut bytes = Vec::new();
    Health::new(&when, Nanos::from_secs(5)).encode(&mut bytes);
    assert!(Health::decode(&bytes).is_some());
    for (index, wrong) in [(0, 0), (0, 2), (1, 2)] {
        let mut bytes = bytes.clone();
        bytes[index] = wrong;
        assert_eq!(Health::decode(&bytes), None);
    }
    let mut no_slot = bytes.clone();
    no_slot[2..10].fill(0);
    assert_eq!(Health::decode(&no_slot), None);
    for length in 0..bytes.len() {
        assert_eq!(Health::decode(&bytes[..length]), None);
    }
}
