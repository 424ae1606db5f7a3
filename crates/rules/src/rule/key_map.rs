//! A map from key patterns of a rule to values. A pattern is an exact key or a prefix.

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// Values by key pattern. An exact key takes precedence over any prefix, and a longer prefix takes
/// precedence over a shorter one.
///
/// Clones share their contents until one of them is modified. Sharing matters because a rule may
/// have a thousand overrides and exists in three forms: as configured, as edited, and in force.
#[derive(Debug, PartialEq, Eq)]
pub struct KeyMap<T> {
    patterns: Arc<Patterns>,
    /// Values, in the order of the patterns.
    values: Arc<Vec<T>>,
}

/// Exact keys and prefixes. The patterns are kept separate from the values, so that their code is
/// compiled only once for all value types.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Patterns {
    /// Exact keys, sorted.
    exact: Vec<String>,
    /// Prefixes without the `*`, sorted. Indices of prefixes follow the indices of exact keys.
    beginnings: Vec<String>,
    /// Distinct lengths of the prefixes, in descending order.
    lengths: Vec<usize>,
}

impl<T> Default for KeyMap<T> {
    fn default() -> Self {
        Self {
            patterns: Arc::default(),
            values: Arc::default(),
        }
    }
}

impl<T> Clone for KeyMap<T> {
    fn clone(&self) -> Self {
        Self {
            patterns: Arc::clone(&self.patterns),
            values: Arc::clone(&self.values),
        }
    }
}

impl<T> KeyMap<T> {
    /// Returns the value for a key. A lookup requires one binary search among the exact keys, and
    /// one per prefix length.
    pub fn get(&self, key: &str) -> Option<&T> {
        if self.is_empty() {
            return None;
        }
        self.values.get(self.patterns.of_key(key)?)
    }

    /// Like [`Self::get`], but also returns the pattern.
    pub fn get_with_pattern(&self, key: &str) -> Option<(String, &T)> {
        self.at(self.patterns.of_key(key)?)
    }

    fn at(&self, place: usize) -> Option<(String, &T)> {
        Some((self.patterns.at(place)?, self.values.get(place)?))
    }

    /// Returns all patterns that match a key, with their values.
    pub fn all_of(&self, key: &str) -> impl Iterator<Item = (String, &T)> {
        let exact = search(&self.patterns.exact, key).ok();
        let lengths = self.patterns.lengths.iter();
        let behind = lengths.filter_map(move |length| {
            let place = search(&self.patterns.beginnings, key.get(..*length)?).ok()?;
            Some(self.patterns.exact.len().saturating_add(place))
        });
        exact
            .into_iter()
            .chain(behind)
            .filter_map(|place| self.at(place))
    }

    /// Returns true if the map is empty.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Returns the number of values.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Returns the value of a pattern, which is either a key or a prefix followed by `*`.
    pub fn of_pattern(&self, pattern: &str) -> Option<&T> {
        self.values.get(self.patterns.place(pattern).ok()?)
    }

    /// Returns the patterns and their values. Exact keys come before prefixes, and each kind is
    /// sorted.
    pub fn iter(&self) -> impl Iterator<Item = (String, &T)> {
        (0..self.len()).filter_map(|place| self.at(place))
    }

    /// Returns the patterns whose values differ from an earlier map, and the patterns contained in
    /// only one of the two maps. Removed patterns come last. If both maps share their contents,
    /// nothing is compared.
    pub fn changed_since(&self, before: &Self) -> Vec<String>
    where
        T: PartialEq,
    {
        if self.is_same(before) {
            return Vec::new();
        }
        if Arc::ptr_eq(&self.patterns, &before.patterns) {
            let pairs = self.values.iter().zip(before.values.iter()).enumerate();
            let changed = pairs.filter(|(_, (new, old))| new != old);
            return changed
                .filter_map(|(place, _)| self.patterns.at(place))
                .collect();
        }
        let differs = |(pattern, new): (Cow<'_, str>, &T)| {
            (before.of_pattern(&pattern) != Some(new)).then(|| pattern.into_owned())
        };
        let gone = |(pattern, _): (Cow<'_, str>, &T)| {
            self.of_pattern(&pattern)
                .is_none()
                .then(|| pattern.into_owned())
        };
        let changed = self.entries().filter_map(differs);
        changed.chain(before.entries().filter_map(gone)).collect()
    }

    /// Like [`Self::iter`], but without copying each pattern.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (Cow<'_, str>, &T)> {
        let exact = self.patterns.exact.iter();
        let exact = exact.map(|key| Cow::Borrowed(key.as_str()));
        let beginnings = self.patterns.beginnings.iter();
        let beginnings = beginnings.map(|beginning| Cow::Owned(format!("{beginning}*")));
        exact.chain(beginnings).zip(self.values.iter())
    }

    /// Returns the values.
    pub fn values(&self) -> core::slice::Iter<'_, T> {
        self.values.iter()
    }

    /// Returns true if both maps share their contents, as unmodified clones of the same map do.
    /// Does not compare the contents.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.patterns, &other.patterns) && Arc::ptr_eq(&self.values, &other.values)
    }
}

