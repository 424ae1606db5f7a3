//! The data role: limits requests.
//!
//! A configuration becomes active at the first tick or request, not when it is configured: Envoy
//! configures a canary VM to see whether it accepts a configuration at all, and that one must leave
//! no trace in what the others share.

use loudou_api::EventKind;
use loudou_limiter::evaluate::{ActiveRule, Answer, Clock, Outcome, RuleOutcome, evaluate};
use loudou_limiter::rule::{Mode, OnError, RateLimitHeaders, RuleFile};
use loudou_limiter::store::table::{StoreStats, Table};
use loudou_limiter::{Nanos, Verdict};

use crate::current;
use crate::events;
use crate::host::{Host, HostStore, LogLevel, Reply};
use crate::metrics::{Counted, Registry, RuleMetrics, StoreMetrics};
use crate::probe::shared_data_is_sound;
use crate::record::{self, Record, RecordError, TakenUp};
use crate::request::HostRequest;
use crate::respond::{AdmittedHeaders, key_missing, over_limit, store_gave_up};
use crate::waiting::{TICK_MS, Ticket, Waiting};

/// When rules that could not be read are tried again.
const RETRY_AFTER: Nanos = Nanos::from_secs(1);

/// What becomes of a request.
#[derive(Debug, PartialEq, Eq)]
pub enum Fate {
    /// It passes; its response gets these headers.
    Pass(Vec<(&'static str, String)>),
    /// It waits until the timer resumes it, and is answered like one that passes.
    Hold(Ticket, Vec<(&'static str, String)>),
    /// It is answered here.
    Refuse(Reply),
}

/// One worker's data role.
#[derive(Debug)]
pub struct DataPlane {
    file: RuleFile,
    configured_at: Nanos,
    registry: Registry,
    active: Option<Active>,
    waiting: Waiting,
}

/// A configuration in force, compiled.
#[derive(Debug)]
struct Active {
    table: Table,
    rules: Vec<ActiveRule>,
    /// Whether any rule needs the wall clock, which costs a call of the host.
    reads_wall: bool,
    rule_metrics: Vec<RuleMetrics>,
    store_metrics: StoreMetrics,
    /// The change count at which the rules were read; another one means that they are old.
    changes_seen: u64,
    next_expiry: Nanos,
}

impl DataPlane {
    /// A data role that is not active yet.
    pub fn new(file: RuleFile, configured_at: Nanos) -> Self {
        Self {
            file,
            configured_at,
            registry: Registry::default(),
            active: None,
            waiting: Waiting::default(),
        }
    }

    /// Makes the configuration active, unless it is. Whether it is now.
    pub fn start(&mut self, host: &dyn Host) -> bool {
        if self.active.is_none() {
            match self.activate(host) {
                Ok(active) => self.active = Some(active),
                Err(error) => {
                    let line =
                        format!("the rules are not active yet: {error:?}; rules' on_error holds");
                    host.log(LogLevel::Error, &line);
                }
            }
        }
        self.active.is_some()
    }

    fn activate(&mut self, host: &dyn Host) -> Result<Active, RecordError> {
        let share = self.file.store.share.clone();
        if !shared_data_is_sound(host, &share)? {
            let line = "the host's shared data does not do put-if-absent: first requests of a key \
                        may be admitted too often";
            host.log(LogLevel::Error, line);
        }
        let buckets = self.file.store.buckets;
        let mut store = HostStore(host);
        let table = Table::open(&mut store, &share, buckets, host.random(), host.now())
            .map_err(|_gave_up| RecordError::Failed)?;
        if table.buckets() < u64::from(buckets) || table.buckets() >= u64::from(buckets) + 16 {
            let line = format!(
                "store.buckets: {buckets} takes effect when Envoy restarts; until then {} hold",
                table.buckets()
            );
            host.log(LogLevel::Warn, &line);
        }
        let store_metrics = StoreMetrics::define(host, &mut self.registry, &share);
        self.take_up(host, &store_metrics)?;
        let mut active = Active {
            table,
            rules: Vec::new(),
            reads_wall: false,
            rule_metrics: Vec::new(),
            store_metrics,
            changes_seen: 0,
            next_expiry: Nanos::MAX,
        };
        for rule in &self.file.rules {
            let metrics = RuleMetrics::define(host, &mut self.registry, &share, &rule.name);
            active.rule_metrics.push(metrics);
        }
        active.refresh(host, &self.file)?;
        Ok(active)
    }

    /// Writes this configuration into the record, if it is newer than the one there.
    fn take_up(&self, host: &dyn Host, metrics: &StoreMetrics) -> Result<(), RecordError> {
        let share = &self.file.store.share;
        let first = Record::new(&self.file, self.configured_at);
        if record::create(host, share, &first)? {
            metrics.announce_change(host);
            let added = first
                .rules
                .iter()
                .map(|rule| rule.base.name.clone())
                .collect();
            self.tell(
                host,
                &TakenUp {
                    added,
                    ..TakenUp::default()
                },
                first.generation,
            );
            return Ok(());
        }
        let take_up =
            |record: &mut Record| record.take_up(&self.file, self.configured_at, host.now());
        let (record, taken) = record::change(host, share, take_up)?;
        if let Some(taken) = taken {
            metrics.announce_change(host);
            self.tell(host, &taken, record.generation);
        }
        Ok(())
    }

    fn tell(&self, host: &dyn Host, taken: &TakenUp, generation: u64) {
        let share = &self.file.store.share;
        for rule in &taken.retired {
            let mut event =
                events::event(host, EventKind::EditRetired, events::BY_ITSELF, generation);
            event.rule = Some(rule.clone());
            let detail = "the configuration changed this rule; its edit is retired";
            detail.clone_into(&mut event.detail);
            events::add(host, share, event);
        }
        let mut event = events::event(host, EventKind::Configured, events::BY_ITSELF, generation);
        let part = |what: &str, names: &[String]| match names {
            [] => None,
            names => Some(format!("{what} {}", names.join(", "))),
        };
        let parts = [
            part("added", &taken.added),
            part("removed", &taken.removed),
            part("changed", &taken.changed),
        ];
        event.detail = parts.into_iter().flatten().collect::<Vec<_>>().join("; ");
        if event.detail.is_empty() {
            "the order of the rules changed".clone_into(&mut event.detail);
        }
        events::add(host, share, event);
    }

    /// What the timer does: becomes active, and resumes requests whose time has come. It runs on
    /// while there is more to do.
    pub fn tick(&mut self, host: &dyn Host) {
        if !self.start(host) {
            return;
        }
        let now = host.now();
        let mut resumed: usize = 0;
        while let Some(stream) = self.waiting.next_due(now) {
            host.resume(stream);
            resumed = resumed.saturating_add(1);
        }
        if let Some(active) = &self.active {
            active.store_metrics.waited(host, resumed);
        }
        if self.waiting.is_empty() {
            host.set_timer_ms(0);
        }
    }

    /// Whether a request still waits.
    pub fn waits(&self, ticket: Ticket) -> bool {
        self.waiting.holds(ticket)
    }

    /// A request is over, perhaps while it was waiting.
    pub fn leave(&mut self, host: &dyn Host, ticket: Ticket) {
        if self.waiting.leave(ticket)
            && let Some(active) = &self.active
        {
            active.store_metrics.waited(host, 1);
        }
    }

    /// Decides on the current request, which is that of `stream`.
    pub fn decide(&mut self, host: &dyn Host, stream: u32) -> Fate {
        if !self.start(host) {
            return self.without_store(host);
        }
        let Some(active) = &mut self.active else {
            return Fate::Pass(Vec::new());
        };
        let now = host.now();
        let is_old = active.changes_seen != active.store_metrics.changes(host);
        if (is_old || now >= active.next_expiry)
            && let Err(error) = active.refresh(host, &self.file)
        {
            host.log(
                LogLevel::Error,
                &format!("the rules could not be read again: {error:?}"),
            );
            // The rules stay as they are, and requests do not all try again at once.
            active.changes_seen = active.store_metrics.changes(host);
            active.next_expiry = now.saturating_add(RETRY_AFTER);
        }
        let (wait, fate) = active.decide(host, now, !self.waiting.is_full());
        match fate {
            Fate::Pass(headers) if wait > Nanos::ZERO => {
                active.store_metrics.waits(host, wait);
                if self.waiting.is_empty() {
                    host.set_timer_ms(TICK_MS);
                }
                let ticket = self.waiting.enter(stream, now.saturating_add(wait));
                Fate::Hold(ticket, headers)
            }
            fate => fate,
        }
    }

    /// The fate of a request while shared data cannot be used at all.
    fn without_store(&self, host: &dyn Host) -> Fate {
        let mut request = HostRequest::new(host);
        let refusing = self.file.rules.iter().find(|rule| {
            rule.mode == Mode::Enforce
                && rule.on_error == OnError::Refuse
                && rule.matches.holds(&mut request)
        });
        refusing.map_or_else(
            || Fate::Pass(Vec::new()),
            |rule| Fate::Refuse(store_gave_up(rule)),
        )
    }
}

impl Active {
    /// Reads the rules again.
    fn refresh(&mut self, host: &dyn Host, file: &RuleFile) -> Result<(), RecordError> {
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

    /// How long the request waits, and its fate after that.
    fn decide(&self, host: &dyn Host, now: Nanos, may_wait: bool) -> (Nanos, Fate) {
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
        if outcome.refused
            && let Some(last) = outcome.rules.last()
            && let Some(reply) = self.refusal(last)
        {
            return (Nanos::ZERO, Fate::Refuse(reply));
        }
        let wait = outcome.wait(&self.rules);
        (wait, Fate::Pass(self.admitted_headers(&outcome)))
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

    fn refusal(&self, last: &RuleOutcome) -> Option<Reply> {
        let rule = self.rules.get(last.rule)?.rule();
        Some(match &last.answer {
            Answer::Decided(decision) => over_limit(rule, decision),
            Answer::KeyMissing | Answer::Skipped => key_missing(rule),
            Answer::GaveUp(_) => store_gave_up(rule),
        })
    }

    fn admitted_headers(&self, outcome: &Outcome) -> Vec<(&'static str, String)> {
        let mut headers = AdmittedHeaders::default();
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
                && rule.respond.ratelimit_headers == RateLimitHeaders::Draft11
                && let Answer::Decided(decision) = answer
            {
                headers.add(rule, decision);
            }
        }
        headers.finish()
    }
}

#[cfg(test)]
mod tests;
