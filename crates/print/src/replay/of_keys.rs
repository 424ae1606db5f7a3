//! Shows how many keys of each rule were refused, and percentiles of the usage per key.

use std::io::{self, Write};

use loudou_replay::summary::{KeysSummary, MOST_COUNTED, Percentiles, SideSummary};

use super::words::share;
use crate::style::Style;
use crate::table::{Cell, Paint, Set, TextTable};
use loudou_words::text::counted;

/// Prints key statistics of the rules that have keys.
pub(super) fn print(side: &SideSummary, out: &mut dyn Write, style: Style) -> io::Result<()> {
    let Some((table, left_out)) = table(side) else {
        return Ok(());
    };
    writeln!(out)?;
    table.print(out, style)?;
    match left_out {
        None => Ok(()),
        Some(note) => writeln!(out, "{note}"),
    }
}

/// Returns a table of key statistics, and a note about requests whose keys were not counted.
/// Returns `None` if no rule has keys.
pub(super) fn table(side: &SideSummary) -> Option<(TextTable, Option<String>)> {
    let rules = side.rules.iter().filter(|rule| rule.keys.seen > 0);
    let mut table = TextTable::new(&[
        ("RULE", Set::Shrink),
        ("KEYS", Set::Right),
        ("REFUSED", Set::Right),
        ("OF A KEY", Set::Left),
        ("p50", Set::Right),
        ("p90", Set::Right),
        ("p99", Set::Right),
        ("most", Set::Right),
    ]);
    let mut left_out = 0;
    let mut is_empty = true;
    for rule in rules {
        let keys = &rule.keys;
        left_out += keys.left_out;
        is_empty = false;
        let mut row: Vec<Cell> = vec![rule.rule.as_str().into()];
        row.extend(head(keys));
        row.push("requests".into());
        row.extend(values(keys.requests).map(Cell::from));
        table.row(row);
        if keys.refused > 0 {
            let mut row = vec![Cell::default(), Cell::default(), Cell::default()];
            row.push("% refused".into());
            let percent = |tenths: u64| format!("{}.{}", tenths / 10, tenths % 10);
            row.extend(values(keys.refused_per_mille).map(|share| Cell::new(&percent(share))));
            table.row(row);
        }
    }
    if is_empty {
        return None;
    }
    let note = (left_out > 0).then(|| {
        let requests = counted(left_out, "request");
        format!("without {requests} of keys beyond the first {MOST_COUNTED}")
    });
    Some((table, note))
}

/// Returns the number of keys, and the number of refused keys.
fn head(keys: &KeysSummary) -> [Cell; 2] {
    let refused = format!("{} ({})", keys.refused, share(keys.refused, keys.seen));
    let paint = if keys.refused > 0 {
        Paint::Bad
    } else {
        Paint::Plain
    };
    [keys.seen.into(), Cell::new(&refused).paint(paint)]
}

const fn values(of: Percentiles) -> [u64; 4] {
    [of.p50, of.p90, of.p99, of.max]
}
