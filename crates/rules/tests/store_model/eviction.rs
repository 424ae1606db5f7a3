//! Evictions from a full page, and buckets that are never evicted.

use loudou_limiter::{BucketRequest, Carry, Nanos};
use loudou_store::page::{Evicted, FLAG_KEEPS_GAIN, FLAG_PINNED, Page, PageFull, SLOTS, Slot};
use loudou_store::{BanChange, GaveUp, LiveRule, SetBan};
use serde_json::json;

use super::{Decides as _, World, clock, edited, per_day, rule, take};

const MS: u64 = 1_000_000;
const S: u64 = 1_000 * MS;

/// A page of the slots (idle at, flags), named by their position.
fn page(slots: &[(u64, u8)]) -> Page {
    let mut world = World::new(16);
    world.take(&per_day(1), "template", 0).expect("a decision");
    let template = world.slot("template").expect("a slot");
    let slot = |(index, (idle_at_ms, flags)): (u64, &(u64, u8))| Slot {
        fingerprint: index,
        idle_at_ms: *idle_at_ms,
        flags: *flags,
        ..template.clone()
    };
    Page {
        origins: 0,
        slots: (0..).zip(slots).map(slot).collect(),
    }
}

/// Sixteen slots, idle at 1000 ms and later, except for the given ones.
fn full_page(others: &[(usize, u64, u8)]) -> Page {
    let mut slots: Vec<(u64, u8)> = (0..16).map(|n| (1_000 + n, 0)).collect();
    for (index, idle_at_ms, flags) in others {
        slots[*index] = (*idle_at_ms, *flags);
    }
    page(&slots)
}

/// The slot that is evicted at `now`, and the kind of eviction.
fn evicted(mut page: Page, now: u64) -> (Option<u64>, Result<Evicted, PageFull>) {
    let before: Vec<u64> = page.slots.iter().map(|slot| slot.fingerprint).collect();
    let outcome = page.make_room(super::tag(), Nanos::new(now));
    let kept = |id: &u64| page.slots.iter().any(|slot| slot.fingerprint == *id);
    let mut gone = before.into_iter().filter(|id| !kept(id));
    let first = gone.next();
    assert_eq!(gone.next(), None, "at most one goes");
    (first, outcome)
}

#[test]
fn nothing_goes_while_there_is_room() {
    assert_eq!(SLOTS, 16);
    let idle = vec![(0, 0); 15];
    assert_eq!(evicted(page(&idle), S), (None, Ok(Evicted::Nothing)));
    let idle = vec![(0, 0); 16];
    assert_eq!(evicted(page(&idle), S), (Some(0), Ok(Evicted::Lossless)));
}

#[test]
fn idle_buckets_go_before_used_ones() {
    let gone = |others: &[(usize, u64, u8)], now_ms: u64| evicted(full_page(others), now_ms * MS);
    // The bucket that will be idle first is evicted, if none is idle.
    assert_eq!(gone(&[], 500), (Some(0), Ok(Evicted::Lossy)));
    assert_eq!(gone(&[(9, 700, 0)], 500), (Some(9), Ok(Evicted::Lossy)));
    // From its very millisecond on, an idle one is no loss.
    assert_eq!(gone(&[(9, 700, 0)], 699), (Some(9), Ok(Evicted::Lossy)));
    assert_eq!(gone(&[(9, 700, 0)], 700), (Some(9), Ok(Evicted::Lossless)));
    // In any order of the slots.
    assert_eq!(
        gone(&[(2, 300, 0), (9, 200, 0)], 500),
        (Some(9), Ok(Evicted::Lossless))
    );
    // A full bucket that is worth more than a new one is never idle.
    let better = (3, 10, FLAG_KEEPS_GAIN);
    assert_eq!(
        gone(&[better, (9, 700, 0)], 700),
        (Some(9), Ok(Evicted::Lossless))
    );
    assert_eq!(
        gone(&[better, (9, 700, 0)], 600),
        (Some(3), Ok(Evicted::Lossy))
    );
}

