//! The sweep converts the buckets of frequently edited rules to the current limits, a few pages at
//! a time.
//!
//! All workers that have the rule take part in the sweep, and their combined progress is stored in
//! a shared data value. Once all pages have been converted, the corresponding changes are removed
//! from the rule's history.

use loudou_limiter::{Clock, Nanos};
use loudou_rules::rule_set::ActiveRule;
use loudou_rules::rule_set::RuleSet;
use loudou_store::{CAS_ABSENT, Cas, GaveUp, LiveRule, Table, Written};

use crate::host::{Host, HostStore};
use crate::record::{Record, Records};

/// Maximum number of pages converted per timer tick.
const PAGES: u32 = 16;
/// Maximum number of pages converted per edit. Edits also convert pages, because there may be no
/// worker whose timer runs sweeps.
pub(crate) const PAGES_OF_EDIT: u32 = 128;
/// Time limit for one run. A full page of a frequently edited rule requires hundreds of
/// conversions.
const MAX_TIME: Nanos = Nanos::new(300_000);
/// Pause between runs.
const PAUSE: Nanos = Nanos::from_millis(5);

/// The rules that a worker must sweep, and the time of its next run.
#[derive(Debug, Default)]
pub(crate) struct Sweep {
    rules: Vec<u32>,
    due: Nanos,
}

/// Progress of a rule's sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Progress {
    rule_tag: u32,
    /// The rule version that the sweep converts buckets to.
    version: u32,
    next_page: u32,
}

impl Progress {
    fn read(bytes: &[u8]) -> Option<Self> {
        let (numbers, []) = bytes.as_chunks::<4>() else {
            return None;
        };
        let [rule_tag, version, next_page] = *numbers else {
            return None;
        };
        Some(Self {
            rule_tag: u32::from_le_bytes(rule_tag),
            version: u32::from_le_bytes(version),
            next_page: u32::from_le_bytes(next_page),
        })
    }

    fn bytes(self) -> [u8; 12] {
        let mut bytes = [0; 12];
        let numbers = [self.rule_tag, self.version, self.next_page];
        let (places, _) = bytes.as_chunks_mut::<4>();
        for (place, number) in places.iter_mut().zip(numbers) {
            *place = number.to_le_bytes();
        }
        bytes
    }
}

impl Sweep {
    /// Creates the sweep for all rules in a record that need one.
    pub(crate) fn of(record: &Record) -> Self {
        Self {
            rules: record.to_sweep().map(|rule| rule.base.tag()).collect(),
            due: Nanos::ZERO,
        }
    }

    /// Returns the time of the next run. `None` if there is nothing to sweep.
    pub(crate) fn due(&self) -> Option<Nanos> {
        (!self.rules.is_empty()).then_some(self.due)
    }

    /// If a run is due, converts some pages for one of this worker's rules. Returns true if the
    /// record has changed.
    pub(crate) fn run(
        &mut self,
        host: &dyn Host,
        records: &Records,
        (table, rules): (&Table, &RuleSet),
        clock: Clock,
    ) -> bool {
        let known = self.rules.iter().copied();
        let mut known = known.filter_map(|tag| rules.iter().find(|rule| rule.tag() == tag));
        let Some(first) = known.next() else {
            // This worker has none of the rules, so they must be swept by other workers.
            self.rules.clear();
            return false;
        };
        if clock.now < self.due {
            return false;
        }
        self.due = clock.now.saturating_add(PAUSE);
        let known = [first].into_iter().chain(known);
        let known: Vec<&ActiveRule> = known.map(|rule| &**rule).collect();
        step(host, records, (table, &known), PAGES, clock)
    }
}

/// Converts up to `pages` pages for the rule in `rules` that is currently being swept. If none of
/// these rules is being swept, starts the first rule's sweep. Returns true if the record has
/// changed.
pub(crate) fn step(
    host: &dyn Host,
    records: &Records,
    (table, rules): (&Table, &[&ActiveRule]),
    pages: u32,
    clock: Clock,
) -> bool {
    let Some(first) = rules.first() else {
        return false;
    };
    let key = [records.share().as_bytes(), b":sweep"].concat();
    let (progress, cas) = load(host, &key);
    let under_way = progress.and_then(|progress| {
        let rule = rules.iter().find(|rule| rule.tag() == progress.rule_tag)?;
        Some((progress, rule))
    });
    let (mut progress, rule) = under_way.unwrap_or_else(|| {
        let new = Progress {
            rule_tag: first.tag(),
            version: first.version(),
            next_page: 0,
        };
        (new, first)
    });
    if rule.version() < progress.version {
        // The sweep converts buckets to a newer rule version than this worker has.
        return false;
    }
    let mut end = progress.next_page.saturating_add(pages).min(table.pages());
    let begun = host.now();
    for page in progress.next_page..end {
        // Each run converts at least one page, so that even slow machines make progress.
        if page > progress.next_page && host.now().since(begun) >= MAX_TIME {
            end = page;
            break;
        }
        let brought = table.bring_page_forward(&mut HostStore(host), page, *rule, clock);
        // Pages in another format contain none of this rule's buckets. After any other failure, the
        // next run retries all pages from this run.
        if brought.is_err_and(|gave_up| gave_up != GaveUp::UnknownPage) {
            return false;
        }
    }
    progress.next_page = end;
    if host.shared_set(&key, &progress.bytes(), cas) != Ok(Written::Done) || end < table.pages() {
        return false;
    }
    let forgotten = records.change_internally(host, &|record| {
        record.forget(progress.rule_tag, progress.version);
    });
    progress = Progress {
        rule_tag: 0,
        ..progress
    };
    // Even if this write fails, the next sweep starts at the first page.
    let _ended = host.shared_set(&key, &progress.bytes(), load(host, &key).1);
    forgotten.is_ok()
}

/// Returns the stored progress and the value's compare-and-swap version.
fn load(host: &dyn Host, key: &[u8]) -> (Option<Progress>, Cas) {
    let mut bytes = Vec::new();
    match host.shared_get(key, &mut bytes) {
        Ok(Some(cas)) => (Progress::read(&bytes), cas),
        _ => (None, CAS_ABSENT),
    }
}
