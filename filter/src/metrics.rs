//! Publishes Loudou's counts as Envoy metrics. Envoy's metrics are process-wide, so every worker
//! can read the totals of all workers.
//!
//! ```text
//! <share>.rule.<rule>.admitted | held | refused | shadow_refused | skipped | errors             counters
//! <share>.rule.<rule>.invalid_costs | invalid_numbers                                           counters
//! <share>.rule.<rule>.settled_reported | settled_estimated          counters of requests, with `settle`
//! <share>.rule.<rule>.settled_other_model                             counter of requests, with `settle`
//! <share>.rule.<rule>.settled_returned | settled_debt                counters of units, with `settle`
//! <share>.wait_ms                  histogram of how long requests were held before they passed
//! <share>.waiting                                           gauge, requests currently held
//! <share>.not_held_deadline | not_held_full                 counters, requests refused instead of held
//! <share>.store.evicted_lossless | evicted_lossy | cas_retries | cas_give_ups | lost_counts
//! <share>.store.lost_returns | lost_responses
//! <share>.store.used | buckets                                                   gauges
//! <share>.generation                                                             gauge
//! <share>.edits                                             gauge, edited rules
//! <share>.bans                                   gauge, active bans by operators
//! <share>.adopted                counter, incremented for each change by every worker that adopts it
//! <share>.behind             counter, reports from workers that cannot apply the shared rules
//! <share>.fleet.calls | failed | granted | held | local                         counters
//! <share>.fleet.down                             gauge, workers that receive no responses from the engine
//! <share>.fleet.call_us                                       histogram of call durations
//! <share>.reloads                                                            counter
//! <share>.admin.unauthorized | forbidden                                         counters
//! ```
//!
//! A metric name may contain a rule's name but never a key, because Envoy retains every metric
//! until it exits.

use loudou_api::{FleetStatus, RuleTotals, StoreStatus};
use loudou_limiter::Nanos;
use loudou_rules::patience::NotHeld;
use loudou_rules::rule::{Mode, RuleFile, Settled, SettledBy, TRIAL};
use loudou_store::page::Slot;
use loudou_store::{BanChange, StoreStats};

use crate::host::{Host, MetricId, MetricKind};

/// Ensures that each metric in a namespace is defined only once, because Envoy assigns a new ID on
/// every definition and never frees IDs. Both lists are sorted by name.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    known: Vec<(String, MetricId)>,
    rules: Vec<(String, RuleMetrics)>,
    store: Option<StoreMetrics>,
}

impl Registry {
    fn get(&mut self, host: &dyn Host, kind: MetricKind, name: String) -> Option<MetricId> {
        match find(&self.known, &name) {
            Ok(id) => Some(id),
            Err(place) => {
                let id = host.define_metric(kind, &name)?;
                self.known.insert(place, (name, id));
                Some(id)
            }
        }
    }
}

/// Defines all metrics that the data role may need with this configuration, for hosts that only
/// allow metric definitions while a plugin is being configured.
pub(crate) fn define_all(host: &dyn Host, file: &RuleFile) {
    let (registry, share) = (&mut Registry::default(), file.store.namespace.as_str());
    StoreMetrics::define(host, registry, share);
    AdminMetrics::define(host, registry, share);
    if file.fleet.is_some() {
        FleetMetrics::define(host, registry, share);
    }
    for rule in &file.rules {
        let trial = [&rule.name, TRIAL].concat();
        for name in [&rule.name, &trial] {
            RuleMetrics::define(host, registry, share, name);
        }
        if rule.cost.settlement().is_some() {
            SettlementMetrics::define(host, registry, share, &rule.name);
        }
    }
}

/// Defines all metrics that the admin role may need.
pub(crate) fn define_admin(host: &dyn Host, share: &str) {
    let registry = &mut Registry::default();
    StoreMetrics::define(host, registry, share);
    AdminMetrics::define(host, registry, share);
}

/// Looks up a name in a list sorted by name. Returns its value, or the index at which to insert it.
fn find<T: Copy>(list: &[(String, T)], name: &str) -> Result<T, usize> {
    let place = list.binary_search_by(|(other, _)| other.as_str().cmp(name))?;
    list.get(place).map(|(_, value)| *value).ok_or(place)
}