#[test]
fn a_fraction_of_a_millisecond_is_not_idle_yet() {
    let page = || full_page(&[(4, 700, 0)]);
    assert_eq!(evicted(page(), 700 * MS - 1), (Some(4), Ok(Evicted::Lossy)));
    assert_eq!(evicted(page(), 700 * MS), (Some(4), Ok(Evicted::Lossless)));
}

/// A ban protects a bucket only while it lasts, and only an operator's ban pins it. Otherwise, a
/// client that can make up many keys could fill a page with penalties.
#[test]
fn banned_buckets_go_last_and_operators_bans_never() {
    let banned = |page: &mut Page, index: usize, until_ms: u64, flags: u8| {
        let slot = &mut page.slots[index];
        slot.ban_history.banned_until_ms = until_ms;
        slot.idle_at_ms = until_ms.max(slot.idle_at_ms);
        slot.flags = flags;
    };
    let held = |until_ms: [u64; 3], pins: [u8; 3]| {
        let mut page = full_page(&[(0, 1, 0), (1, 1, 0), (2, 1, 0)]);
        for ((index, until_ms), flags) in until_ms.into_iter().enumerate().zip(pins) {
            banned(&mut page, index, until_ms, flags);
        }
        page
    };
    let others = (Some(3), Ok(Evicted::Lossy));
    assert_eq!(evicted(held([900; 3], [0; 3]), S / 2), others);
    assert_eq!(evicted(held([900; 3], [FLAG_PINNED; 3]), S / 2), others);
    // Expired bans have no effect.
    let over = held([500, 900, 900], [FLAG_PINNED; 3]);
    assert_eq!(evicted(over, S / 2), (Some(0), Ok(Evicted::Lossless)));
    let all = |flags: u8| {
        let mut page = page(&[(1, 0); 16]);
        for (index, until_ms) in (885..=900).rev().enumerate() {
            banned(&mut page, index, until_ms, flags);
        }
        page
    };
    assert_eq!(evicted(all(0), S / 2), (Some(15), Ok(Evicted::Lossy)));
    assert_eq!(evicted(all(FLAG_PINNED), S / 2), (None, Err(PageFull)));
}

#[test]
fn a_page_of_banned_buckets_takes_no_newcomer() {
    let mut world = World::new(16);
    let limits = per_day(2);
    let keys: Vec<String> = (0..16).map(|n| format!("held-{n}")).collect();
    for key in &keys {
        assert!(world.admits(&limits, key, 0));
        world.edit(key, |slot| {
            slot.flags |= FLAG_PINNED;
            slot.ban_history.banned_until_ms = 1_000;
            slot.ban_history.clean_at_ms = 1_000;
        });
    }
    let before = world.page(0);
    assert_eq!(world.take(&limits, "new", 10), Err(GaveUp::PageFull));
    assert_eq!(world.page(0), before);
    // Once a ban is over, there is room again.
    assert!(world.admits(&limits, "new", 2 * S));
}

/// An exhausted key cannot get a fresh bucket by flooding the table with others.
#[test]
fn a_flood_does_not_wash_an_exhausted_bucket_away() {
    let mut world = World::new(64);
    let limits = per_day(3);
    for expected in [true, true, true, false] {
        assert_eq!(world.admits(&limits, "victim", 0), expected);
    }
    for n in 0..5_000_u64 {
        let now = n * MS;
        assert!(world.admits(&limits, &format!("flood-{n}"), now));
        if n % 3 == 0 {
            assert!(!world.admits(&limits, "victim", now), "after {n} others");
        }
    }
    assert_eq!(world.slots_in_use(), 64);
    assert_eq!(world.stats.created, 64);
    assert_eq!(world.stats.evicted_lossy, 5_001 - 64);
    assert_eq!(world.stats.evicted_lossless, 0);
    // The store has its maximum size, which is a page and its names for each page, and the head.
    assert_eq!(world.store.len(), 9);
    let slot = world.slot("victim").expect("still there");
    assert_eq!((slot.admitted, slot.refused), (3, 1 + 1_667));
}

