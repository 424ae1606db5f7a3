//! Compares changes in the encoded bytes with changes of decoded pages.

use alloc::boxed::Box;
use alloc::vec;

use loudou_limiter::Bucket;
use loudou_limiter::ban::BanHistory;
use loudou_limiter::lease::{LEASE_WORDS, Lease};
use proptest::prelude::*;

use super::super::Tick;
use super::super::codec::FLAG_LEASE;
use super::super::codec::{FLAGS_AT, WORDS_AT};
use super::*;

fn slot() -> impl Strategy<Value = Slot> {
    let number = || prop_oneof![Just(0), 0_u64..5, 0..=(1_u64 << 40) - 1];
    (
        0_u64..24,
        (0_u32..4, any::<u32>()),
        [number(), number(), number()],
        prop_oneof![Just(0), (0_u8..4).prop_map(|flags| flags << 1)],
        (any::<u32>(), any::<u32>(), number()),
        prop::collection::vec(0_u64..3, 0..4),
        (
            ban_history(),
            prop_oneof![2 => Just(0), 1 => number()],
            prop_oneof![2 => Just(0), 1 => any::<u64>()],
            lease(),
            prop_oneof![1 => Just(0), 2 => 0_u64..5_000],
        ),
    )
        .prop_map(
            |(
                fingerprint,
                tags,
                numbers,
                flags,
                state,
                words,
                (ban_history, held, queue_end, lease, since),
            )| {
                Slot {
                    fingerprint,
                    rule_tag: tags.0,
                    version: tags.1,
                    idle_at_ms: numbers[0],
                    held_until_ms: held,
                    admitted: numbers[1],
                    refused: numbers[2],
                    refused_at: Tick::of(Nanos::new(numbers[1] << 20)),
                    refused_since_ms: since,
                    flags,
                    origin: state.1,
                    ban_history,
                    lease,
                    bucket: Bucket {
                        last: Nanos::new(state.0.into()),
                        given: state.2,
                        queue_end: Nanos::new(queue_end),
                        words: words.into_iter().collect(),
                    },
                }
            },
        )
}

/// Most keys have no strikes.
fn ban_history() -> impl Strategy<Value = BanHistory> {
    let number = || prop_oneof![Just(0), 0_u64..5, 0..=(1_u64 << 40) - 1];
    let some = ([number(), number(), number()], 0_u16..3, 0_u8..3);
    let some = some.prop_map(|(times, strikes, bans)| BanHistory {
        banned_until_ms: times[0],
        since_ms: times[1],
        clean_at_ms: times[2],
        strikes,
        bans,
    });
    prop_oneof![2 => Just(BanHistory::default()), 1 => some]
}

/// Most slots have no lease.
fn lease() -> impl Strategy<Value = Option<Box<Lease>>> {
    let words = prop::array::uniform11(0_u64..3);
    let later = prop::collection::vec(0_u32..2, 0..=7);
    let some = (words, later).prop_map(|(words, later)| Lease::from_words(&words, &later));
    let some = some.prop_map(|lease| (!lease.is_fresh()).then(|| Box::new(lease)));
    prop_oneof![2 => Just(None), 1 => some]
}

fn encoded(page: &Page) -> Vec<u8> {
    let mut bytes = Vec::new();
    page.encode(&mut bytes);
    bytes
}

