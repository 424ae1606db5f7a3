//! Implements `--output csv`, which prints one table of a run, with rows for every rule file.

use std::io::{self, Write};

use clap::ValueEnum;
use loudou_replay::summary::{RunSummary, SideSummary};

use loudou_print::table::csv;

/// Tables that describe a run. CSV output contains one of these tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum CsvTable {
    /// The verdicts of each rule
    #[default]
    Rules,
    /// Keys with the most refusals
    Keys,
    /// Requests over time
    Timeline,
}

impl CsvTable {
    const fn heading(self) -> &'static str {
        match self {
            Self::Rules => {
                "config,rule,mode,matched,admitted,held,refused,overruled,shadow_refused,\
                 shadow_held,skipped,gave_up,keys,keys_refused"
            }
            Self::Keys => "config,rule,key,refused,surplus,shadow_refused,first_ns,last_ns",
            Self::Timeline => "config,start_ns,slot_ns,admitted,held,refused",
        }
    }
}

/// Prints a table.
pub(super) fn print(summary: &RunSummary, table: CsvTable, out: &mut dyn Write) -> io::Result<()> {
    csv(out, table.heading().split(','))?;
    let others = summary.compare.iter().map(|other| &other.side);
    for side in std::iter::once(&summary.side).chain(others) {
        match table {
            CsvTable::Rules => rules(side, out)?,
            CsvTable::Keys => keys(side, out)?,
            CsvTable::Timeline => timeline(side, out)?,
        }
    }
    Ok(())
}

/// Prints a CSV record of strings followed by counts.
fn record<const N: usize>(texts: &[&str], counts: [u64; N], out: &mut dyn Write) -> io::Result<()> {
    let counts = counts.map(|count| count.to_string());
    let counts = counts.iter().map(String::as_str);
    csv(out, texts.iter().copied().chain(counts))
}

fn rules(side: &SideSummary, out: &mut dyn Write) -> io::Result<()> {
    for rule in &side.rules {
        let counts = [
            rule.matched,
            rule.admitted,
            rule.held,
            rule.refused,
            rule.overruled,
            rule.shadow_refused,
            rule.shadow_held,
            rule.skipped,
            rule.gave_up,
            rule.keys.seen,
            rule.keys.refused,
        ];
        record(&[&side.config, &rule.rule, rule.mode], counts, out)?;
    }
    Ok(())
}

fn keys(side: &SideSummary, out: &mut dyn Write) -> io::Result<()> {
    for key in &side.refused_keys.most {
        let [first, last] = [key.first_ns, key.last_ns].map(Option::unwrap_or_default);
        let counts = [key.refused, key.surplus, key.shadow_refused, first, last];
        record(&[&side.config, &key.rule, &key.key], counts, out)?;
    }
    Ok(())
}

fn timeline(side: &SideSummary, out: &mut dyn Write) -> io::Result<()> {
    let line = &side.timeline;
    for (number, slot) in (0..).zip(&line.slots) {
        let start = line
            .start_ns
            .saturating_add(line.slot_ns.saturating_mul(number));
        let counts = [start, line.slot_ns, slot.admitted, slot.held, slot.refused];
        record(&[&side.config], counts, out)?;
    }
    Ok(())
}
