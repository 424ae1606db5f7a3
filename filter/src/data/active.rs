//! A configuration in force: the rules as they are now, the table of buckets, and one request
//! against them.

use loudou_limiter::evaluate::{ActiveRule, Answer, Clock, Outcome, RuleOutcome, evaluate};
use loudou_limiter::rule::{Mode, RuleFile};
use loudou_limiter::store::release::Give;
use loudou_limiter::store::table::{StoreStats, Table};
use loudou_limiter::{Nanos, Verdict};

use super::Headers;
use crate::current;
use crate::host::{Host, HostStore, LogLevel, Reply};
use crate::metrics::{Counted, RuleMetrics, StoreMetrics};
use crate::record::RecordError;
use crate::request::HostRequest;
use crate::respond::{RateLimitHeaders, Refusal};

/// When rules that could not be read are tried again.
const RETRY_AFTER: Nanos = Nanos::from_secs(1);

/// What a request took from a bucket that wants it back at its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    rule_tag: u32,
    key: String,
    cost: u64,
    taken_at: Nanos,
}

/// A decision on a request.
pub(super) struct Decided {
    /// When it may pass, and the headers of its response; or the answer to a refused one.
    pub(super) verdict: Result<(Nanos, Headers), Reply>,
    pub(super) places: Vec<Place>,
}

/// A configuration in force, compiled.
#[derive(Debug)]
pub(super) struct Active {
    table: Table,
    rules: Vec<ActiveRule>,
    /// Whether any rule needs the wall clock, which costs a call of the host.
    reads_wall: bool,
    rule_metrics: Vec<RuleMetrics>,
    pub(super) store_metrics: StoreMetrics,
    /// The change count at which the rules were read; another one means that they are old.
    changes_seen: u64,
    next_expiry: Nanos,
}

impl Active {
    /// A table without rules yet; the metrics are those of the rules to come, in their order.
    pub(super) const fn new(
        table: Table,
        rule_metrics: Vec<RuleMetrics>,
        store_metrics: StoreMetrics,
    ) -> Self {
        Self {
            table,
            rules: Vec::new(),
            reads_wall: false,
            rule_metrics,
            store_metrics,
            changes_seen: 0,
            next_expiry: Nanos::MAX,
        }
    }

    /// Reads the rules again if they have changed.
    pub(super) fn keep_current(&mut self, host: &dyn Host, file: &RuleFile, now: Nanos) {
        let is_old = self.changes_seen != self.store_metrics.changes(host);
        if (is_old || now >= self.next_expiry)
            && let Err(error) = self.refresh(host, file)
        {
            host.log(
                LogLevel::Error,
                &format!("the rules could not be read again: {error:?}"),
            );
            // The rules stay as they are, and requests do not all try again at once.
            self.changes_seen = self.store_metrics.changes(host);
            self.next_expiry = now.saturating_add(RETRY_AFTER);
        }
    }

    /// Reads the rules again.
    pub(super) fn refresh(&mut self, host: &dyn Host, file: &RuleFile) -> Result<(), RecordError> {
        // First the count, then the record: what is read is at least as new as what is counted.
        let changes = self.store_metrics.changes(host);
        let record = current::load(host, &file.store.share, &self.store_metrics)?;
        self.rules = file
            .rules
            .iter()
            .map(|own| match record.rule(&own.name) {
                Some(shared) if shared.base == *own => shared.activate(),
                // This configuration is older than the record's: its listener drains.
                _ => ActiveRule::new(own.clone(), Vec::new()),
            })
            .collect();
        self.reads_wall = self
            .rules
            .iter()
            .any(|rule| rule.rule().limits.reads_wall());
        self.next_expiry = record.next_expiry();
        self.changes_seen = changes;
        Ok(())
    }

