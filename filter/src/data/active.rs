//! An active configuration, which holds the rules in force and the bucket table, and decides
//! requests.

use std::rc::Rc;
use std::sync::Arc;

use loudou_limiter::lease::LeaseVerdict;
use loudou_limiter::{Clock, Nanos};
use loudou_rules::evaluate::{Answer, Outcome, RuleOutcome, evaluate};
use loudou_rules::fleet::FleetView;
use loudou_rules::rule::{Mode, Reach, Rule, RuleFile, Settled};
use loudou_rules::rule_set::{ActiveRule, Grant, RuleSet};
use loudou_store::top::{By, Tally};
use loudou_store::{BucketId, GaveUp, Leased, LiveRule, Receipt, ReleaseReason, StoreStats, Table};

use crate::fleet::Wanted;
use crate::host::{Headers, Host, HostStore, LogLevel, Reply};
use crate::instance::Instance;
use crate::metrics::{Counted, Registry, RuleMetrics, SettlementMetrics, StoreMetrics};
use crate::record::{Record, RecordError, Records, RuleRecord};
use crate::request::HostRequest;
use crate::reservation::{AtEnd, Reservation, Reservations, reservations};
use crate::respond::{Refusal, explain, of_admitted};
use crate::settle::{EndedRequest, UpstreamResponse};
use crate::sweep::Sweep;
use crate::upstream::Watch;
use crate::waiting::{Room, earlier};
use crate::{behind, current, events};

pub(super) use plan::Planning;
use rollback::Connections;

/// Delay before rereading the rules after a failed read.
const RETRY_AFTER: Nanos = Nanos::from_secs(1);

mod plan;
mod rollback;

/// A function that reads the rule record.
type Read = fn(&dyn Host, &Records, &StoreMetrics, Nanos) -> Result<Rc<Record>, RecordError>;

/// An active configuration with the rules in force.
#[derive(Debug)]
pub(crate) struct Active {
    pub(super) table: Table,
    records: Records,
    rules: RuleSet,
    /// Records of all rules and trials, in the same order as `rules`. `None` for a rule that is missing from the shared
    /// record.
    sources: Vec<Option<Rc<RuleRecord>>>,
    /// True if any rule needs the wall clock. If none does, the wall clock is not read, because
    /// every reading is a host call.
    reads_wall: bool,
    /// Level of detail in reports about admitted requests: the highest level that any rule needs.
    report_detail: ReportDetail,
    /// Counts upstream responses.
    watch: Watch,
    counts: Counts,
    pub(super) store_metrics: StoreMetrics,
    /// Number of changes that had been announced when the rules were read. The rules are outdated
    /// if the current number differs.
    changes_seen: u64,
    next_expiry: Nanos,
    connections: Connections,
    sweep: Sweep,
    /// Time at which the plugin was configured on this worker, which identifies the configuration.
    configured_at: Nanos,
    /// True if this worker applies the rules in its own configuration because the shared rules
    /// cannot be read.
    is_alone: bool,
    /// ID of the Envoy process. Empty if the record could not be read.
    pub(super) instance: String,
    /// Generation of the rules in force.
    pub(super) generation: u64,
}

/// Level of detail at which a rule reports admitted requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ReportDetail {
    Nothing,
    /// Rate-limit headers for the client.
    Headers,
    /// Rate-limit headers for the client, and the decision for the upstream and the access logs.
    Decision,
}

impl ReportDetail {
    const fn of(rule: &Rule) -> Self {
        let headers = rule.respond.ratelimit_headers;
        if rule.respond.explain_header {
            Self::Decision
        } else if headers.draft11(false) || headers.legacy() {
            Self::Headers
        } else {
            Self::Nothing
        }
    }
}

impl Active {
    /// Creates an active configuration without rules. The caller must then load the rules with
    /// [`Active::refresh`].
    pub(super) fn new(
        table: Table,
        records: Records,
        counts: Counts,
        store_metrics: StoreMetrics,
        configured_at: Nanos,
    ) -> Self {
        Self {
            table,
            records,
            sources: Vec::new(),
            rules: RuleSet::default(),
            reads_wall: false,
            report_detail: ReportDetail::Nothing,
            watch: Watch::default(),
            counts,
            store_metrics,
            changes_seen: 0,
            next_expiry: Nanos::MAX,
            connections: Connections::default(),
            sweep: Sweep::default(),
            configured_at,
            is_alone: false,
            instance: Instance::default().id,
            generation: 0,
        }
    }

