//! Two rule files side by side.

use std::io::{self, Write};

use loudou_replay::summary::{ChangesSummary, Compare, RuleSummary, SideSummary};

use super::over_time;
use crate::cli::table::{Cell, Paint, Set, TextTable};
use crate::cli::world::Style;
use crate::text::{counted, escape};

pub(super) fn print(
    first: &SideSummary,
    other: &Compare,
    out: &mut dyn Write,
    style: Style,
) -> io::Result<()> {
    let second = &other.side;
    writeln!(out, "A: {}", escape(&first.config))?;
    writeln!(out, "B: {}\n", escape(&second.config))?;
    counts(first, second, out, style)?;
    changes(&other.changes, out, style)?;
    over_time::print(
        &[(", A", &first.timeline), (", B", &second.timeline)],
        out,
        style,
    )?;
    store(first, second, out)
}

fn counts(
    first: &SideSummary,
    second: &SideSummary,
    out: &mut dyn Write,
    style: Style,
) -> io::Result<()> {
    let mut table = TextTable::new(&[
        ("RULE", Set::Shrink),
        ("REQUESTS", Set::Left),
        ("A", Set::Right),
        ("B", Set::Right),
        ("CHANGE", Set::Right),
    ]);
    let (a, b) = (first.requests, second.requests);
    for (name, a, b) in [
        ("admitted", a.admitted, b.admitted),
        ("held", a.held, b.held),
        ("refused", a.refused, b.refused),
    ] {
        if name != "held" || a > 0 || b > 0 {
            table.row(row("all rules", name, Some(a), Some(b)));
        }
    }
    let has = |rules: &[RuleSummary], name: &str| rules.iter().any(|rule| rule.rule == name);
    let added = second
        .rules
        .iter()
        .filter(|rule| !has(&first.rules, &rule.rule));
    for rule in first.rules.iter().chain(added) {
        let find = |side: &SideSummary| {
            side.rules
                .iter()
                .find(|other| other.rule == rule.rule)
                .cloned()
        };
        rule_rows(
            &rule.rule,
            find(first).as_ref(),
            find(second).as_ref(),
            &mut table,
        );
    }
    table.print(out, style)
}

fn rule_rows(name: &str, a: Option<&RuleSummary>, b: Option<&RuleSummary>, table: &mut TextTable) {
    type Count = fn(&RuleSummary) -> u64;
    let counts: [(&str, Count); 8] = [
        ("matched", |rule| rule.matched),
        ("held", |rule| rule.held),
        ("refused", |rule| rule.refused),
        ("overruled", |rule| rule.overruled),
        ("would hold", |rule| rule.shadow_held),
        ("would refuse", |rule| rule.shadow_refused),
        ("skipped", |rule| rule.skipped),
        ("gave up", |rule| rule.gave_up),
    ];
    for (what, count) in counts {
        let (a, b) = (a.map(count), b.map(count));
        if what == "matched" || a.unwrap_or(0) > 0 || b.unwrap_or(0) > 0 {
            table.row(row(name, what, a, b));
        }
    }
}

/// A row; `-` stands for a rule that one of the files does not have.
fn row(rule: &str, what: &str, a: Option<u64>, b: Option<u64>) -> Vec<Cell> {
    let number = |n: Option<u64>| Cell::from(n.map(|n| n.to_string()));
    let (was, is) = (a.unwrap_or(0), b.unwrap_or(0));
    let (change, paint) = match what {
        _ if was == is => ("=".to_owned(), Paint::Dim),
        "refused" | "gave up" if is > was => (format!("+{}", is - was), Paint::Bad),
        _ if is > was => (format!("+{}", is - was), Paint::Plain),
        _ => (format!("-{}", was - is), Paint::Plain),
    };
    vec![
        rule.into(),
        what.into(),
        number(a),
        number(b),
        Cell::from(change).paint(paint),
    ]
}

fn changes(changes: &ChangesSummary, out: &mut dyn Write, style: Style) -> io::Result<()> {
    if changes.changed == 0 {
        return writeln!(out, "\nevery request has the same verdict");
    }
    let kinds = [
        ("admitted by A and refused by B", changes.admit_refuse),
        ("refused by A and admitted by B", changes.refuse_admit),
        ("admitted by A and held by B", changes.admit_hold),
        ("held by A and admitted by B", changes.hold_admit),
        ("held by A and refused by B", changes.hold_refuse),
        ("refused by A and held by B", changes.refuse_hold),
    ];
    let requests = counted(changes.changed, "request");
    writeln!(out, "\nverdict changed for {requests}")?;
    for (name, count) in kinds.into_iter().filter(|(_, count)| *count > 0) {
        writeln!(out, "  {count} {name}")?;
    }
    if changes.keys.is_empty() {
        return Ok(());
    }
    let exact = if changes.exact {
        ""
    } else {
        "; ~ is the largest possible undercount"
    };
    writeln!(out, "\nmost changed keys{exact}")?;
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
    table.print(out, style)
}

fn store(first: &SideSummary, second: &SideSummary, out: &mut dyn Write) -> io::Result<()> {
    for (name, side) in [("A", first), ("B", second)] {
        let store = side.store;
        let (idle, lossy) = (store.evicted_lossless, store.evicted_lossy);
        if idle + lossy > 0 {
            writeln!(out, "\nevicted, {name}: {idle} idle, {lossy} in use")?;
        }
    }
    Ok(())
}
