//! Values for some of a rule's keys: exact ones, and all that begin with a text.

use alloc::string::String;
use alloc::vec::Vec;

/// Values by key. An exact key goes before any beginning, and a longer beginning before a shorter one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyMap<T> {
    /// By key.
    exact: Vec<(String, T)>,
    /// By beginning, without the `*`.
    beginnings: Vec<(String, T)>,
    /// The lengths of the beginnings, the longest first.
    lengths: Vec<usize>,
}

impl<T> Default for KeyMap<T> {
    fn default() -> Self {
        Self {
            exact: Vec::new(),
            beginnings: Vec::new(),
            lengths: Vec::new(),
        }
    }
}

impl<T> KeyMap<T> {
    /// The value for a key. It takes a search among the exact keys, and one for each length of a
    /// beginning.
    pub fn get(&self, key: &str) -> Option<&T> {
        find(&self.exact, key).or_else(|| self.beginning(key).map(|(_, value)| value))
    }

    /// The same, with its pattern.
    pub fn get_with_pattern(&self, key: &str) -> Option<(String, &T)> {
        let exact = find(&self.exact, key).map(|value| (String::from(key), value));
        exact.or_else(|| {
            let (beginning, value) = self.beginning(key)?;
            Some((alloc::format!("{beginning}*"), value))
        })
    }

    fn beginning<'k>(&self, key: &'k str) -> Option<(&'k str, &T)> {
        let mut beginnings = self.lengths.iter().filter_map(|length| key.get(..*length));
        beginnings.find_map(|beginning| Some((beginning, find(&self.beginnings, beginning)?)))
    }

    /// Whether there is no value.
    pub const fn is_empty(&self) -> bool {
        self.exact.is_empty() && self.beginnings.is_empty()
    }

    /// How many values there are.
    pub const fn len(&self) -> usize {
        self.exact.len().saturating_add(self.beginnings.len())
    }

    /// The value of exactly that pattern: a key, or a beginning followed by `*`.
    pub fn of_pattern(&self, pattern: &str) -> Option<&T> {
        match pattern.strip_suffix('*') {
            None => find(&self.exact, pattern),
            Some(beginning) => find(&self.beginnings, beginning),
        }
    }

    /// Sets the value of a pattern, or takes it out.
    pub fn set(&mut self, pattern: &str, value: Option<T>) {
        let (list, key) = match pattern.strip_suffix('*') {
            None => (&mut self.exact, pattern),
            Some(beginning) => (&mut self.beginnings, beginning),
        };
        match (place(list, key), value) {
            (Ok(index), Some(value)) => {
                if let Some((_, old)) = list.get_mut(index) {
                    *old = value;
                }
            }
            (Ok(index), None) => {
                list.remove(index);
            }
            (Err(index), Some(value)) => list.insert(index, (String::from(key), value)),
            (Err(_), None) => return,
        }
        self.lengths = lengths(self.beginnings.iter().map(|(key, _)| key.len()));
    }

    /// The patterns and their values: keys first, then beginnings, each in order.
    pub fn iter(&self) -> impl Iterator<Item = (String, &T)> {
        let exact = self.exact.iter().map(|(key, value)| (key.clone(), value));
        let beginnings = self.beginnings.iter();
        exact.chain(beginnings.map(|(key, value)| (alloc::format!("{key}*"), value)))
    }

    /// The values.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        let both = self.exact.iter().chain(&self.beginnings);
        both.map(|(_, value)| value)
    }

    /// The values, to change them.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        let both = self.exact.iter_mut().chain(&mut self.beginnings);
        both.map(|(_, value)| value)
    }

    /// The same keys with other values.
    pub fn map<U>(&self, mut f: impl FnMut(&T) -> U) -> KeyMap<U> {
        let mut each = |list: &[(String, T)]| -> Vec<(String, U)> {
            let pairs = list.iter();
            pairs.map(|(key, value)| (key.clone(), f(value))).collect()
        };
        KeyMap {
            exact: each(&self.exact),
            beginnings: each(&self.beginnings),
            lengths: self.lengths.clone(),
        }
    }
}

/// Each length once, the longest first. There are few, and a sort is some KiB of the filter.
fn lengths(all: impl Iterator<Item = usize>) -> Vec<usize> {
    let mut lengths: Vec<usize> = Vec::new();
    for length in all {
        if let Err(place) = lengths.binary_search_by(|other| length.cmp(other)) {
            lengths.insert(place, length);
        }
    }
    lengths
}

fn place<T>(list: &[(String, T)], key: &str) -> Result<usize, usize> {
    list.binary_search_by(|(other, _)| other.as_str().cmp(key))
}

fn find<'a, T>(list: &'a [(String, T)], key: &str) -> Option<&'a T> {
    let index = place(list, key).ok()?;
    list.get(index).map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use proptest::prelude::*;

    proptest! {
        /// As a walk over all patterns would find it.
        #[test]
        fn the_longest_pattern_wins(
            patterns in prop::collection::btree_map("[ab]{0,4}\\*?", 0_u32..9, 0..12),
            gone in prop::collection::vec("[ab]{0,4}\\*?", 0..3),
            keys in prop::collection::vec("[ab]{0,6}", 1..20),
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
                let fits = |(pattern, _): &(&String, &u32)| match pattern.strip_suffix('*') {
                    None => *pattern == key,
                    Some(beginning) => key.starts_with(beginning),
                };
                let rank = |(pattern, _): &(&String, &u32)| (!pattern.ends_with('*'), pattern.len());
                let expected = naive.iter().filter(fits).max_by_key(rank);
                prop_assert_eq!(map.get(key), expected.map(|(_, value)| value));
                let found = map.get_with_pattern(key);
                prop_assert_eq!(found, expected.map(|(pattern, value)| (pattern.clone(), value)));
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
