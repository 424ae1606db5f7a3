//! `GET /v1/buckets`, `GET /v1/buckets/{rule}/{key}` and `POST …/reset`.

use loudou_api::{
    BucketState, BucketView, BucketsPage, DEFAULT_PAGE, EventKind, MAX_PAGE, ResetAnswer,
};
use loudou_limiter::Clock;
use loudou_rules::active_rule::ActiveRule;
use loudou_store::names::Names;
use loudou_store::page::{Page, Slot};
use loudou_store::{LiveRule, Table};

use super::AdminPlane;
use super::answer::{Failure, ok, ok_at};
use super::bucket::{no_bucket, view};
use super::call::Call;
use super::rules::find;
use crate::ban_ends::Change;
use crate::escaped::shown;
use crate::events;
use crate::host::{Host, HostStore, Reply};
use crate::metrics::StoreMetrics;
use crate::record::{Record, RuleRecord};

/// The most work of one answer, so that it fits well into a millisecond: a page that was never
/// written costs 1, one with buckets [`FULL_PAGE_WORK`].
const MAX_WORK: u32 = 2048;
const FULL_PAGE_WORK: u32 = 16;

impl AdminPlane {
    pub(super) fn buckets(&mut self, host: &dyn Host, call: &Call) -> Result<Reply, Failure> {
        let record = self.record(host, call)?;
        let search = Search::read(call, &record)?;
        let table = self.table(host)?;
        let rules: Vec<ActiveRule> = record.rules.iter().map(RuleRecord::activate).collect();
        let clock = call.clock;
        let mut page = BucketsPage {
            instance: record.instance.id.clone(),
            now_ns: clock.now.get(),
            generation: record.generation,
            ..BucketsPage::default()
        };
        page.next_cursor = search
            .run(host, &table, &rules, clock, &mut page.buckets)
            .map(|c| c.to_string());
        Ok(ok_at(&record, &page))
    }

    pub(super) fn bucket(&mut self, host: &dyn Host, call: &Call) -> Result<Reply, Failure> {
        let key = call.key();
        let (_, active) = self.rule_of(host, call)?;
        let table = self.table(host)?;
        let id = table.id(active.tag(), key);
        let slot = table.look(&mut HostStore(host), id)?;
        let slot = slot.ok_or_else(|| no_bucket(&active, key))?;
        Ok(ok(&view(&active, &slot, key.to_owned(), call.clock)))
    }

    pub(super) fn reset(&mut self, host: &dyn Host, call: &Call) -> Result<Reply, Failure> {
        let key = call.key();
        let reason = call.reason()?;
        let (record, active) = self.rule_of(host, call)?;
        let table = self.table(host)?;
        let slot = table.reset(&mut HostStore(host), table.id(active.tag(), key))?;
        let before = slot.map(|slot| view(&active, &slot, key.to_owned(), call.clock));
        if let Some(before) = &before {
            let share = &self.settings.store.namespace;
            StoreMetrics::define(host, &mut self.registry, share).freed(host);
            let mut event = call.event(EventKind::Reset, record.generation);
            event.rule = Some(call.rule().to_owned());
            event.key = Some(shown(key));
            event.reason = reason;
            event.detail = if before.ban.is_some() {
                "the bucket was reset, and its ban was lifted".to_owned()
            } else {
                "the bucket was reset".to_owned()
            };
            let gone = Change::Gone(call.rule(), key);
            self.note_ban(host, Some(gone), call.clock.now);
            events::add(host, self.share(), &event);
        }
        Ok(ok(&ResetAnswer {
            existed: before.is_some(),
            before,
        }))
    }

    /// The record, and the rule that the path names.
    pub(super) fn rule_of(
        &mut self,
        host: &dyn Host,
        call: &Call,
    ) -> Result<(Record, ActiveRule), Failure> {
        let record = self.record(host, call)?;
        let active = find(&record, call.rule())?.activate();
        Ok((record, active))
    }
}

/// The position at which a search continues: a page, and the last fingerprint seen on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Cursor {
    page: u32,
    after: Option<u64>,
}

impl std::fmt::Display for Cursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.after {
            None => write!(f, "{}", self.page),
            Some(after) => write!(f, "{}.{after:x}", self.page),
        }
    }
}

impl Cursor {
    fn parse(text: &str) -> Option<Self> {
        let (page, after) = match text.split_once('.') {
            None => (text, None),
            Some((page, after)) => (page, Some(u64::from_str_radix(after, 16).ok()?)),
        };
        Some(Self {
            page: page.parse().ok()?,
            after,
        })
    }
}

