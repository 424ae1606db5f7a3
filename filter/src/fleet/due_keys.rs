//! The queue of keys that need tokens.

use std::collections::VecDeque;

use loudou_limiter::Nanos;
use loudou_limiter::lease::Held;
use loudou_store::BucketId;

use crate::waiting::Ticket;

/// Number of queued keys above which no refills are queued. A later request for the key queues the
/// refill again. Keys with held requests are always queued. The number of such keys is bounded,
/// because the number of held requests is bounded.
const MAX_DUE_KEYS: usize = 4_096;

/// A key that needs tokens.
#[derive(Debug)]
pub(super) struct DueKey {
    pub(super) id: BucketId,
    pub(super) key: String,
    /// Costs of the requests that are waiting for the key's tokens.
    pub(super) held: Held,
    /// Requests that are waiting for the key's tokens, in order of arrival. Some of their clients
    /// may have disconnected.
    pub(super) requests: Vec<Ticket>,
}

/// The keys that need tokens, without duplicates, in order of arrival. Because of this order, a
/// flood of made-up keys cannot delay other keys by sorting before them.
#[derive(Debug, Default)]
pub(super) struct DueKeys {
    /// Queued keys, in order of arrival.
    all: VecDeque<DueKey>,
    /// Number of keys removed from the queue so far, which is also the number of the first queued
    /// key.
    first: u64,
    /// Number of each queued key, sorted by bucket ID. A map would make the Wasm module 5 KiB
    /// larger.
    numbers: Vec<(BucketId, u64)>,
    /// Number of queued keys with held requests.
    urgent: usize,
    /// Time at which a refill was last added while the queue was empty.
    since: Nanos,
}

impl DueKeys {
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Returns the time at which the next call is due. A call is due immediately if there is a held
    /// request or if `most` keys are queued. Otherwise, it is due once the first refill has been
    /// queued for `max_delay`.
    pub(super) fn due(&self, max_delay: Nanos, most: usize) -> Nanos {
        if self.urgent > 0 || self.all.len() >= most {
            return Nanos::ZERO;
        }
        self.since.saturating_add(max_delay)
    }

    /// Queues a key that needs tokens for a held request with this cost.
    pub(super) fn hold(&mut self, id: BucketId, key: &str, cost: u64, request: Ticket) {
        let Some(due) = self.of(id, key) else { return };
        let held = &mut due.held;
        held.units = held.units.saturating_add(cost);
        held.least = match held.least {
            0 => cost,
            least => least.min(cost),
        };
        let is_first = due.requests.is_empty();
        due.requests.push(request);
        self.urgent = self.urgent.saturating_add(is_first.into());
    }

    /// Queues a key that needs a refill.
    pub(super) fn refill(&mut self, id: BucketId, key: &str, now: Nanos) {
        if self.all.is_empty() {
            self.since = now;
        }
        if self.all.len() < MAX_DUE_KEYS {
            self.of(id, key);
        }
    }

    fn of(&mut self, id: BucketId, key: &str) -> Option<&mut DueKey> {
        let found = self.numbers.binary_search_by(|(other, _)| other.cmp(&id));
        let place = match found {
            Ok(at) => {
                let (_, number) = self.numbers.get(at)?;
                usize::try_from(number.saturating_sub(self.first)).ok()?
            }
            Err(at) => {
                let place = self.all.len();
                let number = self.first.saturating_add(u64::try_from(place).ok()?);
                self.numbers.insert(at, (id, number));
                self.all.push_back(DueKey {
                    id,
                    key: key.to_owned(),
                    held: Held::default(),
                    requests: Vec::new(),
                });
                place
            }
        };
        self.all.get_mut(place)
    }

    /// Removes and returns up to `most` keys from the front of the queue.
    pub(super) fn take(&mut self, most: usize) -> Vec<DueKey> {
        let most = most.min(self.all.len());
        let mut due_keys = Vec::with_capacity(most);
        while due_keys.len() < most
            && let Some(due) = self.all.pop_front()
        {
            let is_held = !due.requests.is_empty();
            self.urgent = self.urgent.saturating_sub(is_held.into());
            due_keys.push(due);
            self.first = self.first.saturating_add(1);
        }
        let first = self.first;
        self.numbers.retain(|(_, number)| *number >= first);
        due_keys
    }

