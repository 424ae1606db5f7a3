//! Implements `loudou events`, which prints changes with their authors, and warnings, either once
//! or as they happen.

use std::io;
use std::io::Write;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use loudou_api::{Event, EventKind, EventSource, Events};
use loudou_client::live::collect::collect;
use loudou_client::live::document::Document;
use loudou_client::live::ledger::{Ledger, Lost, Poll};
use loudou_client::live::{Clocks, gone};
use loudou_client::{Client, ClientError};
use loudou_limiter::Nanos;
use loudou_words::meaning::leased::is_alarm;
use loudou_words::num::typed;
use loudou_words::text::{date, escape};

use super::complete;
use super::context::Context;
use super::envoys::{Envoys, Joined};
use super::options::{Format, span};
use super::outcome::Outcome;
use super::world::{json, json_list};
use loudou_print::style::Style;
use loudou_print::table::{Cell, Paint, Set, TextTable, csv};

const EXAMPLES: &str = "\
Examples:
  loudou events
  loudou events --follow
  loudou events --of operators                    who changed what
  loudou events --since 1h --limit 20             the newest 20 of the last hour
  loudou events --after 120 --output jsonl";

#[derive(Debug, Args)]
#[command(before_long_help = EXAMPLES)]
pub(crate) struct EventsArgs {
    /// Only events after this number
    ///
    /// The prefix INSTANCE- names the Envoy process that counted the events
    #[arg(long, value_name = "[INSTANCE-]N", default_value = "0", value_parser = event_number)]
    pub(crate) after: EventNumber,
    /// Only operators' actions, or only the filter's
    #[arg(long, value_name = "operators|filter", value_parser = source)]
    #[arg(add = complete::words(&EventSource::NAMES))]
    pub(crate) of: Option<EventSource>,
    /// Only events of the last TIME, such as 1h
    #[arg(long, value_name = "TIME", value_parser = span, allow_hyphen_values = true)]
    pub(crate) since: Option<Nanos>,
    /// Only the newest N events
    #[arg(long, value_name = "N", value_parser = typed::<usize>, allow_hyphen_values = true)]
    pub(crate) limit: Option<usize>,
    /// Continue and print events as they happen
    #[arg(short, long)]
    pub(crate) follow: bool,
}

impl EventsArgs {
    /// Applies `--since`, measured by Envoy's clock.
    fn keep_since(&self, events: &mut Events) {
        if let Some(since) = self.since {
            let begin = events.now_ns.saturating_sub(since.get());
            events.events.retain(|event| event.at_ns >= begin);
        }
    }

    /// Applies `--limit` to a sorted list of events.
    fn keep_newest<T>(&self, events: &mut Vec<T>) {
        if let Some(limit) = self.limit {
            events.drain(..events.len().saturating_sub(limit));
        }
    }
}

/// The sequence number of an event, and the process that assigned it.
#[derive(Clone, Debug)]
pub(crate) struct EventNumber {
    /// Instance ID of the process. An empty ID stands for any process.
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
    let mut events = client.events_of(args.of, instance, *seq)?;
    if is_other(&events, instance) {
        // Without an instance, a number that is too high may be a typo, or may come from an earlier
        // process.
        let started = if instance.is_empty() {
            let at = date(events.started_unix_ms);
            format!("Envoy, started at {at}, has counted no event {seq} yet")
        } else {
            gone(std::iter::empty(), events.started_unix_ms)
        };
        context.note(&format!("{started}: all its events follow"))?;
    }
    args.keep_since(&mut events);
    args.keep_newest(&mut events.events);
    show(context, &events, true)?;
    if args.follow {
        (context.io.succeed_on_interrupt)()?;
        follow(context, &client, args.of, &events)
    } else {
        Ok(())
    }
}

// Implements `loudou events --follow`, which prints events as they happen, across restarts of
// Envoy.

/// Time between two polls.
const INTERVAL: Nanos = Nanos::from_secs(1);

