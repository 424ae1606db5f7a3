//! Shows two tables: the share of keys and the share of requests that are refused at each capacity
//! and rate.

use std::io::{self, Write};

use loudou_limiter::Rate;

use super::Line;
use crate::replay::words::share;
use crate::style::Style;
use crate::table::{Cell, Paint, Set, TextTable};

/// Refusals of a funnel with a given capacity and rate.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refusals {
    pub(super) capacity: u32,
    /// Number of keys with at least one refused request.
    pub(super) keys: u64,
    pub(super) requests: u64,
}

/// Selects a count.
type Count = fn(&Refusals) -> u64;

/// Prints the tables of refused keys and refused requests, in percent.
pub(super) fn print(
    lines: &[Line],
    totals: (u64, u64),
    out: &mut dyn Write,
    style: Style,
) -> io::Result<()> {
    for (title, table) in tables(lines, totals) {
        writeln!(out, "\n{title}\n")?;
        table.print(out, style)?;
    }
    Ok(())
}

/// Returns the tables of refused keys and refused requests, with their titles.
pub(super) fn tables(lines: &[Line], (keys, requests): (u64, u64)) -> [(String, TextTable); 2] {
    let shown = shown(lines);
    let tables: [(&str, Count, u64); 2] = [
        ("keys refused at least once", |it| it.keys, keys),
        ("requests refused", |it| it.requests, requests),
    ];
    tables.map(|(title, count, of)| {
        let capacities = lines.first().map(|line| line.refusals.as_slice());
        let capacities: Vec<String> = capacities
            .unwrap_or_default()
            .iter()
            .take(shown)
            .map(|it| it.capacity.to_string())
            .collect();
        let mut columns = vec![("RATE", Set::Right)];
        columns.extend(capacities.iter().map(|name| (name.as_str(), Set::Right)));
        let mut table = TextTable::new(&columns);
        for Line { rate, refusals, .. } in lines {
            table.row(row(*rate, refusals.iter().take(shown), count, of));
        }
        let title = format!("% of {title}, by rate and capacity");
        (title, table)
    })
}

fn row<'a>(
    rate: Rate,
    refusals: impl Iterator<Item = &'a Refusals>,
    count: Count,
    of: u64,
) -> Vec<Cell> {
    let mut row: Vec<Cell> = vec![rate.to_string().into()];
    row.extend(refusals.map(|it| {
        let share = share(count(it), of);
        let paint = if count(it) > 0 {
            Paint::Plain
        } else {
            Paint::Dim
        };
        Cell::new(share.trim_end_matches(" %")).paint(paint)
    }));
    row
}

/// Returns the number of capacities to show. The last is the first capacity at which no line
/// refuses any keys.
fn shown(lines: &[Line]) -> usize {
    let needed = lines.iter().map(|line| {
        let refuses = |it: &&Refusals| it.keys > 0;
        line.refusals.iter().take_while(refuses).count() + 1
    });
    needed.max().unwrap_or(0)
}