    /// Returns the namespace of the shared data.
    pub(super) fn share(&self) -> &str {
        self.records.share()
    }

    /// Returns the rules in force.
    #[cfg(test)]
    pub(super) const fn rules(&self) -> &RuleSet {
        &self.rules
    }

    /// Returns true if any rule in enforce mode matches the request.
    pub(super) fn may_refuse(&self, request: &mut HostRequest<'_>) -> bool {
        let mut rules = self.rules.iter().map(|active| active.rule());
        rules.any(|rule| rule.mode == Mode::Enforce && rule.reach(request) != Reach::No)
    }

    /// Returns the accessor for the shared rule record.
    pub(super) const fn records(&self) -> &Records {
        &self.records
    }

    /// Returns the time at which the timer must next fire.
    pub(super) fn due(&self) -> Option<Nanos> {
        earlier(self.counts.due(), self.sweep.due())
    }

    /// Handles a timer tick: flushes counts, and runs a step of the sweep that converts buckets to
    /// the current limits.
    pub(super) fn tick(&mut self, host: &dyn Host, now: Nanos) {
        self.counts.flush(host, now);
        let clock = self.clock(host, now);
        let swept = self
            .sweep
            .run(host, &self.records, (&self.table, &self.rules), clock);
        if swept {
            self.store_metrics.announce_change(host);
        }
    }

    /// Returns true if the current request's connection shows that Envoy has rolled back to this
    /// configuration.
    pub(super) fn is_back(&mut self, host: &dyn Host, share: &str, now: Nanos) -> bool {
        self.connections.sees_rollback(host, share, now)
    }

    /// Stores the current request's connection ID, after a rollback to this configuration.
    pub(super) fn is_back_for(&mut self, host: &dyn Host, share: &str, now: Nanos) {
        self.connections.read_at_once();
        self.connections.sees_rollback(host, share, now);
    }

    /// Rereads the rules if they have changed or an edit has expired.
    pub(super) fn keep_current(&mut self, host: &dyn Host, file: &RuleFile, now: Nanos) {
        let is_old = self.changes_seen != self.store_metrics.changes(host);
        if self.is_alone && !is_old && now >= self.next_expiry {
            self.report_behind(host, file, now);
            self.next_expiry = now.saturating_add(behind::INTERVAL);
            return;
        }
        if (is_old || now >= self.next_expiry)
            && let Err(error) = self.refresh_by(host, file, now, current::recent)
        {
            host.log(
                LogLevel::Error,
                &format!("the rules could not be read again: {error:?}"),
            );
            self.report_behind(host, file, now);
            // The previous rules stay in effect. The next attempt is delayed, so that the read is
            // not retried on every request.
            self.changes_seen = self.store_metrics.changes(host);
            self.next_expiry = now.saturating_add(RETRY_AFTER);
        }
    }

    fn report_behind(&self, host: &dyn Host, file: &RuleFile, now: Nanos) {
        behind::report(host, &file.store.namespace, self.configured_at, now);
        self.store_metrics.is_behind(host);
    }

    /// Reads the rules from shared data and applies them.
    pub(super) fn refresh(
        &mut self,
        host: &dyn Host,
        file: &RuleFile,
        now: Nanos,
    ) -> Result<(), RecordError> {
        self.refresh_by(host, file, now, current::load)
    }

