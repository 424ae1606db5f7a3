//! Events as tables, JSON and CSV.

use std::io::{self, Write};

use anyhow::Result;
use loudou_api::{Event, Events};

use crate::cli::context::Context;
use crate::cli::options::Format;
use crate::cli::table::{Cell, Paint, Set, TextTable, csv};
use crate::cli::world::{Style, json_list};
use loudou_words::meaning::leased::is_alarm;
use loudou_words::text::date;

/// True if the events are known to come from a process other than `instance`.
pub(super) fn is_other(events: &Events, instance: &str) -> bool {
    events.restarted || (!instance.is_empty() && events.instance != *instance)
}

pub(super) fn show(context: &mut Context<'_, '_>, events: &Events, first: bool) -> Result<()> {
    if events.lost > 0 {
        context.note(&format!("{} older events are no longer kept", events.lost))?;
    }
    if first || !events.events.is_empty() {
        let format = context.format();
        print(events, first, format, context.style, context.io.out)?;
        context.io.out.flush()?;
    }
    Ok(())
}

/// Prints events, with the heading only if `first`.
pub(super) fn print(
    events: &Events,
    first: bool,
    format: Format,
    style: Style,
    out: &mut dyn Write,
) -> io::Result<()> {
    match format {
        Format::Table if first => table(&events.events, &[]).print(out, style),
        Format::Table => table(&events.events, &[]).print_rows(out, style),
        Format::Json | Format::Jsonl => json_list(out, format, events, &events.events),
        Format::Csv => lines(&events.events, first, out),
    }
}

/// The events, with the names of their Envoys, if there are several.
pub(super) fn table(events: &[Event], envoys: &[&str]) -> TextTable {
    let mut columns = vec![
        ("SEQ", Set::Right),
        ("TIME", Set::Left),
        ("KIND", Set::Left),
        ("RULE", Set::Left),
        ("KEY", Set::Shrink),
        ("BY", Set::Left),
        ("DETAIL", Set::Shrink),
        ("REASON", Set::Shrink),
    ];
    if !envoys.is_empty() {
        columns.insert(0, ("ENVOY", Set::Right));
    }
    let mut table = TextTable::new(&columns);
    let mut envoys = envoys.iter();
    for event in events {
        let kind = Cell::new(event.kind.name());
        let mut row: Vec<Cell> = envoys
            .next()
            .map(|envoy| Cell::from(*envoy))
            .into_iter()
            .collect();
        row.extend([
            event.seq.into(),
            date(event.at_unix_ms).into(),
            if is_alarm(event.kind) {
                kind.paint(Paint::Warn)
            } else {
                kind
            },
            event.rule.clone().into(),
            event.key.clone().into(),
            event.by.as_str().into(),
            event.detail.as_str().into(),
            event.reason.as_str().into(),
        ]);
        table.row(row);
    }
    table
}

fn lines(events: &[Event], first: bool, out: &mut dyn Write) -> io::Result<()> {
    if first {
        let heading = "seq,at_ns,at_unix_ms,kind,rule,key,by,detail,reason,generation";
        csv(out, heading.split(','))?;
    }
    for event in events {
        let record = [
            event.seq.to_string(),
            event.at_ns.to_string(),
            event.at_unix_ms.to_string(),
            event.kind.name().to_owned(),
            event.rule.clone().unwrap_or_default(),
            event.key.clone().unwrap_or_default(),
            event.by.clone(),
            event.detail.clone(),
            event.reason.clone(),
            event.generation.to_string(),
        ];
        csv(out, record.iter().map(String::as_str))?;
    }
    Ok(())
}
