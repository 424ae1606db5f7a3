//! Runs commands at several Envoys. A command either runs at each Envoy in turn, or merges the
//! answers of all Envoys into one list.
//!
//! The output of each Envoy is printed below the Envoy's address. JSON Lines and CSV form one list
//! instead, with the Envoy's address in each line. If the command fails at an Envoy, the error
//! includes the Envoy's address. The last line reports the number of Envoys at which the command
//! succeeded, and the addresses at which it failed.

use std::collections::BTreeSet;
use std::io::{self, Write};

use anyhow::{Error, Result, bail};
use loudou_client::{Client, ClientError};
use loudou_words::num::count;
use loudou_words::text::{counted, escape, json_safe};

use super::context::{Context, TIMEOUT};
use super::options::{Format, Output};
use super::outcome::Outcome;
use super::target::{self, Address};
use super::world::{Io, Usage};
use super::{Cli, Command, command, events, failed};
use crate::short_names::short_names;
use loudou_print::table::csv_field;

/// Clients of several Envoys, in the order of the addresses on the command line.
pub(super) struct Envoys {
    clients: Vec<Client>,
}

/// Answers of several Envoys, in the order of [`Envoys`], with `None` for each Envoy that did not
/// answer.
pub(super) struct Answers<'a, T> {
    pub(super) of_each: Vec<Option<T>>,
    errors: Vec<(&'a Client, Error)>,
}

impl Envoys {
    /// Creates a client for each address. Duplicate addresses are rejected, because the Envoy would
    /// count twice.
    pub(super) fn new(context: &mut Context<'_, '_>, addresses: &[Address]) -> Result<Self> {
        let mut clients = Vec::new();
        for address in addresses {
            clients.push(context.client_at(address, TIMEOUT)?);
        }
        let mut urls = BTreeSet::new();
        if let Some(client) = clients.iter().find(|client| !urls.insert(client.url())) {
            bail!(Usage(format!(
                "{} is given twice; leave one out",
                escape(client.url())
            )));
        }
        Ok(Self { clients })
    }

    pub(super) const fn len(&self) -> usize {
        self.clients.len()
    }

    pub(super) fn urls(&self) -> Vec<&str> {
        self.clients.iter().map(Client::url).collect()
    }

    /// Returns a short name for each Envoy, escaped for the terminal.
    pub(super) fn names(&self) -> Vec<String> {
        let names = short_names(&self.urls()).into_iter();
        names.map(|name| escape(&name).into_owned()).collect()
    }

    /// Sends a request to each Envoy in turn.
    pub(super) fn ask<T>(&self, ask: impl Fn(&Client) -> Result<T, ClientError>) -> Answers<'_, T> {
        let mut errors = Vec::new();
        let of_each = self.clients.iter().map(|client| {
            let answer = ask(client).map_err(|error| errors.push((client, error.into())));
            answer.ok()
        });
        Answers {
            of_each: of_each.collect(),
            errors,
        }
    }
}

impl<T> Answers<'_, T> {
    /// Returns the answers if at least one Envoy answered. Otherwise, returns the first error and
    /// reports all others.
    pub(super) fn if_any(mut self, context: &mut Context<'_, '_>) -> Result<Self> {
        if self.errors.len() < self.of_each.len() || self.errors.is_empty() {
            return Ok(self);
        }
        let (client, first) = self.errors.remove(0);
        let mut failures = Failures::default();
        for (client, error) in self.errors {
            failures.report(error, client, context.io);
        }
        Err(named(first, &escape(client.url())))
    }

    /// Reports the errors of the Envoys that did not answer, and the number of Envoys that
    /// answered.
    pub(super) fn end(self, context: &mut Context<'_, '_>) -> Result<Outcome> {
        let mut failures = Failures::default();
        for (client, error) in self.errors {
            failures.report(error, client, context.io);
        }
        failures.end(context, self.of_each.len())
    }
}

impl Command {
    /// Returns the option that makes the command repeat, `--watch` or `--follow`, if it is set.
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

    /// Returns true if the command calls a single Envoy. Such a command can run at several Envoys
    /// in turn.
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
            // `top` calls several Envoys at once. The other commands write one file or call no
            // Envoy.
            Self::Top(_)
            | Self::Check(_)
            | Self::Convert(_)
            | Self::Init(_)
            | Self::Demo(_)
            | Self::Replay(_)
            | Self::Export(_)
            | Self::Import(_)
            | Self::Relay(_)
            | Self::Schema { .. }
            | Self::Completions { .. }
            | Self::Man(_)
            | Self::Help(_) => false,
        }
    }
}

/// Returns the addresses of the Envoys if there are at least two, and the command has to run at
/// each of them in turn.
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

/// Runs the command at each Envoy. If an address, or a file with a token or certificate, is
/// invalid, runs the command at no Envoy.
pub(super) fn run(
    cli: &Cli,
    typed: &str,
    addresses: &[Address],
    io: &mut Io<'_>,
) -> Result<Outcome> {
    let envoys = Envoys::new(&mut Context::new(&cli.global, typed, io), addresses)?;
    // Events are merged by time, so that one list shows who changed what at which Envoy.
    if let Some(Command::Events(args)) = &cli.command {
        return events::merged(&mut Context::new(&cli.global, typed, io), args, &envoys);
    }
    let mut failures = Failures::default();
    let format = cli.global.output.and_then(Output::format);
    let mut joined = Joined::new(format.unwrap_or_default());
    for (number, client) in envoys.clients.iter().enumerate() {
        let outcome = if let Some(joined) = &mut joined {
            let (outcome, text) = captured(cli, typed, client, io);
            joined.print(&text, client.url(), io.out)?;
            outcome
        } else {
            if number > 0 {
                writeln!(io.out)?;
            }
            writeln!(io.out, "{}", escape(client.url()))?;
            command(cli, typed, Some(client), io)
        };
        io.out.flush()?;
        let outcome = match outcome {
            Ok(outcome) => failures.add(client, outcome),
            Err(error) => failures.report(error, client, io),
        };
        if outcome == Outcome::Unread {
            return Ok(outcome);
        }
    }
    failures.end(&mut Context::new(&cli.global, typed, io), envoys.len())
}

