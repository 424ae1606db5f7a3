//! Implements [`RulesInForce`] for the active configuration: updates leases and applies changes
//! from other Envoys.

use std::rc::Rc;

use loudou_api::{ChangeName, Event, EventKind};
use loudou_limiter::Nanos;
use loudou_limiter::lease::{Lease, Phase, Terms};
use loudou_rules::config::is_key;
use loudou_rules::rule::tried;
use loudou_store::{BanChange, BanEffect, BucketId, LeaseOf, LiveRule, SetBan, StoreStats};
use serde_json::Value;

use super::active::Active;
use crate::ban_ends::BanEnd;
use crate::fleet::travel;
use crate::fleet::travel::{BanValue, Change, Changes, ChangesAnswer, LocalState, Sent, base_of};
use crate::fleet::{ChangesProgress, Fleet, LeaseChange, RulesInForce};
use crate::host::{Host, HostStore};
use crate::record::{Edit, EditTo, OverrideEdit, Record, RecordError, RuleRecord, describe};
use crate::{ban_ends, current, events};

/// Time limit for a single call that applies changes.
const MAX_TIME: Nanos = Nanos::from_millis(4);

/// Selects which changes a run examines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Selection {
    /// Changes that have not been applied yet.
    Due,
    /// Changes that have not been applied yet, including those that are waiting for another
    /// configuration.
    Waiting,
    /// All changes.
    All,
}

/// The result of examining a change.
#[derive(Debug)]
struct Settled {
    name: String,
    version: u64,
    here: LocalState,
    /// The event to add. `None` if the change had no effect.
    event: Option<Box<Event>>,
}

impl Settled {
    fn new(change: &Change, here: LocalState) -> Self {
        Self {
            name: change.name.clone(),
            version: change.version,
            here,
            event: None,
        }
    }
}

impl RulesInForce for Active {
    fn instance(&self) -> &str {
        &self.instance
    }

    fn report(&self, host: &dyn Host, what: (EventKind, &str), now: Nanos) {
        let (kind, detail) = what;
        let at = host.clock_at(now);
        let mut event = events::event(at, kind, events::BY_ITSELF, self.generation);
        detail.clone_into(&mut event.detail);
        events::add(host, self.share(), &event);
    }

    fn change_lease<T>(
        &self,
        host: &dyn Host,
        fleet: &Fleet,
        (id, key): (BucketId, &str),
        now: Nanos,
        change: &mut LeaseChange<'_, T>,
    ) -> Option<(T, &str, Terms)> {
        let rule = self.rule_of(id.rule_tag)?;
        let slot = if rule.is_sourced() {
            self.table.get(&mut HostStore(host), id).ok().flatten()
        } else {
            None
        };
        let bucket = slot.as_ref().map(|slot| (&slot.bucket, slot.version));
        let limits = &*rule.limits_in(key, bucket);
        let terms = fleet.view(Phase::First).terms(rule.rule(), limits)?;
        let of = LeaseOf {
            rule,
            limits,
            terms: &terms,
            key,
            id,
            clock: self.clock(host, now),
        };
        let (mut stats, mut result) = (StoreStats::default(), None);
        let mut change = |lease: &mut Lease| result = change(lease, &terms);
        let changed = self
            .table
            .lease(&mut HostStore(host), of, &mut change, &mut stats);
        self.store_metrics.add(host, &stats);
        changed.ok()?;
        Some((result?, rule.rule().name.as_str(), terms))
    }

    fn handle_changes(
        &self,
        host: &dyn Host,
        reported: &[(String, u64)],
        response: &ChangesAnswer,
        now: Nanos,
    ) -> ChangesProgress {
        let known = travel::head(host, self.share());
        let is_same = known.epoch == response.epoch && known.generation >= response.generation;
        if is_same
            && reported.is_empty()
            && response.received.is_empty()
            && !response.epoch.is_empty()
        {
            let is_current = known.due == 0;
            return ChangesProgress::All { is_current };
        }
        let (mut is_due, mut is_more) = (false, false);
        let noted = travel::change(host, self.share(), now, &mut |changes| {
            let is_news = changes.adopt_response(reported, response, now);
            (is_due, is_more) = (changes.is_due(), !changes.unsent().is_empty());
            is_news
        });
        for (name, _) in reported.iter().filter(|_| noted) {
            let Some(why) = response.refusal(name) else {
                continue;
            };
            let about = ChangeName::parse(name);
            let mut event = event_of(self, host, EventKind::Warning, about.as_ref(), now);
            event.detail = format!(
                "the relay refused the last change, so it applies at this Envoy only: {why}"
            );
            events::add(host, self.share(), &event);
        }
        if !noted {
            return ChangesProgress::Nothing;
        }
        let is_current = !is_due || self.apply_due(host, now);
        if is_more || response.more {
            return ChangesProgress::More;
        }
        ChangesProgress::All { is_current }
    }