fn add(host: &dyn Host, id: Option<MetricId>, count: u64) {
    if count > 0
        && let Some(id) = id
    {
        host.add_to_metric(id, i64::try_from(count).unwrap_or(i64::MAX));
    }
}

/// Sets a gauge, or records a value in a histogram.
fn set(host: &dyn Host, id: Option<MetricId>, value: u64) {
    if let Some(id) = id {
        host.record(id, value);
    }
}

fn read(host: &dyn Host, id: Option<MetricId>) -> u64 {
    id.and_then(|id| host.read_metric(id)).unwrap_or(0)
}

/// Metrics of a rule.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RuleMetrics {
    admitted: Option<MetricId>,
    refused: Option<MetricId>,
    shadow_refused: Option<MetricId>,
    skipped: Option<MetricId>,
    errors: Option<MetricId>,
    held: Option<MetricId>,
    invalid_costs: Option<MetricId>,
    invalid_numbers: Option<MetricId>,
}

/// The rule counter that a request increments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counted {
    Admitted,
    Held,
    Refused,
    ShadowRefused,
    Skipped,
    Error,
    /// The request's cost was invalid, so the rule's default cost was charged.
    InvalidCost,
    /// A number that a limit reads from request metadata was missing, invalid or out of range.
    InvalidNumber,
}

impl RuleMetrics {
    /// Defines the metrics of a rule. All calls on a registry must use the same namespace.
    pub(crate) fn define(
        host: &dyn Host,
        registry: &mut Registry,
        share: &str,
        rule: &str,
    ) -> Self {
        match find(&registry.rules, rule) {
            Ok(known) => known,
            Err(place) => {
                let new = Self::new(host, registry, share, rule);
                registry.rules.insert(place, (rule.to_owned(), new));
                new
            }
        }
    }

    fn new(host: &dyn Host, registry: &mut Registry, share: &str, rule: &str) -> Self {
        let names = [
            "admitted",
            "refused",
            "shadow_refused",
            "skipped",
            "errors",
            "held",
            "invalid_costs",
            "invalid_numbers",
        ];
        let [
            admitted,
            refused,
            shadow_refused,
            skipped,
            errors,
            held,
            invalid_costs,
            invalid_numbers,
        ] = names.map(|what| {
            let name = format!("{share}.rule.{rule}.{what}");
            registry.get(host, MetricKind::Counter, name)
        });
        Self {
            admitted,
            refused,
            shadow_refused,
            skipped,
            errors,
            held,
            invalid_costs,
            invalid_numbers,
        }
    }

    pub(crate) fn count(&self, host: &dyn Host, what: Counted) {
        let id = match what {
            Counted::Admitted => self.admitted,
            Counted::Held => self.held,
            Counted::InvalidCost => self.invalid_costs,
            Counted::InvalidNumber => self.invalid_numbers,
            Counted::Refused => self.refused,
            Counted::ShadowRefused => self.shadow_refused,
            Counted::Skipped => self.skipped,
            Counted::Error => self.errors,
        };
        add(host, id, 1);
    }

    pub(crate) fn totals(
        &self,
        host: &dyn Host,
        name: &str,
        mode: Mode,
        edited: bool,
    ) -> RuleTotals {
        RuleTotals {
            name: name.to_owned(),
            mode: mode.name().to_owned(),
            admitted: read(host, self.admitted),
            refused: read(host, self.refused),
            shadow_refused: read(host, self.shadow_refused),
            skipped: read(host, self.skipped),
            errors: read(host, self.errors),
            held: read(host, self.held),
            edited,
            upstreams: None,
        }
    }
}

/// Metrics for the costs that a rule settles when requests end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SettlementMetrics {
    /// Number of requests whose cost was reported.
    reported: Option<MetricId>,
    /// Number of requests whose cost was estimated because it was not reported.
    estimated: Option<MetricId>,
    /// Number of requests that used a model for which no separate weights are configured.
    other_model: Option<MetricId>,
    /// Number of units that were reserved but not used.
    returned: Option<MetricId>,
    /// Number of units used in excess of the reserved units.
    debt: Option<MetricId>,
}