/// Runs the command at one Envoy and captures its output.
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

/// Adds the Envoy's address to an error, unless the error already contains it. If the output is
/// redirected, the error is the only place that shows which Envoy failed.
fn named(error: Error, url: &str) -> Error {
    let names_it = format!("{error:#}").contains(url);
    if names_it {
        error
    } else {
        error.context(url.to_owned())
    }
}

/// The Envoys at which a command failed.
#[derive(Default)]
struct Failures(Vec<(String, Outcome)>);

impl Failures {
    /// Records an Envoy's outcome if it is a failure.
    fn add(&mut self, client: &Client, outcome: Outcome) -> Outcome {
        if outcome != Outcome::Done {
            self.0.push((escape(client.url()).into_owned(), outcome));
        }
        outcome
    }

    /// Reports an Envoy's error, and records its outcome.
    fn report(&mut self, error: Error, client: &Client, io: &mut Io<'_>) -> Outcome {
        let outcome = failed(&named(error, &escape(client.url())), io);
        self.add(client, outcome)
    }

    /// Reports the Envoys at which the command failed, and the number of Envoys at which it
    /// succeeded.
    fn end(self, context: &mut Context<'_, '_>, all: usize) -> Result<Outcome> {
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

    /// Returns the outcome of the first failure. `Misused` promises that nothing was changed, so it
    /// is only returned if the command failed with it at all Envoys.
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

/// Name of the JSON field or CSV column that contains the Envoy's address.
const ENVOY: &str = "envoy";

/// Joins the outputs of several Envoys into one list of JSON Lines or CSV records.
pub(super) struct Joined {
    is_csv: bool,
    /// True once the CSV heading has been printed. All Envoys have the same heading, so it is
    /// printed only once.
    has_heading: bool,
}

impl Joined {
    /// Creates an empty list for JSON Lines or CSV. Returns `None` for other formats, whose lines
    /// cannot contain the Envoy's address.
    pub(super) fn new(format: Format) -> Option<Self> {
        let is_csv = format == Format::Csv;
        (is_csv || format == Format::Jsonl).then_some(Self {
            is_csv,
            has_heading: false,
        })
    }

    /// Prints the output of an Envoy, with the Envoy's address added to each line. JSON Lines and
    /// CSV escape line breaks within values, so each line is a complete record.
    pub(super) fn print(&mut self, text: &str, url: &str, out: &mut dyn Write) -> io::Result<()> {
        let mut lines = text.lines();
        if !self.is_csv {
            let url = json_safe(serde_json::to_string(url)?);
            return lines.try_for_each(|line| writeln!(out, "{}", with_field(line, &url)));
        }
        let heading = lines.next();
        if let Some(heading) = heading.filter(|_| !self.has_heading) {
            write!(out, "{ENVOY},{heading}\r\n")?;
            self.has_heading = true;
        }
        let url = csv_field(url);
        lines.try_for_each(|line| write!(out, "{url},{line}\r\n"))
    }
}

/// Returns a JSON object with the Envoy's address as its first field.
fn with_field(object: &str, url: &str) -> String {
    match object.strip_prefix('{') {
        Some("}") => format!("{{\"{ENVOY}\":{url}}}"),
        Some(fields) => format!("{{\"{ENVOY}\":{url},{fields}"),
        None => object.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(format: Format, outputs: &[(&str, &str)]) -> String {
        let mut joined = Joined::new(format).expect("a list");
        let mut out = Vec::new();
        for (url, text) in outputs {
            joined.print(text, url, &mut out).expect("writes");
        }
        String::from_utf8(out).expect("UTF-8")
    }

    #[test]
    fn each_object_names_its_envoy() {
        let outputs = [
            ("http://a", "{\"x\":1}\n{}\n"),
            ("b\"\u{1b}", "{\"x\":2}\n"),
            ("c", ""),
        ];
        assert_eq!(
            joined(Format::Jsonl, &outputs),
            "{\"envoy\":\"http://a\",\"x\":1}\n{\"envoy\":\"http://a\"}\n{\"envoy\":\"b\\\"\\u001b\",\"x\":2}\n"
        );
    }

    /// The first output may be empty, because the Envoy did not answer. The heading then comes from
    /// the next output.
    #[test]
    fn records_have_one_heading() {
        let outputs = [
            ("a", ""),
            ("b", "x,y\r\n1,2\r\n"),
            ("c,d", "x,y\r\n3,4\r\n5,6\r\n"),
        ];
        assert_eq!(
            joined(Format::Csv, &outputs),
            "envoy,x,y\r\nb,1,2\r\n\"c,d\",3,4\r\n\"c,d\",5,6\r\n"
        );
    }

    #[test]
    fn other_formats_are_no_lists() {
        assert!(Joined::new(Format::Table).is_none() && Joined::new(Format::Json).is_none());
    }
}
