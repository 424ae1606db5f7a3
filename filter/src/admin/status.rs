//! `GET /v1/status` and `GET /v1/events`.

use std::rc::Rc;

use loudou_api::{
    EventSource, FleetChanges, FleetStatus, RuleTotals, Status, StoreStatus, UpstreamView,
};
use loudou_limiter::{Clock, Nanos};
use loudou_store::scan::Scan;
use loudou_store::upstreams::Upstream;
use loudou_store::{Table, UpstreamCondition};

use super::AdminPlane;
use super::answer::{Failure, ok_at, ok_json};
use super::call::Call;
use super::warnings::{of_fleet, of_process};
use crate::events::{self, Wanted};
use crate::fleet::Heartbeat;
use crate::fleet::travel::{self, Changes, LocalState, Sent};
use crate::formats;
use crate::host::{Host, HostStore, Reply};
use crate::instance::parse_place;
use crate::metrics::{FleetMetrics, RuleMetrics, StoreMetrics};
use crate::record::{RecordError, RuleRecord};

/// Approximate number of pages sampled to estimate the proportion of idle buckets.
const SAMPLED_PAGES: u32 = 32;

impl AdminPlane {
    pub(super) fn status(&mut self, host: &dyn Host, call: &Call) -> Result<Reply, Failure> {
        let share = self.share().to_owned();
        let formats = formats::warnings(host, &share);
        let record = match self.record(host, call) {
            // The warnings already cover the unreadable formats, so the status is built from an
            // empty record.
            Err(RecordError::Unreadable) if !formats.is_empty() => Rc::default(),
            record => record?,
        };
        let table = self.table(host)?;
        let metrics = StoreMetrics::define(host, &mut self.registry, &share);
        let mut store = StoreStatus {
            buckets: table.buckets(),
            ..metrics.status(host)
        };
        let Clock { now, wall } = call.clock;
        sample_idle(host, &table, now, &mut store);
        let seen = self.seen(host, record.rules.iter().map(|rule| &**rule));
        let rules: Vec<RuleTotals> = record
            .rules
            .iter()
            .map(|rule| self.totals(host, call, rule, &seen))
            .collect();
        let fleet = self.fleet(host, &share);
        let (not_held_deadline, not_held_full) = metrics.not_held_so_far(host);
        let mut warnings = formats;
        if rules.is_empty() && record.generation > 0 {
            warnings.push("there are no rules".to_owned());
        }
        warnings.extend(self.warnings(&rules, &store));
        warnings.extend(fleet.as_ref().and_then(of_fleet));
        let about = (&*record, &store);
        warnings.extend(of_process(host, &share, about, now));
        let status = Status {
            version: crate::VERSION.to_owned(),
            git: crate::GIT.to_owned(),
            instance: record.instance.id.clone(),
            started_unix_ms: record.instance.started_unix_ms,
            generation: record.generation,
            now_ns: now.get(),
            unix_ms: wall.as_millis(),
            uptime_ns: now.since(table.started()).get(),
            access: call.caller.access,
            waiting: metrics.waiting(host),
            not_held_deadline,
            not_held_full,
            fleet,
            warnings,
            store,
            rules,
        };
        Ok(ok_at(&record, &status))
    }

    /// Returns the status of the namespace's fleet, if a worker is configured with a fleet.
    fn fleet(&mut self, host: &dyn Host, share: &str) -> Option<FleetStatus> {
        let heartbeat = Heartbeat::find(host, share)?;
        let metrics = FleetMetrics::define(host, &mut self.registry, share);
        Some(FleetStatus {
            envoys: heartbeat.envoys,
            answered_ns: heartbeat.answered_at.get(),
            changes: fleet_changes(&travel::find(host, share)),
            ..metrics.status(host)
        })
    }

    pub(super) fn events(&mut self, host: &dyn Host, call: &Call) -> Result<Reply, Failure> {
        let forms = ["a whole number, or INSTANCE-NUMBER from an earlier answer"];
        let place = call.choice("after", &forms, parse_place)?;
        let (of, after) = place.unwrap_or_default();
        // Without a record, the ID of this process is unknown, but there may still be events.
        let here = self
            .record(host, call)
            .ok()
            .map(|record| record.instance.clone());
        let is_other =
            of.is_some() && here.is_some() && of != here.as_ref().map(|here| here.id.clone());
        // Adds events for bans that have expired, so that the response includes them.
        self.note_ban(host, None, call.clock.now);
        let wanted = Wanted {
            after,
            is_other,
            of: call.choice("of", &EventSource::NAMES, EventSource::parse)?,
        };
        let body = events::body(host, self.share(), wanted, here.as_ref(), call.clock);
        Ok(ok_json(body.map_err(RecordError::from)?))
    }