impl SettlementMetrics {
    /// Defines the settlement metrics of a rule.
    pub(crate) fn define(
        host: &dyn Host,
        registry: &mut Registry,
        share: &str,
        rule: &str,
    ) -> Self {
        let mut counter = |what: &str| {
            let name = format!("{share}.rule.{rule}.settled_{what}");
            registry.get(host, MetricKind::Counter, name)
        };
        Self {
            reported: counter("reported"),
            estimated: counter("estimated"),
            other_model: counter("other_model"),
            returned: counter("returned"),
            debt: counter("debt"),
        }
    }

    /// Counts the settlement of a request for which `reserved` units were reserved.
    pub(crate) fn count(&self, host: &dyn Host, reserved: u64, settled: Settled) {
        match settled.by {
            SettledBy::Report => add(host, self.reported, 1),
            SettledBy::Estimate => add(host, self.estimated, 1),
            SettledBy::Nothing => {}
        }
        add(host, self.other_model, settled.is_other_model.into());
        add(host, self.returned, reserved.saturating_sub(settled.actual));
        add(host, self.debt, settled.actual.saturating_sub(reserved));
    }
}

/// Metrics for the store, held requests and rule changes in a namespace.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoreMetrics {
    generation: Option<MetricId>,
    used: Option<MetricId>,
    evicted_lossless: Option<MetricId>,
    evicted_lossy: Option<MetricId>,
    cas_retries: Option<MetricId>,
    cas_give_ups: Option<MetricId>,
    lost_counts: Option<MetricId>,
    lost_returns: Option<MetricId>,
    lost_responses: Option<MetricId>,
    waiting: Option<MetricId>,
    wait_ms: Option<MetricId>,
    not_held_deadline: Option<MetricId>,
    not_held_full: Option<MetricId>,
    reloads: Option<MetricId>,
    buckets: Option<MetricId>,
    edits: Option<MetricId>,
    bans: Option<MetricId>,
    adopted: Option<MetricId>,
    behind: Option<MetricId>,
}

impl StoreMetrics {
    pub(crate) fn define(host: &dyn Host, registry: &mut Registry, share: &str) -> Self {
        if let Some(known) = registry.store {
            return known;
        }
        let new = Self::new(host, registry, share);
        // If Envoy failed to define a metric, the next call tries again.
        registry.store = new.generation.map(|_| new);
        new
    }

    fn new(host: &dyn Host, registry: &mut Registry, share: &str) -> Self {
        let mut metric = |kind, what: &str| registry.get(host, kind, format!("{share}.{what}"));
        Self {
            generation: metric(MetricKind::Gauge, "generation"),
            used: metric(MetricKind::Gauge, "store.used"),
            evicted_lossless: metric(MetricKind::Counter, "store.evicted_lossless"),
            evicted_lossy: metric(MetricKind::Counter, "store.evicted_lossy"),
            cas_retries: metric(MetricKind::Counter, "store.cas_retries"),
            cas_give_ups: metric(MetricKind::Counter, "store.cas_give_ups"),
            lost_counts: metric(MetricKind::Counter, "store.lost_counts"),
            lost_returns: metric(MetricKind::Counter, "store.lost_returns"),
            lost_responses: metric(MetricKind::Counter, "store.lost_responses"),
            waiting: metric(MetricKind::Gauge, "waiting"),
            wait_ms: metric(MetricKind::Histogram, "wait_ms"),
            not_held_deadline: metric(MetricKind::Counter, "not_held_deadline"),
            not_held_full: metric(MetricKind::Counter, "not_held_full"),
            reloads: metric(MetricKind::Counter, "reloads"),
            buckets: metric(MetricKind::Gauge, "store.buckets"),
            edits: metric(MetricKind::Gauge, "edits"),
            bans: metric(MetricKind::Gauge, "bans"),
            adopted: metric(MetricKind::Counter, "adopted"),
            behind: metric(MetricKind::Counter, "behind"),
        }
    }

    /// Returns the number of rule changes announced by workers so far. Callers detect changes by
    /// comparing it with an earlier number.
    pub(crate) fn changes(&self, host: &dyn Host) -> u64 {
        read(host, self.generation)
    }

    /// Announces a rule change to all workers. Must be called after writing the record.
    pub(crate) fn announce_change(&self, host: &dyn Host) {
        add(host, self.generation, 1);
    }

