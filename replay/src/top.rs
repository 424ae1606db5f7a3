//! The keys that were counted most, in bounded memory.
//!
//! This is the space-saving algorithm of Metwally, Agrawal and El Abbadi. While there are no more keys
//! than places, every count is exact. After that a new key takes the place of the least counted one
//! and starts from its count: a count is then at least what is true and too large by at most its
//! `surplus`, and no key that is counted more often than the least place is missing.

use std::cmp::Reverse;
use std::collections::HashMap;

use super::num::count;

/// How many keys have a place.
const PLACES: usize = 8_192;

/// Counts of keys, each in a group: a rule.
#[derive(Debug, Default)]
pub(crate) struct Top {
    /// By group and key, the place in `counted`.
    index: Vec<HashMap<Box<str>, usize>>,
    counted: Vec<Counted>,
    /// Places, least counted first: a binary heap that knows where each place is in it.
    heap: Vec<usize>,
    places: usize,
    is_exact: bool,
}

/// One key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counted {
    pub(crate) group: usize,
    pub(crate) key: Box<str>,
    /// All that was counted, and by how much it may be too much.
    pub(crate) total: u64,
    pub(crate) surplus: u64,
    /// What was counted, by kind, since the key has its place.
    pub(crate) kinds: [u64; 2],
    at: usize,
}

impl Top {
    pub(crate) fn new(groups: usize) -> Self {
        Self::with_places(groups, PLACES)
    }

    fn with_places(groups: usize, places: usize) -> Self {
        Self {
            index: vec![HashMap::new(); groups],
            places,
            is_exact: true,
            ..Self::default()
        }
    }

    /// Counts one more of `kind` (0 or 1) for a key.
    pub(crate) fn add(&mut self, group: usize, key: &str, kind: usize) {
        let known = self.index.get(group).and_then(|keys| keys.get(key));
        let place = match known {
            Some(place) => *place,
            None if self.counted.len() < self.places => self.place(group, key),
            None => self.displace(group, key),
        };
        let Some(counted) = self.counted.get_mut(place) else {
            return;
        };
        counted.total += 1;
        if let Some(kind) = counted.kinds.get_mut(kind) {
            *kind += 1;
        }
        let at = counted.at;
        self.sink(at);
    }

    /// The most counted first; among equals by group and key.
    pub(crate) fn most(&self, n: usize) -> Vec<&Counted> {
        let mut all: Vec<&Counted> = self.counted.iter().collect();
        all.sort_by_key(|counted| (Reverse(counted.total), counted.group, &counted.key));
        all.truncate(n);
        all
    }

    /// Whether every count is exact.
    pub(crate) const fn is_exact(&self) -> bool {
        self.is_exact
    }

    /// How many keys have a place.
    pub(crate) fn keys(&self) -> u64 {
        count(self.counted.len())
    }

    /// Gives a key a place of its own. It has a count of 0 yet, so it goes to the top of the heap.
    fn place(&mut self, group: usize, key: &str) -> usize {
        let place = self.counted.len();
        let at = self.heap.len();
        self.counted.push(Counted {
            group,
            key: key.into(),
            at,
            ..Counted::default()
        });
        self.heap.push(place);
        if let Some(keys) = self.index.get_mut(group) {
            keys.insert(key.into(), place);
        }
        self.rise(at);
        place
    }

    /// Gives a key the place of the least counted one.
    fn displace(&mut self, group: usize, key: &str) -> usize {
        self.is_exact = false;
        let place = self.heap.first().copied().unwrap_or(0);
        let Some(counted) = self.counted.get_mut(place) else {
            return place;
        };
        if let Some(keys) = self.index.get_mut(counted.group) {
            keys.remove(&counted.key);
        }
        counted.group = group;
        counted.key = key.into();
        counted.surplus = counted.total;
        counted.kinds = [0; 2];
        if let Some(keys) = self.index.get_mut(group) {
            keys.insert(key.into(), place);
        }
        place
    }

    /// The count at `at` in the heap.
    fn total(&self, at: usize) -> Option<u64> {
        let counted = self.counted.get(*self.heap.get(at)?)?;
        Some(counted.total)
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.heap.swap(a, b);
        for at in [a, b] {
            let place = self.heap.get(at).copied().unwrap_or(usize::MAX);
            if let Some(counted) = self.counted.get_mut(place) {
                counted.at = at;
            }
        }
    }

    fn rise(&mut self, mut at: usize) {
        while at > 0 {
            let parent = (at - 1) / 2;
            if self.total(parent) <= self.total(at) {
                return;
            }
            self.swap(parent, at);
            at = parent;
        }
    }

    fn sink(&mut self, mut at: usize) {
        loop {
            let least = [2 * at + 1, 2 * at + 2]
                .into_iter()
                .filter(|child| *child < self.heap.len())
                .min_by_key(|child| self.total(*child));
            let Some(child) = least else { return };
            if self.total(at) <= self.total(child) {
                return;
            }
            self.swap(at, child);
            at = child;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use proptest::prelude::*;

    fn counts(top: &Top) -> Vec<(usize, &str, u64, u64, [u64; 2])> {
        let most = top.most(usize::MAX).into_iter();
        most.map(|c| (c.group, &*c.key, c.total, c.surplus, c.kinds))
            .collect()
    }

    #[test]
    fn exact_while_there_is_room() {
        let mut top = Top::with_places(2, 3);
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
        assert_eq!(
            counts(&top),
            [
                (0, "a", 2, 0, [1, 1]),
                (1, "a", 2, 0, [2, 0]),
                (0, "b", 1, 0, [0, 1])
            ]
        );
        top.add(0, "c", 0);
        assert!(!top.is_exact());
        let least = counts(&top).into_iter().find(|c| c.1 == "c");
        assert_eq!(least, Some((0, "c", 2, 1, [1, 0])));
    }

    proptest! {
        /// What the algorithm promises, against a full count.
        #[test]
        fn counts_are_within_their_surplus(
            adds in prop::collection::vec((0_usize..2, 0_u8..30, 0_usize..2), 0..400)
        ) {
            let mut top = Top::with_places(2, 8);
            let mut full: BTreeMap<(usize, String), u64> = BTreeMap::new();
            for (group, key, kind) in &adds {
                let key = key.to_string();
                top.add(*group, &key, *kind);
                *full.entry((*group, key)).or_default() += 1;
                prop_assert!(top.counted.len() <= 8 && top.heap.len() == top.counted.len());
                let indexed: usize = top.index.iter().map(HashMap::len).sum();
                prop_assert_eq!(indexed, top.counted.len());
            }
            prop_assert_eq!(top.is_exact(), full.len() <= 8);
            for (group, key, total, surplus, kinds) in counts(&top) {
                let truth = full[&(group, key.to_owned())];
                prop_assert!(truth <= total && total - surplus <= truth);
                prop_assert_eq!(kinds[0] + kinds[1], total - surplus);
            }
            let least = top.total(0).unwrap_or(0);
            for ((group, key), truth) in full {
                let placed = top.index[group].contains_key(key.as_str());
                prop_assert!(placed || truth <= least);
            }
        }
    }
}
