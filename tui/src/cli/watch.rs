//! Implements `--watch`, which repeats a command that prints a list. On a terminal, the list is
//! redrawn in place below a heading. Elsewhere, each round prints the list again, after an empty
//! line.
//!
//! If a round fails, the failure is reported and the next round is tried, because Envoy may be
//! restarting. The first round must succeed, so that a wrong address or token is reported at once.

use std::fmt::Write as _;
use std::io;

use anyhow::{Result, anyhow};
use clap::Args;
use loudou_limiter::Nanos;

use super::context::{Context, TIMEOUT, duration};
use super::options::{Format, span};
use super::target;
use super::world::{Io, Usage};
use loudou_print::table::Paint;
use loudou_words::text::{date, escape, humanise};

/// Minimum interval. A reader could not follow updates at shorter intervals.
const MIN_INTERVAL: Nanos = Nanos::from_millis(100);
/// Number of rows if the terminal's size is unknown.
const ROWS: usize = 24;
/// Moves the cursor to the top left and turns off wrapping, so that each line takes exactly one
/// row.
const BEGIN: &str = "\x1b[H\x1b[?7l";
const CLEAR: &str = "\x1b[2J";
const END_OF_LINE: &str = "\x1b[K\n";
/// Clears the remainder of an earlier, longer output, and turns on wrapping again.
const END: &str = "\x1b[J\x1b[?7h";

#[derive(Debug, Default, Args)]
pub(crate) struct WatchArgs {
    /// Repeat every TIME [default: 2s]
    ///
    /// Until Ctrl-C; on a terminal, redraw in place
    #[arg(long, value_name = "TIME", num_args = 0..=1, default_missing_value = "2s")]
    #[arg(value_parser = interval)]
    pub(crate) watch: Option<Nanos>,
}

fn interval(text: &str) -> Result<Nanos, String> {
    let every = span(text).map_err(|why| format!("{why}; a rule comes before --watch"))?;
    if every < MIN_INTERVAL {
        return Err(format!(
            "too short; at least {}",
            humanise(MIN_INTERVAL.get())
        ));
    }
    Ok(every)
}

/// Runs `once`, and repeats it if `--watch` is set.
pub(super) fn run(
    context: &mut Context<'_, '_>,
    args: &WatchArgs,
    mut once: impl FnMut(&mut Context<'_, '_>) -> Result<()>,
) -> Result<()> {
    let Some(every) = args.watch else {
        return once(context);
    };
    (context.io.succeed_on_interrupt)()?;
    let mut watch = Watch {
        every,
        is_redrawn: context.io.has_screen() && context.format() != Format::Jsonl,
        rounds: 0,
        last: Round::default(),
        trouble: None,
    };
    let mut waited = Nanos::ZERO;
    loop {
        match watch.round(context, &mut once) {
            Ok(round) => {
                watch.show(context, round)?;
                waited = Nanos::ZERO;
            }
            Err(error)
                if watch.rounds > 0 && waited < context.io.patience && !error.is::<Usage>() =>
            {
                watch.report(context, &error)?;
                waited = waited.saturating_add(every);
            }
            Err(error) => return Err(error),
        }
        (context.io.pause)(duration(every))?;
    }
}

/// Output of a round.
#[derive(Default)]
struct Round {
    text: String,
    /// Server's time. Empty if the heading is not shown.
    time: String,
}

/// Returns the time of the first Envoy that answers.
fn time(context: &mut Context<'_, '_>) -> Result<String> {
    let mut first = None;
    for address in target::all(&context.global.connect)? {
        match context.client_at(&address, TIMEOUT)?.status() {
            Ok(status) => return Ok(date(status.unix_ms)),
            Err(error) => first = first.or(Some(error)),
        }
    }
    Err(first.map_or_else(|| anyhow!("there is no Envoy"), Into::into))
}

