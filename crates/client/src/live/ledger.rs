//! Tracks an Envoy's live changes across polls, to report which ones were lost in a restart.

use std::collections::BTreeMap;

use loudou_api::{BucketView, Event, Rules};

use super::collect::Live;

use super::{Authors, Clocks, Id, Item, Kind, TimeLeft, What, ban_of, is_lost, of_rules};

/// The live changes as of the last poll.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    instance: String,
    clocks: Clocks,
    items: BTreeMap<Id, Item>,
    authors: Authors,
    /// Changes that were lost in restarts and have not been applied again.
    lost: Option<Lost>,
}

/// Changes that were lost in a restart.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Lost {
    /// The process that had these changes. If there have been several restarts, the most recent of
    /// these processes.
    pub instance: String,
    /// Start time of the process that replaced it, in milliseconds since the Unix epoch.
    pub started_unix_ms: u64,
    items: BTreeMap<Id, Item>,
}

impl Lost {
    /// Returns the lost changes, in listing order.
    pub fn items(&self) -> impl ExactSizeIterator<Item = &Item> + Clone {
        self.items.values()
    }

    /// Describes the lost changes in one line.
    pub fn line(&self) -> String {
        super::gone(self.items(), self.started_unix_ms)
    }
}

/// Result of polling an Envoy once.
#[derive(Clone, Copy, Debug)]
pub struct Poll<'a> {
    /// The process.
    pub instance: &'a str,
    /// Start time of the process, in milliseconds since the Unix epoch.
    pub started_unix_ms: u64,
    /// Readings of the server's clocks.
    pub clocks: Clocks,
    /// The rules. `None` if they have not changed.
    pub rules: Option<&'a Rules>,
    /// Events since the last poll.
    pub events: &'a [Event],
}

impl Ledger {
    /// Creates a ledger from a complete list of an Envoy's live changes.
    pub fn new(live: Live) -> Self {
        Self {
            instance: live.status.instance.clone(),
            clocks: Clocks::of(&live.status),
            items: live.items,
            authors: live.authors,
            lost: None,
        }
    }

    /// Returns the live changes.
    pub fn items(&self) -> impl Iterator<Item = &Item> {
        self.items.values()
    }

    /// Returns the lost changes that have not been applied again.
    pub const fn lost(&self) -> Option<&Lost> {
        self.lost.as_ref()
    }

    /// Discards the lost changes.
    pub fn forget(&mut self) {
        self.lost = None;
    }

    /// Records the result of a poll. Returns true if this is the first poll since a restart.
    pub fn poll(&mut self, poll: &Poll<'_>) -> bool {
        let both_known = !self.instance.is_empty() && !poll.instance.is_empty();
        let restarted = both_known && self.instance != poll.instance;
        if restarted {
            let mut items = self.lost.take().map(|lost| lost.items).unwrap_or_default();
            items.append(&mut self.items);
            self.authors = Authors::default();
            self.lost = Some(Lost {
                instance: self.instance.clone(),
                started_unix_ms: poll.started_unix_ms,
                items,
            });
        }
        poll.instance.clone_into(&mut self.instance);
        self.clocks = poll.clocks;
        if let Some(rules) = poll.rules {
            self.items.retain(|id, _| id.kind == Kind::Ban);
            let items = of_rules(rules, self.clocks).into_iter();
            self.items.extend(items.map(|item| (item.id(), item)));
        }
        self.note(poll.events);
        self.settle();
        restarted
    }

    /// Records the bans of the buckets returned by the last poll. If `are_all` is true, `buckets`
    /// contains every banned bucket.
    pub fn buckets<'a>(&mut self, buckets: impl Iterator<Item = &'a BucketView>, are_all: bool) {
        let mut seen = BTreeMap::new();
        for bucket in buckets.filter(|bucket| !is_lost(&bucket.key)) {
            let id = Id::new(Kind::Ban, &bucket.rule, &bucket.key);
            seen.insert(id, ban_of(bucket, self.clocks));
        }
        self.items
            .retain(|id, _| id.kind != Kind::Ban || (!are_all && !seen.contains_key(id)));
        for mut item in seen.into_values().flatten() {
            self.authors.fill(&mut item);
            self.items.insert(item.id(), item);
        }
        self.settle();
    }

    /// Removes the bans of buckets that no longer exist.
    pub fn gone<'a>(&mut self, buckets: impl Iterator<Item = (&'a str, &'a str)>) {
        for (rule, key) in buckets {
            self.items.remove(&Id::new(Kind::Ban, rule, key));
        }
    }

    /// Records the bans reported by events.
    fn note(&mut self, events: &[Event]) {
        use loudou_api::EventKind::{Ban, BanExpired, Reset, Unban};
        self.authors.note(events);
        for event in events {
            let (Some(rule), Some(key)) = (&event.rule, &event.key) else {
                continue;
            };
            let id = Id::new(Kind::Ban, rule, key);
            match event.kind {
                Ban => {
                    let item = Item {
                        rule: rule.clone(),
                        what: What::Ban { key: key.clone() },
                        by: event.by.clone(),
                        reason: event.reason.clone(),
                        made_unix_ms: Some(event.at_unix_ms),
                        ends_unix_ms: event.until_ns.map(|at| self.clocks.unix_ms(at)),
                    };
                    self.items.insert(id, item);
                }
                Unban | BanExpired | Reset => {
                    self.items.remove(&id);
                }
                _ => {}
            }
        }
    }

    /// Removes changes that have expired, and lost changes that are in effect again or have been
    /// replaced by an operator.
    fn settle(&mut self) {
        let now = self.clocks.unix_ms;
        self.items
            .retain(|_, item| item.left(now) != TimeLeft::Nothing);
        self.authors.keep(&self.items);
        if let Some(lost) = &mut self.lost {
            let items = &self.items;
            lost.items
                .retain(|id, item| item.left(now) != TimeLeft::Nothing && !items.contains_key(id));
        }
    }
}
