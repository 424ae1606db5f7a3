//! Runs of refusals, compared with a list of all refusals of a key.

use loudou_limiter::{BucketRequest, Carry, Nanos};
use loudou_store::page::{RUN_GAP, Slot};
use loudou_store::{BanChange, SetBan};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Decides as _, World, clock, edited, per_day, rule, take};

const KEY: &str = "k";
const MS: u64 = 1_000_000;
const S: u64 = 1_000 * MS;
/// The exactness of the time of the last refusal: 2^28 ns.
const TICK: u64 = 1 << 28;
/// Maximum pause within a run.
const GAP: u64 = RUN_GAP.get();
const DAY: u64 = 86_400 * S;
/// Ticks are counted modulo this many nanoseconds.
const TURN: u64 = TICK << 24;

/// Limits of which some admit a part of the requests below.
fn limits() -> Vec<Value> {
    vec![
        json!([{ "algorithm": "funnel", "capacity": 2, "rate": "1/7s" }]),
        json!([{ "algorithm": "funnel", "capacity": 1, "rate": "1/d" }]),
        json!([
            { "name": "a", "algorithm": "funnel", "capacity": 3, "rate": "1/3s" },
            { "name": "b", "algorithm": "fixed_window", "capacity": 5, "window": "1m" },
        ]),
        json!([{ "algorithm": "sliding_log", "capacity": 2, "window": "20s", "count_refused": true }]),
        json!([{ "algorithm": "token_bucket", "capacity": 2, "rate": "1/9s", "initial": 1 }]),
        json!([{ "algorithm": "leaky_queue", "capacity": 1, "rate": "1/2s" }]),
    ]
}

#[derive(Clone, Debug)]
enum Event {
    Requests(u64),
    /// For these seconds.
    Ban(u64),
    Unban,
    Edit(usize, Carry),
    Reset,
}

fn event() -> impl Strategy<Value = Event> {
    let carry = prop::sample::select(vec![Carry::Keep, Carry::Proportional, Carry::Reset]);
    prop_oneof![
        12 => (1..4_u64).prop_map(Event::Requests),
        1 => (1..300_u64).prop_map(Event::Ban),
        1 => Just(Event::Unban),
        1 => (0..limits().len(), carry).prop_map(|(to, carry)| Event::Edit(to, carry)),
        1 => Just(Event::Reset),
    ]
}

/// Generates the time between two events, except times at which the precision of a tick decides
/// whether a run continues.
fn pause() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 0..2 * S,
        4 => 0..GAP,
        1 => Just(GAP),
        2 => GAP + TICK..4 * GAP,
        1 => 0..40 * DAY,
    ]
}

/// Returns the beginning of the run that contains the last of these refusals; `None` if it is not
/// certain.
fn begin(refusals: &[u64]) -> Option<u64> {
    let mut begin = *refusals.last()?;
    for (earlier, later) in refusals.iter().zip(refusals.iter().skip(1)).rev() {
        match later - earlier {
            0..=GAP => begin = *earlier,
            gap if gap < GAP + TICK => return None,
            _ => break,
        }
    }
    Some(begin)
}

fn since(slot: &Slot, now: u64) -> Option<u64> {
    slot.refused_since(Nanos::new(now)).map(Nanos::get)
}

