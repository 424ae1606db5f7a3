//! The printable keys, which are stored separately from the pages.

use loudou_store::memory::MemoryStore;
use loudou_store::names::Names;
use loudou_store::page::{Page, SLOTS};
use loudou_store::{Cas, SharedData, StoreFailed, StoreStats, Written};

use super::{Decides as _, World, names_key, per_day, take};

fn names(world: &mut World, index: u32) -> Names {
    let page = world.table.page(&mut world.store, index).expect("readable");
    page.map(|(_, names)| names).unwrap_or_default()
}

#[test]
fn every_bucket_has_its_name() {
    let mut world = World::new(16);
    let limits = per_day(2);
    let keys: Vec<String> = (0..40).map(|n| format!("user-{n}")).collect();
    for key in &keys {
        assert!(world.admits(&limits, key, 0));
    }
    let names = names(&mut world, 0);
    let page = world.page(0);
    assert_eq!(page.slots.len(), SLOTS);
    for slot in &page.slots {
        let name = names.get(slot.fingerprint).expect("a name");
        assert_eq!(
            world.table.id(super::tag(), name).fingerprint,
            slot.fingerprint
        );
    }
}

/// Names are written when a bucket is created, and not again.
#[test]
fn a_known_bucket_writes_no_name() {
    let mut world = World::new(16);
    let limits = per_day(9);
    assert!(world.admits(&limits, "k", 0));
    let version = |world: &mut World| world.store.get(&names_key(0), &mut Vec::new());
    let before = version(&mut world);
    assert!(world.admits(&limits, "k", 1));
    let id = world.table.id(super::tag(), "k");
    world.table.reset(&mut world.store, id).expect("works");
    assert!(world.admits(&limits, "k", 2));
    assert_eq!(version(&mut world), before);
    assert!(world.admits(&limits, "other", 3));
    assert_ne!(version(&mut world), before);
}

/// Another worker adds its name between our read and our write of the names.
struct Meddled {
    inner: MemoryStore,
    meddler: Option<Vec<u8>>,
}

impl SharedData for Meddled {
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<Option<Cas>, StoreFailed> {
        let found = self.inner.get(key, value)?;
        if key == names_key(0)
            && let Some(names) = self.meddler.take()
        {
            self.inner.set(key, &names, found.unwrap_or(Cas::MAX))?;
        }
        Ok(found)
    }

    fn set(&mut self, key: &[u8], value: &[u8], expected: Cas) -> Result<Written, StoreFailed> {
        self.inner.set(key, value, expected)
    }
}

#[test]
fn two_workers_at_once_keep_both_names() {
    for first in [None, Some("earlier")] {
        let mut world = World::new(16);
        let (limits, mut stats) = (per_day(2), StoreStats::default());
        if let Some(key) = first {
            assert!(world.admits(&limits, key, 0));
        }
        let other = world.table.id(super::tag(), "other");
        let mut theirs = names(&mut world, 0);
        theirs.add(other.fingerprint, "other", &Page::default());
        let mut bytes = Vec::new();
        theirs.encode(&mut bytes);
        let mut store = Meddled {
            inner: world.store.clone(),
            meddler: Some(bytes),
        };
        let outcome = world
            .table
            .take(&mut store, &take(&limits, "ours", 1), &mut stats);
        assert!(outcome.is_ok());
        world.store = store.inner;
        let names = names(&mut world, 0);
        for key in ["ours", "other"].into_iter().chain(first) {
            let id = world.table.id(super::tag(), key);
            assert_eq!(names.get(id.fingerprint), Some(key));
        }
    }
}

#[test]
fn names_are_bounded_and_those_of_live_buckets_stay() {
    let mut world = World::new(16);
    let limits = per_day(2);
    let keys: Vec<String> = (0..16).map(|n| format!("live-{n}")).collect();
    for key in &keys {
        assert!(world.admits(&limits, key, 0));
    }
    let (page, mut names) = (world.page(0), names(&mut world, 0));
    for n in 0..1_000_u64 {
        names.add(n, &format!("gone-{n}"), &page);
    }
    let mut bytes = Vec::new();
    names.encode(&mut bytes);
    assert!(bytes.len() < 1_000, "32 short names: {} bytes", bytes.len());
    for key in &keys {
        assert_eq!(
            names.get(world.table.id(super::tag(), key).fingerprint),
            Some(key.as_str())
        );
    }
    // The newest of the other names stay, because this worker may not know their pages yet.
    assert_eq!(names.get(999), Some("gone-999"));
    assert_eq!(names.get(984), Some("gone-984"));
    assert_eq!(names.get(983), None);
}

/// In a page full of live names, the oldest name is dropped, and the list stays bounded.
#[test]
fn a_name_for_every_live_bucket_has_priority() {
    let mut names = Names::default();
    for n in 0..100 {
        names.add(n, "same", &Page::default());
        assert_eq!(names.get(n), Some("same"));
    }
    names.add(99, "renamed", &Page::default());
    assert_eq!(names.get(99), Some("renamed"));
    assert_eq!(names.get(68), Some("same"));
    assert_eq!(names.get(67), None);
}

#[test]
fn long_names_are_cut_on_characters() {
    let page = Page::default();
    for (name, expected) in [
        ("x".repeat(128), 128),
        ("x".repeat(129), 128),
        ("x".repeat(300), 128),
        ("é".repeat(64), 128),
        ("é".repeat(65), 128),
        ("x".to_string() + &"é".repeat(100), 129),
        ("🦀".repeat(100), 128),
        (String::new(), 0),
    ] {
        let mut names = Names::default();
        names.add(1, &name, &page);
        names.add(2, "next", &page);
        let mut bytes = Vec::new();
        names.encode(&mut bytes);
        let read = Names::decode(&bytes);
        assert_eq!(read, names);
        assert_eq!(read.get(1).map(str::len), Some(expected), "{name}");
        assert!(name.starts_with(read.get(1).expect("a name")));
        assert_eq!(read.get(2), Some("next"));
    }
}