    pub(crate) fn add(&self, host: &dyn Host, stats: &StoreStats) {
        add(host, self.used, stats.created);
        add(host, self.evicted_lossless, stats.evicted_lossless);
        add(host, self.evicted_lossy, stats.evicted_lossy);
        add(host, self.cas_retries, stats.cas_retries);
        add(host, self.cas_give_ups, stats.cas_give_ups);
        add(host, self.lost_counts, stats.lost_counts);
        add(host, self.lost_returns, stats.lost_returns);
        add(host, self.lost_responses, stats.lost_responses);
    }

    /// Counts a request that is now being held until its due time or until there is a lease for its
    /// key.
    pub(crate) fn waits(&self, host: &dyn Host) {
        add(host, self.waiting, 1);
    }

    /// Records how long a request that now passes was held.
    pub(crate) fn held_for(&self, host: &dyn Host, time: Nanos) {
        set(host, self.wait_ms, time.millis_ceil());
    }

    /// Subtracts `count` requests that are no longer held from the `waiting` gauge.
    pub(crate) fn waited(&self, host: &dyn Host, count: usize) {
        if let (Some(id), Ok(count @ 1..)) = (self.waiting, i64::try_from(count)) {
            host.add_to_metric(id, count.saturating_neg());
        }
    }

    /// Increments the counter for the `reason` why a request was refused instead of held. No-op if
    /// `reason` is `None`.
    pub(crate) fn not_held(&self, host: &dyn Host, reason: Option<NotHeld>) {
        let counter = match reason {
            None => return,
            Some(NotHeld::Deadline) => self.not_held_deadline,
            Some(NotHeld::Full) => self.not_held_full,
        };
        add(host, counter, 1);
    }

    /// Returns two counts of requests that were refused instead of held: because of their deadline,
    /// and because too many requests were already held.
    pub(crate) fn not_held_so_far(&self, host: &dyn Host) -> (u64, u64) {
        (
            read(host, self.not_held_deadline),
            read(host, self.not_held_full),
        )
    }

    /// Returns the number of requests currently held by all workers.
    pub(crate) fn waiting(&self, host: &dyn Host) -> u64 {
        read(host, self.waiting)
    }

    /// Counts a VM reload after the previous VM crashed.
    pub(crate) fn reloaded(&self, host: &dyn Host) {
        add(host, self.reloads, 1);
    }

    /// Sets the `store.buckets` gauge to the store's capacity, in buckets.
    pub(crate) fn opened(&self, host: &dyn Host, buckets: u64) {
        set(host, self.buckets, buckets);
    }

    /// Sets the `edits` gauge to the number of edited rules.
    pub(crate) fn edited(&self, host: &dyn Host, rules: u64) {
        set(host, self.edits, rules);
    }

    /// Records that this worker has adopted the current rules.
    pub(crate) fn adopted(&self, host: &dyn Host) {
        add(host, self.adopted, 1);
    }

    /// Counts a report from this worker that it cannot apply the shared rules.
    pub(crate) fn is_behind(&self, host: &dyn Host) {
        add(host, self.behind, 1);
    }

    /// Updates the `bans` gauge after a change to a key's ban. `before` is the bucket before the
    /// change.
    pub(crate) fn banned(&self, host: &dyn Host, before: Option<&Slot>, to: BanChange, now: Nanos) {
        let was = before.is_some_and(|slot| slot.is_pinned(now));
        match (was, to) {
            (false, BanChange::Banned(_) | BanChange::Replaced(_)) => add(host, self.bans, 1),
            (true, BanChange::Free) => self.unbanned(host, 1),
            _ => {}
        }
    }

    /// Subtracts `count` bans that were lifted or have expired from the `bans` gauge.
    pub(crate) fn unbanned(&self, host: &dyn Host, count: i64) {
        if let Some(id) = self.bans {
            host.add_to_metric(id, count.saturating_neg());
        }
    }

    /// Subtracts a bucket from the `store.used` gauge.
    pub(crate) fn freed(&self, host: &dyn Host) {
        if let Some(used) = self.used {
            host.add_to_metric(used, -1);
        }
    }

