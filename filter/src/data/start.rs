//! Activates a configuration: opens the bucket table, defines the metrics, and writes the
//! configured rules to the shared record.

use std::cell::Cell;
use std::rc::Rc;

use loudou_api::EventKind;
use loudou_limiter::{Clock, Nanos};
use loudou_rules::joined::joined;
use loudou_rules::rule::{RuleFile, tried};
use loudou_store::top::Tally;
use loudou_store::{CAS_ABSENT, StoreFailed, Table, Written};

use crate::data::active::Active;
use crate::data::active::Counts;
use crate::events::{self, Over};
use crate::fleet::{Fleet, Heartbeat};
use crate::host::{Host, HostStore, LogLevel};
use crate::instance::Instance;
use crate::metrics::{FleetMetrics, Registry, StoreMetrics};
use crate::record::{Adopted, Bases, Record, RecordError, Records};

/// Maximum number of removed rules for which an event is added.
const MAX_REMOVED: usize = 64;

/// A plugin's configuration, which may or may not be active yet.
#[derive(Debug)]
pub(super) struct Configuration {
    pub(super) file: RuleFile,
    pub(super) records: Records,
    pub(super) configured_at: Nanos,
    registry: Registry,
}

impl Configuration {
    pub(super) fn new(file: RuleFile, configured_at: Nanos) -> Self {
        Self {
            records: Records::new(&file.store.namespace, Bases::of(&file)),
            file,
            configured_at,
            registry: Registry::default(),
        }
    }

    /// Returns the namespace of the shared data.
    pub(super) fn share(&self) -> &str {
        &self.file.store.namespace
    }

    /// Creates this worker's fleet state, if a fleet is configured.
    pub(super) fn fleet(&mut self, host: &dyn Host, is_alone: &Rc<Cell<bool>>) -> Option<Fleet> {
        let settings = self.file.fleet.clone()?;
        let share = &self.file.store.namespace;
        let metrics = FleetMetrics::define(host, &mut self.registry, share);
        Some(Fleet::new(settings, share, metrics, Rc::clone(is_alone)))
    }

    /// Returns true if the configuration may be activated before Envoy has accepted it, which is
    /// the case if no rules are in force yet, or if the rules in force are the same and the fleet's
    /// changes are not known yet.
    pub(super) fn may_start(&self, host: &dyn Host, now: Nanos) -> bool {
        match self.records.read(host) {
            Err(RecordError::Missing) => true,
            Err(_) => false,
            Ok(record) => {
                let knows = Heartbeat::find(host, self.share());
                let knows = knows.is_some_and(|heartbeat| heartbeat.is_current(now));
                self.file.fleet.is_some() && !knows && record.is_of(self.records.bases())
            }
        }
    }

    /// Activates the configuration.
    pub(super) fn activate(&mut self, host: &dyn Host, now: Nanos) -> Result<Active, RecordError> {
        let share = self.file.store.namespace.clone();
        if !shared_data_is_sound(host, &share)? {
            let line = "the host's shared data has no put-if-absent: first requests of a key \
                        may be admitted too often";
            host.log(LogLevel::Error, line);
        }
        let buckets = self.file.store.buckets;
        let mut store = HostStore(host);
        let table = Table::open(&mut store, &share, buckets, host.random(), now)
            .map_err(|_gave_up| RecordError::Failed)?;
        if table.buckets() < u64::from(buckets) || table.buckets() >= u64::from(buckets) + 16 {
            let line = format!(
                "store.buckets: {buckets} takes effect when Envoy restarts; until then {} apply",
                table.buckets()
            );
            host.log(LogLevel::Warn, &line);
        }
        let store_metrics = StoreMetrics::define(host, &mut self.registry, &share);
        store_metrics.opened(host, table.buckets());
        self.adopt(host, &store_metrics, now)?;
        let counts = Counts::new(Tally::new(&share));
        let records = self.records.clone();
        let mut active = Active::new(table, records, counts, store_metrics, self.configured_at);
        active.refresh(host, &self.file, now)?;
        Ok(active)
    }

    /// Writes this configuration's rules to the shared record, unless the record already contains a
    /// newer configuration.
    fn adopt(
        &self,
        host: &dyn Host,
        metrics: &StoreMetrics,
        now: Nanos,
    ) -> Result<(), RecordError> {
        let first = Record::new(self.records.bases(), self.configured_at).of(Instance::start(host));
        if self.records.create(host, &first)? {
            metrics.announce_change(host);
            let names = first.rules.iter().map(|rule| rule.base.name.clone());
            let adopted = Adopted {
                added: names.collect(),
                ..Adopted::default()
            };
            self.announce(host, &adopted, first.generation, now);
            return Ok(());
        }
        if self.is_reloaded(host) {
            metrics.reloaded(host);
            return Ok(());
        }
        let adopt =
            |record: &mut Record| record.adopt(self.records.bases(), self.configured_at, now);
        let (record, adopted) = match self.records.change(host, adopt) {
            Err(RecordError::Unreadable) => {
                let line = "another version of Loudou wrote the rules in shared data: this configuration \
                            applies without edits until Envoy restarts";
                host.log(LogLevel::Warn, line);
                return Ok(());
            }
            changed => changed?,
        };
        if let Some(adopted) = adopted {
            metrics.announce_change(host);
            self.announce(host, &adopted, record.generation, now);
        }
        Ok(())
    }