    fn apply_due(&self, host: &dyn Host, now: Nanos) -> bool {
        loop {
            let is_more = self.apply_changes(host, Selection::Due, now);
            if !is_more || host.now().since(now) >= MAX_TIME {
                return travel::head(host, self.share()).due == 0;
            }
        }
    }

    fn recheck_changes(&self, host: &dyn Host, now: Nanos) {
        let announced = self.store_metrics.changes(host);
        let head = travel::head(host, self.share());
        if head.count > 0 && head.over_ns <= now.get() {
            travel::change(host, self.share(), now, &mut |_| true);
        }
        if head.due > 0 || (head.checked != announced && head.seen == announced) {
            let selection = if head.checked == announced {
                Selection::Due
            } else {
                Selection::All
            };
            self.apply_changes(host, selection, now);
        } else if head.seen != announced && head.count > 0 {
            // The announced record change may already be in the record even though the change that
            // caused it is not in the list of changes yet. The list is therefore not compared with
            // the record until the next run.
            travel::change(host, self.share(), now, &mut |changes| {
                changes.head.seen = announced;
                true
            });
        }
    }
}

impl Active {
    /// Applies the changes that were waiting for this configuration, before it decides its first
    /// request.
    pub(super) fn apply_waiting(&self, host: &dyn Host, now: Nanos) {
        if travel::head(host, self.share()).count == 0 {
            return;
        }
        while self.apply_changes(host, Selection::Waiting, now) && host.now().since(now) < MAX_TIME
        {
        }
    }

    /// Applies the selected changes. Returns true if another run is needed to apply the rest.
    fn apply_changes(&self, host: &dyn Host, selection: Selection, now: Nanos) -> bool {
        let mut settled = self.apply_edits(host, selection, now);
        let (bans, is_more) = self.apply_bans(host, selection, now);
        settled.extend(bans);
        let announced = self.store_metrics.changes(host);
        travel::change(host, self.share(), now, &mut |changes| {
            for one in &settled {
                changes.settle(&one.name, one.version, one.here);
            }
            if selection == Selection::All && !is_more {
                (changes.head.seen, changes.head.checked) = (announced, announced);
            }
            true
        });
        for event in settled.into_iter().filter_map(|one| one.event) {
            events::add(host, self.share(), &event);
        }
        is_more
    }

    fn apply_edits(&self, host: &dyn Host, selection: Selection, now: Nanos) -> Vec<Settled> {
        let mut settled = Vec::new();
        let announced = self.store_metrics.changes(host);
        let share = self.share();
        let edited = self.records().edit(host, &mut |record| {
            // The changes are read after the record, so that they include every change whose effect
            // is in the record.
            let changes = travel::find(host, share);
            let with_bases = changes.with_bases();
            let all = (&changes, with_bases.as_slice());
            let due = changes
                .all
                .iter()
                .filter(|change| change.until > now && is_to_check(change, selection));
            settled = due
                .filter_map(|change| {
                    let settled = self.apply_edit(host, record, (change, all), now);
                    record.end_trials();
                    settled
                })
                .collect();
            settled.iter().any(|one| one.event.is_some())
        });
        match edited {
            Ok(record) => {
                if settled.iter().any(|one| one.event.is_some()) {
                    self.announce(host, &record, announced, now);
                }
                for one in &mut settled {
                    if let Some(event) = &mut one.event {
                        event.generation = record.generation;
                    }
                }
            }
            Err(error) => {
                // If the record is full, the changes must wait. After any other failure, the next
                // run retries them.
                let is_full = error == RecordError::TooLarge;
                settled.retain_mut(|one| {
                    one.event = None;
                    one.here = LocalState::Waiting;
                    is_full
                });
            }
        }
        settled
    }