    /// Returns the values of the store metrics. The caller must fill in the capacity and the idle
    /// bucket sample.
    pub(crate) fn status(&self, host: &dyn Host) -> StoreStatus {
        StoreStatus {
            used: read(host, self.used),
            evicted_lossless: read(host, self.evicted_lossless),
            evicted_lossy: read(host, self.evicted_lossy),
            cas_retries: read(host, self.cas_retries),
            cas_give_ups: read(host, self.cas_give_ups),
            lost_counts: read(host, self.lost_counts),
            lost_returns: read(host, self.lost_returns),
            lost_responses: read(host, self.lost_responses),
            reloads: read(host, self.reloads),
            ..StoreStatus::default()
        }
    }
}

// Admin API metrics.

/// Admin API metrics.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AdminMetrics {
    unauthorized: Option<MetricId>,
    forbidden: Option<MetricId>,
}

impl AdminMetrics {
    pub(crate) fn define(host: &dyn Host, registry: &mut Registry, share: &str) -> Self {
        let mut counter = |what: &str| {
            let name = format!("{share}.admin.{what}");
            registry.get(host, MetricKind::Counter, name)
        };
        Self {
            unauthorized: counter("unauthorized"),
            forbidden: counter("forbidden"),
        }
    }

    /// Counts an API call that was rejected with status 401 or 403.
    pub(crate) fn refused(&self, host: &dyn Host, status: u16) {
        let id = if status == 401 {
            self.unauthorized
        } else {
            self.forbidden
        };
        add(host, id, 1);
    }
}

// Metrics for leases and relay calls.

/// Fleet metrics in a namespace.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FleetMetrics {
    calls: Option<MetricId>,
    failed: Option<MetricId>,
    granted: Option<MetricId>,
    held: Option<MetricId>,
    local: Option<MetricId>,
    down: Option<MetricId>,
    call_us: Option<MetricId>,
}

impl FleetMetrics {
    pub(crate) fn define(host: &dyn Host, registry: &mut Registry, share: &str) -> Self {
        let mut metric =
            |kind, what: &str| registry.get(host, kind, format!("{share}.fleet.{what}"));
        Self {
            calls: metric(MetricKind::Counter, "calls"),
            failed: metric(MetricKind::Counter, "failed"),
            granted: metric(MetricKind::Counter, "granted"),
            held: metric(MetricKind::Counter, "held"),
            local: metric(MetricKind::Counter, "local"),
            down: metric(MetricKind::Gauge, "down"),
            call_us: metric(MetricKind::Histogram, "call_us"),
        }
    }

    /// Counts a relay call that was made or attempted.
    pub(crate) fn called(&self, host: &dyn Host) {
        add(host, self.calls, 1);
    }

    /// Records the duration of a relay call.
    pub(crate) fn took(&self, host: &dyn Host, time: Nanos) {
        if let Some(id) = self.call_us {
            host.record(id, time.get().div_euclid(1_000));
        }
    }

    /// Counts a failed relay call.
    pub(crate) fn failed(&self, host: &dyn Host) {
        add(host, self.failed, 1);
    }

    /// Counts tokens granted to this Envoy.
    pub(crate) fn granted(&self, host: &dyn Host, tokens: u64) {
        add(host, self.granted, tokens);
    }

    /// Counts a request that is held until there is a lease for its key.
    pub(crate) fn held(&self, host: &dyn Host) {
        add(host, self.held, 1);
    }

    /// Counts a request that was decided without consulting the engine.
    pub(crate) fn local(&self, host: &dyn Host) {
        add(host, self.local, 1);
    }

    /// Returns the values of the fleet metrics. The caller must fill in the shared state.
    pub(crate) fn status(&self, host: &dyn Host) -> FleetStatus {
        FleetStatus {
            workers_down: read(host, self.down),
            calls: read(host, self.calls),
            failed: read(host, self.failed),
            granted: read(host, self.granted),
            held: read(host, self.held),
            local: read(host, self.local),
            ..FleetStatus::default()
        }
    }

    /// Adds this worker to, or subtracts it from, the gauge of workers that receive no responses
    /// from the engine.
    pub(crate) fn opened(&self, host: &dyn Host, is_open: bool) {
        if let Some(id) = self.down {
            host.add_to_metric(id, if is_open { 1 } else { -1 });
        }
    }

    /// Returns the number of workers that receive no responses from the engine.
    pub(crate) fn workers_alone(&self, host: &dyn Host) -> u64 {
        read(host, self.down)
    }
}
