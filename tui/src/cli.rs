//! The command line: reads it, runs the command, and turns the outcome into an exit code.
//!
//! 0: done. 1: failed, or `check` found problems. 2: used wrongly. Standard output gets data and
//! nothing else.

use std::ffi::OsString;
use std::io::{self, IsTerminal as _};
use std::process::ExitCode;

use anyhow::Result;
use clap::{CommandFactory as _, Parser as _};
use loudou_limiter::Nanos;
use loudou_rules::config;

mod args;
mod bans;
mod buckets;
mod check;
mod context;
mod edit;
mod events;
mod examples;
mod explain;
mod import;
mod overrides;
mod replay;
mod report;
mod rules;
mod status;
mod table;
#[cfg(test)]
mod tests;
mod top;
mod words;
mod world;

use args::{Cli, Command};
use context::Context;
use world::{Env, Io, Usage};

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Done,
    Failed,
    Misused,
}

impl Outcome {
    const fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::Misused => 2,
        }
    }
}

/// Runs `loudou` with the arguments and the terminal of this process.
pub fn main() -> ExitCode {
    // Not locked: the screen writes to the terminal from where it likes.
    let (stdout, stderr, stdin) = (io::stdout(), io::stderr(), io::stdin());
    let size = crossterm::terminal::size().ok();
    let mut io = Io {
        out_terminal: stdout.is_terminal(),
        err_terminal: stderr.is_terminal(),
        input_terminal: stdin.is_terminal(),
        out: &mut io::BufWriter::new(stdout),
        err: &mut &stderr,
        input: &mut io::BufReader::new(stdin),
        width: size.map(|(width, _)| usize::from(width)),
        env: Env::read(),
        patience: Nanos::MAX,
    };
    ExitCode::from(run(std::env::args_os(), &mut io).code())
}

fn run(args: impl IntoIterator<Item = OsString>, io: &mut Io<'_>) -> Outcome {
    match Cli::try_parse_from(args) {
        Ok(cli) => {
            let outcome = command(&cli, io);
            // What was printed before a failure is still wanted.
            let flushed = io.out.flush();
            match outcome.and_then(|outcome| flushed.map(|()| outcome).map_err(Into::into)) {
                Ok(outcome) => outcome,
                Err(error) => failed(&error, io),
            }
        }
        Err(error) => unparsed(&error, io),
    }
}

/// Help and version are for standard output, what is wrong with the arguments is not.
fn unparsed(error: &clap::Error, io: &mut Io<'_>) -> Outcome {
    // `print` knows about colours; only a real terminal has them.
    let printed = if io.out_terminal {
        error.print()
    } else if error.use_stderr() {
        write!(io.err, "{}", error.render())
    } else {
        write!(io.out, "{}", error.render()).and_then(|()| io.out.flush())
    };
    match (printed, error.use_stderr()) {
        (_, true) => Outcome::Misused,
        (Ok(()), false) => Outcome::Done,
        (Err(_), false) => Outcome::Failed,
    }
}

fn failed(error: &anyhow::Error, io: &mut Io<'_>) -> Outcome {
    let broken_pipe = error.chain().any(|cause| {
        let io = cause.downcast_ref::<io::Error>();
        io.is_some_and(|io| io.kind() == io::ErrorKind::BrokenPipe)
    });
    if broken_pipe {
        // `loudou buckets | head` has what it wanted.
        return Outcome::Done;
    }
    // Nothing is left to be told when standard error is gone too.
    drop(writeln!(io.err, "loudou: {error:#}"));
    if error.is::<Usage>() {
        Outcome::Misused
    } else {
        Outcome::Failed
    }
}

fn command(cli: &Cli, io: &mut Io<'_>) -> Result<Outcome> {
    let mut context = Context::new(&cli.global, io);
    let context = &mut context;
    match &cli.command {
        None => top::run(context, None)?,
        Some(Command::Top(args)) => top::run(context, Some(args))?,
        Some(Command::Check(args)) => return check::run(context, args),
        Some(Command::Replay(args)) => return replay::run(context, args),
        Some(Command::Status) => status::run(context)?,
        Some(Command::Rules(args)) => rules::run(context, args)?,
        Some(Command::Buckets(args)) => buckets::run(context, args)?,
        Some(Command::Get(args)) => buckets::get(context, args)?,
        Some(Command::Explain(args)) => return explain::run(context, args),
        Some(Command::Set(args)) => return edit::set(context, args),
        Some(Command::Unset(args)) => return edit::unset(context, args),
        Some(Command::Reset(args)) => return edit::reset(context, args),
        Some(Command::Ban(args)) => return bans::ban(context, args),
        Some(Command::Unban(args)) => return bans::unban(context, args),
        Some(Command::Override(args)) => return overrides::run(context, args),
        Some(Command::Events(args)) => events::run(context, args)?,
        Some(Command::Export(args)) => rules::export(context, args)?,
        Some(Command::Import(args)) => return import::run(context, args),
        Some(Command::Schema { markdown }) => schema(context, *markdown)?,
        Some(Command::Completions { shell }) => {
            clap_complete::generate(*shell, &mut Cli::command(), "loudou", &mut context.io.out);
        }
    }
    Ok(Outcome::Done)
}

fn schema(context: &mut Context<'_, '_>, markdown: bool) -> Result<()> {
    context.no_csv()?;
    if markdown {
        write!(context.io.out, "{}", config::fields_markdown())?;
        return Ok(());
    }
    let format = context.format();
    world::json(context.io.out, format, &config::schema())?;
    Ok(())
}
