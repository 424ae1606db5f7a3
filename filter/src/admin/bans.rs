//! `POST /v1/buckets/{rule}/{key}/ban` and `…/unban`.

use loudou_api::{BanAnswer, BanView, EventKind};
use loudou_limiter::Nanos;
use loudou_limiter::ban::Conduct;
use loudou_rules::active_rule::{ActiveRule, Grant};
use loudou_rules::config::is_key;
use loudou_rules::rule::Impossible;
use loudou_store::page::Slot;
use loudou_store::{GaveUp, LiveRule, SetBan, SetTo, StoreStats, Table};

use super::AdminPlane;
use super::answer::{Failure, ok};
use super::bucket::{ban_view, view};
use super::call::Call;
use crate::ban_ends::{BanEnd, Change};
use crate::events;
use crate::host::{Host, HostStore, Reply};
use crate::metrics::StoreMetrics;

impl AdminPlane {
    pub(super) fn ban(&mut self, host: &dyn Host, call: &Call) -> Result<Reply, Failure> {
        let span = call.duration("for")?;
        let reason = call.reason()?;
        let now = call.clock.now;
        let setting = self.setting(host, call)?;
        let before = setting.set(self, host, SetTo::Banned(span))?;
        let words = match span {
            None => "banned until the ban is lifted".to_owned(),
            Some(span) => format!("banned for {span}"),
        };
        let mut conduct = Conduct::default();
        let last = before.as_ref().map_or(now, |slot| slot.bucket.last);
        conduct.impose(now.max(last), span);
        let until = conduct.ban(now).and_then(|ban| ban.until);
        setting.note(self, host, (EventKind::Ban, &words, reason, until));
        setting.answer(host, before.as_ref())
    }

    pub(super) fn unban(&mut self, host: &dyn Host, call: &Call) -> Result<Reply, Failure> {
        let reason = call.reason()?;
        let now = call.clock.now;
        let setting = self.setting(host, call)?;
        let found = setting.look(host)?;
        let has_ban = found.is_some_and(|slot| slot.conduct.ban(now).is_some());
        if !has_ban && matches!(setting.active.grant(call.key()), Grant::Banned) {
            let detail = "an override bans this key: drop or change it";
            return Err(Failure::new(409, "Banned by an override", detail));
        }
        let before = setting.set(self, host, SetTo::Free)?;
        let conduct = before.as_ref().map(|slot| slot.conduct).unwrap_or_default();
        let was_banned = conduct.ban(now).is_some();
        let words = match (was_banned, conduct.strikes > 0 || conduct.bans > 0) {
            (true, _) => Some("the ban was lifted"),
            (false, true) => Some("its refusals and bans were cleared"),
            (false, false) => None,
        };
        if let Some(words) = words {
            setting.note(self, host, (EventKind::Unban, words, reason, None));
        }
        setting.answer(host, before.as_ref())
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

/// A ban to set or to lift.
struct Setting<'a> {
    call: &'a Call,
    generation: u64,
    active: ActiveRule,
    table: Table,
}

impl Setting<'_> {
    fn look(&self, host: &dyn Host) -> Result<Option<Slot>, GaveUp> {
        let id = self.table.id(self.active.tag(), self.call.key());
        self.table.look(&mut HostStore(host), id)
    }

    /// Sets or lifts the ban; returns the bucket before.
    fn set(
        &self,
        plane: &mut AdminPlane,
        host: &dyn Host,
        ban: SetTo,
    ) -> Result<Option<Slot>, Failure> {
        let set = SetBan {
            rule: &self.active,
            key: self.call.key(),
            ban,
            clock: self.call.clock,
        };
        let mut stats = StoreStats::default();
        let before = self.table.set_ban(&mut HostStore(host), &set, &mut stats);
        let share = plane.settings.store.namespace.as_str();
        StoreMetrics::define(host, &mut plane.registry, share).add(host, &stats);
        Ok(before?)
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

    fn answer(&self, host: &dyn Host, before: Option<&Slot>) -> Result<Reply, Failure> {
        let slot = self.look(host)?;
        let (key, clock) = (self.call.key(), self.call.clock);
        let shown = |slot: &Slot| view(&self.active, slot, key.to_owned(), clock);
        let banned =
            |slot: &Slot| -> Option<BanView> { ban_view(&self.active, slot, key, clock.now) };
        Ok(ok(&BanAnswer {
            now_ns: clock.now.get(),
            before: before.and_then(banned),
            bucket: slot.as_ref().map(shown),
        }))
    }
}