/// The filters and bounds of a search.
#[derive(Debug)]
struct Search {
    rule_tag: Option<u32>,
    key: Option<String>,
    state: Option<BucketState>,
    from: Cursor,
    most: usize,
}

impl Search {
    fn read(call: &Call, record: &Record) -> Result<Self, Failure> {
        let rule = call.get("rule").map(|name| find(record, name));
        let state = |name: &str| {
            let states = [
                BucketState::Idle,
                BucketState::Busy,
                BucketState::Refusing,
                BucketState::Banned,
            ];
            states.into_iter().find(|state| state.name() == name)
        };
        let cursor = call.choice(
            "cursor",
            &["the next_cursor of an earlier page"],
            Cursor::parse,
        )?;
        let limit = call.number("limit")?.map(usize::try_from).transpose();
        let limit = limit.map_or(usize::MAX, |limit| limit.unwrap_or(DEFAULT_PAGE));
        if !(1..=MAX_PAGE).contains(&limit) {
            return Err(Failure::bad(format!("`limit` must be 1 to {MAX_PAGE}")));
        }
        Ok(Self {
            rule_tag: rule.transpose()?.map(|rule| rule.base.tag()),
            key: call.get("key").map(ToOwned::to_owned),
            state: call.choice("state", &BucketState::NAMES, state)?,
            from: cursor.unwrap_or_default(),
            most: limit,
        })
    }

    /// Collects matching buckets; returns where to continue, unless it reached the end.
    fn run(
        &self,
        host: &dyn Host,
        table: &Table,
        rules: &[ActiveRule],
        clock: Clock,
        found: &mut Vec<BucketView>,
    ) -> Option<Cursor> {
        let mut work = 0_u32;
        for index in self.from.page..table.pages() {
            if work >= MAX_WORK {
                return Some(Cursor {
                    page: index,
                    after: None,
                });
            }
            work = work.saturating_add(1);
            // A page of another version is left out; GET on one of its buckets reports that.
            let Ok(Some((page, names))) = table.page(&mut HostStore(host), index) else {
                continue;
            };
            work = work.saturating_add(FULL_PAGE_WORK);
            let after = self.from.after.filter(|_| index == self.from.page);
            if let Some(last) = self.search_page(rules, &page, &names, after, clock, found) {
                return Some(Cursor {
                    page: index,
                    after: Some(last),
                });
            }
        }
        None
    }

    /// Searches one page after the bucket `after`; returns the last bucket seen once there are enough.
    fn search_page(
        &self,
        rules: &[ActiveRule],
        page: &Page,
        names: &Names,
        after: Option<u64>,
        clock: Clock,
        found: &mut Vec<BucketView>,
    ) -> Option<u64> {
        let mut after = after;
        while let Some(slot) = next(page, after) {
            after = Some(slot.fingerprint);
            let Some(rule) = rules.iter().find(|rule| rule.tag() == slot.rule_tag) else {
                continue;
            };
            let name = names.get(slot.fingerprint);
            let key = name.map_or_else(|| format!("#{:016x}", slot.fingerprint), ToOwned::to_owned);
            if !self.wants_key(rule, &key) {
                continue;
            }
            let view = view(rule, slot, key, clock);
            if self.state.is_some_and(|state| state != view.state) {
                continue;
            }
            found.push(view);
            if found.len() >= self.most {
                return Some(slot.fingerprint);
            }
        }
        None
    }

    fn wants_key(&self, rule: &ActiveRule, key: &str) -> bool {
        self.rule_tag.is_none_or(|tag| tag == rule.tag())
            && self.key.as_ref().is_none_or(|part| has(key, part))
    }
}

/// The bucket after `after`, by fingerprint. A page has few buckets, so searching for each needs no sort
/// and less room in the module.
fn next(page: &Page, after: Option<u64>) -> Option<&Slot> {
    let rest = page.slots.iter();
    let rest = rest.filter(|slot| after.is_none_or(|after| slot.fingerprint > after));
    rest.min_by_key(|slot| slot.fingerprint)
}

/// Whether a key contains a part, which is not empty. Keys are short: the search of `str`, for long
/// texts, takes several KiB of the module.
fn has(key: &str, part: &str) -> bool {
    let mut places = key.as_bytes().windows(part.len());
    places.any(|place| place == part.as_bytes())
}