/// Flooding with keys that are as full as its own does not help either, refused ones included.
#[test]
fn a_flood_of_full_buckets_frees_nobody_who_keeps_trying() {
    for refusals in [0, 2] {
        let mut world = World::new(64);
        let limits = per_day(1);
        assert!(world.admits(&limits, "victim", 0));
        for n in 0..2_000_u64 {
            let now = n * MS;
            assert!(!world.admits(&limits, "victim", now), "after {n} others");
            let key = format!("flood-{n}");
            assert!(world.admits(&limits, &key, now));
            for _ in 0..refusals {
                assert!(!world.admits(&limits, &key, now));
            }
        }
    }
}

/// Idle buckets are evicted without loss, so a slow stream of new keys loses nothing.
#[test]
fn a_slow_stream_of_new_keys_loses_nothing() {
    let mut world = World::new(16);
    let limits = rule(&json!([{ "algorithm": "funnel", "capacity": 5, "rate": "1/s" }]));
    for n in 0..100_u64 {
        assert!(world.admits(&limits, &format!("key-{n}"), n * S / 10));
    }
    assert_eq!((world.stats.created, world.stats.evicted_lossy), (16, 0));
    assert_eq!(world.stats.evicted_lossless, 84);
}

/// Among used buckets, buckets that refused are evicted last, and the one that was untouched
/// longest comes first.
#[test]
fn a_bucket_that_refuses_is_held_on_to() {
    let with_refusals = |refused: &[(usize, u64)]| {
        let mut page = full_page(&[(5, 9_000, 0)]);
        for (index, last_ms) in refused {
            page.slots[*index].refused = 1;
            page.slots[*index].bucket.last = Nanos::from_millis(*last_ms);
        }
        page
    };
    let gone = |refused: &[(usize, u64)]| evicted(with_refusals(refused), 500 * MS);
    assert_eq!(gone(&[(0, 1), (1, 1)]), (Some(2), Ok(Evicted::Lossy)));
    let mut all: Vec<(usize, u64)> = (0..16).map(|n| (n, 100)).collect();
    all[5].1 = 400;
    all[11].1 = 99;
    assert_eq!(gone(&all), (Some(11), Ok(Evicted::Lossy)));
    all.remove(5);
    assert_eq!(
        gone(&all),
        (Some(5), Ok(Evicted::Lossy)),
        "the fullest, but never refused"
    );
    // Once idle, a bucket that refused may be evicted.
    let mut page = with_refusals(&all);
    page.slots[3].idle_at_ms = 500;
    assert_eq!(evicted(page, 500 * MS), (Some(3), Ok(Evicted::Lossless)));
}

/// A slot stores the instant from which it is idle, rounded up to milliseconds.
#[test]
fn a_slot_knows_when_it_is_idle() {
    let mut world = World::new(16);
    let limits = rule(&json!([
        { "name": "a", "algorithm": "funnel", "capacity": 5, "rate": "1/3ms" },
        { "name": "b", "algorithm": "funnel", "capacity": 5, "rate": "1/us" },
    ]));
    assert!(world.admits(&limits, "k", 10 * MS));
    assert_eq!(world.slot("k").map(|slot| slot.idle_at_ms), Some(13));
    assert!(world.admits(&limits, "k", 10 * MS + 1));
    assert_eq!(world.slot("k").map(|slot| slot.idle_at_ms), Some(16));
    assert!(world.admits(&limits, "k", 20 * MS + 1));
    assert_eq!(world.slot("k").map(|slot| slot.idle_at_ms), Some(24));
    // Also when the clock went back.
    assert!(world.admits(&limits, "k", 4 * MS));
    assert_eq!(world.slot("k").map(|slot| slot.idle_at_ms), Some(27));
}