proptest! {
    #[test]
    fn patched_bytes_are_those_of_a_page(
        slots in prop::collection::vec((slot(), prop_oneof![0_u64..8, 0_u64..1 << 20], 0_u8..8), 1..60)
    ) {
        let mut page = Page::default();
        let mut patched = PageBytes::default();
        patched.clear();
        for (slot, now_ms, also) in slots {
            let now = Nanos::from_millis(now_ms);
            if let Some((index, old)) = patched.find(slot.fingerprint) {
                let place = page.find(slot.fingerprint).expect("the same buckets");
                prop_assert_eq!(place.bucket.words(), old.bucket.words());
                *place = slot.clone();
                patched.replace(index, &slot);
            } else {
                prop_assert!(page.find(slot.fingerprint).is_none());
                let room = page.make_room(slot.rule_tag, now);
                prop_assert_eq!(patched.make_room(slot.rule_tag, now), room);
                if room.is_ok() {
                    page.slots.push(slot.clone());
                    patched.push(&slot);
                }
            }
            if let Some((_, read)) = patched.find(slot.fingerprint) {
                let last_ns = slot.bucket.last.get();
                let is_held = Nanos::from_millis(slot.held_until_ms).get() > last_ns;
                prop_assert_eq!(read.held_until_ms > 0, is_held);
                prop_assert!(Nanos::from_millis(read.refused_since_ms).get() <= last_ns);
            }
            if also == 0 && let Some((index, _)) = patched.find(slot.fingerprint) {
                page.slots.swap_remove(index);
                patched.remove(index);
            }
            if also == 1 {
                page.origins = slot.origin;
                patched.set_origins(slot.origin);
            }
            prop_assert_eq!(patched.origins(), page.origins);
            prop_assert_eq!(patched.bytes(), encoded(&page));
            let known = (patched.starts, patched.count);
            patched.check().expect("well-formed");
            let same = known.0.iter().zip(&patched.starts).take(known.1).all(|(a, b)| a == b);
            prop_assert!(same && known.1 == patched.count);
        }
    }

    /// Both readers accept the same bytes as a page.
    #[test]
    fn bytes_are_checked_as_strictly(
        origins in any::<u32>(),
        slots in prop::collection::vec(slot(), 0..=16),
        damage in prop::option::of((any::<prop::sample::Index>(), any::<u8>())),
        cut in 0_usize..3,
    ) {
        let mut bytes = encoded(&Page { origins, slots });
        if let Some((at, byte)) = damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes.truncate(bytes.len().saturating_sub(cut));
        let mut patched = PageBytes::default();
        patched.bytes.clone_from(&bytes);
        prop_assert_eq!(patched.check().is_ok(), Page::decode(&bytes).is_ok());
    }
}

/// The units left at the later limits of a lease are checked as strictly. There are at most seven,
/// they do not end with a zero, and they need a lease. An instant is not zero.
#[test]
fn optional_parts_are_checked_as_strictly() {
    let slot = |flags: u8, lease: &[u64], left: &[u8]| {
        let mut slot = vec![9; SLOT_HEAD];
        slot[FLAGS_AT] = flags;
        slot[WORDS_AT..].fill(0);
        slot.extend(lease.iter().flat_map(|word| word.to_le_bytes()));
        slot.extend(left);
        slot
    };
    let lease = [1; LEASE_WORDS];
    let units = |units: &[u32]| {
        let mut left = vec![u8::try_from(units.len()).expect("few")];
        left.extend(units.iter().flat_map(|units| units.to_le_bytes()));
        left
    };
    let both = FLAG_LEASE | FLAG_LATER;
    for (slot, is_good) in [
        (slot(both, &lease, &units(&[0, 7])), true),
        (slot(both, &lease, &units(&[7; 7])), true),
        (slot(both, &lease, &units(&[])), false),
        (slot(both, &lease, &units(&[7, 0])), false),
        (slot(both, &lease, &units(&[7; 8])), false),
        (slot(FLAG_LATER, &[], &units(&[7])), false),
        (slot(FLAG_LATER, &lease, &units(&[7])), false),
        (slot(FLAG_HELD, &[], &[0, 0, 0, 0, 1]), true),
        (slot(FLAG_HELD, &[], &[0; HELD]), false),
    ] {
        let mut bytes = encoded(&Page::default());
        bytes[COUNT_AT] = 1;
        bytes.extend(&slot);
        assert_eq!(Page::decode(&bytes).is_ok(), is_good, "{slot:?}");
        let mut patched = PageBytes::default();
        patched.bytes.clone_from(&bytes);
        assert_eq!(patched.check().is_ok(), is_good, "{slot:?}");
    }
}