    /// Returns true if the current request is older than this VM. If it is, the previous VM has
    /// crashed, and Envoy loaded this VM when the request arrived. Such a VM's configuration must
    /// not be adopted, because it may be outdated and its listener may be draining. A new
    /// configuration, in contrast, is loaded before its first request arrives. If no request causes
    /// a worker to adopt the new configuration, the main thread's timer does so.
    fn is_reloaded(&self, host: &dyn Host) -> bool {
        let time = host.property("request\0time");
        let Some(time) = time.and_then(|time| time.try_into().ok()) else {
            return false;
        };
        let begun = Nanos::new(u64::from_le_bytes(time));
        // The wall clock is read before the monotonic clock, so that a request that arrives right
        // after the VM was loaded does not appear to be older than the VM. A request that triggered
        // the loading is older than the VM by the loading time.
        let age = host.unix().since(begun);
        age > host.now().since(self.configured_at)
    }

    /// Writes this configuration's rules to the shared record again after a rollback.
    pub(super) fn roll_back(&self, host: &dyn Host, active: &mut Active, now: Nanos) {
        let roll_back = |record: &mut Record| record.roll_back(self.records.bases(), now);
        let Ok((record, Some(adopted))) = self.records.change(host, roll_back) else {
            return;
        };
        active.store_metrics.announce_change(host);
        active.keep_current(host, &self.file, now);
        active.is_back_for(host, self.share(), now);
        self.announce(host, &adopted, record.generation, now);
    }

    /// Adds the events for a newly adopted configuration.
    fn announce(&self, host: &dyn Host, adopted: &Adopted, generation: u64, now: Nanos) {
        let at = host.clock_at(now);
        let changed = Over {
            at,
            kind: EventKind::EditRetired,
            generation,
            edit: "the configuration changed this rule; its edit is retired",
            keys: "ended: the configuration changed this rule",
        };
        let removed = Over {
            edit: "the configuration removed this rule; its edit is retired",
            keys: "ended: the configuration removed this rule",
            ..changed
        };
        let unshared = Over {
            edit: "a fleet shares this rule, and cannot share the limits of its edit, which is retired",
            keys: "ended: a fleet shares this rule, and cannot share the limits of its edits",
            ..changed
        };
        for ended in &adopted.unshared {
            events::add_ended(host, self.share(), &unshared, ended);
        }
        for ended in &adopted.retired {
            let name = tried(&ended.rule).unwrap_or(&ended.rule);
            let is_here = self.file.rules.iter().any(|rule| rule.name == name);
            let over = if is_here { &changed } else { &removed };
            events::add_ended(host, self.share(), over, ended);
        }
        let mut event = events::event(at, EventKind::RuleRemoved, events::BY_ITSELF, generation);
        for rule in adopted.unreadable.iter().take(MAX_REMOVED) {
            event.rule = Some(rule.clone());
            "a later version of Loudou wrote this rule, which this version cannot read: its edits are dropped, \
             and its buckets start full"
                .clone_into(&mut event.detail);
            events::add(host, self.share(), &event);
        }
        for (rule, more) in adopted.removed.iter().zip(1_usize..=MAX_REMOVED) {
            event.rule = Some(rule.clone());
            "the configuration no longer has this rule".clone_into(&mut event.detail);
            let others = adopted.removed.len().saturating_sub(more);
            if more == MAX_REMOVED && others > 0 {
                event.detail = format!("{}, nor {others} others", event.detail);
            }
            events::add(host, self.share(), &event);
        }
        events::add(host, self.share(), &configured(adopted, generation, at));
    }
}

fn configured(adopted: &Adopted, generation: u64, at: Clock) -> loudou_api::Event {
    let mut event = events::event(at, EventKind::Configured, events::BY_ITSELF, generation);
    let part = |what: &str, names: &[String]| match names {
        [] => None,
        names => Some(format!("{what} {}", joined(names, ", "))),
    };
    let parts = [
        part("added", &adopted.added),
        part("removed", &adopted.removed),
        part("changed", &adopted.changed),
    ];
    event.detail = joined(&parts.into_iter().flatten().collect::<Vec<_>>(), "; ");
    if event.detail.is_empty() {
        "the order of the rules changed".clone_into(&mut event.detail);
    }
    event
}

/// Returns true if the host refuses to create a key that already exists, and rejects writes with a
/// stale compare-and-swap version. Limits are exact only if it does both. Envoy does both, but this
/// behaviour is documented only in its source code. The check therefore runs whenever a
/// configuration is activated, and unit tests run it on the fake host.
pub(crate) fn shared_data_is_sound(host: &dyn Host, share: &str) -> Result<bool, StoreFailed> {
    let key = [share.as_bytes(), b":probe"].concat();
    let mut value = Vec::new();
    host.shared_set(&key, b"probe", CAS_ABSENT)?;
    let Some(cas) = host.shared_get(&key, &mut value)? else {
        return Ok(false);
    };
    let created_again = host.shared_set(&key, b"again", CAS_ABSENT)? == Written::Done;
    // Another worker may write between these calls, so this write may fail. The stale write below
    // must always fail.
    host.shared_set(&key, b"probe", cas)?;
    let stale = host.shared_set(&key, b"stale", cas)? == Written::Done;
    host.shared_get(&key, &mut value)?;
    Ok(!created_again && !stale && value == b"probe")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::fake::FakeHost;

    #[test]
    fn the_fake_has_the_semantics_of_envoy() {
        assert_eq!(
            shared_data_is_sound(&FakeHost::default(), "loudou"),
            Ok(true)
        );
    }
}