    /// Removes and returns all keys.
    pub(super) fn clear(&mut self) -> Vec<DueKey> {
        self.take(usize::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn id(fingerprint: u64) -> BucketId {
        BucketId {
            rule_tag: 1,
            fingerprint,
            page: 0,
        }
    }

    const fn request(stream: u32) -> Ticket {
        Ticket {
            due: Nanos::ZERO,
            stream,
        }
    }

    #[test]
    fn a_key_asks_once_for_all_that_it_holds() {
        let mut due_keys = DueKeys::default();
        due_keys.hold(id(1), "a", 2, request(7));
        due_keys.refill(id(2), "b", Nanos::ZERO);
        due_keys.hold(id(1), "a", 5, request(3));
        due_keys.refill(id(1), "a", Nanos::ZERO);
        let taken = due_keys.take(9);
        let [a, b] = taken.as_slice() else {
            panic!("two keys: {taken:?}")
        };
        assert_eq!((a.key.as_str(), a.held), ("a", Held { units: 7, least: 2 }));
        assert_eq!(a.requests, [request(7), request(3)]);
        assert_eq!((b.key.as_str(), b.held), ("b", Held { units: 0, least: 0 }));
        assert!(due_keys.is_empty());
    }

    /// Made-up keys for one rule do not delay calls for another rule's keys, even if their bucket
    /// IDs are lower.
    #[test]
    fn who_came_first_is_asked_for_first() {
        for rule in [0, 9] {
            let mut due_keys = DueKeys::default();
            let early = BucketId {
                rule_tag: rule,
                ..id(5)
            };
            due_keys.hold(early, "early", 1, request(1));
            for n in 0..500 {
                let flood = BucketId {
                    rule_tag: 3,
                    ..id(n)
                };
                due_keys.hold(flood, "flood", 1, request(2));
            }
            due_keys.hold(early, "early", 1, request(3));
            let taken = due_keys.take(128);
            assert_eq!(taken.len(), 128);
            assert_eq!(taken[0].key, "early", "rule {rule}");
            assert_eq!(taken[0].requests.len(), 2);
            assert_eq!(due_keys.clear().len(), 501 - 128);
        }
    }

    #[test]
    fn refills_wait_for_each_other_and_held_requests_for_nobody() {
        let at = Nanos::from_millis;
        let mut due_keys = DueKeys::default();
        let due = |due_keys: &DueKeys| due_keys.due(at(10), 3);
        due_keys.refill(id(1), "a", at(100));
        due_keys.refill(id(2), "b", at(105));
        assert_eq!(due(&due_keys), at(110), "since the first one waits");
        due_keys.hold(id(2), "b", 1, request(1));
        due_keys.hold(id(2), "b", 1, request(2));
        assert_eq!(due(&due_keys), Nanos::ZERO);
        assert_eq!(due_keys.take(9).len(), 2);
        due_keys.refill(id(1), "a", at(120));
        assert_eq!(due(&due_keys), at(130), "nothing is held any more");
        due_keys.refill(id(2), "b", at(121));
        due_keys.refill(id(3), "c", at(122));
        assert_eq!(due(&due_keys), Nanos::ZERO, "as many as a call carries");
    }

    #[test]
    fn refills_are_bounded_and_held_requests_are_not_forgotten() {
        let mut due_keys = DueKeys::default();
        for n in 0..5_000 {
            due_keys.refill(id(n), "k", Nanos::ZERO);
        }
        due_keys.hold(id(9_999), "held", 1, request(5));
        let taken = due_keys.take(usize::MAX);
        assert_eq!(taken.len(), MAX_DUE_KEYS + 1);
        assert!(
            taken
                .iter()
                .any(|due| due.key == "held" && due.held.units == 1)
        );
        due_keys.hold(id(9_999), "held", 1, request(5));
        assert_eq!(due_keys.clear()[0].requests, [request(5)]);
        assert!(due_keys.is_empty());
    }
}
