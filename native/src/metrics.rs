//! Metrics of this process, which Envoy also reports in its statistics.
//!
//! Envoy lets a module define metrics only while it creates a configuration, and never lets it read
//! them. The module therefore stores the value of every metric itself, under a number that
//! identifies the metric. Each new configuration also defines in Envoy all metrics that its rules
//! will use. If a configuration later uses a metric for a rule that only another configuration
//! contains, Envoy's statistics lack this metric.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{LazyLock, Mutex, OnceLock, PoisonError};

use loudou_filter::host::{MetricId, MetricKind};

use crate::abi::EnvoyConfig;

/// Number of metrics per block.
const BLOCK: usize = 512;
/// Maximum number of blocks. A rule file of maximum size has about 5 000 metrics.
const BLOCKS: usize = 512;

type Block = [Value; BLOCK];

/// The value of a metric.
struct Value {
    own: AtomicI64,
    /// Replaces `own` for a gauge that is stored together with values that can outlive the process.
    kept: OnceLock<&'static AtomicI64>,
}

impl Value {
    const fn new() -> Self {
        Self {
            own: AtomicI64::new(0),
            kept: OnceLock::new(),
        }
    }
}

/// The metrics of this process.
struct Registry {
    numbers: Mutex<HashMap<String, u32>>,
    values: [OnceLock<Box<Block>>; BLOCKS],
}

static PROCESS: LazyLock<Registry> = LazyLock::new(|| Registry {
    numbers: Mutex::default(),
    values: [const { OnceLock::new() }; BLOCKS],
});

/// Returns the number of the metric with this name, and assigns one if necessary. Returns `None` if
/// there are too many metrics.
pub(crate) fn define(name: &str) -> Option<MetricId> {
    let numbers = PROCESS.numbers.lock();
    let mut numbers = numbers.unwrap_or_else(PoisonError::into_inner);
    if let Some(number) = numbers.get(name) {
        return Some(MetricId(*number));
    }
    let number = u32::try_from(numbers.len()).ok()?;
    block_of(number)?;
    numbers.insert(name.to_owned(), number);
    Some(MetricId(number))
}

fn block_of(number: u32) -> Option<&'static Block> {
    let number = usize::try_from(number).ok()?;
    let block = PROCESS.values.get(number.div_euclid(BLOCK))?;
    Some(block.get_or_init(|| Box::new([const { Value::new() }; BLOCK])))
}

fn value_of(id: MetricId) -> Option<&'static AtomicI64> {
    let place = usize::try_from(id.0).ok()?.checked_rem(BLOCK)?;
    let value = block_of(id.0)?.get(place)?;
    Some(value.kept.get().copied().unwrap_or(&value.own))
}

/// Links a gauge to a value that is stored together with values that can outlive the process.
pub(crate) fn keep(name: &str, gauge: &'static AtomicI64) {
    let value = define(name).and_then(|MetricId(number)| {
        let place = usize::try_from(number).ok()?.checked_rem(BLOCK)?;
        block_of(number)?.get(place)
    });
    if let Some(value) = value {
        let _first = value.kept.set(gauge);
    }
}

/// Returns the value of a counter or gauge.
pub(crate) fn read(id: MetricId) -> Option<u64> {
    let value = value_of(id)?.load(Ordering::Acquire);
    Some(u64::try_from(value).unwrap_or(0))
}

/// Adds `offset` to a counter or gauge.
pub(crate) fn add(id: MetricId, offset: i64) {
    if let Some(value) = value_of(id) {
        value.fetch_add(offset, Ordering::AcqRel);
    }
}

/// Sets a gauge.
pub(crate) fn set(id: MetricId, value: u64) {
    if let Some(own) = value_of(id) {
        own.store(i64::try_from(value).unwrap_or(i64::MAX), Ordering::Release);
    }
}

/// Envoy's metrics for one configuration, indexed by the metric's number in this process.
#[derive(Debug, Default)]
pub(crate) struct EnvoyMetrics(Vec<Option<(MetricKind, usize)>>);

impl EnvoyMetrics {
    /// Defines a metric in Envoy; allowed only while Envoy creates the configuration.
    pub(crate) fn define(
        &mut self,
        config: EnvoyConfig,
        id: MetricId,
        kind: MetricKind,
        name: &str,
    ) {
        let place = usize::try_from(id.0).unwrap_or(usize::MAX);
        if place >= self.0.len() {
            self.0.resize(place.saturating_add(1), None);
        }
        if let Some(known @ None) = self.0.get_mut(place) {
            *known = config.define(kind, name).map(|id| (kind, id));
            if kind == MetricKind::Gauge
                && let (Some((_, envoy)), Some(value @ 1..)) = (*known, read(id))
            {
                config.set_gauge(envoy, value);
            }
        }
    }

    fn find(&self, id: MetricId) -> Option<(MetricKind, usize)> {
        let place = usize::try_from(id.0).ok()?;
        self.0.get(place).copied().flatten()
    }

    /// Adds `offset` to a counter or gauge in Envoy.
    pub(crate) fn add(&self, config: EnvoyConfig, id: MetricId, offset: i64) {
        match self.find(id) {
            Some((MetricKind::Counter, id)) => {
                config.add_to_counter(id, u64::try_from(offset).unwrap_or(0));
            }
            Some((MetricKind::Gauge, id)) => config.add_to_gauge(id, offset),
            Some((MetricKind::Histogram, _)) | None => {}
        }
    }

    /// Sets a gauge in Envoy, or records a value in a histogram.
    pub(crate) fn record(&self, config: EnvoyConfig, id: MetricId, value: u64) {
        match self.find(id) {
            Some((MetricKind::Histogram, id)) => config.record(id, value),
            Some((MetricKind::Gauge, id)) => config.set_gauge(id, value),
            Some((MetricKind::Counter, _)) | None => {}
        }
    }
}
