//! Opening the table, finding buckets in it, and forgetting them.

use loudou_limiter::Nanos;
use loudou_store::memory::MemoryStore;
use loudou_store::{CAS_OVERWRITE, GaveUp, SharedData, Table};

use super::{SHARE, World, per_day};

#[test]
fn the_first_to_open_decides_size_and_seed() {
    let mut store = MemoryStore::new();
    assert!(Table::find(&mut store, SHARE).expect("works").is_none());
    let first = Table::open(&mut store, SHARE, 100, [1; 16], Nanos::new(5)).expect("opens");
    let second = Table::open(&mut store, SHARE, 6_400, [2; 16], Nanos::new(9)).expect("opens");
    let found = Table::find(&mut store, SHARE)
        .expect("works")
        .expect("there");
    for table in [&first, &second, &found] {
        assert_eq!((table.pages(), table.buckets()), (7, 112), "whole pages");
        assert_eq!(table.seed().bytes(), &[1; 16]);
        assert_eq!(table.started(), Nanos::new(5));
        assert_eq!(table.id(super::tag(), "k"), first.id(super::tag(), "k"));
    }
    // Another namespace is another table.
    let other = Table::open(&mut store, "other", 16, [2; 16], Nanos::ZERO).expect("opens");
    assert_eq!(other.pages(), 1);
    assert_ne!(
        other.id(super::tag(), "k").fingerprint,
        first.id(super::tag(), "k").fingerprint
    );
}

#[test]
fn even_the_smallest_table_has_a_page() {
    for (buckets, pages) in [(0, 1), (1, 1), (16, 1), (17, 2), (u32::MAX, 1 << 20)] {
        let mut store = MemoryStore::new();
        let table = Table::open(&mut store, SHARE, buckets, [1; 16], Nanos::ZERO).expect("opens");
        assert_eq!(table.pages(), pages);
        assert!(table.id(super::tag(), "k").page < pages);
    }
}

#[test]
fn a_foreign_head_is_not_understood() {
    let mut store = MemoryStore::new();
    let table = super::open(&mut store, 64);
    let key = b"test:head";
    let mut head = Vec::new();
    store.get(key, &mut head).expect("works").expect("there");
    assert_eq!(table.pages(), 4);
    let mut other_version = head.clone();
    other_version[0] = 2;
    let mut no_pages = head.clone();
    no_pages[1..5].fill(0);
    let mut too_many = head.clone();
    too_many[1..5].copy_from_slice(&((1_u32 << 20) + 1).to_le_bytes());
    let mut longer = head.clone();
    longer.push(0);
    let shorter = head[..head.len() - 1].to_vec();
    for bytes in [
        other_version,
        no_pages,
        too_many,
        longer,
        shorter,
        Vec::new(),
    ] {
        store.set(key, &bytes, CAS_OVERWRITE).expect("works");
        let found = Table::find(&mut store, SHARE).map(|_| ());
        assert_eq!(found, Err(GaveUp::UnknownPage), "{bytes:?}");
        let opened = Table::open(&mut store, SHARE, 64, [3; 16], Nanos::ZERO).map(|_| ());
        assert_eq!(opened, Err(GaveUp::UnknownPage));
    }
}

/// Keys are spread over all pages, and rules with the same key do not share a bucket.
#[test]
fn buckets_have_addresses_of_their_own() {
    let world = World::new(160);
    let mut per_page = [0_u32; 10];
    for n in 0..1_000 {
        let id = world.table.id(super::tag(), &format!("user-{n}"));
        per_page[usize::try_from(id.page).expect("small")] += 1;
    }
    assert!(
        per_page.iter().all(|count| (50..200).contains(count)),
        "{per_page:?}"
    );
    let (one, other) = (world.table.id(1, "k"), world.table.id(2, "k"));
    assert_ne!(one.fingerprint, other.fingerprint);
}

#[test]
fn a_reset_bucket_starts_anew() {
    let mut world = World::new(64);
    let limits = per_day(1);
    assert!(world.admits(&limits, "k", 0));
    assert!(world.admits(&limits, "other", 0));
    assert!(!world.admits(&limits, "k", 1));
    let id = world.table.id(super::tag(), "k");
    let was = world
        .table
        .reset(&mut world.store, id)
        .expect("works")
        .expect("was there");
    assert_eq!((was.admitted, was.refused), (1, 1));
    assert_eq!(world.slot("k"), None);
    assert_eq!(world.table.reset(&mut world.store, id), Ok(None));
    assert!(world.admits(&limits, "k", 2));
    assert!(!world.admits(&limits, "other", 2), "only that one");
}

#[test]
fn a_page_never_written_is_none() {
    let mut world = World::new(64);
    let page = world.table.page(&mut world.store, 0);
    assert_eq!(page, Ok(None));
    assert_eq!(world.slot("k"), None);
}
