//! Searches all buckets in steps that each do a bounded amount of work.
//!
//! A search visits the pages in order, and the buckets on each page in fingerprint order. Each step
//! resumes after the last bucket that the previous step visited. A bucket never moves to another
//! page, and its fingerprint never changes, so a search visits every bucket that exists from the
//! first step to the last exactly once. Most buckets are never decoded, because [`Scan`] can tell
//! from the encoded bytes that they do not match.

use std::fmt;

use loudou_api::{BucketState, REFUSING_FOR};
use loudou_limiter::Nanos;
use loudou_rules::rule_set::ActiveRule;
use loudou_store::page::SlotHead;
use loudou_store::scan::Needle;
use loudou_store::scan::Scan;
use loudou_store::{Age, LiveRule, SharedData, Table};

use super::bucket::CallTime;
use super::bucket::Current;

/// Costs, in work units, of looking up a missing shared data value, reading an existing value, and
/// decoding a bucket.
const MISSING: u32 = 1;
const VALUE: u32 = 8;
const BUCKET: u32 = 32;
/// Minimum number of work units per step, so that a search makes progress even on a slow machine.
/// This minimum uses up only a fraction of a step's time limit.
const MIN_STEP_WORK: u32 = 256;
/// Number of work units between two clock readings.
const BETWEEN: u32 = 32;

/// Position from which a search resumes: a page, and the fingerprint of the last bucket visited on
/// it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cursor {
    pub(super) page: u32,
    pub(super) after: Option<u64>,
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.after {
            None => write!(f, "{}", self.page),
            Some(after) => write!(f, "{}.{after:x}", self.page),
        }
    }
}

impl Cursor {
    pub(super) fn parse(text: &str) -> Option<Self> {
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

/// A search's filters and page size.
#[derive(Debug, Default)]
pub(super) struct Search {
    pub(super) rule_tag: Option<u32>,
    /// Substring that the key must contain.
    pub(super) key: Option<String>,
    pub(super) state: Option<BucketState>,
    pub(super) from: Cursor,
    /// Maximum number of buckets that a step reports.
    pub(super) most: usize,
}

/// The rules, and the bucket table to search.
pub(super) struct Place<'a> {
    pub(super) store: &'a mut dyn SharedData,
    pub(super) table: &'a Table,
    pub(super) rules: &'a RulesByTag<'a>,
    pub(super) call_time: CallTime,
}

impl Search {
    /// Runs one step: calls `found` for each matching bucket until `most` buckets have been found
    /// or `has_time` returns false. Returns the position from which the next step resumes, or
    /// `None` if the search is complete.
    pub(super) fn step(
        &self,
        place: &mut Place<'_>,
        has_time: &mut dyn FnMut() -> bool,
        found: &mut dyn FnMut(&Current<'_>),
    ) -> Option<Cursor> {
        let mut step = Step {
            search: self,
            needle: self.key.as_deref().map(Needle::new),
            scan: Scan::new(place.table),
            work: Work::new(has_time),
            found,
            left: self.most,
        };
        for page in self.from.page..place.table.pages() {
            let after = self.from.after.filter(|_| page == self.from.page);
            let before = Cursor { page, after };
            if !step.work.may_go_on() {
                return Some(before);
            }
            if let Some(last) = step.page(place, before) {
                let after = Some(last);
                return Some(Cursor { page, after });
            }
        }
        None
    }
}

/// One step of a search.
struct Step<'a> {
    search: &'a Search,
    needle: Option<Needle<'a>>,
    scan: Scan<'a>,
    work: Work<'a>,
    found: &'a mut dyn FnMut(&Current<'_>),
    /// Number of buckets that the step may still report.
    left: usize,
}

