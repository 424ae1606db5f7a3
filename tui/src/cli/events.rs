//! `loudou events`: who changed what, and warnings; once or as they happen.

use std::io::{self, Write};

use anyhow::Result;
use clap::Args;
use loudou_api::{Event, Events};

use super::context::Context;
use super::options::Format;
use super::table::{Cell, Paint, Set, Table, csv};
use super::world::{Style, json_list};
use crate::live::gone;
use crate::text::date;

mod follow;

const EXAMPLES: &str = "\
Examples:
  loudou events
  loudou events --follow
  loudou events --after 120 --output jsonl";

#[derive(Debug, Args)]
#[command(before_help = EXAMPLES)]
pub(crate) struct EventsArgs {
    /// Only events after this number; with INSTANCE- before it, of that start of Envoy
    #[arg(long, value_name = "[INSTANCE-]N", default_value = "0", value_parser = place)]
    pub(crate) after: Place,
    /// Go on, and print events as they happen
    #[arg(short, long)]
    pub(crate) follow: bool,
}

/// A place among the events.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// The process that counts them; empty for whichever it is.
    pub(crate) instance: String,
    pub(crate) seq: u64,
}

fn place(text: &str) -> Result<Place, String> {
    let (instance, seq) = text.rsplit_once('-').unwrap_or(("", text));
    let seq = seq
        .parse()
        .map_err(|_no_number| "not a number of an event; write 120 or INSTANCE-120")?;
    Ok(Place {
        instance: instance.to_owned(),
        seq,
    })
}

pub(super) fn run(context: &mut Context<'_, '_>, args: &EventsArgs) -> Result<()> {
    let client = context.client()?;
    let Place { instance, seq } = &args.after;
    let events = client.events(instance, *seq)?;
    if is_other(&events, instance) {
        let started = gone(std::iter::empty(), events.started_unix_ms);
        context.note(&format!(
            "{started}: these are its events from the first on"
        ))?;
    }
    show(context, &events, true)?;
    if args.follow {
        follow::run(context, &client, &events)
    } else {
        Ok(())
    }
}

/// Whether events are of another process than `instance`, if that is known.
fn is_other(events: &Events, instance: &str) -> bool {
    events.restarted || (!instance.is_empty() && events.instance != *instance)
}

fn show(context: &mut Context<'_, '_>, events: &Events, first: bool) -> Result<()> {
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

/// Prints events; the heading only `first`.
pub(super) fn print(
    events: &Events,
    first: bool,
    format: Format,
    style: Style,
    out: &mut dyn Write,
) -> io::Result<()> {
    match format {
        Format::Table if first => table(&events.events).print(out, style),
        Format::Table => table(&events.events).print_rows(out, style),
        Format::Json | Format::Jsonl => json_list(out, format, events, &events.events),
        Format::Csv => lines(&events.events, first, out),
    }
}

fn table(events: &[Event]) -> Table {
    let mut table = Table::new(&[
        ("SEQ", Set::Right),
        ("TIME", Set::Left),
        ("KIND", Set::Left),
        ("RULE", Set::Left),
        ("KEY", Set::Shrink),
        ("BY", Set::Left),
        ("WHAT", Set::Shrink),
        ("REASON", Set::Shrink),
    ]);
    for event in events {
        let kind = Cell::new(event.kind.name());
        table.row(vec![
            event.seq.into(),
            date(event.at_unix_ms).into(),
            if event.kind == loudou_api::EventKind::Warning {
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
