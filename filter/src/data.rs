//! The data role: limits requests.
//!
//! A configuration becomes active at the first tick or request, not when it is configured: Envoy
//! configures a canary VM to see whether it accepts a configuration at all, and that one must leave
//! no trace in what the others share.

use loudou_api::EventKind;
use loudou_limiter::{Ban, Nanos};
use loudou_rules::request::Request as _;
use loudou_rules::rule::key::Key;
use loudou_rules::rule::{Mode, OnError, Override, Rule, RuleFile};
use loudou_store::Table;
use loudou_store::top::Tally;

use crate::events::{self, Over};
use crate::host::{Host, HostStore, LogLevel, Reply};
use crate::instance::Instance;
use crate::metrics::{Registry, RuleMetrics, StoreMetrics};
use crate::probe::shared_data_is_sound;
use crate::record::{self, Record, RecordError, TakenUp};
use crate::request::HostRequest;
use crate::respond::{Refusal, explain};
use crate::timer::Timer;
use crate::waiting::{MAX_RELEASED, Ticket, Waiting, Will};

mod active;
mod connections;

use active::{Active, Place};

/// A name and a value.
pub type Header = (&'static str, String);
/// Names and values.
pub type Headers = Vec<Header>;

/// What becomes of a request.
#[derive(Debug, PartialEq, Eq)]
pub enum Fate {
    /// It passes; its response gets these headers.
    Pass(Headers),
    /// It waits until the timer resumes it, and is answered like one that passes.
    Hold(Headers),
    /// It is answered here.
    Refuse(Reply),
}

/// What a request holds until it ends.
#[derive(Debug, Default)]
pub struct Stay {
    ticket: Option<Ticket>,
    places: Vec<Place>,
    /// Whether it went on to an upstream whose response counts.
    is_watched: bool,
}

/// Puts headers into the current response. What an upstream says in those of the draft stays, since
/// they are lists; the others hold one value, and it is ours.
pub fn put(host: &dyn Host, headers: Headers) {
    for (name, value) in headers {
        if name.starts_with("x-") {
            host.set_response_header(name, &value);
        } else {
            host.add_response_header(name, &value);
        }
    }
}

/// The period at which the data role tries to become active, from its configuration on.
pub const START_TICK_MS: u32 = 50;

/// One worker's data role.
#[derive(Debug)]
pub struct DataPlane {
    file: RuleFile,
    configured_at: Nanos,
    registry: Registry,
    active: Option<Active>,
    waiting: Waiting,
    timer: Timer,
}

impl DataPlane {
    /// A data role that is not active yet, whose timer runs every [`START_TICK_MS`].
    pub fn new(file: RuleFile, configured_at: Nanos) -> Self {
        Self {
            file,
            configured_at,
            registry: Registry::default(),
            active: None,
            waiting: Waiting::default(),
            timer: Timer::default(),
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
        let mut define =
            |rule: &Rule| RuleMetrics::define(host, &mut self.registry, &share, &rule.name);
        let rule_metrics = self.file.rules.iter().map(&mut define).collect();
        let tally = Tally::new(&share);
        let mut active = Active::new(table, tally, rule_metrics, store_metrics);
        active.refresh(host, &self.file)?;
        Ok(active)
    }

    /// Writes this configuration into the record, if it is newer than the one there.
    fn take_up(&self, host: &dyn Host, metrics: &StoreMetrics) -> Result<(), RecordError> {
        let share = &self.file.store.share;
        let first = Record::new(&self.file, self.configured_at).of(Instance::start(host));
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
        if self.is_reloaded(host) {
            return Ok(());
        }
        let take_up =
            |record: &mut Record| record.take_up(&self.file, self.configured_at, host.now());
        let (record, taken) = match record::change(host, share, take_up) {
            Err(RecordError::Unreadable) => {
                let line = "the rules in shared data are of another version of Loudou: this configuration \
                            holds as it is, without edits, until Envoy restarts";
                host.log(LogLevel::Warn, line);
                return Ok(());
            }
            changed => changed?,
        };
        if let Some(taken) = taken {
            metrics.announce_change(host);
            self.tell(host, &taken, record.generation);
        }
        Ok(())
    }

    /// Takes this configuration up again, which new connections are accepted for.
    fn roll_back(&mut self, host: &dyn Host, now: Nanos) {
        let Some(active) = &mut self.active else {
            return;
        };
        let share = &self.file.store.share;
        let roll_back = |record: &mut Record| record.roll_back(&self.file, now);
        let Ok((record, Some(taken))) = record::change(host, share, roll_back) else {
            return;
        };
        active.store_metrics.announce_change(host);
        active.keep_current(host, &self.file, now);
        active.is_back_for(host, share, now);
        self.tell(host, &taken, record.generation);
    }

    /// Whether the current request is older than this sandbox: it is loaded again, for this request,
    /// in place of one that died. Its configuration need not be the newest, for it may be that of a
    /// listener that drains; a new one is loaded before any request comes to it, and taken up by the
    /// timer of the main thread at the latest.
    fn is_reloaded(&self, host: &dyn Host) -> bool {
        let time = host.property("request\0time");
        let Some(time) = time.and_then(|time| time.try_into().ok()) else {
            return false;
        };
        let begun_ms = u64::from_le_bytes(time) / 1_000_000;
        let own_age = host.now().since(self.configured_at);
        // Both times are cut off to milliseconds.
        let age_ms = host.unix_ms().saturating_sub(begun_ms).saturating_add(1);
        Nanos::from_millis(age_ms) >= own_age
    }

    fn tell(&self, host: &dyn Host, taken: &TakenUp, generation: u64) {
        let share = &self.file.store.share;
        let over = Over {
            kind: EventKind::EditRetired,
            generation,
            edit: "the configuration changed this rule; its edit is retired",
            keys: "ended: the configuration changed this rule",
        };
        for ended in &taken.retired {
            events::add_ended(host, share, &over, ended);
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

    /// When the timer is next needed.
    fn next_tick(&self) -> Option<Nanos> {
        let active = self.active.as_ref().and_then(Active::due);
        [self.waiting.due(), active].into_iter().flatten().min()
    }

    /// What the timer does: becomes active, resumes requests whose time has come, and flushes what was
    /// counted. It runs on while there is more to do.
    pub fn tick(&mut self, host: &dyn Host) {
        if !self.start(host) {
            return;
        }
        let now = host.now();
        let mut resumed: usize = 0;
        while resumed < MAX_RELEASED
            && let Some(stream) = self.waiting.next_due(now)
        {
            host.resume(stream);
            resumed = resumed.saturating_add(1);
        }
        if let Some(active) = &mut self.active {
            active.store_metrics.waited(host, resumed);
            active.keep_current(host, &self.file, now);
            active.tick(host, &self.file.store.share, now);
        }
        self.timer.fired(host, self.next_tick(), now);
    }

    /// What to do with those who wait when the sandbox dies.
    pub fn will(&self) -> Will {
        self.waiting.will(&self.file.store.share)
    }

    /// Whether a request still waits.
    pub fn waits(&self, stay: &Stay) -> bool {
        stay.ticket.is_some_and(|ticket| self.waiting.holds(ticket))
    }

    /// A request is over, however it ended, perhaps while it was waiting: gives back what it held.
    pub fn end(&mut self, host: &dyn Host, stay: &Stay) {
        let Some(active) = &mut self.active else {
            return;
        };
        let left = stay.ticket.is_some_and(|ticket| self.waiting.leave(ticket));
        if left {
            active.store_metrics.waited(host, 1);
        }
        if !stay.places.is_empty() {
            active.give_back(host, &self.file, &stay.places, left);
        }
        if stay.is_watched {
            active.see_response(host, &self.file.store.share);
        }
    }

    /// Decides on the current request, which is that of `stream`. Whatever its fate, its stay has to
    /// be ended.
    pub fn decide(&mut self, host: &dyn Host, stream: u32) -> (Fate, Stay) {
        if !self.start(host) {
            return (self.without_store(host), Stay::default());
        }
        let Some(active) = &mut self.active else {
            return (Fate::Pass(Vec::new()), Stay::default());
        };
        let now = host.now();
        active.keep_current(host, &self.file, now);
        if active.is_back(host, &self.file.store.share, now) {
            self.roll_back(host, now);
        }
        let Some(active) = &mut self.active else {
            return (Fate::Pass(Vec::new()), Stay::default());
        };
        let decided = active.decide(host, &self.file, now, !self.waiting.is_full());
        let mut stay = Stay {
            ticket: None,
            places: decided.places,
            is_watched: decided.verdict.is_ok() && active.watches(),
        };
        let fate = match decided.verdict {
            Ok((due, headers)) if due > now => {
                active.store_metrics.waits(host, due.since(now));
                stay.ticket = Some(self.waiting.enter(stream, due));
                Fate::Hold(headers)
            }
            Ok((_, headers)) => Fate::Pass(headers),
            Err(reply) => Fate::Refuse(reply),
        };
        active.tally.flush(&mut HostStore(host), now);
        self.timer.fire_by(host, self.next_tick(), now);
        (fate, stay)
    }

    /// The fate of a request while shared data cannot be used at all: what rules say of a bucket that
    /// cannot be read.
    fn without_store(&self, host: &dyn Host) -> Fate {
        let mut request = HostRequest::new(host);
        for rule in &self.file.rules {
            let is_meant = rule.mode == Mode::Enforce
                && rule.matches.holds(&mut request)
                && (rule.when.is_none() || request.cluster().is_some());
            if !is_meant {
                continue;
            }
            let refusal = match rule.key_of(&mut request) {
                Key::Skip => continue,
                Key::Refuse => Some(Refusal::key_missing(rule)),
                Key::Bucket(key) if rule.overrides.get(&key) == Some(&Override::Banned) => {
                    Some(Refusal::banned(rule, Ban::ENDLESS, host.now()))
                }
                Key::Bucket(_) if rule.on_error == OnError::Refuse => {
                    Some(Refusal::store_gave_up(rule))
                }
                Key::Bucket(_) => None,
            };
            if let Some(refusal) = refusal {
                return Fate::Refuse(refusal.reply(host));
            }
            if rule.stop {
                break;
            }
        }
        let mut rules = self.file.rules.iter();
        if rules.any(|rule| rule.respond.explain_header) {
            // The header is ours, whatever the client sends.
            host.set_request_header(explain::DECISION, "none");
        }
        Fate::Pass(Vec::new())
    }
}

#[cfg(test)]
mod tests;
