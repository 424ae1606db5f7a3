//! `POST /v1/buckets/{rule}/{key}/ban` and `…/unban`.

use std::sync::Arc;

use loudou_api::{BanAnswer, BanView, EventKind, Spread};
use loudou_limiter::ban::BanHistory;
use loudou_limiter::{Clock, Nanos};
use loudou_rules::config::is_key;
use loudou_rules::humanise::humanise;
use loudou_rules::rule::{Impossible, Mode};
use loudou_rules::rule_set::{ActiveRule, Grant};
use loudou_store::page::Slot;
use loudou_store::{BanChange, BanEffect, GaveUp, LiveRule, SetBan, StoreStats, Table};

use super::AdminPlane;
use super::answer::{Failure, ok_with};
use super::bucket::{ban_view, imposed, view};
use super::call::Call;
use crate::ban_ends::{BanEnd, Change};
use crate::escaped::shown;
use crate::events;
use crate::fleet::travel::{self, BanValue, LocalChange};
use crate::host::{Host, HostStore, Reply};
use crate::metrics::StoreMetrics;

/// Minimum ban duration. A shorter ban could expire before the response is even sent.
const MIN_BAN: Nanos = Nanos::from_millis(1);

impl AdminPlane {
    pub(super) fn ban(&mut self, host: &dyn Host, call: &Call) -> Result<Reply, Failure> {
        let span = call.duration("for")?;
        check_span(span, call.clock)?;
        let replaces = call.flag("replace")?;
        let reason = call.reason()?;
        let setting = self.setting(host, call)?;
        setting.check_ban(host)?;
        let ban = if replaces {
            BanChange::Replaced(span)
        } else {
            BanChange::Banned(span)
        };
        let (before, effect) = setting.set(self, host, ban)?;
        let changed = effect == BanEffect::Changed;
        let after = setting.get(host)?;
        let mut fleet = None;
        if changed {
            let words = match span {
                None => "banned until the ban is lifted".to_owned(),
                Some(span) => format!("banned for {}", humanise(span.get())),
            };
            let (until, is_earlier) = until(before.as_ref(), span, replaces, call.clock.now);
            let stays = "; the earlier ban of a penalty lasts longer";
            let words = format!("{words}{}", if is_earlier { stays } else { "" });
            let made = setting.made(&reason, until);
            fleet = travel::note(host, self.share(), &[made], call.clock.now);
            setting.note(self, host, (EventKind::Ban, &words, reason, until));
        }
        Ok(setting.answer((before.as_ref(), after.as_ref()), changed, fleet))
    }

    pub(super) fn unban(&mut self, host: &dyn Host, call: &Call) -> Result<Reply, Failure> {
        let reason = call.reason()?;
        let now = call.clock.now;
        let setting = self.setting(host, call)?;
        let found = setting.get(host)?;
        let has_ban = found.is_some_and(|slot| slot.ban_history.ban(now).is_some());
        if !has_ban && matches!(setting.active.grant(call.key()), Grant::Banned) {
            let detail = "an override bans this key: drop or change it";
            return Err(Failure::new(409, "Banned by an override", detail));
        }
        let (before, effect) = setting.set(self, host, BanChange::Free)?;
        let ban_history = before
            .as_ref()
            .map(|slot| slot.ban_history)
            .unwrap_or_default();
        let was_banned = ban_history.ban(now).is_some();
        let words = match (was_banned, ban_history.strikes > 0 || ban_history.bans > 0) {
            (true, _) => Some("the ban was lifted"),
            (false, true) => Some("its refusals and bans were cleared"),
            (false, false) => None,
        };
        // The unban is sent to the fleet even if the key is not banned on this Envoy, because
        // another Envoy may have imposed a penalty ban.
        let made = LocalChange::unban(&setting.active.rule().name, call.key());
        let fleet = travel::note(host, self.share(), &[made], now);
        if let Some(words) = words {
            setting.note(self, host, (EventKind::Unban, words, reason, None));
        }
        let after = setting.get(host)?;
        let changed = effect == BanEffect::Changed && words.is_some();
        Ok(setting.answer((before.as_ref(), after.as_ref()), changed, fleet))
    }

