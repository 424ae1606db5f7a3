//! Encoded pages, names and heads. Written values are read back, and no bytes do harm.

use loudou_limiter::Nanos;
use loudou_limiter::lease::{LEASE_WORDS, Lease, MAX_LATER_LIMITS};
use loudou_rules::rule_set::ActiveRule;
use loudou_rules::versions::History;
use loudou_store::names::Names;
use loudou_store::page::Page;
use loudou_store::{CAS_OVERWRITE, GaveUp, ReleaseReason, SharedData, Table, Written};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{SHARE, World, clock, page_key, rule, take};

const MAX_U40: u64 = (1 << 40) - 1;
/// The number of states that began in [`raw_page`].
const ORIGINS: u32 = 0x0807_0605;

/// Fields of a slot as encoded in a page.
#[derive(Clone, Debug)]
struct RawSlot {
    fingerprint: u64,
    tags: (u32, u32),
    last: u64,
    u40s: [u64; 3],
    refused_at: [u8; 3],
    flags: u8,
    origin: u32,
    /// Present only with its flag, and never zero.
    given: u64,
    /// Present only with its flag, and never all zeros.
    ban_history: ([u64; 3], u16, u8),
    /// Present only with its flag, and never zero. A time in milliseconds: after the last touch,
    /// the end of permits, else the beginning of refusals.
    held: u64,
    /// Present only with its flag, and always after the last touch.
    line: u64,
    /// Present only with its flag, and never all zeros.
    lease: [u64; LEASE_WORDS],
    /// Present only with its flag and the lease's flag. Never empty, and the last element is never
    /// zero.
    later: Vec<u32>,
    words: Vec<u64>,
}

/// The version of the rule, in the middle of all there are.
const VERSION: u32 = 7;
/// Units were given back to the bucket of the slot.
const GIVEN: u8 = 1;
/// The slot has a ban history.
const BAN_HISTORY: u8 = 8;
/// The slot has an instant, which is the end of permits or the beginning of refusals.
const HELD: u8 = 16;
/// The slot has a queue.
const LINE: u8 = 32;
/// The slot has a lease.
const LEASE: u8 = 64;
/// The lease has units left at later limits.
const LATER: u8 = 128;

fn raw_slot() -> impl Strategy<Value = RawSlot> {
    let u40 = || prop_oneof![Just(0), Just(MAX_U40), 0..=MAX_U40];
    (
        any::<u64>(),
        any::<(u32, u32)>(),
        // As many last touches before the instant as after it.
        (
            prop_oneof![0..u64::MAX, 0..=MAX_U40 * 1_000_000],
            any::<u64>(),
        ),
        [u40(), u40(), u40()],
        (any::<[u8; 4]>(), any::<u32>(), 1..=MAX_U40),
        prop::collection::vec(any::<u64>(), 0..=16),
        (
            [u40(), u40(), u40()],
            any::<u16>(),
            1_u8..,
            1..=MAX_U40,
            (
                any::<[u64; LEASE_WORDS]>(),
                1_u64..,
                prop::collection::vec(any::<u32>(), 0..MAX_LATER_LIMITS),
                1_u32..,
            ),
        ),
    )
        .prop_map(
            |(
                fingerprint,
                tags,
                (last, later),
                u40s,
                ([flags, refused_at @ ..], origin, given),
                mut words,
                ban_history,
            )| {
                // Zeros at the end are left out.
                while words.last() == Some(&0) {
                    words.pop();
                }
                let (mut lease, some, mut left, last_left) = ban_history.4;
                lease[3] = some;
                left.push(last_left);
                let without_lease = if flags & LEASE == 0 { LATER } else { 0 };
                RawSlot {
                    fingerprint,
                    tags,
                    last,
                    u40s,
                    refused_at,
                    flags: flags & !without_lease,
                    origin,
                    given,
                    ban_history: (ban_history.0, ban_history.1, ban_history.2),
                    held: ban_history.3,
                    line: last + 1 + later % (u64::MAX - last),
                    lease,
                    later: left,
                    words,
                }
            },
        )
}