/// Polls Envoy, and prints the events that are newer than the first answer.
fn follow(
    context: &mut Context<'_, '_>,
    client: &Client,
    of: Option<EventSource>,
    first: &Events,
) -> Result<()> {
    let mut following = Following {
        of,
        instance: first.instance.clone(),
        seq: first.last_seq,
        ledger: keep(context, client, first)?,
    };
    let mut waited = Nanos::ZERO;
    loop {
        (context.io.pause)(Duration::from_nanos(INTERVAL.get()))?;
        match following.step(context, client) {
            Ok(restarted) => {
                if waited > Nanos::ZERO && !restarted {
                    context.note("connected again")?;
                }
                waited = Nanos::ZERO;
            }
            Err(Trouble::Gone(error)) if waited < context.io.patience => {
                if waited == Nanos::ZERO {
                    context.note(&format!("{error}\nretrying until Envoy is back"))?;
                }
                waited = waited.saturating_add(INTERVAL);
            }
            Err(Trouble::Gone(error)) => return Err(error.into()),
            Err(Trouble::Other(error)) => return Err(error),
        }
    }
}

/// Starts a ledger of the live edits, overrides and bans.
fn keep(context: &mut Context<'_, '_>, client: &Client, first: &Events) -> Result<Option<Ledger>> {
    if first.instance.is_empty() {
        return Ok(None);
    }
    match collect(client) {
        Ok(live) => Ok(Some(Ledger::new(live))),
        Err(error) => {
            let what = "losses by a restart will not be reported";
            context.note(&format!("{what}: {}", escape(&error.to_string())))?;
            Ok(None)
        }
    }
}

/// Reason why a poll failed.
enum Trouble {
    /// Envoy cannot be reached or is not ready.
    Gone(ClientError),
    Other(anyhow::Error),
}

impl From<ClientError> for Trouble {
    fn from(error: ClientError) -> Self {
        let not_ready = error.status() == Some(503);
        let not_there =
            error.problem().is_none() && !matches!(error, ClientError::BadTarget { .. });
        if not_ready || not_there {
            Self::Gone(error)
        } else {
            Self::Other(error.into())
        }
    }
}

impl From<anyhow::Error> for Trouble {
    fn from(error: anyhow::Error) -> Self {
        Self::Other(error)
    }
}

/// Position in Envoy's event list, and the ledger of live changes.
struct Following {
    /// Source of the events to print. Events from all sources are read, because the ledger needs
    /// them.
    of: Option<EventSource>,
    instance: String,
    seq: u64,
    ledger: Option<Ledger>,
}

impl Following {
    /// Polls once. Returns true if this was the first poll of a new Envoy process.
    fn step(&mut self, context: &mut Context<'_, '_>, client: &Client) -> Result<bool, Trouble> {
        let events = client.events(&self.instance, self.seq)?;
        // Older filters do not report their instance. If the latest sequence number is lower than
        // before, such a filter has restarted.
        if events.last_seq < self.seq && !events.restarted {
            self.seq = 0;
            return Ok(false);
        }
        let restarted = is_other(&events, &self.instance);
        let mut again = None;
        if let Some(mut ledger) = self.ledger.take() {
            let looked = poll(&mut ledger, client, &events, restarted);
            // If a read fails, no events are printed. The next poll reads the same events again.
            again = ledger.lost().filter(|_| looked.is_ok()).cloned();
            if looked.is_ok() {
                ledger.forget();
            }
            self.ledger = Some(ledger);
            looked?;
        }
        if restarted {
            report_restart(context, &events, again.as_ref())?;
        }
        let mut shown = events.clone();
        let of = self.of;
        let is_of = |event: &Event| of.is_none_or(|of| of == event.kind.source());
        shown.events.retain(is_of);
        show(context, &shown, false)?;
        self.seq = events.last_seq;
        self.instance.clone_from(&events.instance);
        Ok(restarted)
    }
}

