//! Counts the requests and refusals of each key under a rule. Each key is assigned a number, which
//! is its index into the counts.

use std::collections::HashMap;

use loudou_limiter::fingerprint;

use loudou_words::num::count;

/// Maximum number of keys with separate counts, over all rules of a file.
pub const MOST_COUNTED: usize = 500_000;

/// Assigns numbers to keys, in order of first appearance.
#[derive(Debug, Default)]
pub(crate) struct KeyPlaces(
    /// Key numbers by 64-bit fingerprint. With a million keys, the probability that two share a
    /// fingerprint is 1 in 37 million.
    HashMap<u64, u32>,
);

impl KeyPlaces {
    /// Returns the number of a key. A new key is assigned a number if `has_room` is true, otherwise
    /// the result is `None`.
    pub(crate) fn place(&mut self, key: &str, has_room: bool) -> Option<usize> {
        let print = fingerprint(key);
        if let Some(place) = self.0.get(&print) {
            return usize::try_from(*place).ok();
        }
        let next = u32::try_from(self.0.len()).ok().filter(|_| has_room)?;
        self.0.insert(print, next);
        usize::try_from(next).ok()
    }

    /// Returns the number of keys.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

/// Requests and refusals of each key under a rule.
#[derive(Debug, Default)]
pub(crate) struct KeyCounts {
    places: KeyPlaces,
    requests: Vec<u32>,
    refused: Vec<u32>,
    /// Requests whose keys exceeded the maximum number of keys.
    pub(crate) left_out: u64,
}

/// Percentiles of a value over all keys (nearest-rank method).
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct Percentiles {
    /// The median: half of the keys have at most this value.
    pub p50: u64,
    /// 90 % of the keys have at most this value.
    pub p90: u64,
    /// 99 % of the keys have at most this value.
    pub p99: u64,
    /// Maximum over all keys.
    pub max: u64,
}

impl Percentiles {
    fn of(mut values: Vec<u64>) -> Self {
        values.sort_unstable();
        let at = |percent: usize| {
            let rank = (values.len() * percent).div_ceil(100);
            let value = values.get(rank.saturating_sub(1));
            value.copied().unwrap_or(0)
        };
        Self {
            p50: at(50),
            p90: at(90),
            p99: at(99),
            max: at(100),
        }
    }
}

impl KeyCounts {
    /// Counts a request. `all` is the number of counted keys over all rules.
    pub(crate) fn add(&mut self, key: &str, is_refused: bool, all: &mut usize) {
        let Some(place) = self.places.place(key, *all < MOST_COUNTED) else {
            self.left_out += 1;
            return;
        };
        if place == self.requests.len() {
            *all += 1;
            self.requests.push(0);
            self.refused.push(0);
        }
        if let Some(requests) = self.requests.get_mut(place) {
            *requests = requests.saturating_add(1);
        }
        if let (true, Some(refused)) = (is_refused, self.refused.get_mut(place)) {
            *refused = refused.saturating_add(1);
        }
    }

    /// Returns the number of keys.
    pub(crate) fn keys(&self) -> u64 {
        count(self.places.len())
    }

    /// Returns the number of keys that were refused at least once.
    pub(crate) fn refused(&self) -> u64 {
        count(self.refused.iter().filter(|refused| **refused > 0).count())
    }

    /// Returns the percentiles of requests per key.
    pub(crate) fn requests_of_key(&self) -> Percentiles {
        Percentiles::of(self.requests.iter().copied().map(u64::from).collect())
    }

    /// Returns the percentiles of each key's refusals per thousand requests.
    pub(crate) fn refused_per_mille(&self) -> Percentiles {
        let keys = self.requests.iter().zip(&self.refused);
        let shares = keys.map(|(requests, refused)| {
            let (requests, refused) = (u64::from(*requests), u64::from(*refused));
            let share = (refused * 1_000 + requests / 2).checked_div(requests);
            // Rounding must not produce 0 unless no request was refused, nor 1 000 unless all were.
            match share.unwrap_or(0) {
                0 => u64::from(refused > 0),
                1_000 if refused < requests => 999,
                share => share,
            }
        });
        Percentiles::of(shares.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_nearest_ranks() {
        let of = |values: &[u64]| {
            let Percentiles { p50, p90, p99, max } = Percentiles::of(values.to_vec());
            [p50, p90, p99, max]
        };
        assert_eq!(of(&[]), [0; 4]);
        assert_eq!(of(&[7]), [7; 4]);
        assert_eq!(of(&[4, 1, 3, 2]), [2, 4, 4, 4]);
        let hundred: Vec<u64> = (1..=100).collect();
        assert_eq!(of(&hundred), [50, 90, 99, 100]);
    }

    #[test]
    fn keys_are_counted_up_to_a_bound() {
        let mut counts = KeyCounts::default();
        let mut all = MOST_COUNTED - 2;
        for (key, is_refused) in [
            ("a", false),
            ("a", true),
            ("b", false),
            ("c", true),
            ("a", true),
        ] {
            counts.add(key, is_refused, &mut all);
        }
        assert_eq!(all, MOST_COUNTED);
        assert_eq!(
            (counts.keys(), counts.refused(), counts.left_out),
            (2, 1, 1)
        );
        assert_eq!(counts.requests_of_key().max, 3);
        assert_eq!(counts.refused_per_mille().max, 667);
    }

    #[test]
    fn shares_of_nothing_and_of_all_are_exact() {
        let mut counts = KeyCounts::default();
        let mut all = 0;
        for number in 0..10_000 {
            counts.add("rarely", number == 0, &mut all);
            counts.add("mostly", number > 0, &mut all);
        }
        let shares = counts.refused_per_mille();
        assert_eq!((shares.p50, shares.max), (1, 999));
    }
}