impl Step<'_> {
    /// Searches one page. Returns the fingerprint of the last bucket visited if the step ends on
    /// this page.
    fn page(&mut self, place: &mut Place<'_>, from: Cursor) -> Option<u64> {
        let has_names = self.may_have_key(place, from.page);
        // A page written by another version of Loudou is skipped. If a client requests a single
        // bucket on such a page, the response mentions the other version.
        if !has_names || !self.reads_page(place, from.page) {
            return None;
        }
        let mut has_read_names = self.needle.is_some();
        let mut after = from.after;
        while let Some((head, rule)) = self.next(place, after) {
            after = Some(head.fingerprint);
            if !has_read_names {
                self.work.add(VALUE);
                self.scan.read_names(place.store, from.page);
                has_read_names = true;
            }
            if self.reports(&head, rule, place.call_time) {
                self.left = self.left.saturating_sub(1);
                if self.left == 0 || !self.work.may_go_on() {
                    return after;
                }
            }
        }
        None
    }

    /// Returns true if a key on the page may contain the search string. The check looks at the key
    /// names stored with the page. A search string that could match the placeholder for a lost key
    /// name may occur on any page.
    fn may_have_key(&mut self, place: &mut Place<'_>, page: u32) -> bool {
        let Some(needle) = &self.needle else {
            return true;
        };
        let exist = self.scan.read_names(place.store, page);
        self.work.add(if exist { VALUE } else { MISSING });
        self.scan.may_have(needle) || self.search.key.as_deref().is_some_and(is_in_lost_name)
    }

    fn reads_page(&mut self, place: &mut Place<'_>, page: u32) -> bool {
        let exists = self.scan.read_page(place.store, page);
        self.work.add(if exists { VALUE } else { MISSING });
        exists
    }

    /// Returns the next bucket after `after`, in fingerprint order, whose head may match the
    /// search. Each call scans the whole page, because a page has few buckets and scanning takes
    /// less code than sorting.
    fn next<'r>(
        &self,
        place: &Place<'r>,
        after: Option<u64>,
    ) -> Option<(SlotHead, &'r ActiveRule)> {
        let heads = self.scan.heads();
        let heads = heads.filter(|head| after.is_none_or(|after| head.fingerprint > after));
        let now = place.call_time.clock.now;
        let wanted = heads.filter_map(|head| {
            let tag = self.search.rule_tag;
            if tag.is_some_and(|tag| tag != head.rule_tag) {
                return None;
            }
            let rule = place.rules.get(head.rule_tag)?;
            let may_be =
                place.call_time.is_outage() || may_be_in(self.search.state, &head, rule, now);
            may_be.then_some((head, rule))
        });
        wanted.min_by_key(|(head, _)| head.fingerprint)
    }

    /// Passes a bucket to `found` if the bucket matches the search. Returns true if it does.
    fn reports(&mut self, head: &SlotHead, rule: &ActiveRule, call_time: CallTime) -> bool {
        let lost;
        let key = if let Some(name) = self.scan.name(head.fingerprint) {
            name
        } else {
            lost = format!("#{:016x}", head.fingerprint);
            &lost
        };
        if self
            .needle
            .as_ref()
            .is_some_and(|needle| !needle.is_in(key.as_bytes()))
        {
            return false;
        }
        let Some(slot) = self.scan.slot(head.fingerprint) else {
            return false;
        };
        self.work.add(BUCKET);
        let bucket = Current::new(rule, &slot, key, call_time);
        let is_wanted = self
            .search
            .state
            .is_none_or(|state| state == bucket.state());
        if is_wanted {
            (self.found)(&bucket);
        }
        is_wanted
    }
}

/// Returns true if the text consists only of characters that can occur in the placeholder for a
/// lost key name, which is `#` followed by the fingerprint in hexadecimal.
fn is_in_lost_name(text: &str) -> bool {
    let mut bytes = text.bytes();
    bytes.all(|byte| matches!(byte, b'#' | b'0'..=b'9' | b'a'..=b'f'))
}

/// Returns true unless a bucket's head rules out that the bucket is in `state`. Never returns false
/// for a bucket that is in `state`. A head written under an earlier rule version cannot rule out
/// the states `busy` and `held`.
fn may_be_in(state: Option<BucketState>, head: &SlotHead, rule: &ActiveRule, now: Nanos) -> bool {
    let is_used = || rule.age(head.version) != Age::Current || !head.is_idle(now.as_millis());
    match state {
        None | Some(BucketState::Idle) => true,
        Some(BucketState::Busy | BucketState::Held) => is_used(),
        Some(BucketState::Refusing) => head.refused_within(REFUSING_FOR, now),
        Some(BucketState::Banned) => head.has_ban_history || rule.bans_keys(),
    }
}

/// Tracks the work done in a step and checks the time limit.
struct Work<'a> {
    done: u32,
    /// Number of work units at which to read the clock next.
    look_at: u32,
    has_time: &'a mut dyn FnMut() -> bool,
}

impl<'a> Work<'a> {
    fn new(has_time: &'a mut dyn FnMut() -> bool) -> Self {
        Self {
            done: 0,
            look_at: MIN_STEP_WORK,
            has_time,
        }
    }

    const fn add(&mut self, work: u32) {
        self.done = self.done.saturating_add(work);
    }

    fn may_go_on(&mut self) -> bool {
        if self.done < self.look_at {
            return true;
        }
        self.look_at = self.done.saturating_add(BETWEEN);
        (self.has_time)()
    }
}

/// Maps rule tags to rules. This is a hash table with linear probing, because a search looks up the
/// rule of every bucket it visits.
pub(super) struct RulesByTag<'a> {
    places: Vec<Option<&'a ActiveRule>>,
}

impl<'a> RulesByTag<'a> {
    /// Creates the table. If two rules have the same tag, the table contains only the first.
    pub(super) fn new(rules: impl ExactSizeIterator<Item = &'a ActiveRule>) -> Self {
        let room = rules.len().saturating_mul(2).saturating_add(1);
        let mut own = Self {
            places: vec![None; room.next_power_of_two()],
        };
        for rule in rules {
            let place = own.probe(rule.tag());
            let place = place.and_then(|place| own.places.get_mut(place));
            if let Some(place @ None) = place {
                *place = Some(rule);
            }
        }
        own
    }

    fn get(&self, tag: u32) -> Option<&'a ActiveRule> {
        *self.places.get(self.probe(tag)?)?
    }

    /// Returns the index of the tag's entry, or of the free entry into which it would be inserted.
    /// At least half of the entries are always free.
    fn probe(&self, tag: u32) -> Option<usize> {
        let mask = self.places.len().saturating_sub(1);
        let start = usize::try_from(tag).unwrap_or(0);
        let mut places = (0..self.places.len()).map(|step| start.wrapping_add(step) & mask);
        places.find(|place| {
            let rule = self.places.get(*place).copied().flatten();
            rule.is_none_or(|rule| rule.tag() == tag)
        })
    }
}

#[cfg(test)]
mod tests;