    fn refresh_by(
        &mut self,
        host: &dyn Host,
        file: &RuleFile,
        now: Nanos,
        read: Read,
    ) -> Result<(), RecordError> {
        // The count is read before the record, so the record is at least as new as the count.
        let changes = self.store_metrics.changes(host);
        let record = match read(host, &self.records, &self.store_metrics, now) {
            // Another version of the filter wrote the record. The worker leaves the record
            // untouched, and applies the rules in its own configuration.
            Err(RecordError::Unreadable) => None,
            read => Some(read?),
        };
        // The record takes precedence even if this configuration is older and its listener is
        // draining, because all workers must apply the same limits to a bucket.
        let bases = self.records.bases().rules.iter().enumerate();
        let mut sources = Vec::with_capacity(bases.len());
        for (place, base) in bases {
            let record = record.as_ref();
            let source = record.and_then(|record| record.of_buckets(place, base));
            let trial = record
                .zip(source)
                .and_then(|(record, rule)| record.trial_of(rule));
            sources.push(source.cloned());
            sources.extend(trial.cloned().map(Some));
        }
        self.put(host, file, sources);
        let generation = record.as_ref().map_or(0, |record| record.generation);
        self.generation = generation;
        self.watch = Watch::new(self.rules.iter().map(|active| active.rule()), generation);
        self.connections.is_in_force = record
            .as_ref()
            .is_none_or(|record| record.is_of(self.records.bases()));
        self.sweep = record.as_deref().map(Sweep::of).unwrap_or_default();
        self.is_alone = record.is_none();
        if let Some(record) = &record {
            self.instance.clone_from(&record.instance.id);
            self.store_metrics.edited(host, record.edited());
            self.store_metrics.adopted(host);
        }
        // If the record is unreadable, the worker reports this on its next request, and every few
        // seconds after that.
        self.next_expiry = record.map_or(now, |record| record.next_expiry());
        self.changes_seen = changes;
        Ok(())
    }

    /// Applies the rules in these records. The compiled form of a rule is reused if its record has
    /// not changed.
    fn put(&mut self, host: &dyn Host, file: &RuleFile, sources: Vec<Option<Rc<RuleRecord>>>) {
        type Source = Option<Rc<RuleRecord>>;
        let is_trial = |source: &Source| source.as_ref().is_some_and(|rule| rule.is_trial());
        // Trials have no rules in the file. A rule without a record always comes from the file.
        let mut of_file = file.rules.iter();
        let rules = sources.iter().enumerate().map(|(place, source)| {
            let own = (!is_trial(source)).then(|| of_file.next());
            (place, source, own.flatten())
        });
        let in_force = |source: &Source, own: Option<&Rule>| match source {
            Some(source) => Some(source.activate()),
            None => Some(Arc::new(ActiveRule::alone(own?.clone()))),
        };
        if self.sources.len() == sources.len() {
            let same = |place: usize, new: &Source| {
                let old = self.sources.get(place).and_then(Option::as_ref);
                old.map(Rc::as_ptr) == new.as_ref().map(Rc::as_ptr)
            };
            let changed = rules.filter(|(place, new, _)| !same(*place, new));
            let changed =
                changed.filter_map(|(place, new, own)| Some((place, in_force(new, own)?)));
            self.rules.replace(changed);
        } else {
            let rules = rules.filter_map(|(_, source, own)| in_force(source, own));
            self.rules = rules.collect();
        }
        let share = self.records.share();
        self.counts.define(host, share, &self.rules);
        self.reads_wall = self.rules.iter().any(|rule| rule.reads_wall());
        let report_detail = self
            .rules
            .iter()
            .map(|active| ReportDetail::of(active.rule()));
        self.report_detail = report_detail.max().unwrap_or(ReportDetail::Nothing);
        self.sources = sources;
    }

    /// Returns the clock reading for `now`. It includes the wall-clock time only if a rule needs
    /// it, because reading the wall clock is a host call.
    pub(super) fn clock(&self, host: &dyn Host, now: Nanos) -> Clock {
        if self.reads_wall {
            host.clock_at(now)
        } else {
            Clock::at(now)
        }
    }

