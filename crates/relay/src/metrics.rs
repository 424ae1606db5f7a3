//! Metrics, returned by `GET /metrics` in the Prometheus text format. Labels never contain request keys.

use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::prometheus_text;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use crate::engine::Engine;

type Gauge = gauge::Gauge<u64, AtomicU64>;
type Labelled = Family<[(&'static str, &'static str); 1], Counter>;

/// Upper bounds of the histogram buckets, in seconds.
const BOUNDS: [f64; 10] = [
    0.000_25, 0.000_5, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 1.0,
];

macro_rules! metrics {
    ($($name:literal, $help:literal, $kind:ident { $($field:ident $(: $label:literal = $value:literal)?),* };)*) => {
        /// All of a relay's metrics.
        #[derive(Debug)]
        pub struct Metrics {
            $($(#[doc = $help] pub $field: metrics!(@type $kind),)*)*
            /// Duration of lease calls, in seconds.
            pub call_time: Histogram,
            registry: Registry,
        }

        impl Default for Metrics {
            fn default() -> Self {
                let mut registry = Registry::with_prefix("loudou_relay");
                $(let family = $kind::default();
                registry.register($name, $help, family.clone());
                $(let $field = metrics!(@member family $($label $value)?);)*)*
                let call_time = Histogram::new(BOUNDS);
                registry.register("call_seconds", "Duration of lease calls", call_time.clone());
                let version = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
                registry.register("build", "The relay's version", version);
                Self { $($($field,)*)* call_time, registry }
            }
        }
    };
    (@type Gauge) => { Gauge };
    (@type $kind:ident) => { Counter };
    (@member $family:ident) => { $family };
    (@member $family:ident $label:literal $value:literal) => { $family.get_or_create_owned(&[($label, $value)]) };
}

metrics! {
    "calls", "Lease calls by the status of their answer", Labelled {
        calls_ok: "status" = "200", calls_bad: "status" = "400", calls_unauthorized: "status" = "401",
        calls_large: "status" = "413", calls_slow: "status" = "408", calls_overload: "status" = "503"
    };
    "calls_running", "Lease calls in progress", Gauge { calls_running };
    "connections", "Open connections, without the reserve", Gauge { connections };
    "connections_max", "Maximum open connections: --max-connections, or fewer if the limit of open files is too low", Gauge { connections_max };
    "connections_refused", "Connections above --max-connections or --max-peer-connections: refused, or part of the reserve", Counter { connections_refused };
    "connections_silent", "Connections closed because no request arrived in time", Counter { connections_silent };
    "keys", "Keys by outcome", Labelled {
        keys_granted: "outcome" = "granted", keys_partly: "outcome" = "partly", keys_denied: "outcome" = "denied",
        keys_timeout: "outcome" = "timeout", keys_unreachable: "outcome" = "unreachable", keys_error: "outcome" = "refused"
    };
    "units_wanted", "Units that Envoys requested", Counter { units_wanted };
    "units_granted", "Units granted to Envoys", Counter { units_granted };
    "units_charged", "Units charged for the debts of Envoys", Counter { units_charged };
    "changes_written", "Edits, overrides and bans that the engine accepted", Counter { changes_written };
    "record_failed", "Calls answered without changes and number of Envoys, because the engine failed", Counter { record_failed };
    "engine_up", "1 if the relay has a connection to the engine", Gauge { engine_up };
    "engine_nodes", "Engine servers that hold keys: 1, or the primaries of a cluster", Gauge { engine_nodes };
    "engine_nodes_lost", "Engine servers that hold keys and have no connection", Gauge { engine_nodes_lost };
    "engine_evicts", "1 if the maxmemory-policy of the engine may evict leases", Gauge { engine_evicts };
    "engine_connects", "Connections opened to the engine", Counter { engine_connects };
    "scripts_sent", "Scripts sent in full because the engine had not cached them", Counter { scripts_sent };
}

impl Metrics {
    /// Updates the gauges that describe the engine.
    pub fn note_engine(&self, engine: &Engine) {
        let (nodes, lost) = engine.nodes();
        let number = |count| u64::try_from(count).unwrap_or(u64::MAX);
        self.engine_up.set(engine.is_reached().into());
        self.engine_nodes.set(number(nodes));
        self.engine_nodes_lost.set(number(lost));
    }

    /// Returns all metrics in the Prometheus text format.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let written = prometheus_text::encode(&mut text, &self.registry);
        debug_assert!(written.is_ok(), "writing to a `String` cannot fail");
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_is_announced_once() {
        let metrics = Metrics::default();
        metrics.call_time.observe(0.000_6);
        let text = metrics.text();
        let mut names: Vec<&str> = text
            .lines()
            .filter_map(|line| line.strip_prefix("# TYPE "))
            .collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all, "{text}");
        for line in [
            "loudou_relay_calls_total{status=\"200\"} 0",
            "loudou_relay_call_seconds_bucket{le=\"0.0005\"} 0",
            "loudou_relay_call_seconds_bucket{le=\"0.001\"} 1",
            "loudou_relay_call_seconds_sum 0.0006",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}: {text}");
        }
    }
}