impl<T: Clone> KeyMap<T> {
    /// Sets the value of a pattern, or removes the pattern if `value` is `None`.
    pub fn set(&mut self, pattern: &str, value: Option<T>) {
        let place = self.patterns.place(pattern);
        if place.is_err() && value.is_none() {
            return;
        }
        let values = Arc::make_mut(&mut self.values);
        match (place, value) {
            (Ok(place), Some(value)) => {
                if let Some(old) = values.get_mut(place) {
                    *old = value;
                }
            }
            (Ok(place), None) => {
                Arc::make_mut(&mut self.patterns).remove(place);
                values.remove(place);
            }
            (Err(place), Some(value)) => {
                Arc::make_mut(&mut self.patterns).insert(place, pattern);
                values.insert(place, value);
            }
            (Err(_), None) => {}
        }
    }
}

impl Patterns {
    /// Returns the index of the pattern that takes precedence for a key.
    fn of_key(&self, key: &str) -> Option<usize> {
        search(&self.exact, key).ok().or_else(|| {
            let mut lengths = self.lengths.iter();
            let behind = lengths.find_map(|length| {
                let beginning = key.get(..*length)?;
                search(&self.beginnings, beginning).ok()
            });
            Some(self.exact.len().saturating_add(behind?))
        })
    }

    /// Returns the index of this pattern, or the index at which to insert it.
    fn place(&self, pattern: &str) -> Result<usize, usize> {
        let Some(beginning) = pattern.strip_suffix('*') else {
            return search(&self.exact, pattern);
        };
        let behind = |place: usize| self.exact.len().saturating_add(place);
        search(&self.beginnings, beginning)
            .map(behind)
            .map_err(behind)
    }

    /// Returns the pattern at an index, as written in a rule file.
    fn at(&self, place: usize) -> Option<String> {
        match place.checked_sub(self.exact.len()) {
            None => self.exact.get(place).cloned(),
            Some(behind) => Some(format!("{}*", self.beginnings.get(behind)?)),
        }
    }

    /// Inserts a pattern at its index.
    fn insert(&mut self, place: usize, pattern: &str) {
        match pattern.strip_suffix('*') {
            None => self.exact.insert(place, String::from(pattern)),
            Some(beginning) => {
                let behind = place.saturating_sub(self.exact.len());
                self.beginnings.insert(behind, String::from(beginning));
                self.measure(beginning.len());
            }
        }
    }

    fn remove(&mut self, place: usize) {
        match place.checked_sub(self.exact.len()) {
            None => drop(self.exact.remove(place)),
            Some(behind) => {
                let length = self.beginnings.remove(behind).len();
                if self.beginnings.iter().all(|other| other.len() != length) {
                    self.lengths.retain(|other| *other != length);
                }
            }
        }
    }

    /// Adds the length of a prefix to `lengths`, unless it is already there.
    fn measure(&mut self, length: usize) {
        if let Err(place) = self.lengths.binary_search_by(|other| length.cmp(other)) {
            self.lengths.insert(place, length);
        }
    }
}

/// Returns true if a pattern matches a key.
pub(crate) fn holds(pattern: &str, key: &str) -> bool {
    let beginning = pattern.strip_suffix('*');
    beginning.map_or(pattern == key, |beginning| key.starts_with(beginning))
}

fn search(list: &[String], text: &str) -> Result<usize, usize> {
    list.binary_search_by(|other| other.as_str().cmp(text))
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Compares the map's results with a linear search through all patterns.
        #[test]
        fn the_longest_pattern_wins(
            patterns in prop::collection::btree_map("[ab]{0,4}\\*?", 0_u32..9, 0..12),
            gone in prop::collection::vec("[ab]{0,4}\\*?", 0..3),
            keys in prop::collection::vec("[ab]{0,6}", 1..20),
            changes in prop::collection::vec(("[ab]{0,4}\\*?", prop::option::of(0_u32..9)), 0..4),
        ) {
            let mut map = KeyMap::default();
            let mut naive: BTreeMap<String, u32> = BTreeMap::new();
            for (pattern, value) in &patterns {
                map.set(pattern, Some(99));
                map.set(pattern, Some(*value));
                naive.insert(pattern.clone(), *value);
            }
            for pattern in &gone {
                map.set(pattern, None);
                naive.remove(pattern);
            }
            for key in &keys {
                let fits = |(pattern, _): &(&String, &u32)| holds(pattern, key);
                let rank = |(pattern, _): &(&String, &u32)| (!pattern.ends_with('*'), pattern.len());
                let expected = naive.iter().filter(fits).max_by_key(rank);
                prop_assert_eq!(map.get(key), expected.map(|(_, value)| value));
                let found = map.get_with_pattern(key);
                prop_assert_eq!(found, expected.map(|(pattern, value)| (pattern.clone(), value)));
                let all: BTreeMap<String, u32> = map.all_of(key).map(|(k, v)| (k, *v)).collect();
                prop_assert!(all.keys().all(|pattern| holds(pattern, key)));
                prop_assert_eq!(all.len(), naive.iter().filter(fits).count());
            }
            for (pattern, value) in &changes {
                let mut after = map.clone();
                after.set(pattern, *value);
                let of = |map: &KeyMap<u32>, pattern: &String| map.of_pattern(pattern).copied();
                let differs = |pattern: &String| of(&after, pattern) != of(&map, pattern);
                let mut found = after.changed_since(&map);
                found.sort();
                let expected = differs(pattern).then(|| pattern.clone());
                prop_assert_eq!(found, expected.into_iter().collect::<Vec<_>>());
            }
            let all: BTreeMap<String, u32> = map.iter().map(|(k, v)| (k, *v)).collect();
            prop_assert_eq!(&all, &naive);
            prop_assert_eq!(map.len(), naive.len());
            for (pattern, value) in &naive {
                prop_assert_eq!(map.of_pattern(pattern), Some(value));
            }
        }
    }
}
