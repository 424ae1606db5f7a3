//! Counters, as `GET /metrics` gives them in the text format of Prometheus. None has a key as a label.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::engine::Engine;

/// A number that rises, or one that is set.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds to it.
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    /// Sets it.
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// Its value.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The upper bounds of the histogram's buckets, in microseconds.
const BOUNDS_US: [u64; 10] = [
    250, 500, 1_000, 2_000, 5_000, 10_000, 25_000, 50_000, 100_000, 1_000_000,
];

/// How long something took.
#[derive(Debug, Default)]
pub struct Histogram {
    buckets: [Counter; BOUNDS_US.len()],
    count: Counter,
    sum_us: Counter,
}

impl Histogram {
    /// Notes a duration.
    pub fn note(&self, time: Duration) {
        let us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        for (bucket, bound) in self.buckets.iter().zip(BOUNDS_US) {
            if us <= bound {
                bucket.add(1);
            }
        }
        self.count.add(1);
        self.sum_us.add(us);
    }
}

/// Microseconds as seconds, exactly.
fn seconds(us: u64) -> String {
    let whole = us.checked_div(1_000_000).unwrap_or(0);
    let rest = us.checked_rem(1_000_000).unwrap_or(0);
    format!("{whole}.{rest:06}")
}

macro_rules! metrics {
    ($($field:ident: $name:literal, $kind:literal, $labels:literal, $help:literal;)*) => {
        /// All counters of a relay.
        #[derive(Debug, Default)]
        pub struct Metrics {
            $(#[doc = $help] pub $field: Counter,)*
            /// How long calls took that were read.
            pub call_time: Histogram,
        }

        impl Metrics {
            fn counters(&self) -> Vec<Row> {
                vec![$(Row {
                    name: $name, kind: $kind, labels: $labels, help: $help, value: self.$field.get(),
                },)*]
            }
        }
    };
}

/// One counter.
struct Row {
    name: &'static str,
    kind: &'static str,
    labels: &'static str,
    help: &'static str,
    value: u64,
}

metrics! {
    calls_ok: "calls_total", "counter", "status=\"200\"", "Calls by the status of their answer.";
    calls_bad: "calls_total", "counter", "status=\"400\"", "Calls by the status of their answer.";
    calls_unauthorized: "calls_total", "counter", "status=\"401\"", "Calls by the status of their answer.";
    calls_large: "calls_total", "counter", "status=\"413\"", "Calls by the status of their answer.";
    calls_slow: "calls_total", "counter", "status=\"408\"", "Calls by the status of their answer.";
    calls_overload: "calls_total", "counter", "status=\"503\"", "Calls by the status of their answer.";
    calls_running: "calls_running", "gauge", "", "Calls that run now.";
    connections: "connections", "gauge", "", "Open connections.";
    connections_max: "connections_max", "gauge", "", "Maximum open connections: --max-connections, or fewer where the system allows fewer files.";
    connections_refused: "connections_refused_total", "counter", "", "Connections beyond --max-connections or --max-peer-connections.";
    connections_silent: "connections_silent_total", "counter", "", "Connections ended because no request came.";
    keys_granted: "keys_total", "counter", "outcome=\"granted\"", "Keys by outcome.";
    keys_partly: "keys_total", "counter", "outcome=\"partly\"", "Keys by outcome.";
    keys_denied: "keys_total", "counter", "outcome=\"denied\"", "Keys by outcome.";
    keys_timeout: "keys_total", "counter", "outcome=\"timeout\"", "Keys by outcome.";
    keys_unreachable: "keys_total", "counter", "outcome=\"unreachable\"", "Keys by outcome.";
    keys_error: "keys_total", "counter", "outcome=\"refused\"", "Keys by outcome.";
    units_wanted: "units_wanted_total", "counter", "", "Units that Envoys wanted.";
    units_granted: "units_granted_total", "counter", "", "Units that they were granted.";
    units_charged: "units_charged_total", "counter", "", "Units of debts that were charged.";
    changes_written: "changes_written_total", "counter", "", "Edits, overrides and bans that were written.";
    record_failed: "record_failed_total", "counter", "", "Calls without an answer about changes and Envoys.";
    engine_up: "engine_up", "gauge", "", "Whether the engine is reached.";
    engine_nodes: "engine_nodes", "gauge", "", "Servers with keys: 1, or the primaries of a cluster.";
    engine_nodes_lost: "engine_nodes_lost", "gauge", "", "Servers with keys that are not reached.";
    engine_evicts: "engine_evicts", "gauge", "", "Whether the engine may evict leases, as far as it tells.";
    engine_connects: "engine_connects_total", "counter", "", "Connections made to the engine.";
    scripts_sent: "scripts_sent_total", "counter", "", "Scripts sent because the engine did not know them.";
}

impl Metrics {
    /// Notes the state of the engine.
    pub fn note_engine(&self, engine: &Engine) {
        let (nodes, lost) = engine.nodes();
        let number = |count| u64::try_from(count).unwrap_or(u64::MAX);
        self.engine_up.set(engine.is_reached().into());
        self.engine_nodes.set(number(nodes));
        self.engine_nodes_lost.set(number(lost));
    }

    /// The text that Prometheus reads.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let mut last = "";
        for row in self.counters() {
            let Row { name, labels, .. } = row;
            if name != last {
                let (help, kind) = (row.help, row.kind);
                line(&mut text, &format!("# HELP loudou_relay_{name} {help}"));
                line(&mut text, &format!("# TYPE loudou_relay_{name} {kind}"));
                last = name;
            }
            let labels = if labels.is_empty() {
                String::new()
            } else {
                format!("{{{labels}}}")
            };
            line(
                &mut text,
                &format!("loudou_relay_{name}{labels} {}", row.value),
            );
        }
        self.call_time.write(&mut text);
        let version = env!("CARGO_PKG_VERSION");
        line(
            &mut text,
            "# HELP loudou_relay_build_info The relay's version.",
        );
        line(&mut text, "# TYPE loudou_relay_build_info gauge");
        line(
            &mut text,
            &format!("loudou_relay_build_info{{version=\"{version}\"}} 1"),
        );
        text
    }
}

impl Histogram {
    fn write(&self, text: &mut String) {
        let name = "loudou_relay_call_seconds";
        line(text, &format!("# HELP {name} How long calls took."));
        line(text, &format!("# TYPE {name} histogram"));
        for (bucket, bound) in self.buckets.iter().zip(BOUNDS_US) {
            let bound = seconds(bound);
            line(
                text,
                &format!("{name}_bucket{{le=\"{bound}\"}} {}", bucket.get()),
            );
        }
        let count = self.count.get();
        line(text, &format!("{name}_bucket{{le=\"+Inf\"}} {count}"));
        line(text, &format!("{name}_sum {}", seconds(self.sum_us.get())));
        line(text, &format!("{name}_count {count}"));
    }
}

fn line(text: &mut String, line: &str) {
    text.push_str(line);
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_is_announced_once() {
        let metrics = Metrics::default();
        metrics.call_time.note(Duration::from_micros(600));
        let text = metrics.text();
        let mut names: Vec<&str> = text
            .lines()
            .filter_map(|line| line.strip_prefix("# TYPE "))
            .collect();
        let all = names.len();
        names.dedup();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all, "{text}");
        assert!(
            text.contains("call_seconds_bucket{le=\"0.000500\"} 0"),
            "{text}"
        );
        assert!(
            text.contains("call_seconds_bucket{le=\"0.001000\"} 1"),
            "{text}"
        );
        assert!(text.contains("call_seconds_sum 0.000600"), "{text}");
    }
}