    /// Returns to the buckets the reserved tokens of a request that has ended, or whose client
    /// disconnected while the request was held. Removed rules are skipped, because their buckets no
    /// longer exist. The return value lists the keys whose leases are now in debt.
    pub(super) fn give_back(
        &self,
        host: &dyn Host,
        reservations: &Reservations,
        left: bool,
        now: Nanos,
    ) -> Vec<(BucketId, String)> {
        let mut owing = Vec::new();
        let mut ended = EndedRequest::new(host, reservations.take_response());
        self.release(host, reservations, now, |reservation, active| {
            if left && active.rule().mode == Mode::Enforce {
                return Some(ReleaseReason::Left);
            }
            match reservation.at_end {
                AtEnd::Keep => None,
                AtEnd::Release => Some(ReleaseReason::Ended),
                AtEnd::Settle => {
                    let actual = self.settle(host, reservation, active, &mut ended)?;
                    let receipt = &reservation.receipt;
                    if receipt.is_leased() && actual > receipt.taken().cost() {
                        owing.push((receipt.id(), reservation.key.clone()));
                    }
                    Some(ReleaseReason::Settled(actual))
                }
            }
        });
        owing
    }

    /// Computes and counts the final cost of a request. Returns `None` if the rule no longer
    /// settles costs, in which case the reserved tokens are not returned.
    fn settle(
        &self,
        host: &dyn Host,
        reservation: &Reservation,
        active: &ActiveRule,
        ended: &mut EndedRequest<'_>,
    ) -> Option<u64> {
        let reserved = reservation.receipt.taken().cost();
        let settled = active.rule().cost.settlement()?.settle(reserved, ended);
        let tag = active.tag();
        let place = self.rules.iter().position(|rule| rule.tag() == tag)?;
        self.counts.settled(host, place, reserved, settled);
        Some(settled.actual)
    }

    /// Reads those headers of the current response that the rules use to compute the request's
    /// final cost.
    pub(super) fn read_response(
        &self,
        host: &dyn Host,
        reservations: &Reservations,
    ) -> UpstreamResponse {
        let mut rules = Vec::new();
        reservations.each(|reservation| {
            if reservation.at_end == AtEnd::Settle {
                rules.extend(self.reserving_rule(reservation));
            }
        });
        let settlements = rules.iter().map(|active| active.rule().cost.settlement());
        UpstreamResponse::read(host, settlements.flatten())
    }

    /// Returns true if a held request that is now due must be refused because its key was banned
    /// while it was waiting. Reads each bucket from which the request took tokens.
    pub(super) fn is_banned(
        &self,
        host: &dyn Host,
        reservations: &Reservations,
        now: Nanos,
    ) -> bool {
        let mut is_banned = false;
        reservations.each(|reservation| {
            let reserving_rule = self.reserving_rule(reservation);
            if let Some(active) =
                reserving_rule.filter(|active| active.rule().mode == Mode::Enforce)
            {
                let store = &mut HostStore(host);
                let ban = self.table.ban_of(store, reservation.receipt.id(), now);
                let is_own = matches!(active.grant(&reservation.key), Grant::Banned);
                is_banned |= is_own || matches!(ban, Ok(Some(_)));
            }
        });
        is_banned
    }

    /// Records, in each bucket that delayed the request, that the request is now passing.
    pub(super) fn mark_passed(
        &self,
        host: &dyn Host,
        reservations: Option<&Reservations>,
        now: Nanos,
    ) {
        if let Some(reservations) = reservations {
            self.release(host, reservations, now, |reservation, _| {
                reservation.waits.then_some(ReleaseReason::Passed)
            });
        }
    }

    /// Returns all of a request's tokens to their buckets, because the request will be decided
    /// again.
    pub(super) fn postpone(&self, host: &dyn Host, reservations: &Reservations, now: Nanos) {
        self.release(host, reservations, now, |_, _| Some(ReleaseReason::Refused));
    }

    /// Returns the tokens of each reservation for which `reason` returns a release reason.
    fn release(
        &self,
        host: &dyn Host,
        reservations: &Reservations,
        now: Nanos,
        mut reason: impl FnMut(&Reservation, &ActiveRule) -> Option<ReleaseReason>,
    ) {
        let mut stats = StoreStats::default();
        let clock = self.clock(host, now);
        reservations.each(|reservation| {
            if let Some(active) = self.reserving_rule(reservation)
                && let Some(reason) = reason(reservation, active)
            {
                let release = active.release(&reservation.key, &reservation.receipt, reason, clock);
                // A failed release is counted but otherwise ignored. Unreturned tokens expire with
                // the lease, and a lost notice no longer matters once the bucket has refilled the
                // taken tokens.
                let _lost = self
                    .table
                    .release(&mut HostStore(host), &release, &mut stats);
            }
        });
        self.store_metrics.add(host, &stats);
    }

