//! Merges lists of the most refused or admitted keys from several Envoys.
//!
//! An Envoy lists only its top keys, and their counts have error bounds. On each Envoy, a key was
//! counted at most `count` times and at least `count - error` times. The `sum` and `error` of a
//! merged row have the corresponding meaning. If an Envoy does not list a key, the key's count
//! there is unknown, so its highest possible count is added to both `sum` and `error`.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use loudou_api::{Top, TopEntry};

use loudou_words::num::count;

/// The merged responses of several Envoys to the same query.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MergedTop {
    /// The rows, highest sum first.
    pub rows: Vec<MergedRow>,
    /// Sum of all counts on all Envoys.
    pub total: u64,
    /// Lower bound on the number of keys counted on any Envoy.
    pub keys: u64,
    /// True if there may be keys without a row.
    pub has_more: bool,
    /// Upper bound on `sum` for a key without a row.
    pub missing_at_most: u64,
}

/// One key. A key whose rule is enforced on one Envoy and in shadow mode on another has two rows.
/// In shadow mode, requests counted as refused were in fact admitted, so they are not added to real
/// refusals.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MergedRow {
    /// The name of the key's rule.
    pub rule: String,
    /// The key, formatted as in the bucket list.
    pub key: String,
    /// True if the rule is off or in shadow mode on this row's Envoys.
    pub shadow: bool,
    /// Upper bound on the key's total count across all Envoys.
    pub sum: u64,
    /// Maximum error of `sum`. The lower bound of the key's count is `sum - error`.
    pub error: u64,
    /// Count on each Envoy, in the order of the responses. `None` if the Envoy did not respond or
    /// does not list the key.
    pub counts: Vec<Option<u64>>,
}

/// Rule, key, and a flag indicating shadow mode.
type Name<'a> = (&'a str, &'a str, bool);

/// One Envoy's response, with its entries indexed by name.
struct Listed<'a> {
    entries: BTreeMap<Name<'a>, &'a TopEntry>,
    /// The rules of the entries. The value is true if the rule is in shadow mode on this Envoy.
    shadows: BTreeMap<&'a str, bool>,
    /// Upper bound on the count of a key without an entry.
    missing_at_most: u64,
    /// True if every counted key has an entry.
    is_whole: bool,
}

impl<'a> Listed<'a> {
    fn new(top: &'a Top) -> Self {
        let entries: BTreeMap<Name<'a>, &TopEntry> =
            top.top.iter().map(|entry| (name(entry), entry)).collect();
        // If the list was truncated at the query's limit, the counts of omitted keys do not exceed
        // the smallest listed count.
        let least = top.top.iter().map(|entry| entry.count).min();
        let is_cut = count(top.top.len()) < top.keys;
        let left_out = least.filter(|_| is_cut).unwrap_or(0);
        Self {
            shadows: entries
                .keys()
                .map(|(rule, _, shadow)| (*rule, *shadow))
                .collect(),
            entries,
            missing_at_most: top.missing_at_most.max(left_out),
            is_whole: !is_cut && top.missing_at_most == 0,
        }
    }

    /// Returns this Envoy's contribution to a row: its count, if it lists the key, and the amounts
    /// to add to `sum` and `error`.
    fn part(&self, name: Name<'_>) -> (Option<u64>, u64, u64) {
        if let Some(entry) = self.entries.get(&name) {
            return (Some(entry.count), entry.count, entry.error);
        }
        let (rule, _, shadow) = name;
        // If the rule is in the other mode on this Envoy, the Envoy contributes nothing to this
        // row.
        let is_other = self.shadows.get(rule).is_some_and(|other| *other != shadow);
        let most = if is_other { 0 } else { self.missing_at_most };
        (None, most, most)
    }
}

fn name(entry: &TopEntry) -> Name<'_> {
    (&entry.rule, &entry.key, entry.shadow)
}

