//! Prints the summary of a run in human-readable form.

use std::io::{self, Write};

use loudou_replay::summary::{RefusedKeys, RuleSummary, RunSummary, SideSummary, Trace};

use super::beside_log;
use super::compared;
use super::of_keys;
use super::over_time::{self, WIDEST, instant};
use super::words::{print_note, share};
use crate::style::Style;
use crate::table::{Cell, Paint, Set, TextTable, bar};
use loudou_words::text::{counted, escape, humanise};

/// Minimum output width for the rule table with all columns.
const WIDE: usize = 76;
/// Minimum output width for the columns with the times at which keys were refused.
const WIDE_WITH_TIMES: usize = 100;
/// Maximum number of files that are listed.
const FILES: usize = 10;

/// Prints the summary of a run.
pub fn print(summary: &RunSummary, out: &mut dyn Write, style: Style) -> io::Result<()> {
    heading(&summary.trace, out, style)?;
    for warning in &summary.warnings {
        print_note("warning", warning, out, style)?;
    }
    if !summary.warnings.is_empty() {
        writeln!(out)?;
    }
    match summary.compare.as_slice() {
        [] => one(&summary.side, out, style)?,
        others => compared::print(&summary.side, others, out, style)?,
    }
    if let Some(found) = &summary.beside_log {
        beside_log::print(found, out, style)?;
    }
    notes(summary, out, style)
}

/// Prints the name, format, size and duration of the trace.
fn heading(trace: &Trace, out: &mut dyn Write, style: Style) -> io::Result<()> {
    let span = trace.last_ns.zip(trace.first_ns);
    let span = span.map(|(last, first)| format!(" in {}", humanise(last.saturating_sub(first))));
    let format = trace.format.map(|name| format!(" ({name})"));
    let line = format!(
        "{}{}: {}{}",
        escape(&trace.name),
        format.unwrap_or_default(),
        counted(trace.requests, "request"),
        span.unwrap_or_default(),
    );
    writeln!(out, "{}", Paint::Heading.on(&line, style))?;
    for file in trace.files.iter().take(FILES) {
        let format = file.format.unwrap_or("no format");
        let requests = counted(file.requests, "request");
        let line = format!("  {} ({format}): {requests}", escape(&file.name));
        writeln!(out, "{}", style.fit(&line, style.width.unwrap_or(WIDEST)))?;
    }
    if trace.files.len() > FILES {
        writeln!(out, "  and {} more", trace.files.len() - FILES)?;
    }
    if trace.edits > 0 {
        let edits = counted(trace.edits, "edit");
        writeln!(out, "  {edits} of rules during the trace")?;
    }
    writeln!(out)
}

fn one(side: &SideSummary, out: &mut dyn Write, style: Style) -> io::Result<()> {
    let requests = side.requests;
    for (name, count, paint) in [
        ("admitted", requests.admitted, Paint::Plain),
        ("held", requests.held, Paint::Warn),
        ("refused", requests.refused, Paint::Bad),
    ] {
        let bar = paint.on(&bar(count, requests.total, style), style);
        let share = share(count, requests.total);
        writeln!(out, "  {name:<8} {bar} {share:>7}  {count}")?;
    }
    writeln!(out)?;
    rules(&side.rules, out, style)?;
    of_keys::print(side, out, style)?;
    refused_keys(side, out, style)?;
    over_time::print(&[("", &side.timeline)], out, style)?;
    waits(side, out, style)?;
    store(side, out)
}

fn rules(rules: &[RuleSummary], out: &mut dyn Write, style: Style) -> io::Result<()> {
    // On a narrow terminal, omit the mode and the share of refused requests.
    let is_wide = style.width.is_none_or(|width| width >= WIDE);
    rules_table(rules, is_wide).print(out, style)
}