    /// Returns the rule that made a reservation, unless the rule has been removed.
    fn reserving_rule(&self, reservation: &Reservation) -> Option<&ActiveRule> {
        self.rule_of_receipt(&reservation.receipt)
    }

    fn rule_of_receipt(&self, receipt: &Receipt) -> Option<&ActiveRule> {
        self.rule_of(receipt.id().rule_tag)
    }

    pub(super) fn rule_of(&self, tag: u32) -> Option<&ActiveRule> {
        let found = self.rules.iter().find(|rule| rule.tag() == tag);
        found.map(|rule| &**rule)
    }

    /// Returns true if upstream responses are counted.
    pub(super) const fn watches(&self) -> bool {
        self.watch.is_on()
    }

    /// Counts the response to the current request, unless it was generated by another filter.
    pub(super) fn see_response(&self, host: &dyn Host, share: &str, now: Nanos) {
        let mut stats = StoreStats::default();
        for event in self.watch.see(host, &self.table, now, &mut stats) {
            events::add(host, share, &event);
        }
        self.store_metrics.add(host, &stats);
    }
}

/// Maximum number of times a decision is repeated because the rules have changed.
const MAX_OUTDATED: usize = 4;

impl Active {
    /// Decides the current request. A request that would have to wait is refused if there is no
    /// room to hold it.
    pub(super) fn decide(
        &mut self,
        host: &dyn Host,
        file: &RuleFile,
        incoming: &IncomingRequest,
    ) -> Decided {
        let now = incoming.now;
        let since = now.since(incoming.waited);
        let mut again = MAX_OUTDATED;
        // A plain outcome just takes tokens and passes the request immediately. Most outcomes are
        // plain and skip the steps below.
        let mut is_plain;
        let (outcome, bytes, clock) = loop {
            let clock = self.clock(host, now);
            let (outcome, bytes) = self.evaluate(host, clock, incoming);
            is_plain = incoming.fleet.is_none()
                && self.report_detail == ReportDetail::Nothing
                && outcome.is_plain();
            if is_plain || again == 0 || !outcome.rules.iter().any(is_outdated) {
                break (outcome, bytes, clock);
            }
            self.take_back(host, &outcome, clock);
            let refreshed = self.refresh(host, file, now);
            again = refreshed.map_or(0, |()| again.saturating_sub(1));
        };
        if !is_plain && let Some(wanted) = wanted(&outcome) {
            return Decided {
                verdict: Verdict::Wait(wanted),
                refills: Vec::new(),
                is_local: false,
                reservations: Vec::new(),
                since,
                patience: Nanos::MAX,
                bytes,
            };
        }
        self.counts.add(host, &outcome, now);
        self.counts.flush(host, now);
        if is_plain {
            return Decided::passes(now);
        }
        let verdict = if let Some(refused) = outcome.refusal() {
            self.store_metrics.not_held(host, refused.not_held);
            explain::log(host, [refused], now);
            Verdict::Refuse(Refusal::new(refused, clock).reply(host))
        } else {
            let due = outcome.due().unwrap_or(now);
            let mut headers = of_admitted(&outcome, clock.wall);
            if self.report_detail == ReportDetail::Decision {
                headers.extend(explain::explain(host, &outcome, now, due));
            }
            Verdict::Pass(due, headers)
        };
        Decided {
            verdict,
            refills: incoming.fleet.map_or_else(Vec::new, |_| refills(&outcome)),
            is_local: incoming.fleet.is_some() && is_local(&outcome),
            since,
            patience: patience(&outcome),
            reservations: reservations(outcome),
            bytes,
        }
    }

