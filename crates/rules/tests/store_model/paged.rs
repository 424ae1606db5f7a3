//! The store of a replay, compared with the store of all tests.

use loudou_store::paged::PagedStore;
use loudou_store::{CAS_ABSENT, CAS_OVERWRITE};
use proptest::prelude::*;

use super::{Decides as _, *};

const BUCKETS: u32 = 64;

/// Expected versions: none, any, a correct version, or a stale version.
fn expectation() -> impl Strategy<Value = usize> {
    0_usize..4
}

fn key(kind: u8, page: u32) -> Vec<u8> {
    let mut key = [SHARE.as_bytes(), &[b':', kind]].concat();
    key.extend_from_slice(&page.to_le_bytes());
    key
}

proptest! {
    /// Includes pages beyond the last, other kinds and other namespaces.
    #[test]
    fn any_sequence_of_writes_ends_the_same(
        writes in prop::collection::vec((0_u32..6, 0_usize..3, expectation(), any::<u8>()), 1..60)
    ) {
        let mut paged = PagedStore::new(SHARE, BUCKETS);
        let mut plain = MemoryStore::new();
        let mut value = Vec::new();
        for (page, kind, expectation, byte) in writes {
            let key = match kind {
                0 | 1 => key(KIND, page),
                _ => format!("{SHARE}:head{page}").into_bytes(),
            };
            let stores: [&mut dyn SharedData; 2] = [&mut paged, &mut plain];
            let versions = stores.map(|store| store.get(&key, &mut value).expect("get"));
            prop_assert_eq!(versions[0].is_some(), versions[1].is_some());
            let stores: [&mut dyn SharedData; 2] = [&mut paged, &mut plain];
            let written: Vec<_> = stores
                .into_iter()
                .zip(versions)
                .map(|(store, version)| {
                    let expected = match (expectation, version) {
                        (0, _) => CAS_ABSENT,
                        (1, _) => CAS_OVERWRITE,
                        (2, Some(current)) => current,
                        (_, current) => current.unwrap_or(0).wrapping_add(77),
                    };
                    store.set(&key, &[byte, 1], expected).expect("set")
                })
                .collect();
            prop_assert_eq!(written[0], written[1]);
            let mut other = Vec::new();
            paged.get(&key, &mut value).expect("get");
            plain.get(&key, &mut other).expect("get");
            prop_assert_eq!(&value, &other);
        }
    }

    /// A table over either store decides and evicts the same.
    #[test]
    fn a_table_over_it_decides_the_same(
        requests in prop::collection::vec((0_u32..200, 0_u64..5_000_000_000), 1..400)
    ) {
        let mut paged = PagedStore::new(SHARE, BUCKETS);
        let mut plain = MemoryStore::new();
        let (table, twin) = (open(&mut paged, BUCKETS), open(&mut plain, BUCKETS));
        let limits = json!([{ "algorithm": "funnel", "capacity": 2, "rate": "3/m" }]);
        let versions = rule(&limits);
        let mut stats = [StoreStats::default(); 2];
        let mut now = 0;
        for (user, pause) in requests {
            now += pause;
            let key = user.to_string();
            let take = take(&versions, &key, now);
            let answer = table.take(&mut paged, &take, &mut stats[0]);
            prop_assert_eq!(answer, twin.take(&mut plain, &take, &mut stats[1]));
        }
        prop_assert_eq!(stats[0], stats[1]);
    }
}

#[test]
fn names_are_not_kept() {
    let mut store = PagedStore::new(SHARE, BUCKETS);
    let mut value = vec![1];
    assert_eq!(
        store.set(&key(b'n', 0), b"x", CAS_ABSENT),
        Ok(Written::Done)
    );
    assert_eq!(store.get(&key(b'n', 0), &mut value), Ok(None));
    assert!(value.is_empty());
}
