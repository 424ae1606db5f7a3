//! `loudou events`: changes with their authors, and warnings; once or as they happen.

use anyhow::Result;
use clap::Args;
use loudou_api::EventSource;

use super::complete;
use super::context::Context;
use loudou_client::live::gone;
use loudou_words::text::date;

mod follow;
mod merged;
mod view;

pub(super) use merged::merged;
use view::{is_other, show};

const EXAMPLES: &str = "\
Examples:
  loudou events
  loudou events --follow
  loudou events --of operators                    who changed what
  loudou events --after 120 --output jsonl";

#[derive(Debug, Args)]
#[command(before_help = EXAMPLES)]
pub(crate) struct EventsArgs {
    /// Only events after this number; INSTANCE- before it names the Envoy process that counted it
    #[arg(long, value_name = "[INSTANCE-]N", default_value = "0", value_parser = event_number)]
    pub(crate) after: EventNumber,
    /// Only operators' actions, or only what the filter did by itself
    #[arg(long, value_name = "operators|filter", value_parser = source)]
    #[arg(add = complete::words(&EventSource::NAMES))]
    pub(crate) of: Option<EventSource>,
    /// Continue and print events as they happen
    #[arg(short, long)]
    pub(crate) follow: bool,
}

/// The number of an event, and the process that counted it.
#[derive(Clone, Debug)]
pub(crate) struct EventNumber {
    /// The process that counts them; empty for any.
    pub(crate) instance: String,
    pub(crate) seq: u64,
}

fn event_number(text: &str) -> Result<EventNumber, String> {
    let (instance, seq) = text.rsplit_once('-').unwrap_or(("", text));
    let seq = seq
        .parse()
        .map_err(|_no_number| "invalid event number; write 120 or INSTANCE-120")?;
    Ok(EventNumber {
        instance: instance.to_owned(),
        seq,
    })
}

fn source(text: &str) -> Result<EventSource, String> {
    let allowed = EventSource::NAMES.join(", ");
    EventSource::parse(text).ok_or_else(|| format!("allowed: {allowed}"))
}

pub(super) fn run(context: &mut Context<'_, '_>, args: &EventsArgs) -> Result<()> {
    let client = context.client()?;
    let EventNumber { instance, seq } = &args.after;
    let events = client.events_of(args.of, instance, *seq)?;
    if is_other(&events, instance) {
        // A number alone may be a mistake as well as one of an earlier process.
        let started = if instance.is_empty() {
            let at = date(events.started_unix_ms);
            format!("Envoy, started at {at}, has counted no event {seq} yet")
        } else {
            gone(std::iter::empty(), events.started_unix_ms)
        };
        context.note(&format!("{started}: all its events follow"))?;
    }
    show(context, &events, true)?;
    if args.follow {
        (context.io.succeed_on_interrupt)()?;
        follow::run(context, &client, args.of, &events)
    } else {
        Ok(())
    }
}
