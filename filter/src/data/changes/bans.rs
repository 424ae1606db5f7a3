//! Bans that were made at another Envoy.

use loudou_api::{ChangeName, Event, EventKind};
use loudou_limiter::Nanos;
use loudou_rules::config::is_key;
use loudou_store::{BanEffect, LiveRule, SetBan, SetTo, StoreStats};

use super::super::active::Active;
use super::{Look, Settled};
use crate::ban_ends::{self, BanEnd};
use crate::current;
use crate::events;
use crate::host::{Host, HostStore};
use crate::record::{Record, RuleRecord};
use crate::travel::{self, BanValue, Change, Here};

/// The most bans that are set in one go.
const MAX_BANS: usize = 64;

impl Active {
    /// The results for bans, and whether some are left for the next time.
    pub(super) fn apply_bans(
        &self,
        host: &dyn Host,
        look: Look,
        now: Nanos,
    ) -> (Vec<Settled>, bool) {
        let changes = travel::find(host, self.share());
        let (mut settled, mut set, mut record) = (Vec::new(), 0_usize, None);
        for change in &changes.all {
            let is_due = match change.here {
                Here::ToApply => true,
                Here::Waiting => look != Look::Due,
                Here::InForce => false,
            };
            if !is_due || change.until <= now {
                continue;
            }
            if set >= MAX_BANS {
                return (settled, true);
            }
            if record.is_none() {
                // The rules of this worker may be those of a listener that drains.
                let (records, metrics) = (self.records(), &self.store_metrics);
                record = current::recent(host, records, metrics, now).ok();
            }
            let Some(record) = &record else {
                return (settled, true);
            };
            if let Some(one) = self.apply_ban(host, record, change, now) {
                // One that waits takes no place from those behind it.
                set = set.saturating_add((one.here == Here::InForce).into());
                settled.push(one);
            }
        }
        (settled, false)
    }

    /// Sets or lifts a ban. `None` for another kind, and for what can only be done later.
    fn apply_ban(
        &self,
        host: &dyn Host,
        record: &Record,
        change: &Change,
        now: Nanos,
    ) -> Option<Settled> {
        let about = change.about()?;
        let ChangeName::Ban { rule, key } = &about else {
            return None;
        };
        let waits = Some(Settled::new(change, Here::Waiting));
        let value = BanValue::read(&change.value);
        if value.is_none() && !change.value.is_empty() {
            return waits;
        }
        let active = record.rule(rule).map(RuleRecord::activate);
        let is_its = |tag: u32| value.as_ref().is_none_or(|ban| ban.tag == tag);
        let Some(active) = active.filter(|active| is_its(active.tag()) && is_key(key)) else {
            return waits;
        };
        let ban = match value {
            None => SetTo::Free,
            Some(_) if change.until == Nanos::MAX => SetTo::Replaced(None),
            Some(_) => SetTo::Replaced(Some(change.until.since(now))),
        };
        let set = SetBan {
            rule: &*active,
            key,
            ban,
            clock: self.clock(host, now),
        };
        let mut stats = StoreStats::default();
        let store = &mut HostStore(host);
        let set = self.table.set_ban_if(store, &set, &|_| true, &mut stats);
        self.store_metrics.add(host, &stats);
        let (before, effect) = set.ok()?;
        if effect != BanEffect::Changed {
            return Some(Settled::new(change, Here::InForce));
        }
        self.store_metrics.banned(host, before.as_ref(), ban, now);
        let kind = value.as_ref().map_or(EventKind::Unban, |_| EventKind::Ban);
        self.note_end(host, (rule, key), value.as_ref(), change.until, now);
        let words = if value.is_some() {
            "banned"
        } else {
            "the ban was lifted"
        };
        let who = value
            .as_ref()
            .map(|ban| (ban.by.as_str(), ban.reason.as_str()));
        let event = self.event_of_change(host, (kind, words, who), (change, &about), now);
        Some(Settled {
            event: Some(Box::new(event)),
            ..Settled::new(change, Here::InForce)
        })
    }

    /// Notes the end of a ban, so that it leaves its event.
    fn note_end(
        &self,
        host: &dyn Host,
        (rule, key): (&str, &str),
        ban: Option<&BanValue>,
        until: Nanos,
        now: Nanos,
    ) {
        let end = ban.filter(|_| until < Nanos::MAX).map(|ban| BanEnd {
            rule: rule.to_owned(),
            key: key.to_owned(),
            by: ban.by.clone(),
            until,
        });
        let change = match &end {
            Some(end) => ban_ends::Change::Banned(end),
            None => ban_ends::Change::Gone(rule, key),
        };
        let (over, _) = ban_ends::note(host, self.share(), Some(change), now);
        for event in over {
            self.store_metrics
                .unbanned(host, event.rule.is_some().into());
            let generation = self.generation;
            events::add(
                host,
                self.share(),
                &Event {
                    generation,
                    ..event
                },
            );
        }
    }
}
