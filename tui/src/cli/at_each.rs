//! One command at several Envoys, one after the other: the output of each below its address, and at the end where it
//! failed.

use anyhow::{Result, bail};

use super::context::Context;
use super::options::Output;
use super::outcome::Outcome;
use super::target::{self, Address};
use super::world::{Io, Usage};
use super::{Cli, Command, command, failed};
use crate::text::{counted, escape};

impl Command {
    /// Whether it is repeated.
    const fn watches(&self) -> bool {
        let watch = match self {
            Self::Status(args) => &args.watch,
            Self::Rules(args) => &args.watch,
            Self::Buckets(args) => &args.watch,
            _ => return false,
        };
        watch.watch.is_some()
    }

    /// Whether it asks one Envoy, so that it can ask several in turn.
    const fn asks_one(&self) -> bool {
        match self {
            Self::Status(_)
            | Self::Rules(_)
            | Self::Buckets(_)
            | Self::Get(_)
            | Self::Set(_)
            | Self::Unset(_)
            | Self::Reset(_)
            | Self::Ban(_)
            | Self::Unban(_)
            | Self::Override(_) => true,
            Self::Explain(args) => args.asks_envoy(),
            // Top and record watch several at once; the others follow, write one file, or ask nobody.
            Self::Top(_)
            | Self::Record(_)
            | Self::Check(_)
            | Self::Replay(_)
            | Self::Events(_)
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
    if cli
        .global
        .output
        .is_some_and(|output| output != Output::Table)
    {
        bail!(Usage(format!(
            "{} Envoys give tables only; for --output json run the command once for each",
            addresses.len()
        )));
    }
    if command.watches() {
        bail!(Usage(format!(
            "--watch takes one Envoy, and {} are named",
            addresses.len()
        )));
    }
    Ok(Some(addresses))
}

/// Runs it at each; the outcome is the first that is a failure.
pub(super) fn run(
    cli: &Cli,
    typed: &str,
    addresses: &[Address],
    io: &mut Io<'_>,
) -> Result<Outcome> {
    let mut first = Outcome::Done;
    let mut failures = Vec::new();
    for (number, address) in addresses.iter().enumerate() {
        if number > 0 {
            writeln!(io.out)?;
        }
        let url = escape(&address.url).into_owned();
        writeln!(io.out, "{url}")?;
        let outcome = command(cli, typed, Some(address), io);
        io.out.flush()?;
        // Where the output goes elsewhere, nothing else says which of them it was.
        let named = |error: anyhow::Error| {
            let names_it = format!("{error:#}").contains(url.as_str());
            if names_it {
                error
            } else {
                error.context(url.clone())
            }
        };
        let outcome = outcome.unwrap_or_else(|error| failed(&named(error), io));
        if outcome == Outcome::Unread {
            return Ok(outcome);
        }
        if outcome != Outcome::Done {
            failures.push(url);
            if first == Outcome::Done {
                first = outcome;
            }
        }
    }
    if !failures.is_empty() {
        let done = addresses.len().saturating_sub(failures.len());
        let mut context = Context::new(&cli.global, typed, io);
        let of = counted(crate::num::count(addresses.len()), "Envoy");
        context.note(&format!(
            "done at {done} of {of}; failed at {}",
            failures.join(", ")
        ))?;
    }
    Ok(first)
}