    /// Evaluates the rules. Returns the outcome, and the amount of memory, in bytes, that the
    /// request will occupy if it is held.
    fn evaluate(
        &self,
        host: &dyn Host,
        clock: Clock,
        incoming: &IncomingRequest,
    ) -> (Outcome, u64) {
        let mut stats = StoreStats::default();
        let request = HostRequest::new(host).held_in(incoming.room, incoming.has_body);
        let mut request = request.leased(incoming.fleet).after(incoming.waited);
        let outcome = evaluate(
            &self.rules,
            &self.table,
            &mut HostStore(host),
            &mut request,
            clock,
            &mut stats,
        );
        self.store_metrics.add(host, &stats);
        (outcome, request.held_bytes())
    }

    /// Returns a discarded outcome's tokens to their buckets.
    fn take_back(&self, host: &dyn Host, outcome: &Outcome, clock: Clock) {
        let mut stats = StoreStats::default();
        for one in &outcome.rules {
            if let (Some(key), Some(receipt)) = (&one.key, &one.receipt) {
                let release = one
                    .active
                    .release(key, receipt, ReleaseReason::Refused, clock);
                // A failed release is counted but otherwise ignored.
                let _lost = self
                    .table
                    .release(&mut HostStore(host), &release, &mut stats);
            }
        }
        self.store_metrics.add(host, &stats);
    }
}

/// Returns the maximum time a request may be held.
fn patience(outcome: &Outcome) -> Nanos {
    let all = outcome.rules.iter().map(|one| one.patience);
    all.min().unwrap_or(Nanos::MAX)
}

/// Returns true if a rule could not be evaluated because a newer version of the rule is in force.
const fn is_outdated(outcome: &RuleOutcome) -> bool {
    matches!(outcome.answer, Answer::GaveUp(GaveUp::Outdated))
}

// Incoming requests and decisions.

/// A request to be decided.
pub(super) struct IncomingRequest {
    pub(super) now: Nanos,
    /// Remaining room for held requests.
    pub(super) room: Room,
    /// True if a body or trailers follow the headers.
    pub(super) has_body: bool,
    /// Time the request has already been held.
    pub(super) waited: Nanos,
    /// Fleet state, if a fleet is configured.
    pub(super) fleet: Option<FleetView>,
}

/// The verdict on a request.
pub(super) enum Verdict {
    /// The request may pass at this time, with these headers added to its response.
    Pass(Nanos, Headers),
    /// The request is refused with this response.
    Refuse(Reply),
    /// The request must wait for a lease.
    Wait(Wanted),
}

/// A decision on a request.
pub(super) struct Decided {
    pub(super) verdict: Verdict,
    /// Keys whose leases are running low.
    pub(super) refills: Vec<(BucketId, String)>,
    /// True if a fleet-wide limit was enforced locally, without the engine.
    pub(super) is_local: bool,
    pub(super) reservations: Vec<Reservation>,
    /// Arrival time of the request.
    pub(super) since: Nanos,
    /// Maximum time the request may be held.
    pub(super) patience: Nanos,
    /// Memory, in bytes, that the request occupies if it is held.
    pub(super) bytes: u64,
}

impl Decided {
    /// Creates the decision for a request that passes immediately.
    pub(super) const fn passes(now: Nanos) -> Self {
        Self {
            verdict: Verdict::Pass(now, Vec::new()),
            refills: Vec::new(),
            is_local: false,
            reservations: Vec::new(),
            since: now,
            patience: Nanos::MAX,
            bytes: 0,
        }
    }
}

/// Returns the key whose lease a request must wait for.
fn wanted(outcome: &Outcome) -> Option<Wanted> {
    let last = outcome.rules.last().filter(|_| outcome.is_pending)?;
    let LeaseVerdict::Wait { until } = last.leased?.verdict else {
        return None;
    };
    Some(Wanted {
        id: last.id?,
        key: last.key.clone()?,
        cost: last.price?.cost,
        until,
    })
}

/// Returns the keys in an outcome whose leases are running low.
pub(super) fn refills(outcome: &Outcome) -> Vec<(BucketId, String)> {
    let low = outcome
        .rules
        .iter()
        .filter(|one| one.leased.is_some_and(|leased| leased.is_due));
    low.filter_map(|one| Some((one.id?, one.key.clone()?)))
        .collect()
}