struct Watch {
    every: Nanos,
    is_redrawn: bool,
    /// Number of rounds that succeeded.
    rounds: u64,
    last: Round,
    /// Latest failure, which is cleared once a round succeeds.
    trouble: Option<String>,
}

impl Watch {
    /// Runs the command once and captures its output.
    fn round(
        &self,
        context: &mut Context<'_, '_>,
        once: &mut impl FnMut(&mut Context<'_, '_>) -> Result<()>,
    ) -> Result<Round> {
        let (mut text, mut notes) = (Vec::new(), Vec::new());
        let io = &mut *context.io;
        let mut own = Io {
            out: &mut text,
            // A note printed during drawing would shift the output, so notes are captured, too.
            err: if self.is_redrawn {
                &mut notes
            } else {
                &mut *io.err
            },
            input: &mut *io.input,
            width: (io.size)().map_or(io.width, |(columns, _)| Some(columns)),
            err_terminal: io.err_terminal && !self.is_redrawn,
            env: io.env.clone(),
            ..*io
        };
        let mut inner = Context::new(context.global, context.typed, &mut own);
        let time = if self.is_redrawn {
            time(&mut inner)?
        } else {
            String::new()
        };
        once(&mut inner)?;
        text.extend(notes);
        let text = String::from_utf8_lossy(&text).into_owned();
        Ok(Round { text, time })
    }

    fn show(&mut self, context: &mut Context<'_, '_>, round: Round) -> io::Result<()> {
        self.trouble = None;
        if self.is_redrawn {
            self.last = round;
            self.draw(context)?;
        } else {
            if self.rounds > 0 && context.format() != Format::Jsonl {
                writeln!(context.io.out)?;
            }
            context.io.out.write_all(round.text.as_bytes())?;
            context.io.out.flush()?;
        }
        self.rounds = self.rounds.saturating_add(1);
        Ok(())
    }

    /// Reports a failure. On a terminal, the failure is shown above the previous output. Elsewhere,
    /// consecutive equal failures are printed only once.
    fn report(&mut self, context: &mut Context<'_, '_>, error: &anyhow::Error) -> io::Result<()> {
        let trouble = format!("loudou: {error:#}");
        let is_new = self.trouble.as_ref() != Some(&trouble);
        self.trouble = Some(trouble.clone());
        if self.is_redrawn {
            self.draw(context)
        } else if is_new {
            context.note(&trouble)
        } else {
            Ok(())
        }
    }

    /// Draws the heading, the failure and the output. Lines that do not fit on the terminal are
    /// left out.
    fn draw(&self, context: &mut Context<'_, '_>) -> io::Result<()> {
        let rows = (context.io.size)().map_or(ROWS, |(_, rows)| rows);
        let style = context.style;
        let every = humanise(self.every.get());
        let typed = escape(context.typed);
        let head = format!("every {every}: loudou {typed}    {}", self.last.time);
        let trouble = self.trouble.iter().flat_map(|trouble| trouble.lines());
        let trouble = trouble.map(|line| Paint::Bad.on(line, style));
        let mut lines = vec![Paint::Heading.on(&head, style)];
        lines.extend(trouble);
        lines.push(String::new());
        lines.extend(self.last.text.lines().map(str::to_owned));
        // The last row stays empty for the cursor.
        let room = rows.saturating_sub(1).max(1);
        let hidden = lines.len().saturating_sub(room);
        if hidden > 0 {
            lines.truncate(room.saturating_sub(1));
            lines.push(format!("{} more lines", hidden.saturating_add(1)));
        }
        let mut picture = BEGIN.to_owned();
        if self.rounds == 0 {
            picture.push_str(CLEAR);
        }
        for line in lines {
            // Writing to a string does not fail.
            let _written = write!(picture, "{line}{END_OF_LINE}");
        }
        picture.push_str(END);
        context.io.out.write_all(picture.as_bytes())?;
        context.io.out.flush()
    }
}