    fn announce(&self, host: &dyn Host, record: &Rc<Record>, announced: u64, now: Nanos) {
        let metrics = &self.store_metrics;
        current::announce(host, self.records(), metrics, (record, announced), now);
    }

    /// Applies an edit or override from another Envoy to its rule in the record. Returns `None` for
    /// other kinds of changes, or if a later run must retry the change.
    fn apply_edit(
        &self,
        host: &dyn Host,
        record: &mut Record,
        (change, (changes, with_bases)): (&Change, (&Changes, &[&Change])),
        now: Nanos,
    ) -> Option<Settled> {
        let about = change.about()?;
        let (ChangeName::Edit { rule, .. } | ChangeName::Override { rule, .. }) = &about else {
            return None;
        };
        let version = record.next_version();
        let waits = Some(Settled::new(change, LocalState::Waiting));
        let is_edit = matches!(about, ChangeName::Edit { .. });
        if is_edit && !change.value.is_empty() && !record.start_trial(rule) {
            return waits;
        }
        let Some(before) = record.rule(rule).cloned() else {
            // A trial exists only as long as its edit does. If the trial is gone, a change that
            // ends its edit therefore has no effect.
            let has_ended = change.value.is_empty() && tried(rule).is_some();
            return if has_ended {
                Some(Settled::new(change, LocalState::InForce))
            } else {
                waits
            };
        };
        if !with_bases.is_empty() {
            let base = before.base_id();
            let passed = changes.precluded_state(with_bases, (change, &about), &base);
            if let Some(here) = passed {
                return Some(Settled::new(change, here));
            }
        }
        if before.is_full() {
            return None;
        }
        let mut after = before.clone();
        let kind = match set(&mut after, &about, change, (now, version)) {
            None => return waits,
            Some(Set::Same) => return Some(Settled::new(change, LocalState::InForce)),
            Some(Set::Changed(kind)) => kind,
        };
        if after.check().is_err() {
            return waits;
        }
        let words = describe(before.effective(), after.effective());
        let who = author_of(&after, &about).map(|who| (who.by.as_str(), who.reason.as_str()));
        let event = self.event_of_change(host, (kind, &words, who), (change, &about), now);
        *record.rule_mut(rule)? = after;
        Some(Settled {
            event: Some(Box::new(event)),
            ..Settled::new(change, LocalState::InForce)
        })
    }

    /// Creates the event for a change from another Envoy that was applied here, including its
    /// effect, author and reason.
    fn event_of_change(
        &self,
        host: &dyn Host,
        (kind, words, who): (EventKind, &str, Option<(&str, &str)>),
        (change, about): (&Change, &ChangeName),
        now: Nanos,
    ) -> Event {
        let mut event = event_of(self, host, kind, Some(about), now);
        let words = if words.is_empty() {
            "nothing changed"
        } else {
            words
        };
        event.detail = [words, "; made at the Envoy ", shown_maker(change)].concat();
        if let Some((by, reason)) = who {
            by.clone_into(&mut event.by);
            reason.clone_into(&mut event.reason);
        }
        event.until_ns = Some(change.until.get()).filter(|_| change.until < Nanos::MAX);
        event
    }
}

/// The effect of a change on a rule.
enum Set {
    Same,
    Changed(EventKind),
}

/// Returns true if the selection includes the change.
fn is_to_check(change: &Change, selection: Selection) -> bool {
    match change.here {
        LocalState::ToApply => true,
        LocalState::Waiting => selection != Selection::Due,
        LocalState::InForce => selection == Selection::All && change.sent != Sent::Refused,
    }
}

