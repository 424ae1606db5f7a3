//! The events of several Envoys as one list, by time.

use anyhow::Result;
use loudou_api::{Event, Events};

use super::view::{is_other, print, table};
use super::{EventNumber, EventsArgs};
use crate::cli::at_each::{Failures, named};
use crate::cli::context::Context;
use crate::cli::failed;
use crate::cli::joined::Joined;
use crate::cli::outcome::Outcome;
use crate::short_names::short_names;
use loudou_client::Client;
use loudou_words::text::escape;

/// Lists the events of all that answer; the others are reported.
pub(in crate::cli) fn merged(
    context: &mut Context<'_, '_>,
    args: &EventsArgs,
    clients: &[Client],
) -> Result<Outcome> {
    let EventNumber { instance, seq } = &args.after;
    let urls: Vec<&str> = clients.iter().map(Client::url).collect();
    let names: Vec<String> = short_names(&urls)
        .iter()
        .map(|name| escape(name).into_owned())
        .collect();
    let mut all: Vec<(u64, usize, Event)> = Vec::new();
    let mut failures = Failures::default();
    for ((number, client), name) in clients.iter().enumerate().zip(&names) {
        let events = match client.events_of(args.of, instance, *seq) {
            Ok(events) => events,
            Err(error) => {
                let url = escape(client.url()).into_owned();
                let outcome = failed(&named(error.into(), &url), context.io);
                failures.add(url, outcome);
                continue;
            }
        };
        if is_other(&events, instance) {
            context.note(&format!(
                "{name}: another process; all its events are listed"
            ))?;
        }
        if events.lost > 0 {
            let lost = events.lost;
            context.note(&format!("{name}: {lost} older events are no longer kept"))?;
        }
        // The order of an Envoy's own events stays, also where its clock was set back.
        let mut at_ms = 0;
        all.extend(events.events.into_iter().map(|event| {
            at_ms = event.at_unix_ms.max(at_ms);
            (at_ms, number, event)
        }));
    }
    all.sort_by_key(|(at_ms, number, _)| (*at_ms, *number));
    let numbers: Vec<usize> = all.iter().map(|(_, number, _)| *number).collect();
    let events: Vec<Event> = all.into_iter().map(|(.., event)| event).collect();
    let (format, style) = (context.format(), context.style);
    if let Some(mut joined) = Joined::new(format) {
        for (number, event) in numbers.iter().zip(events) {
            let one = Events {
                events: vec![event],
                ..Events::default()
            };
            let mut text = Vec::new();
            print(&one, true, format, style, &mut text)?;
            let url = urls.get(*number).copied().unwrap_or_default();
            joined.print(&String::from_utf8_lossy(&text), url, context.io.out)?;
        }
    } else {
        let name = |number: &usize| names.get(*number).map_or("", String::as_str);
        let envoys: Vec<&str> = numbers.iter().map(name).collect();
        table(&events, &envoys).print(context.io.out, style)?;
    }
    context.io.out.flush()?;
    failures.end(context, clients.len())
}