proptest! {
    /// For any events of a bucket, the beginning equals the beginning in the list, to a
    /// millisecond.
    #[test]
    fn a_run_begins_with_its_first_refusal(
        start in prop_oneof![MS..S, TURN - GAP..TURN + GAP, MS..1_000 * DAY],
        first in 0..limits().len(),
        events in prop::collection::vec((pause(), event()), 1..60),
        late in pause(),
    ) {
        let mut world = World::new(16);
        let (mut now, mut active) = (start, rule(&limits()[first]));
        let (mut created, mut refusals) = (None, Vec::new());
        for (pause, event) in events {
            now += pause;
            match event {
                Event::Requests(count) => for _ in 0..count {
                    let ask = take(&active, KEY, now);
                    let charge = world.table.charge(&mut world.store, &ask, &mut world.stats).expect("decided");
                    created.get_or_insert(now);
                    if charge.answer.is_err() || charge.answer.is_ok_and(|answer| answer.is_refused()) {
                        refusals.push(now);
                    }
                },
                Event::Ban(_) | Event::Unban => {
                    let ban = match event {
                        Event::Ban(span) => BanChange::Banned(Some(Nanos::from_secs(span))),
                        _ => BanChange::Free,
                    };
                    let ban = SetBan { rule: &active, key: KEY, ban, clock: clock(now) };
                    world.table.set_ban(&mut world.store, &ban, &mut world.stats).expect("set");
                }
                Event::Edit(to, carry) => active = edited(&active, &rule(&limits()[to]), carry, now),
                Event::Reset => {
                    let id = world.table.id(super::tag(), KEY);
                    world.table.reset(&mut world.store, id).expect("reset");
                    (created, refusals) = (None, Vec::new());
                }
            }
            let Some(slot) = world.slot(KEY) else { continue };
            for now in [now, now + late] {
                let shown = since(&slot, now);
                if let (Some(shown), Some(created)) = (shown, created) {
                    prop_assert!(shown <= now && shown / MS >= created / MS);
                }
                let Some(last) = refusals.last() else {
                    prop_assert_eq!(shown, None);
                    continue;
                };
                let Some(begin) = begin(&refusals) else { continue };
                match now - last {
                    0..=GAP => prop_assert_eq!(shown.map(|shown| shown / MS), Some(begin / MS)),
                    past if (GAP + TICK..TURN - TICK).contains(&past) => prop_assert_eq!(shown, None),
                    _ => {}
                }
            }
        }
    }
}

/// A key that is admitted now and then is refused all the time.
#[test]
fn admitted_requests_do_not_end_a_run() {
    let mut world = World::new(16);
    let limits = rule(&json!([{ "algorithm": "funnel", "capacity": 1, "rate": "1/5s" }]));
    let mut refused = 0;
    for second in 10..1_000 {
        refused += u64::from(!world.admits(&limits, KEY, second * S));
        let slot = world.slot(KEY).expect("a bucket");
        let begin = (refused > 0).then_some(11 * S);
        assert_eq!(since(&slot, second * S), begin, "at {second} s");
    }
    assert_eq!(refused, 792, "of 990");
}

/// A run that lasts longer than the ticks count is known to its beginning.
#[test]
fn a_run_lasts_longer_than_ticks_count() {
    let mut world = World::new(16);
    let limits = per_day(1);
    world
        .table
        .set_ban(
            &mut world.store,
            &SetBan {
                rule: &limits,
                key: KEY,
                ban: BanChange::Banned(None),
                clock: clock(S),
            },
            &mut world.stats,
        )
        .expect("set");
    let mut now = 10 * S;
    while now < TURN + DAY {
        let take = take(&limits, KEY, now);
        let charge = world
            .table
            .charge(&mut world.store, &take, &mut world.stats);
        assert!(charge.expect("decided").answer.is_err());
        now += GAP;
    }
    let slot = world.slot(KEY).expect("a bucket");
    assert_eq!(since(&slot, now), Some(10 * S));
}

/// Permits of requests in flight replace the beginning of the run. It is then unknown, and never
/// wrong.
#[test]
fn permits_hide_the_beginning() {
    let mut world = World::new(16);
    let limits = rule(&json!([{ "algorithm": "concurrency", "capacity": 1, "lease": "30s" }]));
    assert!(world.admits(&limits, KEY, S));
    for second in 2..8 {
        assert!(!world.admits(&limits, KEY, second * S));
        let slot = world.slot(KEY).expect("a bucket");
        assert_eq!(since(&slot, second * S), None);
        assert!(slot.held_until_ms >= 31_000, "{slot:?}");
    }
    // The permit has expired, and the run continues, with a request of more than the capacity.
    let ask = BucketRequest::new(2, Nanos::new(65 * S));
    let take = limits.acquire(KEY, ask);
    let answer = world.table.take(&mut world.store, &take, &mut world.stats);
    assert!(answer.expect("decided").is_refused());
    let slot = world.slot(KEY).expect("a bucket");
    assert_eq!((since(&slot, 65 * S), slot.held_until_ms), (None, 0));
}
