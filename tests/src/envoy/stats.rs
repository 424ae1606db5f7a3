//! Reads Envoy's statistics: counters, gauges, the Prometheus page and memory.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::Envoy;
use crate::config::is_native;
use crate::http::{Http, Request};
use crate::operator::percent;

/// Envoy's memory in bytes, as reported by its allocator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// Memory in use, including shared data and the sandboxes' tables.
    pub allocated: u64,
    /// Memory that the allocator has taken from the system.
    pub heap_size: u64,
    /// Resident memory of the process, including the sandboxes' memory.
    pub resident: u64,
}

impl Envoy {
    /// Returns the body of an answer of Envoy's admin interface.
    pub fn ask(&self, path: &str) -> Result<String> {
        let answer = Http::new(self.envoy_admin_address()).send(&Request::get(path))?;
        ensure!(
            answer.status == 200,
            "{path}: {} {}",
            answer.status,
            answer.text()
        );
        Ok(answer.text())
    }

    /// Returns all counters and gauges whose names match a regular expression.
    pub fn stats(&self, filter: &str) -> Result<BTreeMap<String, u64>> {
        let text = self.ask(&format!("/stats?filter={}", percent(filter)))?;
        let lines = text.lines().filter_map(|line| line.split_once(": "));
        // Leave out histograms, whose values are not numbers.
        let numbers =
            lines.filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?)));
        Ok(numbers.collect())
    }

    /// Returns a counter or gauge by its full name. It is 0 until Envoy creates it.
    pub fn counter(&self, name: &str) -> Result<u64> {
        let pattern = format!("^{}$", name.replace('.', r"\."));
        Ok(self.stats(&pattern)?.get(name).copied().unwrap_or(0))
    }

    /// Returns the sum of the counters of a verdict, such as `refused`, over all rules.
    pub fn verdicts(&self, verdict: &str) -> Result<u64> {
        Ok(self
            .stats(&format!(r"\.rule\..*\.{verdict}$"))?
            .values()
            .sum())
    }

    /// Returns Envoy's statistics of sandboxes. If two results are equal, no sandbox was created,
    /// ended or died in between. For the native module, returns the number of panics.
    pub fn sandboxes(&self) -> Result<BTreeMap<String, u64>> {
        if is_native(&self.wasm) {
            return self.stats(r"\.loudou\.panics$");
        }
        let mut stats = self.stats(r"^wasm\.|\.wasm\.|vm_reload|vm_failed")?;
        stats.retain(|name, _| !name.contains("cache"));
        ensure!(!stats.is_empty(), "Envoy reports nothing about sandboxes");
        Ok(stats)
    }

    /// Returns the page that Prometheus reads.
    pub fn prometheus(&self) -> Result<String> {
        self.ask("/stats?format=prometheus")
    }

    /// Returns Envoy's current memory.
    pub fn memory(&self) -> Result<Memory> {
        let page: Value = serde_json::from_str(&self.ask("/memory")?)?;
        let field = |name: &str| {
            let text = page.get(name).and_then(Value::as_str);
            let number = text.and_then(|text| text.parse().ok());
            number.with_context(|| format!("/memory has no number {name}: {page}"))
        };
        let (allocated, heap_size) = (field("allocated")?, field("heap_size")?);
        Ok(Memory {
            allocated,
            heap_size,
            resident: resident(self.pid())?,
        })
    }

    /// Returns the resident bytes of each sandbox's linear memory, the largest first.
    pub fn linear_memories(&self) -> Result<Vec<u64>> {
        let path = format!("/proc/{}/smaps", self.pid());
        let smaps =
            std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
        Ok(linear_memories(&smaps))
    }
}

/// Like [`Envoy::linear_memories`], but takes the text of `/proc/PID/smaps`. Behind a linear
/// memory, V8 reserves gigabytes without access as guard pages.
fn linear_memories(smaps: &str) -> Vec<u64> {
    const GUARD: u64 = 4 << 30;
    let mut sizes = Vec::new();
    let (mut writable, mut resident) = (false, 0);
    for line in smaps.lines() {
        let mut words = line.split_whitespace();
        let (Some(first), Some(second)) = (words.next(), words.next()) else {
            continue;
        };
        if first == "Rss:" {
            resident = second.parse().unwrap_or(0) * 1024;
        } else if let Some(bytes) = mapped(first) {
            if writable && second == "---p" && bytes > GUARD {
                sizes.push(resident);
            }
            writable = second == "rw-p";
        }
    }
    sizes.sort_unstable_by(|a, b| b.cmp(a));
    sizes
}

/// Returns the size of a mapping, whose line starts with its first and last address.
fn mapped(addresses: &str) -> Option<u64> {
    let (from, to) = addresses.split_once('-')?;
    let address = |text| u64::from_str_radix(text, 16).ok();
    address(to)?.checked_sub(address(from)?)
}

/// Returns the resident set of a process.
fn resident(pid: u32) -> Result<u64> {
    let path = format!("/proc/{pid}/status");
    let status = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    kib.map(|kib| kib * 1024)
        .with_context(|| format!("{path} has no VmRSS"))
}