/// Merges responses from several Envoys. `None` represents an Envoy that did not respond.
pub fn merged(answers: &[Option<&Top>]) -> MergedTop {
    let listed: Vec<Option<Listed<'_>>> = answers.iter().map(|top| top.map(Listed::new)).collect();
    let answered = || listed.iter().flatten();
    let names: BTreeSet<Name<'_>> = answered()
        .flat_map(|listed| listed.entries.keys().copied())
        .collect();
    let mut rows: Vec<MergedRow> = names.iter().map(|name| row(*name, &listed)).collect();
    // The sort is stable, so rows with equal counts remain sorted by name.
    rows.sort_by_key(|row| Reverse((row.sum, row.sum.saturating_sub(row.error))));
    let keys: BTreeSet<(&str, &str)> = names.iter().map(|(rule, key, _)| (*rule, *key)).collect();
    let most = answers.iter().flatten().map(|top| top.keys).max();
    let bounds = answered().map(|listed| listed.missing_at_most);
    let totals = answers.iter().flatten().map(|top| top.total);
    MergedTop {
        rows,
        total: totals.fold(0, u64::saturating_add),
        keys: count(keys.len()).max(most.unwrap_or(0)),
        has_more: answered().any(|listed| !listed.is_whole),
        missing_at_most: bounds.fold(0, u64::saturating_add),
    }
}

