//! `loudou events --follow`: events as they happen, across restarts of Envoy.

use std::time::Duration;

use anyhow::Result;
use loudou_api::{Event, EventKind, EventSource, Events};
use loudou_limiter::Nanos;

use super::view::{is_other, show};
use crate::cli::context::Context;
use crate::cli::options::Format;
use crate::cli::world::json;
use loudou_client::live::collect::collect;
use loudou_client::live::document::Document;
use loudou_client::live::ledger::{Ledger, Look, Lost};
use loudou_client::live::{Clocks, gone};
use loudou_client::{Client, ClientError};
use loudou_words::text::escape;

/// The interval between two polls.
const INTERVAL: Nanos = Nanos::from_secs(1);

/// Continues after the events of a first answer.
pub(super) fn run(
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

/// The reason why a step failed.
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

/// The position in the events.
struct Following {
    /// The source of the events to print; all are read, since they show what is in force.
    of: Option<EventSource>,
    instance: String,
    seq: u64,
    ledger: Option<Ledger>,
}

impl Following {
    /// Polls once. True if this was the first poll of a new process.
    fn step(&mut self, context: &mut Context<'_, '_>, client: &Client) -> Result<bool, Trouble> {
        let events = client.events(&self.instance, self.seq)?;
        // A smaller number than before, from a filter that names no process, means that it restarted counting.
        if events.last_seq < self.seq && !events.restarted {
            self.seq = 0;
            return Ok(false);
        }
        let restarted = is_other(&events, &self.instance);
        let mut again = None;
        if let Some(mut ledger) = self.ledger.take() {
            let looked = look(&mut ledger, client, &events, restarted);
            // The next poll reads again what could not be read; nothing is printed twice.
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
fn look(
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
    ledger.look(&Look {
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

/// Reports that Envoy restarted, what was lost, and the command that applies it again.
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
