//! Bans and unbans by an operator, step by step as in [`attempt`](super::attempt).

use loudou_limiter::ban::Conduct;
use loudou_limiter::{Clock, Nanos};

use crate::attempt::GaveUp;
use crate::attempt::StoreStats;
use crate::page::{Evicted, FLAG_PINNED, PageBytes, Slot};
use crate::rule::{Age, LiveRule};
use crate::shared_data::{Cas, MAX_RETRIES, SharedData, Written};
use crate::table::{BucketId, StoreKey, Table};

/// An operator's ban or unban of the bucket `key` of a rule.
#[derive(Clone, Copy, Debug)]
pub struct SetBan<'a> {
    /// The rule.
    pub rule: &'a dyn LiveRule,
    /// The key.
    pub key: &'a str,
    /// The ban or unban.
    pub ban: SetTo,
    /// The current time.
    pub clock: Clock,
}

/// The change of a ban.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTo {
    /// A ban from now on for this long; `None` for ever. An earlier ban that ends later stays, as the
    /// operator's.
    Banned(Option<Nanos>),
    /// The same, in place of any earlier ban.
    Replaced(Option<Nanos>),
    /// An unban, which also forgets the strikes and past bans.
    Free,
}

/// The effect of a [`SetBan`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BanEffect {
    /// Something changed.
    Changed,
    /// All was so already.
    #[default]
    None,
    /// The bucket was not as the caller expects it, so nothing changed.
    Unexpected,
}

/// A [`SetBan`] in progress: reads and writes in turn until one write succeeds.
pub(crate) struct Setting<'a> {
    table: &'a Table,
    set: SetBan<'a>,
    /// Whether the bucket is as the caller expects it.
    only_if: &'a dyn Fn(Option<&Slot>) -> bool,
    id: BucketId,
    page_key: StoreKey,
    /// The page as read, then as it is to be written.
    page: PageBytes,
    expected: Cas,
    before: Option<Slot>,
    evicted: Option<Evicted>,
    effect: BanEffect,
}

impl<'a> Setting<'a> {
    /// An attempt before its first step.
    pub(crate) fn new(
        table: &'a Table,
        set: SetBan<'a>,
        only_if: &'a dyn Fn(Option<&Slot>) -> bool,
    ) -> Self {
        let id = table.id(set.rule.tag(), set.key);
        Self {
            table,
            set,
            only_if,
            id,
            page_key: table.page_key(id.page),
            page: PageBytes::default(),
            expected: 0,
            before: None,
            evicted: None,
            effect: BanEffect::None,
        }
    }

    /// Reads the page and changes the slot.
    pub(crate) fn read(&mut self, store: &mut dyn SharedData) -> Result<(), GaveUp> {
        self.expected = self.page.read(store, &self.page_key)?;
        self.effect = self.plan()?;
        Ok(())
    }

    /// Changes the page, unless nothing is to change.
    fn plan(&mut self) -> Result<BanEffect, GaveUp> {
        let SetBan {
            rule,
            key,
            ban,
            clock,
        } = self.set;
        let now = clock.now;
        let found = self.page.find(self.id.fingerprint);
        if let Some((_, slot)) = &found
            && rule.age(slot.version) == Age::Newer
        {
            return Err(GaveUp::Outdated);
        }
        self.before = found.as_ref().map(|(_, slot)| slot.clone());
        self.evicted = None;
        if !(self.only_if)(self.before.as_ref()) {
            return Ok(BanEffect::Unexpected);
        }
        let (index, mut slot) = match (found, ban) {
            (Some((index, slot)), _) => (Some(index), slot),
            (None, SetTo::Free) => return Ok(BanEffect::None),
            (None, SetTo::Banned(_) | SetTo::Replaced(_)) => {
                let room = self.page.make_room(self.id.rule_tag, now);
                self.evicted = Some(room.map_err(|_full| GaveUp::PageFull)?);
                (None, self.new_slot())
            }
        };
        let now = now.max(slot.bucket.last);
        match ban {
            SetTo::Banned(span) => impose(&mut slot, now, span, false),
            SetTo::Replaced(span) => impose(&mut slot, now, span, true),
            SetTo::Free => {
                slot.conduct = Conduct::default();
                slot.flags &= !FLAG_PINNED;
            }
        }
        let same = |before: &Slot| before.conduct == slot.conduct && before.flags == slot.flags;
        if self.before.as_ref().is_some_and(same) {
            return Ok(BanEffect::None);
        }
        if ban == SetTo::Free {
            let bucket = rule.bucket_of(key, &slot, clock);
            let limits = rule.limits_of(key);
            slot.note(limits, &limits.peek(&bucket, 0, now));
        }
        match index {
            Some(index) => self.page.replace(index, &slot),
            None => self.page.push(&slot),
        }
        Ok(BanEffect::Changed)
    }

    fn new_slot(&mut self) -> Slot {
        let SetBan {
            rule, key, clock, ..
        } = self.set;
        let limits = rule.limits_of(key);
        Slot::new((rule, limits), self.id, self.page.new_origin(), clock)
    }

    /// Writes the change. After a conflict, because another worker was faster, read again.
    pub(crate) fn write(
        &self,
        store: &mut dyn SharedData,
        stats: &mut StoreStats,
    ) -> Result<Written, GaveUp> {
        if self.effect != BanEffect::Changed {
            return Ok(Written::Done);
        }
        if store.set(&self.page_key, self.page.bytes(), self.expected)? == Written::Conflict {
            stats.cas_retries = stats.cas_retries.saturating_add(1);
            return Ok(Written::Conflict);
        }
        if let Some(evicted) = self.evicted {
            stats.count_new(evicted);
            self.table
                .add_name(store, self.id, self.set.key, self.page.bytes());
        }
        Ok(Written::Done)
    }
}

/// Bans from `now` on. Unless the ban `replaces` an earlier one, the later end counts.
fn impose(slot: &mut Slot, now: Nanos, span: Option<Nanos>, replaces: bool) {
    let mut conduct = slot.conduct;
    conduct.impose(now, span);
    let end = |conduct: &Conduct| {
        let ban = conduct.ban(now);
        ban.map(|ban| ban.until.unwrap_or(Nanos::MAX))
    };
    if replaces || end(&slot.conduct) < end(&conduct) {
        slot.conduct = conduct;
    }
    slot.flags |= FLAG_PINNED;
    slot.idle_at_ms = slot.idle_at_ms.max(slot.conduct.clean_at_ms);
}

impl Table {
    /// Bans or unbans the key of a bucket; returns the bucket as it was. Without a bucket only a ban has an
    /// effect: it creates one.
    pub fn set_ban(
        &self,
        store: &mut dyn SharedData,
        ban: &SetBan<'_>,
        stats: &mut StoreStats,
    ) -> Result<Option<Slot>, GaveUp> {
        let (before, _) = self.set_ban_if(store, ban, &|_| true, stats)?;
        Ok(before)
    }

    /// The same if the bucket is as the caller expects it, with the effect.
    pub fn set_ban_if(
        &self,
        store: &mut dyn SharedData,
        ban: &SetBan<'_>,
        only_if: &dyn Fn(Option<&Slot>) -> bool,
        stats: &mut StoreStats,
    ) -> Result<(Option<Slot>, BanEffect), GaveUp> {
        let mut setting = Setting::new(self, *ban, only_if);
        for _ in 0..=MAX_RETRIES {
            setting.read(store)?;
            if setting.write(store, stats)? == Written::Done {
                return Ok((setting.before, setting.effect));
            }
        }
        Err(GaveUp::Conflicts)
    }
}
