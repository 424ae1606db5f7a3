//! Status warnings about the Envoy process. Each warning gives a count and suggests a remedy.

use loudou_api::{FleetStatus, StoreStatus};
use loudou_rules::joined::joined;

use crate::behind;
use crate::host::Host;
use crate::record::Record;
use loudou_limiter::Nanos;

/// Percentage of slots occupied by busy buckets at which the status warns that the store is nearly
/// full.
const NEARLY_FULL: u64 = 90;
/// Minimum number of recent rollbacks that suggests two listeners with different rules. A draining
/// listener can cause two rollbacks, and an operator can cause two more by rolling back and then
/// forward again.
const MANY_ROLLBACKS: u32 = 4;

/// Returns the warnings about workers, crashed VMs, rule configurations and shared data.
pub(super) fn of_process(
    host: &dyn Host,
    share: &str,
    (record, store): (&Record, &StoreStatus),
    now: Nanos,
) -> Vec<String> {
    let behind = behind::count(host, share, now);
    let behind = (behind > 0).then(|| {
        format!(
            "{behind} worker(s) do not limit by these rules: another version of Loudou wrote them, or they could \
             not be read; Envoy's log has the reason. Edits do not apply there: load one version of the module \
             in all listeners of this namespace, and restart Envoy"
        )
    });
    let reloads = store.reloads;
    let reloads = (reloads > 0).then(|| {
        format!(
            "{reloads} Wasm VM(s) crashed and were loaded again: requests that were held there are lost; please \
             report the panic in Envoy's log"
        )
    });
    let all = [
        of_rollbacks(record, now),
        of_later(record),
        behind,
        reloads,
        of_size(store),
        host.store_problem(),
    ];
    all.into_iter().flatten().collect()
}

/// Returns a warning if workers are getting no response from the fleet's relay or engine.
pub(super) fn of_fleet(fleet: &FleetStatus) -> Option<String> {
    let down = fleet.workers_down;
    (down > 0).then(|| {
        format!(
            "{down} worker(s) get no answer from the fleet's relay or its engine: fleet rules are decided by \
             fleet.on_outage there; look at the relay's log and /healthz, and at its cluster in Envoy"
        )
    })
}

fn of_rollbacks(record: &Record, now: Nanos) -> Option<String> {
    let count = record.rollbacks(now);
    (count >= MANY_ROLLBACKS).then(|| {
        format!(
            "configurations alternated {count} times lately, so two seem to be in use at once: two listeners with \
             different rules need a store.namespace each"
        )
    })
}

/// Returns a warning if the rules were written by a later version of Loudou and this version cannot
/// read or edit them.
fn of_later(record: &Record) -> Option<String> {
    if record.later.has_moved() {
        let line = "a later version of Loudou keeps the rules: those here are as it found them, and edits are \
                    refused; load that version in the admin listener, too";
        return Some(line.to_owned());
    }
    let names: Vec<String> = record.later.names().map(ToOwned::to_owned).collect();
    (!names.is_empty()).then(|| {
        format!(
            "a later version of Loudou wrote {} rule(s), which this version cannot read: {}. They are missing \
             here, and workers of this version decide on them by their own configuration alone; load that \
             version in all listeners",
            names.len(),
            joined(&names, ", ")
        )
    })
}

/// Returns a warning if the store is nearly full of busy buckets. Idle buckets do not count,
/// because nothing is lost when they are evicted. The proportion of idle buckets is estimated from
/// a sample.
fn of_size(store: &StoreStatus) -> Option<String> {
    let idle = store.used.saturating_mul(store.sampled_idle);
    let idle = idle.checked_div(store.sampled).unwrap_or(0);
    let busy = store.used.saturating_sub(idle);
    let percent = busy.saturating_mul(100).checked_div(store.buckets)?;
    (percent >= NEARLY_FULL).then(|| {
        format!(
            "about {percent}% of the store is in use by buckets that are not idle: when it is full, new keys evict \
             them; raise store.buckets (now {}) and restart Envoy",
            store.buckets
        )
    })
}

#[cfg(test)]
mod tests {
    use loudou_rules::config;
    use serde_json::json;

    use super::*;
    use crate::record::Bases;

    /// The warning about alternating configurations disappears some time after they stop
    /// alternating.
    #[test]
    fn configurations_that_alternate_are_reported_until_they_stop() {
        let with = |capacity: u32| {
            let limits = json!([{ "algorithm": "funnel", "capacity": capacity, "rate": "1/s" }]);
            let rules = json!([{ "name": "r", "key": [], "limits": limits }]);
            let parsed = config::parse(&json!({ "version": 1, "rules": rules }));
            Bases::of(&parsed.file.expect("valid"))
        };
        let at = Nanos::from_secs;
        let mut record = Record::new(&with(100), Nanos::ZERO);
        for n in 1..=20 {
            record.roll_back(&with(n), at(n.into()));
        }
        let warning = |now| of_rollbacks(&record, at(now));
        assert!(warning(20).is_some_and(|text| text.contains("alternated 16 times")));
        assert!(warning(135).is_some_and(|text| text.contains("alternated 5 times")));
        assert_eq!(warning(146), None);
    }

    #[test]
    fn only_buckets_that_are_not_idle_fill_the_store() {
        let warns = |used, sampled_idle, sampled| {
            of_size(&StoreStatus {
                buckets: 1_000,
                used,
                sampled_idle,
                sampled,
                ..StoreStatus::default()
            })
        };
        assert_eq!(warns(1_000, 512, 512), None);
        assert_eq!(warns(1_000, 60, 512), None);
        assert_eq!(warns(899, 0, 512), None);
        let text = warns(1_000, 20, 500).expect("a warning");
        assert!(text.contains("96%") && text.contains("now 1000"), "{text}");
        assert!(warns(900, 0, 0).is_some());
        assert_eq!(of_size(&StoreStatus::default()), None);
    }
}
