//! Bans and unbans by an operator, step by step as in [`attempt`](super::attempt).

use alloc::vec::Vec;

use loudou_limiter::ban::Conduct;
use loudou_limiter::{Clock, Nanos};

use crate::gave_up::GaveUp;
use crate::page::{Evicted, FLAG_PINNED, PageBytes, Slot, gain_flag};
use crate::rule::{Age, LiveRule};
use crate::shared_data::{Cas, MAX_RETRIES, SharedData, Written};
use crate::stats::StoreStats;
use crate::table::{BucketId, Table};

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
    /// A ban from now on for this long; `None` for ever.
    Banned(Option<Nanos>),
    /// An unban, which also forgets the strikes and past bans.
    Free,
}

/// A [`SetBan`] in progress: reads and writes in turn until one write succeeds.
#[derive(Debug)]
pub(crate) struct Setting<'a> {
    table: &'a Table,
    set: SetBan<'a>,
    id: BucketId,
    page_key: Vec<u8>,
    /// The page as read, then as it is to be written.
    page: PageBytes,
    expected: Cas,
    before: Option<Slot>,
    evicted: Option<Evicted>,
    /// Whether anything changes.
    is_planned: bool,
}

impl<'a> Setting<'a> {
    /// An attempt before its first step.
    pub(crate) fn new(table: &'a Table, set: SetBan<'a>) -> Self {
        let id = table.id(set.rule.tag(), set.key);
        Self {
            table,
            set,
            id,
            page_key: table.page_key(id.page),
            page: PageBytes::new(),
            expected: 0,
            before: None,
            evicted: None,
            is_planned: false,
        }
    }

    /// Reads the page and changes the slot.
    pub(crate) fn read(&mut self, store: &mut dyn SharedData) -> Result<(), GaveUp> {
        self.expected = self.page.read(store, &self.page_key)?;
        self.is_planned = self.plan()?;
        Ok(())
    }

    /// Changes the page; returns whether anything changes.
    fn plan(&mut self) -> Result<bool, GaveUp> {
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
        let (index, mut slot) = match (found, ban) {
            (Some((index, slot)), _) => (Some(index), slot),
            (None, SetTo::Free) => return Ok(false),
            (None, SetTo::Banned(_)) => {
                let room = self.page.make_room(self.id.rule_tag, now);
                self.evicted = Some(room.map_err(|_full| GaveUp::PageFull)?);
                (None, self.new_slot())
            }
        };
        let now = now.max(slot.bucket.last);
        match ban {
            SetTo::Banned(span) => {
                slot.conduct.impose(now, span);
                slot.flags |= FLAG_PINNED;
                slot.idle_at_ms = slot.idle_at_ms.max(slot.conduct.clean_at_ms);
            }
            SetTo::Free => {
                slot.conduct = Conduct::default();
                slot.flags &= !FLAG_PINNED;
                let bucket = rule.bucket_of(key, &slot, clock);
                let limits = rule.limits_of(key);
                slot.note(limits, &limits.peek(&bucket, 0, now));
            }
        }
        match index {
            Some(index) => self.page.replace(index, &slot),
            None => self.page.push(&slot),
        }
        Ok(true)
    }

    fn new_slot(&mut self) -> Slot {
        let SetBan {
            rule, key, clock, ..
        } = self.set;
        let limits = rule.limits_of(key);
        let origin = self.page.origins().wrapping_add(1);
        self.page.set_origins(origin);
        Slot {
            fingerprint: self.id.fingerprint,
            rule_tag: self.id.rule_tag,
            version: rule.version(),
            idle_at_ms: 0,
            held_until_ms: 0,
            admitted: 0,
            refused: 0,
            flags: gain_flag(limits),
            origin,
            conduct: Conduct::default(),
            bucket: limits.start_at(clock),
        }
    }

    /// The bucket as it was.
    pub(crate) fn before(self) -> Option<Slot> {
        self.before
    }

    /// Writes the change. After a conflict, because another worker was faster, read again.
    pub(crate) fn write(
        &self,
        store: &mut dyn SharedData,
        stats: &mut StoreStats,
    ) -> Result<Written, GaveUp> {
        if !self.is_planned {
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

impl Table {
    /// Bans or unbans the key of a bucket; returns the bucket as it was. Without a bucket only a ban has an
    /// effect: it creates one.
    pub fn set_ban(
        &self,
        store: &mut dyn SharedData,
        ban: &SetBan<'_>,
        stats: &mut StoreStats,
    ) -> Result<Option<Slot>, GaveUp> {
        let mut setting = Setting::new(self, *ban);
        for _ in 0..=MAX_RETRIES {
            setting.read(store)?;
            if setting.write(store, stats)? == Written::Done {
                return Ok(setting.before());
            }
        }
        Err(GaveUp::Conflicts)
    }
}