    fn setting<'a>(&mut self, host: &dyn Host, call: &'a Call) -> Result<Setting<'a>, Failure> {
        let key = call.key();
        let (record, active) = self.rule_of(host, call)?;
        if !is_key(key) {
            let detail = "no request has this key: write it as the bucket list shows it";
            return Err(Failure::bad(detail));
        }
        if let Err(Impossible { why, meant }) = active.rule().may_have(key, false) {
            let meant = meant.map(|meant| format!("; did you mean `{meant}`?"));
            let meant = meant.unwrap_or_default();
            let detail = format!("no request has this key: {why}{meant}");
            return Err(Failure::bad(detail));
        }
        Ok(Setting {
            call,
            generation: record.generation,
            active,
            table: self.table(host)?,
        })
    }
}

/// Rejects a ban that is too short to have any effect, or too long to be stored exactly.
fn check_span(span: Option<Nanos>, clock: Clock) -> Result<(), Failure> {
    let Some(span) = span else { return Ok(()) };
    if span < MIN_BAN {
        let detail =
            format!("a ban of {span} is too short to refuse a request; the minimum is {MIN_BAN}");
        return Err(Failure::bad(detail));
    }
    let mut ban_history = BanHistory::default();
    ban_history.impose(clock.now, Some(span));
    let ends = ban_history.ban(clock.now).and_then(|ban| ban.until);
    if ends < Some(clock.now.saturating_add(span)) {
        let detail = format!("a ban cannot last for {span}: ban without `for`, until it is lifted");
        return Err(Failure::bad(detail));
    }
    Ok(())
}

/// Returns the time at which the key's ban will end once the new ban is set, or `None` if it has no
/// known end. The flag is true if an existing ban outlasts the new one, in which case its end time
/// is kept.
fn until(
    before: Option<&Slot>,
    span: Option<Nanos>,
    replaces: bool,
    now: Nanos,
) -> (Option<Nanos>, bool) {
    let at = before.map_or(now, |slot| slot.bucket.last).max(now);
    let mut ban_history = BanHistory::default();
    ban_history.impose(at, span);
    let end = |ban_history: &BanHistory| Some(ban_history.ban(at)?.until.unwrap_or(Nanos::MAX));
    let earlier = before.filter(|_| !replaces);
    let earlier = earlier.and_then(|slot| end(&slot.ban_history));
    let end = end(&ban_history);
    let later = end.max(earlier).filter(|end| *end < Nanos::MAX);
    (later, earlier > end)
}

/// A request to set or lift a ban.
struct Setting<'a> {
    call: &'a Call,
    generation: u64,
    active: Arc<ActiveRule>,
    table: Table,
}

