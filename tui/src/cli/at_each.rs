//! One command at several Envoys, one after the other: the output of each below its address, or as one list that names
//! the Envoy in each line, and at the end where it failed.

use anyhow::{Error, Result, bail};

use super::context::{Context, TIMEOUT};
use super::joined::Joined;
use super::options::Output;
use super::outcome::Outcome;
use super::target::{self, Address};
use super::targets;
use super::world::{Io, Usage};
use super::{Cli, Command, command, events, failed};
use loudou_client::Client;
use loudou_words::num::count;
use loudou_words::text::{counted, escape};

impl Command {
    /// The option that repeats it, if it is given.
    const fn watches(&self) -> Option<&'static str> {
        let watch = match self {
            Self::Status(args) => &args.watch,
            Self::Rules(args) => &args.watch,
            Self::Buckets(args) => &args.watch,
            Self::Events(args) if args.follow => return Some("--follow"),
            _ => return None,
        };
        if watch.watch.is_some() {
            Some("--watch")
        } else {
            None
        }
    }

    /// Whether it asks one Envoy, so that it can ask several in turn.
    const fn asks_one(&self) -> bool {
        match self {
            Self::Status(_)
            | Self::Rules(_)
            | Self::Buckets(_)
            | Self::Events(_)
            | Self::Get(_)
            | Self::Set(_)
            | Self::Unset(_)
            | Self::Reset(_)
            | Self::Ban(_)
            | Self::Unban(_)
            | Self::Override(_) => true,
            Self::Explain(args) => args.asks_envoy(),
            // Top asks several at once; the others write one file, or ask nobody.
            Self::Top(_)
            | Self::Check(_)
            | Self::Replay(_)
            | Self::Export(_)
            | Self::Import(_)
            | Self::Relay(_)
            | Self::Schema { .. }
            | Self::Completions { .. }
            | Self::Man(_) => false,
        }
    }
}

/// The Envoys that a command is for, if there are several.
pub(super) fn several(cli: &Cli) -> Result<Option<Vec<Address>>> {
    let Some(command) = cli.command.as_ref().filter(|command| command.asks_one()) else {
        return Ok(None);
    };
    let addresses = target::all(&cli.global.connect)?;
    if addresses.len() < 2 {
        return Ok(None);
    }
    if cli.global.output == Some(Output::Json) {
        bail!(Usage(format!(
            "{} Envoys give no single document; write table, jsonl or csv",
            addresses.len()
        )));
    }
    if let Some(option) = command.watches() {
        bail!(Usage(format!(
            "{option} takes one Envoy, and {} are named",
            addresses.len()
        )));
    }
    Ok(Some(addresses))
}

/// Runs it at each. Where nothing can be asked, because of an address or a file that is wrong, it runs at none.
pub(super) fn run(
    cli: &Cli,
    typed: &str,
    addresses: &[Address],
    io: &mut Io<'_>,
) -> Result<Outcome> {
    let clients = targets::clients(
        &mut Context::new(&cli.global, typed, io),
        addresses,
        TIMEOUT,
    )?;
    // By time, so that who changed what where is one story.
    if let Some(Command::Events(args)) = &cli.command {
        return events::merged(&mut Context::new(&cli.global, typed, io), args, &clients);
    }
    let mut failures = Failures::default();
    let format = cli.global.output.and_then(Output::format);
    let mut joined = Joined::new(format.unwrap_or_default());
    for (number, client) in clients.iter().enumerate() {
        let url = escape(client.url()).into_owned();
        let outcome = if let Some(joined) = &mut joined {
            let (outcome, text) = captured(cli, typed, client, io);
            joined.print(&text, client.url(), io.out)?;
            outcome
        } else {
            if number > 0 {
                writeln!(io.out)?;
            }
            writeln!(io.out, "{url}")?;
            command(cli, typed, Some(client), io)
        };
        io.out.flush()?;
        let outcome = outcome.unwrap_or_else(|error| failed(&named(error, &url), io));
        if outcome == Outcome::Unread {
            return Ok(outcome);
        }
        failures.add(url, outcome);
    }
    failures.end(&mut Context::new(&cli.global, typed, io), clients.len())
}

/// Runs it at one, with its output kept.
fn captured(cli: &Cli, typed: &str, client: &Client, io: &mut Io<'_>) -> (Result<Outcome>, String) {
    let mut text = Vec::new();
    let mut own = Io {
        out: &mut text,
        err: &mut *io.err,
        input: &mut *io.input,
        env: io.env.clone(),
        ..*io
    };
    let outcome = command(cli, typed, Some(client), &mut own);
    (outcome, String::from_utf8_lossy(&text).into_owned())
}

/// The error with the address of its Envoy: where the output goes elsewhere, nothing else says which of them it was.
pub(super) fn named(error: Error, url: &str) -> Error {
    let names_it = format!("{error:#}").contains(url);
    if names_it {
        error
    } else {
        error.context(url.to_owned())
    }
}

/// The Envoys where a command failed.
#[derive(Default)]
pub(super) struct Failures(Vec<(String, Outcome)>);

impl Failures {
    /// Adds the outcome at an Envoy, if it is a failure.
    pub(super) fn add(&mut self, url: String, outcome: Outcome) {
        if outcome != Outcome::Done {
            self.0.push((url, outcome));
        }
    }

    /// Reports where the command failed, at how many of all.
    pub(super) fn end(self, context: &mut Context<'_, '_>, all: usize) -> Result<Outcome> {
        let Some(outcome) = self.outcome(all) else {
            return Ok(Outcome::Done);
        };
        let done = all.saturating_sub(self.0.len());
        let urls: Vec<&str> = self.0.iter().map(|(url, _)| url.as_str()).collect();
        let of = counted(count(all), "Envoy");
        context.note(&format!(
            "done at {done} of {of}; failed at {}",
            urls.join(", ")
        ))?;
        Ok(outcome)
    }

    /// The outcome of the first failure. A wrong usage is one only if it is that for all: elsewhere, something may have
    /// been changed.
    fn outcome(&self, all: usize) -> Option<Outcome> {
        let (_, first) = self.0.first()?;
        let are_misused = self
            .0
            .iter()
            .all(|(_, outcome)| *outcome == Outcome::Misused);
        Some(match first {
            Outcome::Misused if !are_misused || self.0.len() < all => Outcome::Failed,
            first => *first,
        })
    }
}