    /// Decides on the current request at `now`. It is refused where it would have to wait, unless
    /// it `may_wait`.
    pub(super) fn decide(&self, host: &dyn Host, now: Nanos, may_wait: bool) -> Decided {
        let mut stats = StoreStats::default();
        let clock = if self.reads_wall {
            let wall = Nanos::from_millis(host.unix_ms());
            Clock { now, wall }
        } else {
            Clock::at(now)
        };
        let mut request = HostRequest::new(host).waiting_if(may_wait);
        let mut store = HostStore(host);
        let outcome = evaluate(
            &self.rules,
            &self.table,
            &mut store,
            &mut request,
            clock,
            &mut stats,
        );
        self.store_metrics.add(host, &stats);
        self.count(host, &outcome);
        let reply = || self.refusal(host, outcome.rules.last()?, now);
        let verdict = match reply().filter(|_| outcome.refused) {
            Some(reply) => Err(reply),
            None => Ok((
                outcome.due(&self.rules).unwrap_or(now),
                self.admitted_headers(&outcome),
            )),
        };
        Decided {
            verdict,
            places: self.places(outcome),
        }
    }

    /// What the request holds until it ends. That is so of a refused one, too: a rule before the
    /// refusing one has let it in.
    fn places(&self, outcome: Outcome) -> Vec<Place> {
        let place = |outcome: RuleOutcome| {
            let active = self.rules.get(outcome.rule)?;
            let Answer::Decided(decision) = outcome.answer else {
                return None;
            };
            let holds = active.rule().limits.holds_until_end() && !decision.is_refused();
            Some(Place {
                rule_tag: active.tag(),
                key: outcome.key.filter(|_| holds)?,
                cost: active.rule().cost.into(),
                taken_at: decision.at(),
            })
        };
        outcome.rules.into_iter().filter_map(place).collect()
    }

    /// Gives back what an ended request held. A rule that is gone has nothing to give it to.
    pub(super) fn give_back(&self, host: &dyn Host, places: &[Place]) {
        let mut stats = StoreStats::default();
        for place in places {
            let Some(active) = self.rules.iter().find(|rule| rule.tag() == place.rule_tag) else {
                continue;
            };
            let give = Give {
                versions: active.versions(),
                rule_tag: place.rule_tag,
                key: &place.key,
                cost: place.cost,
                taken_at: place.taken_at,
                now: host.now(),
            };
            // What is lost is counted, and runs out with its lease.
            let _lost = self.table.release(&mut HostStore(host), &give, &mut stats);
        }
        self.store_metrics.add(host, &stats);
    }

    fn count(&self, host: &dyn Host, outcome: &Outcome) {
        for RuleOutcome {
            rule: index,
            answer,
            ..
        } in &outcome.rules
        {
            let (Some(rule), Some(metrics)) =
                (self.rules.get(*index), self.rule_metrics.get(*index))
            else {
                continue;
            };
            if matches!(answer, Answer::GaveUp(_)) {
                metrics.count(host, Counted::Error);
            }
            let refused = answer.refuses(rule.rule().on_error);
            let counted = match (answer, refused, rule.rule().mode) {
                (Answer::Skipped, _, _) => Counted::Skipped,
                (Answer::Decided(decision), false, Mode::Enforce)
                    if decision.verdict() == Verdict::Hold =>
                {
                    Counted::Held
                }
                (_, false, _) => Counted::Admitted,
                (_, true, Mode::Enforce) => Counted::Refused,
                (_, true, Mode::Shadow | Mode::Off) => Counted::ShadowRefused,
            };
            metrics.count(host, counted);
        }
    }

    fn refusal(&self, host: &dyn Host, last: &RuleOutcome, now: Nanos) -> Option<Reply> {
        let rule = self.rules.get(last.rule)?.rule();
        Some(Refusal::new(rule, &last.answer, now).reply(host))
    }

    fn admitted_headers(&self, outcome: &Outcome) -> Headers {
        let mut headers = RateLimitHeaders::default();
        for RuleOutcome {
            rule: index,
            answer,
            ..
        } in &outcome.rules
        {
            let Some(rule) = self.rules.get(*index).map(ActiveRule::rule) else {
                continue;
            };
            if rule.mode == Mode::Enforce
                && let Answer::Decided(decision) = answer
            {
                headers.add(rule, decision);
            }
        }
        headers.finish()
    }
}
