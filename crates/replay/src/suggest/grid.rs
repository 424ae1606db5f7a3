//! How many requests would be refused at some rates and capacities: a bucket for each, once it differs.
//!
//! Until a funnel refuses a request of a key for the first time, its level is the one of a funnel that never refuses.
//! So a key has levels of its own only from its first refusal on, and most keys of a log have none.

/// The most bytes of levels.
const MOST_BYTES: usize = 128 << 20;
/// The block of a key without one.
pub(super) const NONE: u32 = u32::MAX;

/// The levels of the keys that are refused somewhere, and the refusals.
#[derive(Debug, Default)]
pub(super) struct Grid {
    capacities: Vec<u32>,
    rates: usize,
    /// A block for each of these keys: rate by rate, a level for each capacity.
    levels: Vec<u64>,
    /// The refused requests: rate by rate, a number for each capacity.
    pub(super) refused: Vec<u64>,
    /// Requests that are refused but not counted, for lack of room.
    pub(super) uncounted: u64,
}

/// A request at one rate.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    /// The time since the request before, times the amount of the rate.
    pub(super) passed: u64,
    /// The time of its units.
    pub(super) cost: u64,
    /// The time of one unit.
    pub(super) period: u64,
    /// The level before this request, without any refusals and after the time passed.
    pub(super) left: u64,
    /// The units that the level had reached before.
    pub(super) need: u32,
}

impl Grid {
    pub(super) fn new(rates: usize, capacities: &[u32]) -> Self {
        Self {
            capacities: capacities.to_vec(),
            rates,
            refused: vec![0; rates * capacities.len()],
            ..Self::default()
        }
    }

    /// Decides a request at the rate with this number, under every capacity.
    pub(super) fn add(&mut self, block: &mut u32, rate: usize, step: &Step) {
        let tried = self.capacities.len();
        for at in 0..tried {
            let Some(capacity) = self.capacities.get(at).copied() else {
                return;
            };
            let most = u64::from(capacity).saturating_mul(step.period);
            let has_level = step.need > capacity;
            if !has_level && step.left.saturating_add(step.cost) <= most {
                // So it is with every larger capacity.
                return;
            }
            let cell = rate * tried + at;
            let Some(level) = self.level(block, cell) else {
                self.uncounted += 1;
                return;
            };
            let left = if has_level {
                level.saturating_sub(step.passed)
            } else {
                step.left
            };
            let filled = left.saturating_add(step.cost);
            let is_refused = filled > most;
            *level = if is_refused { left } else { filled };
            if let Some(refused) = self.refused.get_mut(cell) {
                *refused += u64::from(is_refused);
            }
        }
    }

    /// The level of a key in a cell; `None` without room.
    fn level(&mut self, block: &mut u32, cell: usize) -> Option<&mut u64> {
        let size = self.rates * self.capacities.len();
        if *block == NONE {
            let end = self.levels.len() + size;
            if end > MOST_BYTES / size_of::<u64>() {
                return None;
            }
            *block = u32::try_from(self.levels.len() / size.max(1)).ok()?;
            self.levels.resize(end, 0);
        }
        let block = usize::try_from(*block).ok()?;
        self.levels.get_mut(block * size + cell)
    }
}
