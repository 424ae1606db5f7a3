//! Finds the keys with the most requests in bounded memory. The algorithm is the same as in the
//! filter, but with more slots.

use loudou_limiter::{Nanos, fingerprint};
use loudou_store::top::{Entry, Summary};

use loudou_words::num::count;

/// Number of keys that are guaranteed a slot. If there are no more keys than this, all counts are
/// exact.
const PLACES: usize = 8_192;

/// Counters of the most frequent keys. Each key belongs to a group, which is the index of a rule.
#[derive(Debug)]
pub(crate) struct TopKeys(Summary<Mark>);

/// Counts of a key by kind, since the key was assigned its slot.
pub(crate) type Kinds = [u64; 2];

/// Counts and times of a key, since the key was assigned its slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mark {
    kinds: Kinds,
    /// Times of the first and the last counted event, if the caller provided times.
    times: Option<(Nanos, Nanos)>,
}

/// A key with its counts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CountedKey<'a> {
    pub(crate) group: usize,
    pub(crate) key: &'a str,
    /// Total count, which is at most `surplus` too high.
    pub(crate) total: u64,
    pub(crate) surplus: u64,
    pub(crate) kinds: Kinds,
    pub(crate) times: Option<(Nanos, Nanos)>,
}

impl TopKeys {
    pub(crate) fn new() -> Self {
        Self::with_places(PLACES)
    }

    pub(crate) fn with_places(places: usize) -> Self {
        Self(Summary::marked(places))
    }

    /// Adds 1 to the count of `kind` (0 or 1) for a key.
    pub(crate) fn add(&mut self, group: usize, key: &str, kind: usize) {
        self.count(group, key, kind, None);
    }

    /// Like [`Self::add`], but also records the time.
    pub(crate) fn add_at(&mut self, group: usize, key: &str, kind: usize, at: Nanos) {
        self.count(group, key, kind, Some(at));
    }

    fn count(&mut self, group: usize, key: &str, kind: usize, at: Option<Nanos>) {
        let group = u32::try_from(group).unwrap_or(u32::MAX);
        self.0.add_marked(group, fingerprint(key), key, 1, |mark| {
            if let Some(kind) = mark.kinds.get_mut(kind) {
                *kind += 1;
            }
            if let Some(at) = at {
                let (first, _) = mark.times.unwrap_or((at, at));
                mark.times = Some((first, at));
            }
        });
    }

    /// Returns the keys with the highest counts, in descending order. Ties are ordered by group and
    /// key.
    pub(crate) fn most(&self, n: usize) -> Vec<CountedKey<'_>> {
        let most = self.0.most(|_| true).into_iter().take(n);
        most.map(CountedKey::from).collect()
    }

    /// Returns true if every count is exact.
    pub(crate) const fn is_exact(&self) -> bool {
        self.0.floor() == 0
    }

    /// Returns the number of keys with a slot.
    pub(crate) fn keys(&self) -> u64 {
        count(self.0.entries().len())
    }
}

impl<'a> From<&'a Entry<Mark>> for CountedKey<'a> {
    fn from(entry: &'a Entry<Mark>) -> Self {
        Self {
            group: usize::try_from(entry.rule_tag).unwrap_or(usize::MAX),
            key: &entry.key,
            total: entry.count,
            surplus: entry.error,
            kinds: entry.mark.kinds,
            times: entry.mark.times,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use proptest::prelude::*;

    fn counts(top: &TopKeys) -> Vec<(usize, &str, u64, u64, Kinds)> {
        let most = top.most(usize::MAX).into_iter();
        most.map(|c| (c.group, c.key, c.total, c.surplus, c.kinds))
            .collect()
    }

    #[test]
    fn exact_while_there_is_room() {
        let mut top = TopKeys::with_places(3);
        for (group, key, kind) in [
            (0, "a", 0),
            (1, "a", 0),
            (0, "b", 1),
            (0, "a", 1),
            (1, "a", 0),
        ] {
            top.add(group, key, kind);
        }
        assert!(top.is_exact());
        let three = [
            (0, "a", 2, 0, [1, 1]),
            (1, "a", 2, 0, [2, 0]),
            (0, "b", 1, 0, [0, 1]),
        ];
        assert_eq!(counts(&top), three);
        // There are twice as many slots as guaranteed keys. Keys with the lowest counts are dropped
        // only when all slots are in use.
        for key in ["c", "d", "e"] {
            assert!(top.is_exact());
            top.add(0, key, 0);
        }
        assert!(!top.is_exact());
        assert_eq!(counts(&top), three);
        top.add(0, "f", 0);
        let last = counts(&top).into_iter().find(|c| c.1 == "f");
        assert_eq!(last, Some((0, "f", 2, 1, [1, 0])));
    }

    #[test]
    fn every_promised_slot_exists() {
        let mut top = TopKeys::new();
        for key in 0..PLACES {
            top.add(0, &key.to_string(), 0);
            top.add(0, &key.to_string(), 1);
        }
        assert_eq!((top.is_exact(), top.keys()), (true, count(PLACES)));
        assert!(top.most(PLACES).iter().all(|key| key.kinds == [1, 1]));
    }

    proptest! {
        /// Checks the error bounds of the algorithm against an exact count.
        #[test]
        fn counts_are_within_their_surplus(
            adds in prop::collection::vec((0_usize..2, 0_u8..30, 0_usize..2), 0..400)
        ) {
            let mut top = TopKeys::with_places(8);
            let mut full: BTreeMap<(usize, String), Kinds> = BTreeMap::new();
            for (group, key, kind) in &adds {
                let key = key.to_string();
                top.add(*group, &key, *kind);
                full.entry((*group, key)).or_default()[*kind] += 1;
                prop_assert!(top.keys() < 16);
            }
            prop_assert!(top.is_exact() || full.len() > 8);
            if full.len() <= 8 {
                prop_assert_eq!(top.keys(), count(full.len()));
            }
            for (group, key, total, surplus, kinds) in counts(&top) {
                let truth = full[&(group, key.to_owned())];
                prop_assert!(truth[0] + truth[1] <= total);
                prop_assert!(surplus <= top.0.floor());
                prop_assert_eq!(kinds[0] + kinds[1], total - surplus);
                for kind in 0..2 {
                    prop_assert!(kinds[kind] <= truth[kind] && truth[kind] <= kinds[kind] + surplus);
                }
            }
            // With 8 guaranteed slots, the error of a count is at most one eighth of all additions.
            prop_assert!(top.0.floor() <= count(adds.len() / 8));
            for ((group, key), truth) in &full {
                let placed = counts(&top).iter().any(|c| (c.0, c.1) == (*group, key));
                prop_assert!(placed || truth[0] + truth[1] <= top.0.floor());
            }
        }
    }
}