/// Looking at a bucket through a cost of nothing must not make it seem idle before its time.
#[test]
fn a_peek_does_not_make_a_bucket_idle_early() {
    let mut world = World::new(16);
    let limits = rule(&json!([{ "algorithm": "funnel", "capacity": 10, "rate": "1/s" }]));
    for _ in 0..10 {
        assert!(world.admits(&limits, "k", 0));
    }
    let peek = loudou_store::Acquire {
        request: BucketRequest::new(0, Nanos::new(9 * S)),
        ..take(&limits, "k", 9 * S)
    };
    let table = world.table.clone();
    let answer = table
        .take(&mut world.store, &peek, &mut world.stats)
        .expect("a decision");
    assert_eq!(answer.reported().map(|d| d.remaining), Some(9));
    assert_eq!(world.slot("k").map(|slot| slot.idle_at_ms), Some(10_000));
}

/// One limit of several is enough to make a full bucket worth keeping.
#[test]
fn any_limit_may_have_gained() {
    let mut world = World::new(16);
    let limits = rule(&json!([
        { "name": "a", "algorithm": "funnel", "capacity": 5, "rate": "1/s" },
        { "name": "b", "algorithm": "token_bucket", "capacity": 5, "rate": "1/s", "initial": 1 },
    ]));
    assert!(world.admits(&limits, "k", 0));
    assert_eq!(
        world.slot("k").map(|slot| slot.flags),
        Some(FLAG_KEEPS_GAIN)
    );
}

/// The limits in force, not the limits at the bucket's creation, determine whether a full bucket
/// may be forgotten.
#[test]
fn an_edit_changes_what_may_be_forgotten() {
    let starts_with = |initial: u64| {
        rule(&json!([{
            "algorithm": "token_bucket", "capacity": 5, "rate": "1/s", "initial": initial
        }]))
    };
    let flags = |world: &mut World| world.slot("k").map(|slot| slot.flags);
    let mut world = World::new(16);
    let (full, empty) = (starts_with(5), starts_with(1));
    assert!(world.admits(&full, "k", 0));
    assert_eq!(flags(&mut world), Some(0));
    let less = edited(&full, &empty, Carry::Keep, S);
    assert!(world.admits(&less, "k", 2 * S));
    assert_eq!(flags(&mut world), Some(FLAG_KEEPS_GAIN));
    assert_eq!(
        world.slot("k").map(|slot| slot.version),
        Some(less.version())
    );
    let full = edited(&less, &full, Carry::Keep, 3 * S);
    world.edit("k", |slot| slot.flags |= FLAG_PINNED);
    assert!(world.admits(&full, "k", 3 * S));
    assert_eq!(flags(&mut world), Some(FLAG_PINNED));
}

/// During a ban the limits do not answer, but the bucket becomes idle by its new limits.
#[test]
fn a_banned_bucket_that_is_brought_forward_is_not_idle_too_soon() {
    let funnel =
        |rate: &str| rule(&json!([{ "algorithm": "funnel", "capacity": 1, "rate": rate }]));
    let mut world = World::new(16);
    let quick = funnel("1/s");
    assert!(world.admits(&quick, "k", 0));
    let ban = SetBan {
        rule: &quick,
        key: "k",
        ban: BanChange::Banned(Some(Nanos::from_secs(2))),
        clock: clock(1),
    };
    let banned = world
        .table
        .set_ban(&mut world.store, &ban, &mut world.stats);
    banned.expect("room");
    let daily = edited(&quick, &funnel("1/d"), Carry::Keep, 2);
    let take = daily.acquire("k", BucketRequest::new(1, Nanos::new(3)));
    let charge = world
        .table
        .charge(&mut world.store, &take, &mut world.stats);
    assert!(charge.expect("decided").answer.is_err());
    let slot = world.slot("k").expect("a slot");
    assert_eq!(
        (slot.version, slot.idle_at_ms),
        (daily.version(), 86_400_000)
    );
}
