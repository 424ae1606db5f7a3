//! A configuration in force: the rules as they are now, the table of buckets, and one request
//! against them.

use loudou_limiter::{Clock, Nanos, Verdict};
use loudou_rules::active_rule::ActiveRule;
use loudou_rules::evaluate::{Answer, Outcome, RuleOutcome, evaluate};
use loudou_rules::rule::{Mode, Rule, RuleFile};
use loudou_rules::rule_set::RuleSet;
use loudou_store::top::{By, Tally};
use loudou_store::{GaveUp, LiveRule, Receipt, StoreStats, Table, Why};

use super::Headers;
use super::connections::Connections;
use crate::host::{Host, HostStore, LogLevel, Reply};
use crate::metrics::{Counted, RuleMetrics, StoreMetrics};
use crate::record::{RecordError, RuleRecord};
use crate::request::HostRequest;
use crate::sweep::Sweep;
use crate::upstream::Watch;
use crate::{current, events};

mod answers;

/// How often a request is decided on again because its rules changed in the middle of it.
const MAX_OUTDATED: usize = 4;
/// When rules that could not be read are tried again.
const RETRY_AFTER: Nanos = Nanos::from_secs(1);

/// What a request took from a bucket that may want it back: when it ends, or if it never passes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    rule_tag: u32,
    key: String,
    receipt: Receipt,
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
    rules: RuleSet,
    /// Whether any rule needs the wall clock, which costs a call of the host.
    reads_wall: bool,
    /// Whether any rule explains what it decides.
    explains: bool,
    /// What is counted of responses.
    watch: Watch,
    rule_metrics: Vec<RuleMetrics>,
    pub(super) store_metrics: StoreMetrics,
    /// Which keys come often.
    pub(super) tally: Tally,
    /// The change count at which the rules were read; another one means that they are old.
    changes_seen: u64,
    next_expiry: Nanos,
    connections: Connections,
    sweep: Sweep,
}

impl Active {
    /// A table without rules yet; the metrics are those of the rules to come, in their order.
    pub(super) fn new(
        table: Table,
        tally: Tally,
        rule_metrics: Vec<RuleMetrics>,
        store_metrics: StoreMetrics,
    ) -> Self {
        Self {
            table,
            rules: RuleSet::default(),
            reads_wall: false,
            explains: false,
            watch: Watch::default(),
            rule_metrics,
            store_metrics,
            tally,
            changes_seen: 0,
            next_expiry: Nanos::MAX,
            connections: Connections::default(),
            sweep: Sweep::default(),
        }
    }

    /// When the timer has something to do here.
    pub(super) fn due(&self) -> Option<Nanos> {
        let dues = [self.tally.due(), self.sweep.due()];
        dues.into_iter().flatten().min()
    }

    /// What the timer does here: flushes what was counted, and brings old buckets forward.
    pub(super) fn tick(&mut self, host: &dyn Host, share: &str, now: Nanos) {
        self.tally.flush(&mut HostStore(host), now);
        let clock = self.clock(host, now);
        let swept = self
            .sweep
            .run(host, share, (&self.table, &self.rules), clock);
        if swept {
            self.store_metrics.announce_change(host);
        }
    }

    /// Whether the connection of the current request tells that this configuration is in force again.
    pub(super) fn is_back(&mut self, host: &dyn Host, share: &str, now: Nanos) -> bool {
        self.connections.tell_of_rollback(host, share, now)
    }

    /// Lets all know of the connection of the current request, for which this configuration is back.
    pub(super) fn is_back_for(&mut self, host: &dyn Host, share: &str, now: Nanos) {
        self.connections.ask_now();
        self.connections.tell_of_rollback(host, share, now);
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
        let record = match current::load(host, &file.store.share, &self.store_metrics) {
            // Another version's: it stays, and this configuration goes by itself.
            Err(RecordError::Unreadable) => None,
            read => Some(read?),
        };
        // The record decides, also where this configuration is older and its listener drains: one set of
        // numbers for each bucket in the whole process.
        let in_force = |own: &Rule| {
            let shared = record.as_ref().and_then(|record| record.of_buckets(own));
            shared.map_or_else(|| ActiveRule::alone(own.clone()), RuleRecord::activate)
        };
        self.rules = file.rules.iter().map(in_force).collect();
        self.reads_wall = self.rules.iter().any(ActiveRule::reads_wall);
        let explains = |rule: &ActiveRule| rule.rule().respond.explain_header;
        self.explains = self.rules.iter().any(explains);
        let generation = record.as_ref().map_or(0, |record| record.generation);
        self.watch = Watch::new(self.rules.iter().map(ActiveRule::rule), generation);
        self.connections.is_in_force = record.as_ref().is_none_or(|record| record.is_of(file));
        self.sweep = record.as_ref().map(Sweep::of).unwrap_or_default();
        self.next_expiry = record.map_or(Nanos::MAX, |record| record.next_expiry());
        self.changes_seen = changes;
        Ok(())
    }

