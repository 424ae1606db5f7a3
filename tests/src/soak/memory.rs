//! Checks that Envoy's memory stays flat.

use crate::envoy::Memory;

const MIB: u64 = 1 << 20;
/// Maximum growth between the first sixth after the warm-up and the last sixth of the time. The
/// number of draining listeners becomes stable in the first third and then varies. Each listener
/// keeps its filter chain and dead sandboxes.
const ALLOWED: u64 = 48 * MIB;

/// Samples of Envoy's memory at equal intervals.
#[derive(Debug, Clone, Default)]
pub struct Samples(Vec<Memory>);

impl Samples {
    /// Adds a sample.
    pub fn add(&mut self, memory: Memory) {
        self.0.push(memory);
    }

    /// Returns the median resident set in a sixth of the time (0 to 5), in bytes.
    fn median(&self, sixth: usize) -> u64 {
        let length = self.0.len();
        let (from, until) = (length * sixth / 6, length * (sixth + 1) / 6);
        let part = self.0.get(from..until).unwrap_or_default();
        let mut sizes: Vec<u64> = part.iter().map(|memory| memory.resident).collect();
        sizes.sort_unstable();
        sizes.get(sizes.len() / 2).copied().unwrap_or(0)
    }

    /// Describes how the memory changed over time.
    pub fn summary(&self) -> String {
        let sixths: Vec<String> = (0..6).map(|n| (self.median(n) / MIB).to_string()).collect();
        format!(
            "{} MiB (medians of six parts; the last at most {} MiB above the third)",
            sixths.join(", "),
            ALLOWED / MIB
        )
    }

    /// Returns an error text if the memory grew after the warm-up. The warm-up is the first third
    /// of the time. In its last half, the number of listeners that end is already equal to the
    /// number of new listeners.
    pub fn growth(&self) -> Option<String> {
        let (warm, last) = (self.median(2), self.median(5));
        (last > warm + ALLOWED).then(|| format!("the resident set grew: {}", self.summary()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(sizes: impl Iterator<Item = u64>) -> Samples {
        Samples(
            sizes
                .map(|resident| Memory {
                    allocated: 0,
                    heap_size: 0,
                    resident: resident * MIB,
                })
                .collect(),
        )
    }

    #[test]
    fn a_leak_is_found_and_a_warm_up_is_none() {
        assert_eq!(samples((0..60).map(|n| 100 + n.min(20))).growth(), None);
        let spike = (0..60).map(|n| if n == 55 { 500 } else { 100 });
        assert_eq!(samples(spike).growth(), None);
        assert!(samples((0..60).map(|n| 100 + 2 * n)).growth().is_some());
        assert_eq!(Samples::default().growth(), None);
    }
}
