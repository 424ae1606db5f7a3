//! Prints the results of several rule files side by side.

use std::io::{self, Write};

use loudou_replay::summary::{ChangesSummary, Compare, RuleSummary, SideSummary, TimelineSummary};

use super::over_time;
use crate::style::Style;
use crate::table::{Cell, Paint, Set, TextTable};
use loudou_words::text::{counted, escape};

/// Prints a comparison of the first rule file, called A, with the other files, called B, C ….
pub(super) fn print(
    first: &SideSummary,
    others: &[Compare],
    out: &mut dyn Write,
    style: Style,
) -> io::Result<()> {
    let sides: Vec<&SideSummary> = std::iter::once(first)
        .chain(others.iter().map(|other| &other.side))
        .collect();
    for (letter, side) in ('A'..).zip(&sides) {
        writeln!(out, "{letter}: {}", escape(&side.config))?;
    }
    writeln!(out)?;
    counts(&sides).print(out, style)?;
    for (letter, other) in ('B'..).zip(others) {
        changes(&other.changes, letter, out, style)?;
    }
    let named: Vec<String> = ('A'..)
        .take(sides.len())
        .map(|letter| format!(", {letter}"))
        .collect();
    let lines = named.iter().zip(&sides);
    let lines: Vec<(&str, &TimelineSummary)> = lines
        .map(|(name, side)| (name.as_str(), &side.timeline))
        .collect();
    over_time::print(&lines, out, style)?;
    store(&sides, out)
}

/// Selects a total in a rule file's summary.
type Total = fn(&SideSummary) -> u64;

/// Returns a table with the number of each verdict per rule and rule file.
pub(super) fn counts(sides: &[&SideSummary]) -> TextTable {
    let letters: Vec<String> = ('A'..).take(sides.len()).map(String::from).collect();
    let mut columns = vec![("RULE", Set::Shrink), ("REQUESTS", Set::Left)];
    columns.extend(letters.iter().map(|letter| (letter.as_str(), Set::Right)));
    if sides.len() == 2 {
        columns.push(("CHANGE", Set::Right));
    }
    let mut table = TextTable::new(&columns);
    let totals: [(&str, Total); 3] = [
        ("admitted", |side| side.requests.admitted),
        ("held", |side| side.requests.held),
        ("refused", |side| side.requests.refused),
    ];
    for (name, total) in totals {
        let of: Vec<Option<u64>> = sides.iter().map(|side| Some(total(side))).collect();
        if name != "held" || of.iter().any(|count| *count > Some(0)) {
            table.row(row("all rules", name, &of));
        }
    }
    let mut names: Vec<&str> = Vec::new();
    for rule in sides.iter().flat_map(|side| &side.rules) {
        if !names.contains(&rule.rule.as_str()) {
            names.push(&rule.rule);
        }
    }
    for name in names {
        let find = |side: &&'_ SideSummary| -> Option<RuleSummary> {
            let mut rules = side.rules.iter();
            rules.find(|rule| rule.rule == name).cloned()
        };
        let rules: Vec<Option<RuleSummary>> = sides.iter().map(find).collect();
        rule_rows(name, &rules, &mut table);
    }
    table
}

fn rule_rows(name: &str, rules: &[Option<RuleSummary>], table: &mut TextTable) {
    type Count = fn(&RuleSummary) -> u64;
    let counts: [(&str, Count); 9] = [
        ("matched", |rule| rule.matched),
        ("held", |rule| rule.held),
        ("refused", |rule| rule.refused),
        ("keys refused", |rule| rule.keys.refused),
        ("overruled", |rule| rule.overruled),
        ("would hold", |rule| rule.shadow_held),
        ("would refuse", |rule| rule.shadow_refused),
        ("skipped", |rule| rule.skipped),
        ("gave up", |rule| rule.gave_up),
    ];
    for (what, count) in counts {
        let of: Vec<Option<u64>> = rules.iter().map(|rule| rule.as_ref().map(count)).collect();
        if what == "matched" || of.iter().any(|count| *count > Some(0)) {
            table.row(row(name, what, &of));
        }
    }
}

