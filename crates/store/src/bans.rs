//! Bans and unbans by an operator.

use loudou_limiter::ban::BanHistory;
use loudou_limiter::{Clock, Nanos};

use crate::attempt::GaveUp;
use crate::attempt::StoreStats;
use crate::change::PageChange;
use crate::page::{FLAG_PINNED, Slot};
use crate::shared_data::{SharedData, Written};
use crate::table::Table;
use crate::table::{Age, LiveRule};

/// An operator's request to ban or unban a key for a rule.
#[derive(Clone, Copy, Debug)]
pub struct SetBan<'a> {
    /// The rule.
    pub rule: &'a dyn LiveRule,
    /// The key.
    pub key: &'a str,
    /// The ban or unban.
    pub ban: BanChange,
    /// The current time.
    pub clock: Clock,
}

/// A change to the ban of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BanChange {
    /// Bans the key for this duration, starting now, or forever if `None`. An earlier ban with a
    /// later end keeps its end, but becomes an operator's ban.
    Banned(Option<Nanos>),
    /// Like [`BanChange::Banned`], but replaces any earlier ban, even a ban with a later end.
    Replaced(Option<Nanos>),
    /// Unbans the key and clears its strikes and past bans.
    Free,
}

/// The effect of a [`SetBan`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BanEffect {
    /// Something changed.
    Changed,
    /// Nothing changed, because the bucket was already in this state.
    #[default]
    None,
    /// The bucket was not in the state that the caller expected, so nothing changed.
    Unexpected,
}

/// A [`SetBan`] in progress.
struct Setting<'a> {
    set: SetBan<'a>,
    /// Returns true if the bucket is in the state that the caller expects.
    only_if: &'a dyn Fn(Option<&Slot>) -> bool,
    change: PageChange<'a>,
    before: Option<Slot>,
}

impl Setting<'_> {
    /// Applies the ban or unban to the page, and returns its effect.
    fn plan(&mut self) -> Result<BanEffect, GaveUp> {
        let SetBan {
            rule,
            key,
            ban,
            clock,
        } = self.set;
        let now = clock.now;
        let found = self.change.page.find(self.change.id.fingerprint);
        if let Some((_, slot)) = &found
            && rule.age(slot.version) == Age::Newer
        {
            return Err(GaveUp::Outdated);
        }
        self.before = found.as_ref().map(|(_, slot)| slot.clone());
        if !(self.only_if)(self.before.as_ref()) {
            return Ok(BanEffect::Unexpected);
        }
        let (index, mut slot) = match (found, ban) {
            (Some((index, slot)), _) => (Some(index), slot),
            (None, BanChange::Free) => return Ok(BanEffect::None),
            (None, BanChange::Banned(_) | BanChange::Replaced(_)) => {
                let limits = rule.limits_in(key, None);
                (None, self.change.begin(rule, &limits, clock)?)
            }
        };
        let now = now.max(slot.bucket.last);
        match ban {
            BanChange::Banned(span) => impose(&mut slot, now, span, false),
            BanChange::Replaced(span) => impose(&mut slot, now, span, true),
            BanChange::Free => {
                slot.ban_history = BanHistory::default();
                slot.flags &= !FLAG_PINNED;
            }
        }
        let same =
            |before: &Slot| before.ban_history == slot.ban_history && before.flags == slot.flags;
        if self.before.as_ref().is_some_and(same) {
            return Ok(BanEffect::None);
        }
        if ban == BanChange::Free {
            let bucket = rule.bucket_of(key, &slot, clock);
            let limits = rule.limits_in(key, Some((&slot.bucket, slot.version)));
            slot.note(&limits, &limits.peek(&bucket, 0, now));
        }
        self.change.put(index, &slot);
        Ok(BanEffect::Changed)
    }
}

/// Bans the key starting at `now`. An earlier ban with a later end is kept unless `replaces` is
/// true.
fn impose(slot: &mut Slot, now: Nanos, span: Option<Nanos>, replaces: bool) {
    let mut ban_history = slot.ban_history;
    ban_history.impose(now, span);
    let end = |ban_history: &BanHistory| {
        let ban = ban_history.ban(now);
        ban.map(|ban| ban.until.unwrap_or(Nanos::MAX))
    };
    if replaces || end(&slot.ban_history) < end(&ban_history) {
        slot.ban_history = ban_history;
    }
    slot.flags |= FLAG_PINNED;
    slot.idle_at_ms = slot.idle_at_ms.max(slot.ban_history.clean_at_ms);
}

impl Table {
    /// Bans or unbans a key, and returns its bucket's state before the change. If there is no
    /// bucket, a ban creates one and an unban has no effect.
    pub fn set_ban(
        &self,
        store: &mut dyn SharedData,
        ban: &SetBan<'_>,
        stats: &mut StoreStats,
    ) -> Result<Option<Slot>, GaveUp> {
        let (before, _) = self.set_ban_if(store, ban, &|_| true, stats)?;
        Ok(before)
    }

    /// Like [`Table::set_ban`], but changes nothing unless `only_if` returns true for the bucket.
    /// Also returns the call's effect.
    pub fn set_ban_if(
        &self,
        store: &mut dyn SharedData,
        ban: &SetBan<'_>,
        only_if: &dyn Fn(Option<&Slot>) -> bool,
        stats: &mut StoreStats,
    ) -> Result<(Option<Slot>, BanEffect), GaveUp> {
        let id = self.id(ban.rule.tag(), ban.key);
        let mut setting = Setting {
            set: *ban,
            only_if,
            change: PageChange::new(self, id, ban.key),
            before: None,
        };
        loop {
            setting.change.read(store)?;
            let effect = setting.plan()?;
            if effect != BanEffect::Changed || setting.change.write(store, stats)? == Written::Done
            {
                return Ok((setting.before, effect));
            }
        }
    }
}