/// Records the events in the ledger, and reads the rules again if they may have changed.
fn poll(
    ledger: &mut Ledger,
    client: &Client,
    events: &Events,
    restarted: bool,
) -> Result<(), ClientError> {
    let newest = events.events.last();
    if newest.is_none() && !restarted {
        return Ok(());
    }
    let of_rules = |event: &Event| {
        !matches!(
            event.kind,
            EventKind::Ban | EventKind::Unban | EventKind::BanExpired | EventKind::Reset
        )
    };
    let rules = if restarted || events.lost > 0 || events.events.iter().any(of_rules) {
        Some(client.rules()?)
    } else {
        None
    };
    if rules
        .as_ref()
        .is_some_and(|rules| rules.instance != events.instance)
    {
        return Err(client.restarted());
    }
    ledger.poll(&Poll {
        instance: &events.instance,
        started_unix_ms: events.started_unix_ms,
        clocks: Clocks {
            now_ns: newest.map_or(events.now_ns, |event| event.at_ns),
            unix_ms: newest.map_or(events.started_unix_ms, |event| event.at_unix_ms),
        },
        rules: rules.as_ref(),
        events: &events.events,
    });
    Ok(())
}

/// Reports that Envoy restarted, which changes were lost, and the command that applies them again.
fn report_restart(
    context: &mut Context<'_, '_>,
    events: &Events,
    lost: Option<&Lost>,
) -> Result<()> {
    let Some(lost) = lost.filter(|lost| lost.items().len() > 0) else {
        let text = gone(std::iter::empty(), events.started_unix_ms);
        return Ok(context.note(&text)?);
    };
    let document = Document::new(&lost.instance, lost.started_unix_ms, lost.items());
    let mut text = Vec::new();
    json(&mut text, Format::Jsonl, &document)?;
    let text = String::from_utf8_lossy(&text);
    let url = context.global.connect.url.join(",");
    let url = escape(&url);
    let line = lost.line();
    context.note(&format!(
        "{line}\nto apply them again, run:\n\nloudou --url {url} import - <<'END'\n{text}END\n"
    ))?;
    Ok(())
}

// The events of several Envoys as one list, ordered by time.

/// Prints the events of all Envoys that answer, and reports the Envoys that do not.
pub(in crate::cli) fn merged(
    context: &mut Context<'_, '_>,
    args: &EventsArgs,
    envoys: &Envoys,
) -> Result<Outcome> {
    let EventNumber { instance, seq } = &args.after;
    let names = envoys.names();
    let mut answers = envoys.ask(|client| client.events_of(args.of, instance, *seq));
    let mut all: Vec<(u64, usize, Event)> = Vec::new();
    for ((number, events), name) in answers.of_each.iter_mut().enumerate().zip(&names) {
        let Some(mut events) = events.take() else {
            continue;
        };
        args.keep_since(&mut events);
        if is_other(&events, instance) {
            context.note(&format!(
                "{name}: another process; all its events are listed"
            ))?;
        }
        if events.lost > 0 {
            let lost = events.lost;
            context.note(&format!("{name}: {lost} older events are no longer kept"))?;
        }
        // Keeps the order of an Envoy's events even if the Envoy's clock was set back.
        let mut at_ms = 0;
        all.extend(events.events.into_iter().map(|event| {
            at_ms = event.at_unix_ms.max(at_ms);
            (at_ms, number, event)
        }));
    }
    all.sort_by_key(|(at_ms, number, _)| (*at_ms, *number));
    args.keep_newest(&mut all);
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
            let url = envoys.urls().get(*number).copied().unwrap_or_default();
            joined.print(&String::from_utf8_lossy(&text), url, context.io.out)?;
        }
    } else {
        let name = |number: &usize| names.get(*number).map_or("", String::as_str);
        let envoys: Vec<&str> = numbers.iter().map(name).collect();
        table(&events, &envoys).print(context.io.out, style)?;
    }
    context.io.out.flush()?;
    answers.end(context)
}

// Prints events as a table, JSON or CSV.

/// Returns true if the events are known to come from a process other than `instance`.
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

/// Prints events. The heading is printed only if `first` is true.
fn print(
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

/// Returns a table of the events, with the names of the Envoys if there are several.
fn table(events: &[Event], envoys: &[&str]) -> TextTable {
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
