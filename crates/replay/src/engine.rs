//! Decides requests under one rule file, with the filter's own decision code and an in-memory
//! store.

use std::borrow::Cow;

use loudou_limiter::{BucketDecision, Clock, Decision, Nanos, Verdict};
use loudou_rules::evaluate::{Answer, Outcome, evaluate};
use loudou_rules::rule::{End, Ended, RuleFile};
use loudou_rules::rule_set::ActiveRule;
use loudou_rules::rule_set::RuleSet;
use loudou_rules::versions::History;
use loudou_store::paged::PagedStore;
use loudou_store::{GaveUp, Receipt, ReleaseReason, StoreStats, Table};

use super::flight::InFlight;
use super::record::{LoggedRequest, TraceEdit};

/// Fixed hash seed. With a random seed, keys would be in different pages in each run, and the
/// output could differ.
const SEED: [u8; 16] = *b"loudou replay 01";

/// Cost that is returned to a bucket when the request ends.
#[derive(Debug)]
struct PendingReturn {
    rule: usize,
    key: Box<str>,
    receipt: Receipt,
    why: ReleaseReason,
}

/// How a request ended, according to its log line.
struct LoggedEnd<'a>(&'a LoggedRequest<'a>);

impl Ended for LoggedEnd<'_> {
    fn end(&mut self) -> End {
        End::Whole
    }

    /// Returns the logged status unless it is 429. A rate limiter sent that status, so the
    /// upstream's status is unknown.
    fn status(&mut self) -> Option<u16> {
        self.0.status.filter(|status| *status != 429)
    }

    fn token_usage(&mut self) -> Option<Cow<'_, [u8]>> {
        None
    }

    fn metadata(&mut self, _path: &[String]) -> Option<Cow<'_, [u8]>> {
        None
    }

    fn response_header(&mut self, _name: &str) -> Option<Cow<'_, [u8]>> {
        None
    }

    fn response_bytes(&mut self) -> Option<u64> {
        None
    }

    fn duration(&mut self) -> Option<Nanos> {
        self.0.duration
    }
}

/// The active rules of a rule file, with their buckets.
#[derive(Debug)]
pub(crate) struct Engine {
    rules: RuleSet,
    table: Table,
    store: PagedStore,
    stats: StoreStats,
    flight: InFlight<PendingReturn>,
    /// Number of requests of unknown duration that an in-flight limit counted. The replay ends each
    /// of these requests as soon as it is admitted.
    pub(crate) endless: u64,
    /// Number of requests that the replay ended early because too many were in flight.
    pub(crate) ended_early: u64,
}

impl Engine {
    /// Creates an engine without buckets.
    pub(crate) fn new(file: &RuleFile) -> Result<Self, GaveUp> {
        let settings = &file.store;
        let mut store = PagedStore::new(&settings.namespace, settings.buckets);
        let share = &settings.namespace;
        let table = Table::open(&mut store, share, settings.buckets, SEED, Nanos::ZERO)?;
        let rules = file.rules.iter().cloned();
        Ok(Self {
            rules: rules
                .map(|rule| ActiveRule::new(rule, History::default()))
                .collect(),
            table,
            store,
            stats: StoreStats::default(),
            flight: InFlight::new(),
            endless: 0,
            ended_early: 0,
        })
    }

    /// Decides a request and charges its cost.
    pub(crate) fn decide(&mut self, record: &mut LoggedRequest<'_>, clock: Clock) -> Outcome {
        while let Some((end, pending)) = self.flight.next(clock.now) {
            self.release(&pending, clock.moved_to(end));
        }
        let outcome = evaluate(
            &self.rules,
            &self.table,
            &mut self.store,
            &mut record.request,
            clock,
            &mut self.stats,
        );
        self.follow(record, &outcome, clock);
        outcome
    }

    /// Schedules the cost that a request returns when it ends.
    fn follow(&mut self, record: &LoggedRequest<'_>, outcome: &Outcome, clock: Clock) {
        let now = clock.now;
        let mut is_endless = false;
        for ruled in &outcome.rules {
            let (Some(receipt), Some(key)) = (&ruled.receipt, &ruled.key) else {
                continue;
            };
            let settlement = ruled.active.rule().cost.settlement();
            if settlement.is_none() && !ruled.limits().holds_until_end() {
                continue;
            }
            let why = match settlement {
                None => ReleaseReason::Ended,
                // If another rule refuses the request, the request never reaches an upstream, so it
                // costs nothing.
                Some(_) if outcome.is_refused() => ReleaseReason::Settled(0),
                Some(settlement) => {
                    let reserved = receipt.taken().cost();
                    let by_log = || settlement.settle(reserved, &mut LoggedEnd(record)).actual;
                    ReleaseReason::Settled(record.settled.unwrap_or_else(by_log))
                }
            };
            // If another rule refuses the request, the request ends immediately. Otherwise the
            // request keeps its in-flight slot until its end, even while it is held.
            let end = if outcome.is_refused() {
                now
            } else {
                is_endless |= record.duration.is_none() && settlement.is_none();
                let passes = now.saturating_add(outcome.wait());
                passes.saturating_add(record.duration.unwrap_or_default())
            };
            let pending = PendingReturn {
                rule: ruled.rule,
                key: key.as_str().into(),
                receipt: receipt.clone(),
                why,
            };
            if end == now {
                self.release(&pending, clock);
            } else if let Some(first) = self.flight.add(end, pending) {
                self.ended_early += 1;
                self.release(&first, clock);
            }
        }
        self.endless += u64::from(is_endless);
    }