/// The page format, written a second time from its description.
fn raw_page(slots: &[RawSlot]) -> Vec<u8> {
    let mut out = b"LP\x09".to_vec();
    out.push(u8::try_from(slots.len()).expect("at most 16"));
    out.extend(ORIGINS.to_le_bytes());
    for slot in slots {
        out.extend(slot.fingerprint.to_le_bytes());
        out.extend(slot.tags.0.to_le_bytes());
        out.extend(slot.tags.1.to_le_bytes());
        out.extend(slot.last.to_le_bytes());
        for number in slot.u40s {
            out.extend(&number.to_le_bytes()[..5]);
        }
        out.extend(slot.refused_at);
        out.push(slot.flags);
        out.extend(slot.origin.to_le_bytes());
        let words = u16::try_from(slot.words.len()).expect("at most 1024");
        out.extend(words.to_le_bytes());
        if slot.flags & GIVEN != 0 {
            out.extend(&slot.given.to_le_bytes()[..5]);
        }
        if slot.flags & BAN_HISTORY != 0 {
            let (times, strikes, bans) = slot.ban_history;
            for time in times {
                out.extend(&time.to_le_bytes()[..5]);
            }
            out.extend(strikes.to_le_bytes());
            out.push(bans);
        }
        if slot.flags & HELD != 0 {
            out.extend(&slot.held.to_le_bytes()[..5]);
        }
        if slot.flags & LINE != 0 {
            out.extend(slot.line.to_le_bytes());
        }
        if slot.flags & LEASE != 0 {
            for word in slot.lease {
                out.extend(word.to_le_bytes());
            }
        }
        if slot.flags & LATER != 0 {
            out.push(u8::try_from(slot.later.len()).expect("at most 7"));
            for units in &slot.later {
                out.extend(units.to_le_bytes());
            }
        }
        for word in &slot.words {
            out.extend(word.to_le_bytes());
        }
    }
    out
}