/// Returns true if a fleet-wide limit was enforced locally, without the engine.
pub(super) fn is_local(outcome: &Outcome) -> bool {
    let mut leased = outcome.rules.iter().filter_map(|one| one.leased);
    leased.any(Leased::is_local)
}

// Decision counters: Envoy metrics for each rule, and the tally of frequent keys.

/// A worker's decision counters.
#[derive(Debug)]
pub(super) struct Counts {
    /// Each rule's metrics, in rule order.
    of_rules: Vec<RuleMetrics>,
    /// Each rule's settlement metrics. `None` for a rule without `settle`.
    of_settled: Vec<Option<SettlementMetrics>>,
    /// All metrics defined so far. Metrics of trials that have ended are kept here, so that a later trial of the same
    /// rule can reuse them.
    registry: Registry,
    tally: Tally,
}

impl Counts {
    /// Creates counters for an empty rule set.
    pub(super) fn new(tally: Tally) -> Self {
        Self {
            of_rules: Vec::new(),
            of_settled: Vec::new(),
            registry: Registry::default(),
            tally,
        }
    }

    /// Defines the metrics of all rules in a set.
    fn define(&mut self, host: &dyn Host, share: &str, rules: &RuleSet) {
        let registry = &mut self.registry;
        let names = rules.iter().map(|active| active.rule().name.as_str());
        let metrics = names.map(|name| RuleMetrics::define(host, registry, share, name));
        self.of_rules = metrics.collect();
        let settled = rules.iter().map(|active| {
            let rule = active.rule();
            rule.cost.settlement()?;
            Some(SettlementMetrics::define(host, registry, share, &rule.name))
        });
        self.of_settled = settled.collect();
    }

    /// Counts the settled cost of a request.
    fn settled(&self, host: &dyn Host, rule: usize, reserved: u64, settled: Settled) {
        if let Some(Some(metrics)) = self.of_settled.get(rule) {
            metrics.count(host, reserved, settled);
        }
    }

    /// Counts a request's outcome for each rule.
    pub(super) fn add(&mut self, host: &dyn Host, outcome: &Outcome, now: Nanos) {
        for one in &outcome.rules {
            let Some(metrics) = self.of_rules.get(one.rule) else {
                continue;
            };
            if matches!(one.answer, Answer::GaveUp(_)) {
                metrics.count(host, Counted::Error);
            }
            if one.price.is_some_and(|price| price.is_invalid) {
                metrics.count(host, Counted::InvalidCost);
            }
            if one.odd_numbers {
                metrics.count(host, Counted::InvalidNumber);
            }
            let refused = one.refuses();
            let Some(counted) = counted(one, refused) else {
                continue;
            };
            metrics.count(host, counted);
            if let (Some(key), Some(id)) = (&one.key, one.id) {
                let by = if refused { By::Refused } else { By::Admitted };
                self.tally.count(by, id.rule_tag, id.fingerprint, key, now);
            }
        }
    }

    /// Returns the time at which the next flush is due.
    pub(super) const fn due(&self) -> Option<Nanos> {
        self.tally.due()
    }

    /// Adds this worker's tally of frequent keys to the shared tally, if a flush is due.
    pub(super) fn flush(&mut self, host: &dyn Host, now: Nanos) {
        self.tally.flush(&mut HostStore(host), now);
    }
}

/// Returns the counter to increment for the outcome of a rule. Returns `None` if the rule would
/// have admitted the request but another rule refused it.
fn counted(outcome: &RuleOutcome, refused: bool) -> Option<Counted> {
    Some(
        match (&outcome.answer, refused, outcome.active.rule().mode) {
            (Answer::Skipped, _, _) => Counted::Skipped,
            _ if outcome.overruled => return None,
            (Answer::Decided(decision), false, Mode::Enforce)
                if decision.verdict() == loudou_limiter::Verdict::Hold =>
            {
                Counted::Held
            }
            (_, false, _) => Counted::Admitted,
            (_, true, Mode::Enforce) => Counted::Refused,
            (_, true, Mode::Shadow | Mode::Off) => Counted::ShadowRefused,
        },
    )
}