    fn release(&mut self, pending: &PendingReturn, clock: Clock) {
        let Some(rule) = self.rules.get(pending.rule) else {
            return;
        };
        let give = rule.release(&pending.key, &pending.receipt, pending.why, clock);
        // If the return fails, the store counts the failure in `stats`, and the cost expires later.
        let (Ok(()) | Err(_)) = self.table.release(&mut self.store, &give, &mut self.stats);
    }

    /// Applies an edit to a rule. Returns false if no rule has that name.
    pub(crate) fn edit(&mut self, set: &TraceEdit, now: Nanos) -> bool {
        let TraceEdit {
            rule, edit, carry, ..
        } = set;
        self.rules.edit(rule, edit, *carry, now)
    }

    pub(crate) fn rules(&self) -> &RuleSet {
        &self.rules
    }

    pub(crate) const fn stats(&self) -> &StoreStats {
        &self.stats
    }

    /// Returns the maximum number of buckets.
    pub(crate) fn buckets(&self) -> u64 {
        self.table.buckets()
    }
}

/// The part of an outcome that is reported. If a rule refused the request, that rule is reported.
/// Otherwise, the enforced rule with the longest wait is reported or, if no rule delays the
/// request, the enforced rule with the smallest remaining fraction. Rules in shadow mode are never
/// reported.
#[derive(Clone, Copy, Debug)]
pub struct Reported<'a> {
    /// Verdict on the request.
    pub verdict: Verdict,
    /// The reported rule, or `None` if no enforced rule decided.
    pub rule: Option<ReportedRule<'a>>,
}

/// A rule that decided a request, with the numbers to report.
#[derive(Clone, Copy, Debug)]
pub struct ReportedRule<'a> {
    /// Index of the rule in its file.
    pub index: usize,
    /// Name of the rule.
    pub name: &'a str,
    /// Key of the request, or `None` if a part of the key is missing.
    pub key: Option<&'a str>,
    /// Delay of the request, even if another rule causes it.
    pub wait: Nanos,
    /// Name of the deciding limit and its decision. `None` if the rule refused for a reason other
    /// than a limit, or if the key is unlimited.
    pub limit: Option<(&'a str, &'a Decision)>,
    /// Remaining time of the key's ban, if a temporary ban refused the request.
    pub banned_for: Option<Nanos>,
    bucket: Option<&'a BucketDecision>,
}

impl<'a> Reported<'a> {
    /// Selects the part of an outcome to report at the time `now`.
    pub(crate) fn of(outcome: &'a Outcome, now: Nanos) -> Self {
        let verdict = outcome.verdict();
        let mut best: Option<ReportedRule<'a>> = None;
        for (position, ruled) in outcome.rules.iter().enumerate() {
            let refuses = outcome.refused_by == Some(position);
            let bucket = match &ruled.answer {
                Answer::Decided(bucket) => Some(bucket),
                Answer::Unlimited => None,
                _ if refuses => None,
                _ => continue,
            };
            if !ruled.is_enforced() {
                continue;
            }
            let limits = ruled.limits().iter();
            let limit = bucket.and_then(|bucket| {
                let limit = limits.clone().nth(bucket.reported_index())?;
                Some((limit.name(), bucket.reported()?))
            });
            let this = ReportedRule {
                index: ruled.rule,
                name: &ruled.active.rule().name,
                key: ruled.key.as_deref(),
                wait: Nanos::ZERO,
                limit,
                banned_for: match &ruled.answer {
                    Answer::Banned(ban) => ban.lasts(now),
                    _ => None,
                },
                bucket,
            };
            if refuses || best.is_none_or(|best| this.precedes(&best)) {
                best = Some(this);
            }
        }
        let wait = outcome.wait();
        let rule = best.map(|rule| ReportedRule { wait, ..rule });
        Self { verdict, rule }
    }
}

impl ReportedRule<'_> {
    fn precedes(&self, other: &Self) -> bool {
        let wait = |rule: &Self| rule.bucket.map_or(Nanos::ZERO, BucketDecision::wait);
        let (mine, theirs) = (wait(self), wait(other));
        let tighter = || match (self.limit, other.limit) {
            (Some((_, mine)), Some((_, theirs))) => mine.is_tighter_than(theirs),
            // A rule that reports a limit takes precedence over a rule whose key is unlimited.
            (mine, theirs) => mine.is_some() && theirs.is_none(),
        };
        mine > theirs || (mine == theirs && tighter())
    }
}
