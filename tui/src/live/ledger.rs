//! What a follower of an Envoy keeps in mind of what is live, so that it can say what a restart took.

use std::collections::BTreeMap;

use loudou_api::{BucketView, Event, Rules};

use super::collect::Live;
use super::{Clocks, Id, Item, Kind, Left, Told, What, ban_of, is_lost, of_rules};

/// What is live, as of the last look.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger {
    instance: String,
    clocks: Clocks,
    items: BTreeMap<Id, Item>,
    told: Told,
    /// What restarts took, as long as nobody has applied it again.
    lost: Option<Lost>,
}

/// What is gone with a process.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Lost {
    /// The process that had it, or the last of them.
    pub(crate) instance: String,
    /// When the process after it started.
    pub(crate) started_unix_ms: u64,
    items: BTreeMap<Id, Item>,
}

impl Lost {
    /// What is gone, in the order in which it is to be applied.
    pub(crate) fn items(&self) -> impl ExactSizeIterator<Item = &Item> + Clone {
        self.items.values()
    }

    /// In one line.
    pub(crate) fn line(&self) -> String {
        super::gone(self.items(), self.started_unix_ms)
    }
}

/// One look at an Envoy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look<'a> {
    /// The process, and when it started.
    pub(crate) instance: &'a str,
    pub(crate) started_unix_ms: u64,
    pub(crate) clocks: Clocks,
    /// The rules, unless they are as they were.
    pub(crate) rules: Option<&'a Rules>,
    pub(crate) events: &'a [Event],
}

impl Ledger {
    /// Begins with what was read in one go.
    pub(crate) fn new(live: Live) -> Self {
        Self {
            instance: live.status.instance.clone(),
            clocks: Clocks::of(&live.status),
            items: live.items,
            told: live.told,
            lost: None,
        }
    }

    /// What restarts took and nobody has applied again.
    pub(crate) const fn lost(&self) -> Option<&Lost> {
        self.lost.as_ref()
    }

    /// Forgets what restarts took.
    pub(crate) fn forget(&mut self) {
        self.lost = None;
    }

    /// Takes in a look; whether it is the first at another process.
    pub(crate) fn look(&mut self, look: &Look<'_>) -> bool {
        let both_known = !self.instance.is_empty() && !look.instance.is_empty();
        let restarted = both_known && self.instance != look.instance;
        if restarted {
            let mut items = self.lost.take().map(|lost| lost.items).unwrap_or_default();
            items.append(&mut self.items);
            self.told = Told::default();
            self.lost = Some(Lost {
                instance: self.instance.clone(),
                started_unix_ms: look.started_unix_ms,
                items,
            });
        }
        look.instance.clone_into(&mut self.instance);
        self.clocks = look.clocks;
        if let Some(rules) = look.rules {
            self.items.retain(|id, _| id.kind == Kind::Ban);
            let items = of_rules(rules, self.clocks).into_iter();
            self.items.extend(items.map(|item| (item.id(), item)));
        }
        self.note(look.events);
        self.settle();
        restarted
    }

    /// Takes in all bans, of buckets that were read at the last look; of some buckets if there are more
    /// than those.
    pub(crate) fn buckets<'a>(
        &mut self,
        buckets: impl Iterator<Item = &'a BucketView>,
        are_all: bool,
    ) {
        let mut seen = BTreeMap::new();
        for bucket in buckets.filter(|bucket| !is_lost(&bucket.key)) {
            let id = Id::new(Kind::Ban, &bucket.rule, &bucket.key);
            seen.insert(id, ban_of(bucket, self.clocks));
        }
        self.items
            .retain(|id, _| id.kind != Kind::Ban || (!are_all && !seen.contains_key(id)));
        for mut item in seen.into_values().flatten() {
            self.told.fill(&mut item);
            self.items.insert(item.id(), item);
        }
        self.settle();
    }

    /// Takes in the bans that events tell of.
    fn note(&mut self, events: &[Event]) {
        use loudou_api::EventKind::{Ban, Reset, Unban};
        self.told.note(events);
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
                Unban | Reset => {
                    self.items.remove(&id);
                }
                _ => {}
            }
        }
    }

    /// Drops what has ended, and of what is gone whatever is in force again or was decided anew.
    fn settle(&mut self) {
        let now = self.clocks.unix_ms;
        self.items.retain(|_, item| item.left(now) != Left::Nothing);
        self.told.keep(&self.items);
        if let Some(lost) = &mut self.lost {
            let items = &self.items;
            lost.items
                .retain(|id, item| item.left(now) != Left::Nothing && !items.contains_key(id));
        }
    }
}