/// Sets or removes a rule's edit or override. Returns `None` if the change was made for another
/// version of the rule, unless the rule already has this edit or override.
fn set(
    rule: &mut RuleRecord,
    about: &ChangeName,
    change: &Change,
    (now, version): (Nanos, u32),
) -> Option<Set> {
    let mut value = Value::Null;
    if !change.value.is_empty() {
        value = serde_json::from_slice(&change.value).ok()?;
    }
    let gives = value.get("gives");
    let times = (now, change.until);
    let (to, [kind, dropped]) = match about {
        ChangeName::Edit { .. } => {
            let edit = gives.and_then(Edit::read).map(|edit| edit.at(times));
            let kinds = [EventKind::Edit, EventKind::EditDropped];
            (EditTo::Rule(edit), kinds)
        }
        ChangeName::Override { pattern, .. } => {
            let own = gives.and_then(|gives| OverrideEdit::read(pattern, gives));
            let own = own.map(|own| own.at(times));
            let kinds = [EventKind::Override, EventKind::OverrideDropped];
            (EditTo::Override(pattern, own), kinds)
        }
        ChangeName::Ban { .. } => return None,
    };
    if rule.has(&to) {
        return Some(Set::Same);
    }
    let is_end = value.is_null();
    if !is_end && (to.is_end() || base_of(&value)? != rule.base_id()) {
        return None;
    }
    rule.put(to, now, version);
    Some(Set::Changed(if is_end { dropped } else { kind }))
}

fn author_of<'a>(rule: &'a RuleRecord, about: &ChangeName) -> Option<&'a crate::record::Origin> {
    match about {
        ChangeName::Edit { .. } => rule.edit.as_ref().map(|edit| &edit.who),
        ChangeName::Override { pattern, .. } => rule.own.of_pattern(pattern).map(|own| &own.who),
        ChangeName::Ban { .. } => None,
    }
}

fn event_of(
    active: &Active,
    host: &dyn Host,
    kind: EventKind,
    about: Option<&ChangeName>,
    now: Nanos,
) -> Event {
    let at = host.clock_at(now);
    let event = events::event(at, kind, events::BY_ITSELF, active.generation);
    let (rule, key) = match about {
        None => (None, None),
        Some(ChangeName::Edit { rule, .. }) => (Some(rule), None),
        Some(
            ChangeName::Override {
                rule, pattern: key, ..
            }
            | ChangeName::Ban { rule, key },
        ) => (Some(rule), Some(key)),
    };
    Event {
        rule: rule.cloned(),
        key: key.cloned(),
        ..event
    }
}

/// Returns the ID of the Envoy process that made a change, for use in an event's text.
fn shown_maker(change: &Change) -> &str {
    let is_instance = change.by.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_instance { &change.by } else { "?" }
}

// Bans from other Envoys.

/// Maximum number of bans that a single run sets or lifts.
const MAX_BANS: usize = 64;

impl Active {
    /// Applies the selected bans and returns the results. The flag is true if another run is needed
    /// to apply the rest.
    fn apply_bans(
        &self,
        host: &dyn Host,
        selection: Selection,
        now: Nanos,
    ) -> (Vec<Settled>, bool) {
        let changes = travel::find(host, self.share());
        let (mut settled, mut set, mut record) = (Vec::new(), 0_usize, None);
        for change in &changes.all {
            let is_due = match change.here {
                LocalState::ToApply => true,
                LocalState::Waiting => selection != Selection::Due,
                LocalState::InForce => false,
            };
            if !is_due || change.until <= now {
                continue;
            }
            if set >= MAX_BANS {
                return (settled, true);
            }
            if record.is_none() {
                // This worker's listener may be draining, so the rules come from the record.
                let (records, metrics) = (self.records(), &self.store_metrics);
                record = current::recent(host, records, metrics, now).ok();
            }
            let Some(record) = &record else {
                return (settled, true);
            };
            if let Some(one) = self.apply_ban(host, record, change, now) {
                // A ban that has to wait does not count towards [`MAX_BANS`].
                set = set.saturating_add((one.here == LocalState::InForce).into());
                settled.push(one);
            }
        }
        (settled, false)
    }

    /// Sets or lifts a ban. Returns `None` for other kinds of changes, or if a later run must retry
    /// the change.
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
        let waits = Some(Settled::new(change, LocalState::Waiting));
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
            None => BanChange::Free,
            Some(_) if change.until == Nanos::MAX => BanChange::Replaced(None),
            Some(_) => BanChange::Replaced(Some(change.until.since(now))),
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
            return Some(Settled::new(change, LocalState::InForce));
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
            ..Settled::new(change, LocalState::InForce)
        })
    }

    /// Stores a ban's expiry time, so that an event is added when the ban expires.
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