    pub(super) fn table(&self, host: &dyn Host) -> Result<Table, Failure> {
        let found = Table::find(&mut HostStore(host), self.share());
        let table = found.map_err(|_gave_up| RecordError::Failed)?;
        Ok(table.ok_or(RecordError::Missing)?)
    }

    /// Returns a rule's totals. The totals include the upstreams in `seen` whose responses are
    /// counted for the rule's `when`.
    pub(super) fn totals(
        &mut self,
        host: &dyn Host,
        call: &Call,
        rule: &RuleRecord,
        seen: &[Upstream],
    ) -> RuleTotals {
        let (name, share) = (&rule.base.name, self.settings.store.namespace.as_str());
        let metrics = RuleMetrics::define(host, &mut self.registry, share, name);
        let totals = metrics.totals(host, name, rule.effective().mode, rule.is_edited());
        let now = call.clock.now;
        let upstreams = rule.base.when.map(|when| {
            let tag = when.tag();
            let of_rule = seen.iter().filter(|upstream| upstream.when == tag);
            of_rule.map(|upstream| view(upstream, &when, now)).collect()
        });
        RuleTotals {
            upstreams,
            ..totals
        }
    }

    /// Reads the upstreams whose responses are counted, and sorts them by name. If no rule has a
    /// `when`, returns an empty list without reading shared data.
    pub(super) fn seen<'a>(
        &self,
        host: &dyn Host,
        mut rules: impl Iterator<Item = &'a RuleRecord>,
    ) -> Vec<Upstream> {
        if rules.all(|rule| rule.base.when.is_none()) {
            return Vec::new();
        }
        let table = self.table(host).ok();
        let seen = table.and_then(|table| table.upstreams(&mut HostStore(host)).ok());
        seen.unwrap_or_default()
    }

    fn warnings(&self, rules: &[RuleTotals], store: &StoreStatus) -> Vec<String> {
        let mut warnings = Vec::new();
        if self.settings.tokens.is_empty() {
            let line = "no tokens are configured: every process on this machine may edit";
            warnings.push(line.to_owned());
        }
        warnings.extend(store.evictions());
        let errors = rules.iter().map(|rule| rule.errors);
        let errors = errors.fold(0_u64, u64::saturating_add);
        if errors > 0 {
            warnings.push(format!(
                "{errors} decisions were given up, after conflicts or because bans or requests in flight left no \
                 room in the store; their rules' on_error applied"
            ));
        }
        if store.lost_responses > 0 {
            warnings.push(format!(
                "{} upstream responses were not counted for rules with `when`",
                store.lost_responses
            ));
        }
        if store.lost_counts > 0 {
            warnings.push(format!(
                "{} refusals are missing from bucket counts",
                store.lost_counts
            ));
        }
        warnings
    }
}

/// Returns the health of an upstream at `now`.
fn view(upstream: &Upstream, when: &UpstreamCondition, now: Nanos) -> UpstreamView {
    let mut health = upstream.health.clone();
    health.advance(when, now);
    let count = health.count();
    UpstreamView {
        cluster: String::from_utf8_lossy(&upstream.cluster).into_owned(),
        responses: count.responses.into(),
        errors: count.errors.into(),
        applies: health.fails(),
        since_ns: health.since().get(),
    }
}

/// Counts all buckets and idle buckets on a sample of the pages, because reading every page would
/// tie up the worker for too long.
fn sample_idle(host: &dyn Host, table: &Table, now: Nanos, store: &mut StoreStatus) {
    let (mut sampled, mut sampled_idle) = (0, 0);
    let mut scan = Scan::new(table);
    let now_ms = now.as_millis();
    let step = table.pages().div_ceil(SAMPLED_PAGES).max(1);
    let first = u32::try_from(now_ms % u64::from(step)).unwrap_or(0);
    for index in (first..table.pages()).step_by(usize::try_from(step).unwrap_or(1)) {
        if !scan.read_page(&mut HostStore(host), index) {
            continue;
        }
        for slot in scan.heads() {
            sampled += 1;
            sampled_idle += u64::from(slot.is_idle(now_ms));
        }
    }
    (store.sampled, store.sampled_idle) = (sampled, sampled_idle);
}

fn fleet_changes(changes: &Changes) -> FleetChanges {
    FleetChanges {
        generation: changes.head.generation,
        known: changes.head.count,
        unsent: changes.head.unsent,
        refused: changes.count(|change| change.sent == Sent::Refused),
        waiting: changes.count(|change| change.here == LocalState::Waiting),
    }
}