/// Returns a row of the table. The count of a file without the rule is `-`.
fn row(rule: &str, what: &str, counts: &[Option<u64>]) -> Vec<Cell> {
    let mut row: Vec<Cell> = vec![rule.into(), what.into()];
    row.extend(counts.iter().map(|n| Cell::from(n.map(|n| n.to_string()))));
    if let [was, is] = counts {
        row.push(change(what, was.unwrap_or(0), is.unwrap_or(0)));
    }
    row
}

fn change(what: &str, was: u64, is: u64) -> Cell {
    let (change, paint) = match what {
        _ if was == is => ("=".to_owned(), Paint::Dim),
        "refused" | "keys refused" | "gave up" if is > was => {
            (format!("+{}", is - was), Paint::Bad)
        }
        _ if is > was => (format!("+{}", is - was), Paint::Plain),
        _ => (format!("-{}", was - is), Paint::Plain),
    };
    Cell::from(change).paint(paint)
}

fn changes(
    changes: &ChangesSummary,
    letter: char,
    out: &mut dyn Write,
    style: Style,
) -> io::Result<()> {
    if changes.changed == 0 {
        return writeln!(
            out,
            "\n{letter}: every request has the same verdict as by A"
        );
    }
    let requests = counted(changes.changed, "request");
    writeln!(out, "\n{letter}: verdict changed for {requests}")?;
    for (name, count) in kinds(changes, letter) {
        writeln!(out, "  {count} {name}")?;
    }
    if changes.keys.is_empty() {
        return Ok(());
    }
    writeln!(out, "\n{}", keys_title(changes, letter))?;
    keys_table(changes).print(out, style)
}

/// Returns the kinds of verdict changes that occur, each with its count.
pub(super) fn kinds(changes: &ChangesSummary, letter: char) -> Vec<(String, u64)> {
    let kinds = [
        ("admitted", "refused", changes.admit_refuse),
        ("refused", "admitted", changes.refuse_admit),
        ("admitted", "held", changes.admit_hold),
        ("held", "admitted", changes.hold_admit),
        ("held", "refused", changes.hold_refuse),
        ("refused", "held", changes.refuse_hold),
    ];
    let kinds = kinds.into_iter().filter(|(_, _, count)| *count > 0);
    kinds
        .map(|(was, is, count)| (format!("{was} by A and {is} by {letter}"), count))
        .collect()
}

/// Returns the heading for the table of the keys with the most changes.
pub(super) fn keys_title(changes: &ChangesSummary, letter: char) -> String {
    let exact = if changes.exact {
        ""
    } else {
        "; ~ is the largest possible undercount"
    };
    format!("most changed keys, {letter}{exact}")
}

/// Returns a table of the keys with the most changes.
pub(super) fn keys_table(changes: &ChangesSummary) -> TextTable {
    let mut columns = vec![
        ("RULE", Set::Left),
        ("KEY", Set::Shrink),
        ("NEWLY REFUSED", Set::Right),
        ("NO LONGER", Set::Right),
    ];
    if !changes.exact {
        columns.push(("~", Set::Right));
    }
    let mut table = TextTable::new(&columns);
    for key in &changes.keys {
        let mut row: Vec<Cell> = vec![
            key.rule.as_str().into(),
            key.key.as_str().into(),
            key.newly_refused.into(),
            key.no_longer_refused.into(),
        ];
        if !changes.exact {
            row.push(key.surplus.into());
        }
        table.row(row);
    }
    table
}

fn store(sides: &[&SideSummary], out: &mut dyn Write) -> io::Result<()> {
    for (letter, side) in ('A'..).zip(sides) {
        let store = side.store;
        let (idle, lossy) = (store.evicted_lossless, store.evicted_lossy);
        if idle + lossy > 0 {
            writeln!(out, "\nevicted, {letter}: {idle} idle, {lossy} in use")?;
        }
    }
    Ok(())
}
