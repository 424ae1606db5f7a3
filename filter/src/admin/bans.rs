//! `POST /v1/buckets/{rule}/{key}/ban` and `…/unban`.

use loudou_api::{BanAnswer, BanView, EventKind};
use loudou_limiter::Nanos;
use loudou_limiter::ban::Conduct;
use loudou_rules::active_rule::{ActiveRule, Grant};
use loudou_rules::config::is_key;
use loudou_rules::rule::Impossible;
use loudou_store::page::Slot;
use loudou_store::{GaveUp, LiveRule, SetBan, SetTo, StoreStats, Table};

use super::bucket::{ban_view, view};
use super::call::bad;
use super::rules::find;
use super::{AdminPlane, Call, Failure, ok};
use crate::events;
use crate::host::{Host, HostStore, Reply};
use crate::metrics::StoreMetrics;

impl AdminPlane {
    pub(super) fn ban(
        &mut self,
        host: &dyn Host,
        call: &Call,
        (name, key): (&str, &str),
    ) -> Result<Reply, Failure> {
        let query = call.query(&["for", "reason"])?;
        let span = query.duration("for")?;
        let reason = query.reason()?;
        let setting = self.setting(host, name, key)?;
        let (before, now) = setting.set(self, host, SetTo::Banned(span))?;
        let words = match span {
            None => "banned until somebody lifts it".to_owned(),
            Some(span) => format!("banned for {span}"),
        };
        let mut conduct = Conduct::default();
        let last = before.as_ref().map_or(now, |slot| slot.bucket.last);
        conduct.impose(now.max(last), span);
        let until = conduct.ban(now).and_then(|ban| ban.until);
        setting.tell(self, host, call, (EventKind::Ban, &words, reason, until));
        setting.answer(host, before.as_ref(), now)
    }

    pub(super) fn unban(
        &mut self,
        host: &dyn Host,
        call: &Call,
        (name, key): (&str, &str),
    ) -> Result<Reply, Failure> {
        let reason = call.query(&["reason"])?.reason()?;
        let setting = self.setting(host, name, key)?;
        let found = setting.look(host)?;
        let has_ban = found.is_some_and(|slot| slot.conduct.ban(host.now()).is_some());
        if !has_ban && matches!(setting.active.grant(key), Grant::Banned) {
            let detail = "an override bans this key: drop or change that";
            return Err(Failure::new(409, "Banned by an override", detail));
        }
        let (before, now) = setting.set(self, host, SetTo::Free)?;
        let conduct = before.as_ref().map(|slot| slot.conduct).unwrap_or_default();
        let was_banned = conduct.ban(now).is_some();
        let words = match (was_banned, conduct.strikes > 0 || conduct.bans > 0) {
            (true, _) => Some("its ban is lifted"),
            (false, true) => Some("its refusals and bans are forgotten"),
            (false, false) => None,
        };
        if let Some(words) = words {
            setting.tell(self, host, call, (EventKind::Unban, words, reason, None));
        }
        setting.answer(host, before.as_ref(), now)
    }

    fn setting<'a>(
        &mut self,
        host: &dyn Host,
        name: &str,
        key: &'a str,
    ) -> Result<Setting<'a>, Failure> {
        let record = self.record(host)?;
        let active = find(&record, name)?.activate();
        if !is_key(key) {
            return Err(bad(
                "no request has this key: write it as the buckets show it",
            ));
        }
        if let Err(Impossible { why, meant }) = active.rule().may_have(key, false) {
            let meant = meant.map(|meant| format!("; did you mean `{meant}`?"));
            let meant = meant.unwrap_or_default();
            return Err(bad(format!("no request has this key: {why}{meant}")));
        }
        Ok(Setting {
            generation: record.generation,
            active,
            key,
            table: self.table(host)?,
        })
    }
}

/// A ban that is to be set or lifted.
struct Setting<'a> {
    generation: u64,
    active: ActiveRule,
    key: &'a str,
    table: Table,
}

impl Setting<'_> {
    fn look(&self, host: &dyn Host) -> Result<Option<Slot>, GaveUp> {
        let id = self.table.id(self.active.tag(), self.key);
        self.table.look(&mut HostStore(host), id)
    }

    /// Sets it; the bucket as it was, and when it was set.
    fn set(
        &self,
        plane: &mut AdminPlane,
        host: &dyn Host,
        ban: SetTo,
    ) -> Result<(Option<Slot>, Nanos), Failure> {
        let clock = host.clock();
        let set = SetBan {
            rule: &self.active,
            key: self.key,
            ban,
            clock,
        };
        let mut stats = StoreStats::default();
        let before = self.table.set_ban(&mut HostStore(host), &set, &mut stats);
        let share = plane.settings.store.share.as_str();
        StoreMetrics::define(host, &mut plane.registry, share).add(host, &stats);
        Ok((before?, clock.now))
    }

    fn tell(
        &self,
        plane: &AdminPlane,
        host: &dyn Host,
        call: &Call,
        (kind, detail, reason, until): (EventKind, &str, String, Option<Nanos>),
    ) {
        let mut event = events::event(host, kind, &call.caller.name, self.generation);
        event.rule = Some(self.active.rule().name.clone());
        event.key = Some(self.key.to_owned());
        event.reason = reason;
        detail.clone_into(&mut event.detail);
        event.until_ns = until.map(Nanos::get);
        events::add(host, plane.share(), event);
    }

    fn answer(&self, host: &dyn Host, before: Option<&Slot>, at: Nanos) -> Result<Reply, Failure> {
        let slot = self.look(host)?;
        let clock = host.clock();
        let shown = |slot: &Slot| view(&self.active, slot, self.key.to_owned(), clock);
        let banned =
            |slot: &Slot| -> Option<BanView> { ban_view(&self.active, slot, self.key, at) };
        Ok(ok(&BanAnswer {
            now_ns: clock.now.get(),
            before: before.and_then(banned),
            bucket: slot.as_ref().map(shown),
        }))
    }
}
