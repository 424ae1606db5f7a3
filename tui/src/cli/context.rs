//! The context of every command: the client, the output format, and the prompt for confirmation.

use std::io::{self, BufRead as _, Read as _};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use loudou_limiter::Nanos;

use super::options::{AskArgs, Format, Global};
use super::world::{Env, Io, Style, Usage};
use crate::client::{Client, Target};
use crate::text::escape;

/// The default time-out of a call.
pub(super) const TIMEOUT: Nanos = Nanos::from_secs(5);
/// The maximum size of a token file, in bytes.
const MAX_TOKEN_FILE: u64 = 4096;
/// The maximum length of an answer to a question, in bytes.
const MAX_ANSWER: u64 = 80;

pub(super) struct Context<'a, 'io> {
    pub(super) global: &'a Global,
    /// The arguments as they were typed.
    pub(super) typed: &'a str,
    pub(super) io: &'a mut Io<'io>,
    pub(super) style: Style,
}

impl<'a, 'io> Context<'a, 'io> {
    pub(super) fn new(global: &'a Global, typed: &'a str, io: &'a mut Io<'io>) -> Self {
        let style = Style::new(global, io);
        Self {
            global,
            typed,
            io,
            style,
        }
    }

    pub(super) fn format(&self) -> Format {
        self.global.output.unwrap_or_default()
    }

    /// A client with the time-out from the options, or else `timeout`.
    pub(super) fn client_within(&self, timeout: Nanos) -> Result<Client> {
        let target = Target {
            url: self.global.url.clone(),
            token: token(self.global.token_file.as_deref(), &self.io.env)?,
        };
        let timeout = self.global.timeout.unwrap_or(timeout);
        // Only the address or the token can be wrong here: nothing was sent yet.
        Client::new(&target, duration(timeout)).map_err(|bad| Usage(bad.to_string()).into())
    }

    pub(super) fn client(&self) -> Result<Client> {
        self.client_within(TIMEOUT)
    }

    /// Prints a note on standard error, beside the data.
    pub(super) fn note(&mut self, text: &str) -> io::Result<()> {
        // Earlier output must appear first.
        self.io.out.flush()?;
        writeln!(self.io.err, "{}", self.style.marks(text))
    }

    /// Fails if changes are forbidden.
    pub(super) fn may_change(&self) -> Result<()> {
        if self.global.read_only {
            bail!(Usage("--read-only forbids changes".to_owned()));
        }
        Ok(())
    }

    /// Fails if the output would be CSV: one change is not a table.
    pub(super) fn no_csv(&self) -> Result<()> {
        if self.format() == Format::Csv {
            let forms = "--output csv is not available here; write table, json or jsonl";
            bail!(Usage(forms.to_owned()));
        }
        Ok(())
    }

    /// True if the command has to ask for confirmation.
    pub(super) fn asks(&self, args: &AskArgs) -> bool {
        self.io.input_terminal && !args.yes
    }

    /// Asks on standard error; only `y` and `yes` confirm.
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

/// The token from the file of the option, else from `LOUDOU_TOKEN`, else from the file that `LOUDOU_TOKEN_FILE` names.
pub(super) fn token(file: Option<&Path>, env: &Env) -> Result<Option<String>> {
    if let Some(file) = file {
        return token_from(file).map(Some);
    }
    if let Some(token) = &env.token {
        let token = token.to_str().context("LOUDOU_TOKEN is not text")?;
        return Ok(Some(token.to_owned()));
    }
    let file = env.token_file.as_ref();
    file.map(|file| token_from(Path::new(file))).transpose()
}

fn token_from(file: &Path) -> Result<String> {
    let name = file.display().to_string();
    let read = || -> io::Result<String> {
        let mut text = String::new();
        let mut file = std::fs::File::open(file)?.take(MAX_TOKEN_FILE);
        file.read_to_string(&mut text)?;
        Ok(text)
    };
    let text = read().with_context(|| format!("cannot read the token file {}", escape(&name)))?;
    Ok(text.trim().to_owned())
}