impl Setting<'_> {
    fn get(&self, host: &dyn Host) -> Result<Option<Slot>, GaveUp> {
        let id = self.table.id(self.active.tag(), self.call.key());
        self.table.get(&mut HostStore(host), id)
    }

    /// Rejects a ban that could never apply to any request.
    fn check_ban(&self, host: &dyn Host) -> Result<(), Failure> {
        let (rule, key) = (self.active.rule(), self.call.key());
        if rule.mode != Mode::Enforce {
            let (name, mode) = (&rule.name, rule.mode.name());
            let detail = format!(
                "a ban bans nobody while the rule is in mode {mode}: ban the key under another rule, or set the \
                 mode of `{name}` to enforce"
            );
            return Err(Failure::bad(detail));
        }
        // A key that ends with `*` is probably meant as a pattern, so the ban is accepted only if a
        // bucket with this exact key exists.
        if key.ends_with('*') && self.get(host)?.is_none() {
            let shown = shown(key);
            let detail = format!(
                "no request had the key `{shown}`, and a ban is for one key; to ban all keys with this prefix, set \
                 the override \"banned\" for `{shown}`"
            );
            return Err(Failure::bad(detail));
        }
        Ok(())
    }

    /// Sets or lifts the ban if the request's `If-Match` allows it. Returns the bucket as it was
    /// before the change.
    fn set(
        &self,
        plane: &mut AdminPlane,
        host: &dyn Host,
        ban: BanChange,
    ) -> Result<(Option<Slot>, BanEffect), Failure> {
        let set = SetBan {
            rule: &*self.active,
            key: self.call.key(),
            ban,
            clock: self.call.clock,
        };
        let as_seen = |slot: Option<&Slot>| self.call.if_match.allows(&self.etag(slot));
        let mut stats = StoreStats::default();
        let store = &mut HostStore(host);
        let set = self.table.set_ban_if(store, &set, &as_seen, &mut stats);
        let share = plane.settings.store.namespace.as_str();
        let metrics = StoreMetrics::define(host, &mut plane.registry, share);
        metrics.add(host, &stats);
        let (before, effect) = set?;
        if effect == BanEffect::Changed {
            metrics.banned(host, before.as_ref(), ban, self.call.clock.now);
        }
        if effect == BanEffect::Unexpected {
            let now = self.etag(before.as_ref());
            let detail = format!("the ban of this key has changed; it is now {now}");
            return Err(Failure::new(412, "Precondition failed", detail));
        }
        Ok((before, effect))
    }

    /// Returns the `ETag` of the ban stored in a bucket.
    fn etag(&self, slot: Option<&Slot>) -> String {
        let imposed = slot.and_then(|slot| imposed(slot, self.call.clock.now));
        BanView::etag(imposed)
    }

    fn note(
        &self,
        plane: &mut AdminPlane,
        host: &dyn Host,
        (kind, detail, reason, until): (EventKind, &str, String, Option<Nanos>),
    ) {
        let mut event = self.call.event(kind, self.generation);
        event.rule = Some(self.active.rule().name.clone());
        event.key = Some(self.call.key().to_owned());
        event.reason = reason;
        detail.clone_into(&mut event.detail);
        event.until_ns = until.map(Nanos::get);
        let rule = self.active.rule().name.as_str();
        let end = until.map(|until| BanEnd {
            rule: rule.to_owned(),
            key: self.call.key().to_owned(),
            by: self.call.caller.name.clone(),
            until,
        });
        let change = end.as_ref().map(Change::Banned);
        let change = change.unwrap_or_else(|| Change::Gone(rule, self.call.key()));
        plane.note_ban(host, Some(change), self.call.clock.now);
        events::add(host, plane.share(), &event);
    }

    /// Returns the ban as a change to be sent to the other Envoys in the fleet.
    fn made(&self, reason: &str, until: Option<Nanos>) -> LocalChange {
        let ban = BanValue {
            tag: self.active.tag(),
            by: self.call.caller.name.clone(),
            reason: reason.to_owned(),
            at_unix_ms: self.call.clock.wall.as_millis(),
        };
        LocalChange::ban(&self.active.rule().name, self.call.key(), &ban, until)
    }

    fn answer(
        &self,
        (before, after): (Option<&Slot>, Option<&Slot>),
        changed: bool,
        fleet: Option<Spread>,
    ) -> Reply {
        let (key, call_time) = (self.call.key(), self.call.call_time());
        let now = call_time.clock.now;
        let shown = |slot: &Slot| view(&self.active, slot, key, call_time);
        let banned = |slot: &Slot| -> Option<BanView> { ban_view(&self.active, slot, key, now) };
        let answer = BanAnswer {
            now_ns: now.get(),
            before: before.and_then(banned),
            bucket: after.map(shown),
            changed,
            fleet,
        };
        ok_with(self.etag(after), &answer)
    }
}