/// Returns a table of each rule's verdicts.
pub(super) fn rules_table(rules: &[RuleSummary], is_wide: bool) -> TextTable {
    type Count = fn(&RuleSummary) -> u64;
    let counts: [(&'static str, Count, Paint); 9] = [
        ("MATCHED", |rule| rule.matched, Paint::Plain),
        ("ADMITTED", |rule| rule.admitted, Paint::Plain),
        ("HELD", |rule| rule.held, Paint::Warn),
        ("REFUSED", |rule| rule.refused, Paint::Bad),
        ("OVERRULED", |rule| rule.overruled, Paint::Plain),
        ("SHADOW HELD", |rule| rule.shadow_held, Paint::Warn),
        ("SHADOW", |rule| rule.shadow_refused, Paint::Warn),
        ("SKIPPED", |rule| rule.skipped, Paint::Warn),
        ("GAVE UP", |rule| rule.gave_up, Paint::Bad),
    ];
    // `MATCHED`, `ADMITTED` and `REFUSED` are always shown. The other columns are shown only if
    // they contain a count above zero.
    let is_shown = |(index, (_, count, _)): &(usize, (&'static str, Count, Paint))| {
        *index < 2 || *index == 3 || rules.iter().any(|rule| count(rule) > 0)
    };
    let shown: Vec<_> = counts.into_iter().enumerate().filter(is_shown).collect();
    let mut columns = vec![("RULE", Set::Shrink)];
    columns.extend(is_wide.then_some(("MODE", Set::Left)));
    columns.extend(shown.iter().map(|(_, (name, ..))| (*name, Set::Right)));
    columns.extend(is_wide.then_some(("REFUSES", Set::Right)));
    let mut table = TextTable::new(&columns);
    for rule in rules {
        let mut row: Vec<Cell> = vec![rule.rule.as_str().into()];
        row.extend(is_wide.then(|| rule.mode.into()));
        for (_, (_, count, paint)) in &shown {
            let count = count(rule);
            let paint = if count > 0 { *paint } else { Paint::Plain };
            row.push(Cell::from(count).paint(paint));
        }
        let decided = rule.matched.saturating_sub(rule.skipped);
        let refused = rule.refused + rule.shadow_refused;
        row.extend(is_wide.then(|| share(refused, decided).into()));
        table.row(row);
    }
    table
}

fn refused_keys(side: &SideSummary, out: &mut dyn Write, style: Style) -> io::Result<()> {
    let keys = &side.refused_keys;
    if keys.most.is_empty() {
        return Ok(());
    }
    writeln!(out, "\n{}", keys_title(keys))?;
    let has_times = style.width.is_none_or(|width| width >= WIDE_WITH_TIMES);
    keys_table(keys, has_times).print(out, style)
}

/// Returns the heading for the table of the most refused keys.
pub(super) fn keys_title(keys: &RefusedKeys) -> String {
    if keys.exact {
        format!("most refused, of {}", counted(keys.keys, "key"))
    } else {
        format!(
            "most refused, of more than {} keys; ~ is the largest possible overcount",
            keys.keys
        )
    }
}

/// Returns a table of the most refused keys.
pub(super) fn keys_table(keys: &RefusedKeys, has_times: bool) -> TextTable {
    let mut columns = vec![
        ("RULE", Set::Left),
        ("KEY", Set::Shrink),
        ("REFUSED", Set::Right),
    ];
    let is_shadow = keys.most.iter().any(|key| key.shadow_refused > 0);
    if is_shadow {
        columns.push(("SHADOW", Set::Right));
    }
    if !keys.exact {
        columns.push(("~", Set::Right));
    }
    if has_times {
        columns.extend([("FIRST", Set::Left), ("LAST", Set::Left)]);
    }
    let mut table = TextTable::new(&columns);
    for key in &keys.most {
        let mut row: Vec<Cell> = vec![
            key.rule.as_str().into(),
            key.key.as_str().into(),
            Cell::from(key.refused).paint(Paint::Bad),
        ];
        if is_shadow {
            row.push(key.shadow_refused.into());
        }
        if !keys.exact {
            row.push(key.surplus.into());
        }
        if has_times {
            row.extend([key.first_ns, key.last_ns].map(|ns| Cell::from(ns.map(instant))));
        }
        table.row(row);
    }
    table
}

fn waits(side: &SideSummary, out: &mut dyn Write, style: Style) -> io::Result<()> {
    let waits = &side.waits;
    if waits.held == 0 {
        return Ok(());
    }
    let (mean, longest) = (humanise(waits.mean_ns), humanise(waits.longest_ns));
    writeln!(
        out,
        "\n{} held; average {mean}, longest {longest}",
        waits.held
    )?;
    let most = waits.steps.iter().map(|step| step.held).max().unwrap_or(0);
    for step in &waits.steps {
        let up_to = step.up_to_ns.map(humanise);
        let up_to = up_to.map_or_else(|| "longer".to_owned(), |up_to| format!("to {up_to}"));
        let bar = bar(step.held, most, style);
        writeln!(out, "  {up_to:>8} {bar} {}", step.held)?;
    }
    Ok(())
}

fn store(side: &SideSummary, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "\n{}", buckets(side))
}

/// Describes, in one or two lines, how many buckets were created and evicted.
pub(super) fn buckets(side: &SideSummary) -> String {
    let store = side.store;
    let (idle, lossy) = (store.evicted_lossless, store.evicted_lossy);
    let created = store.created.saturating_add(idle).saturating_add(lossy);
    let created = counted(created, "bucket");
    let created = format!("{created} created; capacity {}", store.buckets);
    match (idle, lossy) {
        (0, 0) => created,
        (idle, 0) => format!("{created}\nevicted: {idle} idle"),
        (idle, lossy) => format!("{created}\nevicted: {idle} idle, {lossy} in use"),
    }
}

/// Prints notes and invalid lines.
fn notes(summary: &RunSummary, out: &mut dyn Write, style: Style) -> io::Result<()> {
    let trace = &summary.trace;
    for note in &summary.notes {
        print_note("note", note, out, style)?;
    }
    if trace.bad_lines > 0 {
        let bad = bad_lines(trace.bad_lines);
        writeln!(out, "\n{}", Paint::Bad.on(&bad, style))?;
        for bad in &trace.first_bad_lines {
            writeln!(out, "  {}", escape(&bad.to_string()))?;
            if !bad.text.is_empty() {
                let text = escape(&bad.text);
                let text = style.marks(&style.fit(&text, WIDEST.saturating_sub(4)));
                writeln!(out, "    {}", Paint::Dim.on(&text, style))?;
            }
        }
    }
    Ok(())
}

/// Returns the heading for the invalid lines, with their number.
pub fn bad_lines(count: u64) -> String {
    match count {
        1 => "1 invalid line was skipped:".to_owned(),
        _ => format!("{count} invalid lines were skipped; the first ones:"),
    }
}
