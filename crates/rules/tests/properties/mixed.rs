//! Mixed edits of limits in proportion and in units, of overrides and of configurations. They must
//! not lock out keys, and must not give away capacity.

use loudou_limiter::algorithm::Algorithm;
use loudou_limiter::{Bucket, Carry, Clock, Limits, Nanos, convert};
use loudou_rules::config::parse_limits;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::config;

/// All algorithms that count use and hold no requests, with this capacity. The used amount leaves
/// in a month.
fn all(capacity: u64) -> Vec<Limits> {
    let month = "31d";
    let rate = format!("{capacity}/{month}");
    let window =
        |algorithm: &str| json!({ "algorithm": algorithm, "capacity": capacity, "window": month });
    let mut list = vec![
        json!({ "algorithm": "funnel", "capacity": capacity, "rate": rate }),
        json!({ "algorithm": "token_bucket", "capacity": capacity, "rate": rate }),
        json!({ "algorithm": "token_bucket", "capacity": capacity, "rate": rate, "refill": "interval" }),
        json!({ "algorithm": "leaky_queue", "capacity": capacity, "rate": rate, "immediate": 1000 }),
        window("fixed_window"),
        window("sliding_counter"),
    ];
    let mut slots = window("sliding_window");
    slots["slot_capacity"] = capacity.into();
    list.push(slots);
    if capacity <= 256 {
        list.push(window("sliding_log"));
    }
    let limits = list.into_iter().map(|mut limit: Value| {
        limit["name"] = "a".into();
        parse_limits(&json!([limit])).expect("valid")
    });
    limits.collect()
}

/// Time of the edits, in the middle of the first window.
const NOW: Nanos = Nanos::from_secs(86_400);

struct World {
    limits: Limits,
    bucket: Bucket,
}

impl World {
    fn new(limits: Limits) -> Self {
        let bucket = limits.start(NOW);
        Self { limits, bucket }
    }

    fn edit(&mut self, limits: Limits, carry: Carry) {
        self.bucket = convert(&self.limits, &limits, carry, &self.bucket, Clock::at(NOW));
        self.limits = limits;
    }

    /// How many of these requests are admitted.
    fn ask(&mut self, requests: u64) -> u64 {
        let ask = |_: &u64| !self.limits.decide(&mut self.bucket, 1, NOW).is_refused();
        u64::try_from((0..requests).filter(ask).count()).expect("few")
    }

    fn used(&self) -> u64 {
        self.limits.used(&self.bucket, NOW)[0]
    }

    fn most(&self) -> u64 {
        let limit = self.limits.iter().next().expect("one").algorithm();
        // A leaky queue has a place for the request whose turn it is.
        limit.capacity() + u64::from(matches!(limit, Algorithm::LeakyQueue(_)))
    }
}

/// Alternates between five and six ten times, with other numbers. One of five stays one of five.
#[test]
fn there_and_back_locks_nobody_out() {
    for kind in 0..8 {
        for carry in [Carry::Keep, Carry::Proportional] {
            for others in [&[6][..], &[1], &[7, 3, 200], &[256, 1, 2, 9]] {
                let mut world = World::new(all(5)[kind].clone());
                assert_eq!(world.ask(1), 1);
                for _ in 0..10 {
                    for other in others {
                        world.edit(all(*other)[kind].clone(), carry);
                    }
                    world.edit(all(5)[kind].clone(), carry);
                }
                // A drop of each edit, which leaks in a nanosecond.
                let ask = |cost| {
                    world
                        .limits
                        .peek(&world.bucket, cost, Nanos::new(NOW.get() + 1_000))
                };
                assert!(
                    !ask(4).is_refused(),
                    "{carry:?} {others:?} {:?}",
                    world.limits
                );
            }
        }
    }
}

/// A key that used all of its capacity gets the rest of a larger one at once, in units.
#[test]
fn a_raise_helps_at_once() {
    for kind in 0..8 {
        let mut world = World::new(all(20)[kind].clone());
        let most = world.most();
        assert_eq!(world.ask(30), most);
        world.edit(all(40)[kind].clone(), Carry::default());
        assert_eq!(world.ask(60), world.most() - most, "{:?}", world.limits);
    }
}

/// A key that used more waits for longer, below, at and above the capacity.
#[test]
fn an_edit_in_shares_is_monotone_in_use() {
    for kind in 0..7 {
        for [old, new] in [[100, 10], [100, 200], [10, 9]] {
            let mut last = (0, Nanos::ZERO);
            for used in 1..=u64::from(u8::MAX) {
                // Above the capacity only after another edit.
                let mut world = World::new(all(300)[kind].clone());
                assert_eq!(world.ask(used), used);
                world.edit(all(old)[kind].clone(), Carry::Keep);
                world.edit(all(new)[kind].clone(), Carry::Proportional);
                let answer = world.limits.peek(&world.bucket, 1, NOW);
                let wait = answer
                    .reported()
                    .expect("one")
                    .retry_after
                    .unwrap_or_default();
                let now = (world.used(), wait);
                assert!(
                    now >= last,
                    "{used}: {now:?} after {last:?}: {:?}",
                    world.limits
                );
                assert!(
                    now.0 <= last.0 + 1 + new / old,
                    "{used}: {now:?} after {last:?}: {:?}",
                    world.limits
                );
                last = now;
            }
        }
    }
}

/// A known attack: proportional edits of a rule, with edits of a key's override in units.
#[test]
fn overrides_between_edits_in_shares_hand_out_nothing() {
    for kind in 0..8 {
        let mut world = World::new(all(20)[kind].clone());
        let mut admitted = world.ask(30);
        for _ in 0..10 {
            for (capacity, carry) in [
                (10, Carry::Proportional),
                (20, Carry::Keep),
                (5, Carry::Proportional),
                (20, Carry::Keep),
            ] {
                world.edit(all(capacity)[kind].clone(), carry);
                admitted += world.ask(30);
            }
        }
        assert!(admitted <= 21, "{admitted} of 20: {:?}", world.limits);
    }
}

proptest! {
    #![proptest_config(config(512))]

    /// At one instant, no mix of edits admits more than the largest capacity. With edits in units
    /// alone, a key that used no more than the smallest capacity is never refused.
    #[test]
    fn no_mix_hands_out_or_locks_out(
        kinds in prop::collection::vec(0..8_usize, 1..3),
        edits in prop::collection::vec(
            (any::<prop::sample::Index>(), prop_oneof![1..=12_u64, 1..=250_u64], any::<bool>(), 0..=3_u64),
            1..40,
        ),
        units_alone in any::<bool>(),
    ) {
        let of = |at: &prop::sample::Index, capacity: u64| all(capacity)[*at.get(&kinds)].clone();
        let mut world = World::new(all(5)[kinds[0]].clone());
        let (mut admitted, mut most, mut least) = (0, world.most(), 5);
        for (kind, capacity, in_shares, requests) in &edits {
            let asked = if *requests == 3 { 300 } else { *requests };
            let passed = world.ask(asked);
            prop_assert!(!units_alone || passed == asked || admitted + asked > least, "{:?}", world.limits);
            admitted += passed;
            prop_assert!(admitted <= most, "{admitted} of {most}: {:?}", world.limits);
            let carry = if *in_shares && !units_alone { Carry::Proportional } else { Carry::Keep };
            world.edit(of(kind, *capacity), carry);
            most = most.max(world.most());
            least = least.min(*capacity);
        }
    }
}