/// Limits of every algorithm, with small numbers and with the largest.
fn limits() -> Vec<Value> {
    let large = |algorithm: &str| json!([{ "algorithm": algorithm, "capacity": 1_000_000_000, "window": "366d" }]);
    let lump = json!({
        "name": "a", "algorithm": "token_bucket", "capacity": 9, "rate": "7/s", "refill": "interval"
    });
    let slow = json!({
        "name": "b", "algorithm": "funnel", "capacity": 1_000_000_000, "rate": "1000000000/366d"
    });
    let clock = json!({
        "name": "c", "algorithm": "fixed_window", "capacity": 9, "window": "7s", "align": "clock"
    });
    let strict = json!({
        "algorithm": "sliding_log", "capacity": 9, "window": "7s", "count_refused": true
    });
    let slots = json!({
        "algorithm": "sliding_window", "capacity": 9, "window": "7s", "slots": 7
    });
    vec![
        json!([{ "algorithm": "funnel", "capacity": 9, "rate": "7/s" }]),
        json!([{ "algorithm": "token_bucket", "capacity": 9, "rate": "7/s", "initial": 2 }]),
        json!([lump, slow, clock]),
        json!([strict]),
        json!([slots]),
        json!([{ "algorithm": "fixed_window", "capacity": 9, "window": "month", "zone": "CET-1CEST,M3.5.0,M10.5.0/3" }]),
        json!([{ "algorithm": "sliding_log", "capacity": 256, "window": "366d" }]),
        json!([{ "algorithm": "sliding_counter", "capacity": 9, "window": "7ns" }]),
        json!([{ "algorithm": "sliding_counter", "capacity": 9, "window": "7s", "align": "clock" }]),
        large("fixed_window"),
        large("sliding_window"),
        large("sliding_counter"),
        json!([{ "algorithm": "funnel", "capacity": 9, "rate": "7/s", "max_wait": "1h" }]),
        json!([{ "algorithm": "token_bucket", "capacity": 9, "rate": "7/3s", "refill": "interval", "max_wait": "9s" }]),
        json!([{ "algorithm": "leaky_queue", "capacity": 9, "rate": "7/s", "immediate": 2 }]),
        json!([{ "algorithm": "leaky_queue", "capacity": 1_000_000_000, "rate": "1000000000/365d" }]),
        json!([{ "algorithm": "concurrency", "capacity": 9, "lease": "7s" }]),
        json!([{ "algorithm": "concurrency", "capacity": 9, "lease": "366d" }]),
        json!([{ "algorithm": "smooth_bursty", "rate": "7/3s", "burst_seconds": 2.5, "max_wait": "9s" }]),
        json!([{ "algorithm": "smooth_bursty", "rate": "1000000000/366d", "burst_seconds": 86_400 }]),
        json!([{ "algorithm": "smooth_warmup", "rate": "7/3s", "warmup": "9s", "max_wait": "9s" }]),
        json!([{ "algorithm": "smooth_warmup", "rate": "1000000000/1ns", "warmup": "366d", "cold_factor": 1000 }]),
        json!([{ "algorithm": "smooth_warmup", "rate": "1/366d", "warmup": "1ns", "cold_factor": 1 }]),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(512) })]

    #[test]
    fn a_page_reads_back(slots in prop::collection::vec(raw_slot(), 0..=16)) {
        let bytes = raw_page(&slots);
        let page = Page::decode(&bytes).expect("well-formed");
        for (raw, slot) in slots.iter().zip(&page.slots) {
            prop_assert_eq!(slot.fingerprint, raw.fingerprint);
            prop_assert_eq!((slot.rule_tag, slot.version), raw.tags);
            prop_assert_eq!(slot.bucket.last.get(), raw.last);
            prop_assert_eq!([slot.idle_at_ms, slot.admitted, slot.refused], raw.u40s);
            let flags = raw.flags & !(GIVEN | BAN_HISTORY | HELD | LINE | LEASE | LATER);
            prop_assert_eq!((slot.flags, slot.origin), (flags, raw.origin));
            let given = if raw.flags & GIVEN == 0 { 0 } else { raw.given };
            prop_assert_eq!(slot.bucket.given, given);
            let instant = if raw.flags & HELD == 0 { 0 } else { raw.held };
            let instants = if instant * 1_000_000 > raw.last { (instant, 0) } else { (0, instant) };
            prop_assert_eq!((slot.held_until_ms, slot.refused_since_ms), instants);
            let ban_history = slot.ban_history;
            let times = [ban_history.banned_until_ms, ban_history.since_ms, ban_history.clean_at_ms];
            let expected = if raw.flags & BAN_HISTORY == 0 { ([0; 3], 0, 0) } else { raw.ban_history };
            prop_assert_eq!((times, ban_history.strikes, ban_history.bans), expected);
            let lease = slot.lease.as_deref().map(Lease::to_words);
            let expected = (raw.flags & LEASE != 0).then_some(raw.lease);
            prop_assert_eq!(lease, expected);
            let later = slot.lease.as_deref().map(Lease::later_left).unwrap_or_default();
            let expected = if raw.flags & LATER == 0 { &[] } else { raw.later.as_slice() };
            prop_assert_eq!(later, expected);
            prop_assert_eq!(slot.bucket.words(), raw.words.as_slice());
        }
        let mut written = vec![1, 2, 3];
        page.encode(&mut written);
        prop_assert_eq!(written, bytes);
    }

    #[test]
    fn random_bytes_are_no_page_and_do_no_harm(
        bytes in prop::collection::vec(any::<u8>(), 0..300), count in any::<u8>(),
    ) {
        let _unread = Page::decode(&bytes);
        let names = Names::decode(&bytes);
        prop_assert_eq!(names.get(0), None);
        let with_head = [b"LP\x09".as_slice(), &[count], &bytes].concat();
        if let Ok(page) = Page::decode(&with_head) {
            let mut written = Vec::new();
            page.encode(&mut written);
            prop_assert_eq!(written, with_head);
        }
        let with_head = [b"LN\x01".as_slice(), &bytes].concat();
        let names = Names::decode(&with_head);
        let mut written = Vec::new();
        names.encode(&mut written);
        prop_assert!(written.len() <= with_head.len());
        prop_assert_eq!(Names::decode(&written), names);
    }

    #[test]
    fn random_heads_do_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
        let mut world = World::new(16);
        let written = world.store.set(b"test:head", &bytes, CAS_OVERWRITE);
        prop_assert_eq!(written, Ok(Written::Done));
        match Table::find(&mut world.store, SHARE) {
            Ok(table) => prop_assert!(table.is_some_and(|table| table.pages() > 0)),
            Err(error) => prop_assert_eq!(error, GaveUp::UnknownPage),
        }
    }

    /// A well-formed page with any numbers in it. Decisions are made, and stay within bounds.
    #[test]
    fn any_numbers_in_a_page_are_survived(
        mut slots in prop::collection::vec(raw_slot(), 1..=16),
        now in any::<u64>(), pick in prop::sample::select(limits()),
        why in prop::sample::select(vec![ReleaseReason::Ended, ReleaseReason::Left, ReleaseReason::Refused]),
        version in prop_oneof![4 => Just(VERSION), 2 => 0..VERSION, 1 => VERSION + 1..],
    ) {
        let mut world = World::new(16);
        let limits = ActiveRule::new(rule(&pick).rule().clone(), History::new(VERSION));
        let first_touched = slots[0].last;
        slots[0].fingerprint = world.table.id(super::tag(), "k").fingerprint;
        slots[0].tags.1 = version;
        if version == VERSION {
            slots[0].origin = 1;
            slots[0].words.resize(super::limits(&limits).words(), u64::MAX);
            let page = Page::decode(&raw_page(&slots)).expect("well-formed");
            let look = super::limits(&limits).peek(&page.slots[0].bucket, 0, Nanos::new(now));
            prop_assert!(!look.is_refused());
        }
        let written = world.store.set(&page_key(0), &raw_page(&slots), CAS_OVERWRITE);
        prop_assert_eq!(written, Ok(Written::Done));
        for key in ["k", "new"] {
            let take = take(&limits, key, now);
            // The receipt of an earlier bucket in the slot, which was the first bucket of its page.
            let mut receipts = vec![World::new(16).receipt(&limits, key, first_touched)];
            match world.table.charge(&mut world.store, &take, &mut world.stats) {
                Ok(charge) => {
                    receipts.push(charge.receipt);
                    let Ok(answer) = charge.answer else { continue };
                    for limit in answer.decisions() {
                        prop_assert!(limit.remaining <= limit.capacity);
                        // A full bucket empties within two windows of 366 days, whatever the page
                        // contains. The excess above the capacity leaks within 250 years.
                        let years = Nanos::from_secs((2 * 366 + 91_500) * 86_400);
                        prop_assert!(limit.reset_after <= years);
                    }
                }
                Err(GaveUp::Outdated) => {
                    prop_assert!(version > VERSION && key == "k");
                    continue;
                }
                Err(error) => prop_assert_eq!(error, GaveUp::PageFull),
            }
            for receipt in receipts.iter().flatten() {
                let give = limits.release(key, receipt, why, clock(now));
                prop_assert_eq!(world.table.release(&mut world.store, &give, &mut world.stats), Ok(()));
                let Some(slot) = world.slot(key) else { continue };
                let look = super::limits(&limits).peek(&slot.bucket, 0, Nanos::new(now));
                for limit in look.decisions() {
                    prop_assert!(limit.remaining <= limit.capacity);
                }
            }
        }
    }
}

