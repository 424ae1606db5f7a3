//! Merges the keys of all watched Envoys and sums their rates. A client whose requests are spread
//! over several Envoys has a single row.

use std::collections::BTreeMap;

use loudou_api::BucketState;
use loudou_limiter::Nanos;

use super::filter::Filter;
use super::history::Rates;
use super::rows::{BucketName, Row};
use super::table::Table;

/// Rows that were read longer ago than this are ignored as outdated. A key that receives requests
/// is read every few seconds.
const RECENT: Nanos = Nanos::from_secs(15);
/// Maximum number of rows. The rows with the most refusals are kept.
const MAX_ROWS: usize = 2_000;

/// The table of keys.
#[derive(Clone, Debug, Default)]
pub(crate) struct Keys {
    pub(crate) table: Table,
    pub(crate) rows: Vec<KeyRow>,
    /// Time at which the app began to read the keys of all Envoys for this table. The first rate of
    /// a key covers the time since the key was last read, which may have been much earlier.
    pub(crate) since: Nanos,
}

/// A key with its data from all Envoys.
#[derive(Clone, Debug)]
pub(crate) struct KeyRow {
    /// The bucket from the Envoy at which its state is worst, with the rates summed over all
    /// Envoys.
    pub(crate) row: Row,
    /// The key's data at each Envoy, in Envoy order. `None` if the key has no bucket there.
    pub(crate) at: Vec<Option<Part>>,
}

/// The data of a key at one Envoy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub(crate) state: BucketState,
    pub(crate) shadow: bool,
    pub(crate) rates: Option<Rates>,
}

/// The keys to read from each Envoy for the sums.
#[derive(Clone, Debug, Default)]
pub(crate) struct Summed {
    /// The keys on screen.
    pub(crate) shown: Vec<BucketName>,
    pub(crate) filter: Filter,
}

/// How long rates count as new after the table was opened.
const FIRST: Nanos = Nanos::from_secs(3);

impl Keys {
    /// Returns true if the table was opened so recently that some rates may still cover time before
    /// it was opened.
    pub(crate) const fn is_new(&self, now: Nanos) -> bool {
        now.since(self.since).get() < FIRST.get()
    }

    /// Returns a visible row by its index.
    pub(crate) fn row(&self, index: usize) -> Option<&KeyRow> {
        self.rows.get(*self.table.visible.get(index)?)
    }

    /// Returns the selected row.
    pub(crate) fn selected(&self) -> Option<&KeyRow> {
        self.row(self.table.at).filter(|_| !self.table.is_missing)
    }

    /// Returns the keys on screen and the selected one.
    pub(crate) fn on_screen(&self, height: usize) -> Vec<BucketName> {
        let lines = self.table.lines(height).into_iter();
        let rows = lines.filter_map(|index| self.row(index));
        let missing = self.table.pinned.clone().filter(|_| self.table.is_missing);
        rows.map(|key| key.row.id.clone()).chain(missing).collect()
    }

    /// Applies the filter and the sort order to the rows again.
    pub(crate) fn arrange(&mut self, height: usize) {
        let rows = self.rows.iter().map(|key| &key.row);
        self.table.arrange(rows, height);
    }
}

impl KeyRow {
    fn new(row: &Row, envoys: usize) -> Self {
        let row = Row {
            rates: None,
            ..row.clone()
        };
        Self {
            row,
            at: vec![None; envoys],
        }
    }

    fn add(&mut self, number: usize, row: &Row) {
        if let Some(part) = self.at.get_mut(number) {
            *part = Some(Part {
                state: row.view.state,
                shadow: row.view.shadow,
                rates: row.rates,
            });
        }
        let sum = match (self.row.rates, row.rates) {
            (Some(sum), Some(rates)) => Some(sum.plus(rates)),
            (sum, rates) => sum.or(rates),
        };
        if row.severity() > self.row.severity() {
            self.row = row.clone();
        }
        self.row.rates = sum;
    }

    /// Returns the number of the Envoy at which the key is refused most or, if it is refused
    /// nowhere, admitted most.
    pub(crate) fn worst(&self) -> Option<usize> {
        let weight = |part: &Part| {
            let rates = part.rates.unwrap_or_default();
            (rates.refused, rates.shadow, rates.admitted)
        };
        let parts = self.at.iter().enumerate();
        let parts = parts.filter_map(|(number, part)| Some((number, weight(part.as_ref()?))));
        let worst = parts.reduce(|worst, part| if part.1 > worst.1 { part } else { worst });
        worst.map(|(number, _)| number)
    }
}

/// Merges the keys of all Envoys. `envoys` contains the clock and the rows of each Envoy, or `None`
/// for an Envoy that does not answer.
pub(crate) fn merge(envoys: &[Option<(u64, &[Row])>]) -> Vec<KeyRow> {
    let mut merged: BTreeMap<&BucketName, KeyRow> = BTreeMap::new();
    for (number, envoy) in envoys.iter().enumerate() {
        let Some((now_ns, rows)) = envoy else {
            continue;
        };
        let oldest = now_ns.saturating_sub(RECENT.get());
        for row in rows.iter().filter(|row| row.as_of_ns >= oldest) {
            let key = merged
                .entry(&row.id)
                .or_insert_with(|| KeyRow::new(row, envoys.len()));
            key.add(number, row);
        }
    }
    let mut rows: Vec<KeyRow> = merged.into_values().collect();
    if rows.len() > MAX_ROWS {
        rows.sort_by(|one, other| other.row.refused().total_cmp(&one.row.refused()));
        rows.truncate(MAX_ROWS);
    }
    rows
}