fn row(name: Name<'_>, listed: &[Option<Listed<'_>>]) -> MergedRow {
    let (rule, key, shadow) = name;
    let mut row = MergedRow {
        rule: rule.to_owned(),
        key: key.to_owned(),
        shadow,
        sum: 0,
        error: 0,
        counts: Vec::new(),
    };
    for listed in listed {
        let part = listed.as_ref().map(|listed| listed.part(name));
        let (count, most, error) = part.unwrap_or_default();
        row.counts.push(count);
        row.sum = row.sum.saturating_add(most);
        row.error = row.error.saturating_add(error);
    }
    row
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Creates a response that lists every counted key. Each entry consists of rule, key, count,
    /// error and shadow.
    fn top(missing_at_most: u64, entries: &[(&str, &str, u64, u64, bool)]) -> Top {
        let entry = |(rule, key, count, error, shadow): &(&str, &str, u64, u64, bool)| TopEntry {
            rule: (*rule).to_owned(),
            key: (*key).to_owned(),
            count: *count,
            error: *error,
            shadow: *shadow,
            ..TopEntry::default()
        };
        Top {
            top: entries.iter().map(entry).collect(),
            keys: count(entries.len()),
            missing_at_most,
            ..Top::default()
        }
    }

    /// A merged row: key, shadow, sum, error and counts.
    type Seen<'a> = (&'a str, bool, u64, u64, &'a [Option<u64>]);

    fn seen(merged: &MergedTop) -> Vec<Seen<'_>> {
        let rows = merged.rows.iter();
        rows.map(|row| (&*row.key, row.shadow, row.sum, row.error, &*row.counts))
            .collect()
    }

    #[test]
    fn sums_decide_the_order() {
        let a = top(0, &[("r", "alice", 9, 0, false), ("r", "bob", 5, 0, false)]);
        let b = top(0, &[("r", "bob", 6, 0, false), ("s", "bob", 1, 0, false)]);
        let merged = merged(&[Some(&a), None, Some(&b)]);
        assert_eq!(
            seen(&merged),
            [
                ("bob", false, 11, 0, &[Some(5), None, Some(6)][..]),
                ("alice", false, 9, 0, &[Some(9), None, None]),
                ("bob", false, 1, 0, &[None, None, Some(1)]),
            ]
        );
        assert_eq!(
            (merged.keys, merged.has_more, merged.missing_at_most),
            (3, false, 0)
        );
    }

    /// The second Envoy has more keys than counters, so it may have counted `alice` up to 4 times.
    #[test]
    fn a_key_without_a_counter_may_have_been_counted() {
        let a = top(0, &[("r", "alice", 9, 0, false)]);
        let b = top(4, &[("r", "bob", 6, 3, false)]);
        let merged = merged(&[Some(&a), Some(&b)]);
        assert_eq!(
            seen(&merged),
            [
                ("alice", false, 13, 4, &[Some(9), None][..]),
                ("bob", false, 6, 3, &[None, Some(6)]),
            ]
        );
        assert_eq!(
            (merged.keys, merged.has_more, merged.missing_at_most),
            (2, true, 4)
        );
    }

    /// Some keys that the Envoy has counted are omitted because of the query's limit. Their counts
    /// do not exceed the count of the last listed key.
    #[test]
    fn a_key_that_a_limit_left_out_may_have_been_counted() {
        let a = top(0, &[("r", "alice", 9, 0, false)]);
        let b = Top {
            keys: 40,
            ..top(1, &[("r", "bob", 6, 1, false), ("r", "carol", 2, 1, false)])
        };
        let merged = merged(&[Some(&a), Some(&b)]);
        let alice = merged.rows.first().expect("alice");
        assert_eq!((alice.sum, alice.error), (11, 2));
        assert_eq!(
            (merged.keys, merged.has_more, merged.missing_at_most),
            (40, true, 2)
        );
    }

    /// Counts in shadow mode and in enforce mode are not added together, and an Envoy contributes
    /// nothing to rows for the other mode.
    #[test]
    fn shadow_and_enforced_stay_apart() {
        let a = top(3, &[("r", "alice", 9, 0, false)]);
        let b = top(5, &[("r", "alice", 70, 2, true)]);
        let c = top(1, &[("s", "bob", 1, 0, false)]);
        let merged = merged(&[Some(&a), Some(&b), Some(&c)]);
        assert_eq!(
            seen(&merged),
            [
                ("alice", true, 71, 3, &[None, Some(70), None][..]),
                ("alice", false, 10, 1, &[Some(9), None, None]),
                ("bob", false, 9, 8, &[None, None, Some(1)]),
            ]
        );
        assert_eq!(merged.keys, 2);
    }

    #[test]
    fn without_answers_there_are_no_rows() {
        assert_eq!(merged(&[]), MergedTop::default());
        assert_eq!(merged(&[None, None]), MergedTop::default());
        assert_eq!(merged(&[Some(&Top::default())]), MergedTop::default());
    }

    /// Simulates the response of an Envoy with the given true counts and a limited number of
    /// counters and entries. The count of a key without a counter does not exceed the largest count
    /// that was lost.
    fn answer(truth: &[u64], counters: usize, limit: usize) -> Top {
        let mut keys: Vec<(usize, u64)> = truth.iter().copied().enumerate().collect();
        keys.sort_by_key(|(_, count)| Reverse(*count));
        keys.retain(|(_, count)| *count > 0);
        let floor = keys.get(counters).map_or(0, |(_, count)| *count);
        keys.truncate(counters);
        let kept = count(keys.len());
        let entries = keys.iter().take(limit).map(|(key, count)| TopEntry {
            rule: "r".to_owned(),
            key: key.to_string(),
            count: count.saturating_add(floor),
            error: floor,
            ..TopEntry::default()
        });
        Top {
            top: entries.collect(),
            keys: kept,
            missing_at_most: floor,
            ..Top::default()
        }
    }

    proptest! {
        /// Every row satisfies `sum - error <= truth <= sum`, and every key without a row satisfies `truth <=
        /// missing_at_most`.
        #[test]
        fn the_bounds_hold(
            truths in prop::collection::vec(prop::collection::vec(0_u64..20, 8), 1..5),
            counters in 1_usize..9,
            limit in 1_usize..9,
        ) {
            let tops: Vec<Top> = truths.iter().map(|truth| answer(truth, counters, limit)).collect();
            let merged = merged(&tops.iter().map(Some).collect::<Vec<_>>());
            for key in 0..8 {
                let truth: u64 = truths.iter().map(|truth| truth[key]).sum();
                match merged.rows.iter().find(|row| row.key == key.to_string()) {
                    Some(row) => {
                        prop_assert!(row.sum - row.error <= truth && truth <= row.sum, "{truth}: {row:?}");
                    }
                    None => prop_assert!(truth <= merged.missing_at_most, "{truth}: {merged:?}"),
                }
            }
            prop_assert!(merged.rows.is_sorted_by(|a, b| a.sum >= b.sum));
        }

        #[test]
        fn no_answer_makes_it_panic(counts in prop::collection::vec((any::<u64>(), any::<u64>()), 0..4), floor: u64) {
            let tops: Vec<Top> = counts
                .iter()
                .map(|(count, error)| top(floor, &[("r", "a", *count, *error, *error % 2 == 0)]))
                .collect();
            let merged = merged(&tops.iter().map(Some).collect::<Vec<_>>());
            prop_assert!(merged.rows.len() <= 2);
        }
    }
}