/// More slots than a page has, or more words than a bucket has, are another format.
#[test]
fn a_page_has_bounds() {
    let slot = |words: usize| RawSlot {
        fingerprint: 1,
        tags: (2, 3),
        last: 4,
        u40s: [5, 6, 7],
        refused_at: [8; 3],
        flags: 0,
        origin: 9,
        given: 10,
        ban_history: ([0; 3], 0, 0),
        held: 0,
        line: 0,
        lease: [0; LEASE_WORDS],
        later: Vec::new(),
        words: vec![9; words],
    };
    assert!(Page::decode(&raw_page(&vec![slot(2); 16])).is_ok());
    assert!(Page::decode(&raw_page(&vec![slot(2); 17])).is_err());
    assert!(Page::decode(&raw_page(&[slot(1024)])).is_ok());
    assert!(Page::decode(&raw_page(&[slot(1025)])).is_err());
    // A head with one slot more than there is is rejected, too.
    let mut claimed = raw_page(&[slot(16)]);
    assert_eq!(claimed[55], 16, "the number of words");
    claimed[55] = 17;
    assert!(Page::decode(&claimed).is_err());
    // Zeros, an empty ban history and a fresh lease are omitted.
    for flags in [GIVEN, BAN_HISTORY, HELD, LEASE] {
        let with = |some: u8| RawSlot {
            flags,
            given: some.into(),
            lease: [some.into(); LEASE_WORDS],
            ban_history: ([0; 3], 0, some),
            held: some.into(),
            ..slot(2)
        };
        assert!(Page::decode(&raw_page(&[with(1)])).is_ok());
        assert!(Page::decode(&raw_page(&[with(0)])).is_err());
    }
    // So is a queue that had ended at the last touch of the bucket.
    let with = |line: u64| RawSlot {
        flags: LINE,
        line,
        ..slot(2)
    };
    assert!(Page::decode(&raw_page(&[with(5)])).is_ok());
    assert!(Page::decode(&raw_page(&[with(4)])).is_err());
    assert!(Page::decode(&raw_page(&[with(0)])).is_err());
}
