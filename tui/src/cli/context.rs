//! The context of every command: the client, the output format, and the prompt for confirmation.

use std::io::{self, BufRead as _, Read as _};
use std::time::Duration;

use anyhow::{Result, bail};
use loudou_limiter::Nanos;

use super::config_file;
use super::options::{AskArgs, Format, Global, Output};
use super::target::{self, Address};
use super::world::{Io, Usage, style};
use crate::draw::theme::Appearance;
use loudou_client::Client;
use loudou_print::style::Style;
use loudou_words::text::escape;

/// Default time limit of a call to Envoy.
pub(super) const TIMEOUT: Nanos = Nanos::from_secs(5);
/// Maximum number of bytes that are read as the answer to a prompt.
const MAX_ANSWER: u64 = 80;

pub(super) struct Context<'a, 'io> {
    pub(super) global: &'a Global,
    /// The arguments as typed.
    pub(super) typed: &'a str,
    pub(super) io: &'a mut Io<'io>,
    pub(super) style: Style,
    /// Client of the Envoy to call if the command runs at several Envoys, or `None` to call the
    /// Envoy that the options name.
    pub(super) at: Option<&'a Client>,
    /// True once the warnings about the connection have been printed.
    has_warned: bool,
}

impl<'a, 'io> Context<'a, 'io> {
    pub(super) fn new(global: &'a Global, typed: &'a str, io: &'a mut Io<'io>) -> Self {
        let style = style(global, io);
        Self {
            global,
            typed,
            io,
            style,
            at: None,
            has_warned: false,
        }
    }

    pub(super) fn format(&self) -> Format {
        let output = self.global.output.and_then(Output::format);
        output.unwrap_or_default()
    }

    /// Returns true if the output is an HTML page, which only `replay` can write.
    pub(super) fn is_html(&self) -> bool {
        self.global.output == Some(Output::Html)
    }

    /// Returns a client for the Envoy to call.
    pub(super) fn client(&mut self) -> Result<Client> {
        if let Some(client) = self.at {
            return Ok(client.clone());
        }
        match target::all(&self.global.connect)?.as_slice() {
            [address] => self.client_at(address, TIMEOUT),
            several => bail!(Usage(format!(
                "this command takes one Envoy, and {} are named",
                several.len()
            ))),
        }
    }

    /// Returns a client for one address. `timeout` is the time limit of its calls if neither the
    /// options nor the config file set one.
    pub(super) fn client_at(&mut self, address: &Address, timeout: Nanos) -> Result<Client> {
        let connect = &self.global.connect;
        let (target, warnings) = target::read(address, connect, &self.io.env)?;
        if !self.has_warned {
            self.has_warned = true;
            for warning in warnings {
                self.note(&format!("warning: {warning}"))?;
            }
        }
        let timeout = self.global.timeout.unwrap_or(timeout);
        // No request has been sent yet, so the error is about the address or the token.
        Client::new(&target, duration(timeout)).map_err(|bad| Usage(bad.to_string()).into())
    }

    /// Returns the appearance of the screen.
    pub(super) fn look(&self) -> Appearance {
        let config = &self.global.config;
        config_file::look(config, self.global, &self.io.env, self.style)
    }

    /// Returns a prefix that names the Envoy that a note is about. The prefix is the Envoy's
    /// address if the command runs at several Envoys, and is otherwise empty.
    pub(super) fn at_envoy(&self) -> String {
        self.at
            .map(|client| format!("{}: ", escape(client.url())))
            .unwrap_or_default()
    }

    /// Prints a note to standard error, so that it does not mix with the data on standard output.
    pub(super) fn note(&mut self, text: &str) -> io::Result<()> {
        // Flushes standard output, so that earlier output appears before the note.
        self.io.out.flush()?;
        writeln!(self.io.err, "{}", self.style.marks(text))
    }

    /// Fails if changes are forbidden.
    pub(super) fn may_change(&self) -> Result<()> {
        if self.global.read_only {
            let why = if self.global.config.read_only {
                "`read_only` in the config file forbids changes; --config-file names another one"
            } else {
                "--read-only forbids changes"
            };
            bail!(Usage(why.to_owned()));
        }
        Ok(())
    }

    /// Fails if the output format is CSV, because a single change is not a table.
    pub(super) fn no_csv(&self) -> Result<()> {
        if self.format() == Format::Csv {
            let forms = "--output csv is not available here; write table, json or jsonl";
            bail!(Usage(forms.to_owned()));
        }
        Ok(())
    }

    /// Fails if `--output` requests a format other than a table, because manual pages and scripts
    /// have only one format.
    pub(super) fn only_text(&self) -> Result<()> {
        if self.format() != Format::Table {
            bail!(Usage("--output is not available here".to_owned()));
        }
        Ok(())
    }

    /// Returns true if the command must ask for confirmation.
    pub(super) fn asks(&self, args: &AskArgs) -> bool {
        self.io.input_terminal && !args.yes
    }

    /// Asks the question on standard error. Only the answers `y` and `yes` confirm.
    pub(super) fn confirmed(&mut self, question: &str) -> Result<bool> {
        self.io.out.flush()?;
        write!(self.io.err, "{question} [y/N] ")?;
        self.io.err.flush()?;
        let mut answer = Vec::new();
        let mut input = (&mut self.io.input).take(MAX_ANSWER);
        input.read_until(b'\n', &mut answer)?;
        let answer = String::from_utf8_lossy(&answer).trim().to_lowercase();
        Ok(matches!(answer.as_str(), "y" | "yes"))
    }
}

pub(super) fn duration(span: Nanos) -> Duration {
    Duration::from_nanos(span.get())
}