    /// Decides on the current request at `now`. It is refused where it would have to wait, unless
    /// it `may_wait`.
    pub(super) fn decide(
        &mut self,
        host: &dyn Host,
        file: &RuleFile,
        now: Nanos,
        may_wait: bool,
    ) -> Decided {
        let mut outcome = self.evaluate(host, now, may_wait);
        for _ in 0..MAX_OUTDATED {
            let outdated =
                |said: &RuleOutcome| matches!(said.answer, Answer::GaveUp(GaveUp::Outdated));
            if !outcome.rules.iter().any(outdated) {
                break;
            }
            self.take_back(host, &outcome);
            if self.refresh(host, file).is_err() {
                break;
            }
            outcome = self.evaluate(host, now, may_wait);
        }
        self.count(host, &outcome, now);
        let refusing = outcome.refusal();
        let reply = refusing.and_then(|said| self.refusal(host, said, now));
        let verdict = if let Some(reply) = reply {
            self.log(host, refusing, now);
            Err(reply)
        } else {
            let due = outcome.due(&self.rules).unwrap_or(now);
            let mut headers = self.admitted_headers(&outcome);
            if self.explains {
                headers.extend(self.explain(host, &outcome, now, due));
            }
            Ok((due, headers))
        };
        Decided {
            verdict,
            places: self.places(outcome),
        }
    }

    fn evaluate(&self, host: &dyn Host, now: Nanos, may_wait: bool) -> Outcome {
        let mut stats = StoreStats::default();
        let mut request = HostRequest::new(host).waiting_if(may_wait);
        let outcome = evaluate(
            &self.rules,
            &self.table,
            &mut HostStore(host),
            &mut request,
            self.clock(host, now),
            &mut stats,
        );
        self.store_metrics.add(host, &stats);
        outcome
    }

    /// The clocks at `now`; the wall clock costs a call of the host.
    fn clock(&self, host: &dyn Host, now: Nanos) -> Clock {
        if self.reads_wall {
            let wall = Nanos::from_millis(host.unix_ms());
            Clock { now, wall }
        } else {
            Clock::at(now)
        }
    }

    /// Gives back what was taken for an outcome that does not count.
    fn take_back(&self, host: &dyn Host, outcome: &Outcome) {
        let mut stats = StoreStats::default();
        for said in &outcome.rules {
            let rule = self.rules.get(said.rule);
            if let (Some(rule), Some(key), Some(receipt)) = (rule, &said.key, &said.receipt) {
                let give = rule.give(key, receipt, Why::Refused, self.clock(host, host.now()));
                // What is lost is counted.
                let _lost = self.table.give(&mut HostStore(host), &give, &mut stats);
            }
        }
        self.store_metrics.add(host, &stats);
    }

    /// What the request may have to give back. If it waits, that is all it took: its client may leave.
    fn places(&self, outcome: Outcome) -> Vec<Place> {
        let waits = outcome.wait(&self.rules) > Nanos::ZERO;
        let place = |said: RuleOutcome| {
            let active = self.rules.get(said.rule)?;
            let rule = active.rule();
            let may_leave = waits && rule.mode == Mode::Enforce;
            let (receipt, key) = (said.receipt?, said.key?);
            let limits = active.limits_of(&key);
            (may_leave || limits.holds_until_end()).then(|| Place {
                rule_tag: active.tag(),
                key,
                receipt,
            })
        };
        outcome.rules.into_iter().filter_map(place).collect()
    }

    /// Gives back what a request took that has ended, or whose client left while it waited. A rule
    /// that is gone has nothing to give it to; one in shadow mode would not have let it wait.
    pub(super) fn give_back(
        &mut self,
        host: &dyn Host,
        file: &RuleFile,
        places: &[Place],
        left: bool,
    ) {
        self.keep_current(host, file, host.now());
        let mut stats = StoreStats::default();
        for place in places {
            let Some(active) = self.rules.iter().find(|rule| rule.tag() == place.rule_tag) else {
                continue;
            };
            let why = if left && active.rule().mode == Mode::Enforce {
                Why::Left
            } else {
                Why::Ended
            };
            let clock = self.clock(host, host.now());
            let give = active.give(&place.key, &place.receipt, why, clock);
            // What is lost is counted, and runs out by itself.
            let _lost = self.table.give(&mut HostStore(host), &give, &mut stats);
        }
        self.store_metrics.add(host, &stats);
    }

    /// Whether responses of upstreams are counted.
    pub(super) const fn watches(&self) -> bool {
        self.watch.is_on()
    }

    /// The current request has ended, and went to an upstream unless somebody was in the way.
    pub(super) fn see_response(&self, host: &dyn Host, share: &str) {
        let mut stats = StoreStats::default();
        for event in self.watch.see(host, &self.table, &mut stats) {
            events::add(host, share, event);
        }
        self.store_metrics.add(host, &stats);
    }

    fn count(&mut self, host: &dyn Host, outcome: &Outcome, now: Nanos) {
        for RuleOutcome {
            rule: index,
            key,
            answer,
            price,
            overruled,
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
            if price.is_some_and(|price| price.is_odd) {
                metrics.count(host, Counted::InvalidCost);
            }
            let refused = answer.refuses(rule.rule().on_error);
            let counted = match (answer, refused, rule.rule().mode) {
                (Answer::Skipped, _, _) => Counted::Skipped,
                // It is neither admitted nor refused by this rule.
                _ if *overruled => continue,
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
            if let Some(key) = key {
                let by = if refused { By::Refused } else { By::Admitted };
                let id = self.table.id(rule.tag(), key);
                self.tally.count(by, id.rule_tag, id.fingerprint, key, now);
            }
        }
    }
}
