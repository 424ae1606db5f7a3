//! Parses the command line, runs the command, and turns the outcome into an exit code.
//!
//! The exit codes are defined in `outcome`. Only data is written to standard output. If the reader
//! of standard output closes the pipe, SIGPIPE ends the command.

use std::ffi::{OsStr, OsString};
use std::io::{self, IsTerminal as _};
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::builder::styling::{AnsiColor, Styles};
use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use clap_complete::Shell;
use loudou_limiter::Nanos;
use loudou_rules::config;
use signal_hook::consts::SIGPIPE;
use signal_hook::low_level::emulate_default_handler;

mod buckets;
mod changes;
mod check;
mod complete;
mod config_file;
mod context;
mod convert;
mod demo;
mod edit;
mod envoys;
mod events;
mod explain;
mod export;
mod files;
#[cfg(feature = "fuzz")]
pub mod fuzzing;
mod help;
mod import;
mod init;
mod man;
mod markdown;
mod on_key;
mod options;
mod outcome;
mod overrides;
mod printed;
mod relay;
mod replay;
mod rules;
mod status;
mod target;
mod targets;
#[cfg(test)]
mod tests;
mod top;
mod typed_limits;
mod watch;
mod world;
mod zones;

use context::Context;
use options::Global;
use outcome::Outcome;
use world::{Env, Io, Usage};

use loudou_client::Client;

const EXAMPLES: &str = "\
Examples:
  loudou                                          watch the buckets, live
  loudou demo                                     an Envoy with simulated users, on the screen
  loudou init                                     write a first envoy.yaml with one rule
  loudou check rules.yaml                         check a rule file before Envoy sees it
  loudou replay --config rules.yaml --trace access.log    how it would have decided yesterday
  loudou buckets --state refusing                 keys that are refused right now
  loudou top --by refused                         keys that were refused most recently
  loudou explain --path /reply -H 'x-user-id: alice'    why a request would be refused
  loudou set per-user --capacity 100 --for 30m    raise a limit for half an hour
  loudou unset per-user                           undo that edit
  loudou ban per-user mallory --for 10m           refuse all requests of a key
  loudou override per-user alice scale=10         ten times the limits for one key";

const SCHEMA_EXAMPLES: &str = "\
Examples:
  loudou schema > loudou.schema.json
  # yaml-language-server: $schema=./loudou.schema.json      first line of a rules.yaml, for editors";

const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  loudou completions bash > ~/.local/share/bash-completion/completions/loudou
  loudou completions zsh > ~/.zfunc/_loudou
  loudou completions fish > ~/.config/fish/completions/loudou.fish";

const MAN_EXAMPLES: &str = "\
Examples:
  loudou man | man -l -
  loudou man set > ~/.local/share/man/man1/loudou-set.1";

const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default().bold())
    .placeholder(AnsiColor::Cyan.on_default());

/// Watch and edit the limits that Loudou enforces inside Envoy
#[derive(Debug, Parser)]
#[command(name = "loudou", version, styles = STYLES, before_long_help = EXAMPLES)]
#[command(disable_help_subcommand = true, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    global: Global,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Watch the buckets live, or list the most refused keys
    ///
    /// On a terminal this opens the screen, like `loudou` without a command. Without a terminal, or
    /// with options for a list, it prints a table of the most refused keys.
    Top(top::TopArgs),
    /// Check rule files, and describe them in words
    ///
    /// The rules may also be in an envoy.yaml, or in manifests for Kubernetes.
    Check(check::CheckArgs),
    /// Convert the limits of another rate limiter to a rule file
    ///
    /// The rule file goes to standard output. Each difference is a warning on standard error, and a
    /// comment in the file.
    Convert(convert::ConvertArgs),
    /// Write a first configuration, and print the commands that run it
    ///
    /// The file has one rule, the admin API, and the hash of a new token.
    Init(init::InitArgs),
    /// Start an Envoy with simulated users, and open the screen
    ///
    /// Without a terminal, a table of the buckets is printed. Envoy stops when the command ends.
    Demo(demo::DemoArgs),
    /// Run a rule file over recorded traffic
    Replay(replay::ReplayArgs),
    /// Show filter and store health
    Status(status::StatusArgs),
    /// List the rules, or show one
    Rules(rules::RulesArgs),
    /// List live buckets
    Buckets(buckets::BucketsArgs),
    /// Show one bucket
    Get(buckets::GetArgs),
    /// Show how a request would be decided, rule by rule
    ///
    /// Nothing is taken from any bucket.
    Explain(explain::ExplainArgs),
    /// Edit the limits or the mode of a rule while Envoy runs
    Set(edit::SetArgs),
    /// Drop the edit of a rule
    ///
    /// The rule of the plugin configuration then applies again.
    Unset(edit::UnsetArgs),
    /// Reset a bucket to its initial state
    ///
    /// Waiting requests keep their places in the queue.
    Reset(on_key::ResetArgs),
    /// Refuse all requests of a key, for a time or until unbanned
    Ban(on_key::BanArgs),
    /// Lift the ban of a key
    ///
    /// The refusals and penalties that led to it are cleared, too.
    Unban(on_key::UnbanArgs),
    /// Override the limits of one key, or of all keys with a prefix
    Override(overrides::OverrideArgs),
    /// Show changes, with their authors, and warnings
    Events(events::EventsArgs),
    /// Print the effective rule file, or what a restart would lose
    ///
    /// The file is JSON, ready to commit. With --live it contains the changes that exist only in
    /// Envoy's memory.
    Export(export::ExportArgs),
    /// Apply the edits, overrides and bans that `export --live` printed
    Import(import::ImportArgs),
    /// Start the relay, through which Envoys share limits
    #[command(disable_help_flag = true)]
    Relay(relay::RelayArgs),
    /// Print the JSON Schema of rule files, for editors
    #[command(before_long_help = SCHEMA_EXAMPLES)]
    Schema {
        /// Print the fields as tables in Markdown instead
        #[arg(long)]
        markdown: bool,
    },
    /// Print a completion script for a shell
    ///
    /// It also completes the rules and keys of the live Envoy.
    #[command(before_long_help = COMPLETIONS_EXAMPLES)]
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Print the manual page of loudou or of a command
    #[command(before_long_help = MAN_EXAMPLES)]
    Man(man::ManArgs),
    /// Print the help of a command, or of the connection
    Help(help::HelpArgs),
}

/// Returns clap's definition of the command line.
fn command_line() -> clap::Command {
    help::with_help(Cli::command())
}

/// Runs `loudou` with the arguments and the terminal of this process.
pub fn main() -> ExitCode {
    if let Some(code) = complete::answered(command_line) {
        return code;
    }
    // The standard streams stay unlocked, because the screen writes to the terminal through
    // separate handles.
    let (stdout, stderr, stdin) = (io::stdout(), io::stderr(), io::stdin());
    let mut io = Io {
        out_terminal: stdout.is_terminal(),
        err_terminal: stderr.is_terminal(),
        input_terminal: stdin.is_terminal(),
        out: &mut io::BufWriter::new(stdout),
        err: &mut &stderr,
        input: &mut io::BufReader::new(stdin),
        width: world::size().map(|(width, _)| width),
        env: Env::read(),
        patience: Nanos::MAX,
        pause: world::pause,
        size: world::size,
        wall: loudou_client::clock::wall,
        succeed_on_interrupt: world::succeed_on_interrupt,
    };
    let outcome = run(std::env::args_os(), &mut io);
    if outcome == Outcome::Unread {
        // Ends the process with SIGPIPE, like other programs whose reader closed the pipe. Rust's
        // runtime ignores this signal by default.
        drop(emulate_default_handler(SIGPIPE));
    }
    ExitCode::from(outcome.code())
}

fn run(args: impl IntoIterator<Item = OsString>, io: &mut Io<'_>) -> Outcome {
    let args: Vec<OsString> = args.into_iter().collect();
    // The relay parses its options itself, because some relay options have the same names as
    // options of `loudou`.
    if let [_, name, options @ ..] = args.as_slice()
        && name == "relay"
    {
        return match relay::run(options, io.out) {
            Ok(()) => Outcome::Done,
            Err(error) => failed(&error, io),
        };
    }
    match parsed_by(&command_line(), &args) {
        Ok(mut cli) => {
            let mut envoy = match configured(&mut cli, io) {
                Ok(envoy) => envoy,
                Err(error) => return failed(&error, io),
            };
            let words = args.iter().skip(1).map(|word| word.to_string_lossy());
            let typed = words.collect::<Vec<_>>().join(" ");
            let outcome = match envoys::several(&cli) {
                Ok(Some(addresses)) => envoys::run(&cli, &typed, &addresses, io),
                Ok(None) => command(&cli, &typed, None, io),
                Err(error) => Err(error),
            };
            // Flushes even after a failure, so that the output printed before it is not lost.
            let flushed = io.out.flush();
            // If the demo's Envoy has stopped, its error explains the failure of the screen.
            let stopped = envoy.as_mut().map_or(Ok(()), demo::Envoy::check);
            match stopped
                .and(outcome)
                .and_then(|outcome| flushed.map(|()| outcome).map_err(Into::into))
            {
                Ok(outcome) => outcome,
                Err(error) => failed(&error, io),
            }
        }
        Err(error) => unparsed(&error, io),
    }
}

fn parsed_by(command: &clap::Command, args: &[OsString]) -> Result<Cli, clap::Error> {
    let parsed = |is_unset: fn(&OsStr) -> bool| {
        let mut command = options::without_variables(command.clone(), is_unset);
        let matches = command.try_get_matches_from_mut(args)?;
        Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
    };
    // The usage line in clap's errors also lists options that are set by environment variables. The
    // arguments are therefore parsed again with these variables ignored, and the error of the
    // second attempt is reported.
    parsed(options::is_empty_variable).map_err(|error| {
        // Clap also returns help texts as errors. A help text must list the variables, so the
        // arguments are not parsed again.
        let again = error.use_stderr().then(|| parsed(|_| true).err());
        again.flatten().unwrap_or(error)
    })
}

/// Applies the config file if the command talks to an Envoy. Returns the Envoy that `loudou demo` starts.
fn configured(cli: &mut Cli, io: &mut Io<'_>) -> Result<Option<demo::Envoy>> {
    let is_apart = matches!(
        &cli.command,
        Some(
            Command::Check(_)
                | Command::Convert(_)
                | Command::Init(_)
                | Command::Replay(_)
                | Command::Schema { .. }
                | Command::Completions { .. }
                | Command::Man(_)
                | Command::Help(_)
        )
    );
    if is_apart {
        return Ok(None);
    }
    for warning in config_file::apply(&mut cli.global, &io.env)? {
        writeln!(io.err, "warning: {warning}")?;
    }
    if let Some(Command::Demo(args)) = &mut cli.command {
        return demo::prepare(args, &mut cli.global, io);
    }
    let asks_envoys = match &cli.command {
        Some(Command::Explain(args)) => args.asks_envoy(),
        _ => true,
    };
    if asks_envoys {
        targets::add(&mut cli.global.connect, io)?;
    }
    Ok(None)
}

/// Prints help and version to standard output, and argument errors to standard error.
fn unparsed(error: &clap::Error, io: &mut Io<'_>) -> Outcome {
    // `print` handles colours, which are only shown on a real terminal.
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
    let outcome = Outcome::of(error);
    // If the reader closes the pipe early, as in `loudou buckets | head`, no error is reported.
    if outcome != Outcome::Unread {
        // If standard error is closed too, the error cannot be reported.
        drop(writeln!(io.err, "loudou: {error:#}"));
    }
    outcome
}

fn command(cli: &Cli, typed: &str, at: Option<&Client>, io: &mut Io<'_>) -> Result<Outcome> {
    let mut context = Context::new(&cli.global, typed, io);
    context.at = at;
    let context = &mut context;
    if context.is_html() && !matches!(cli.command, Some(Command::Replay(_))) {
        let forms = "--output html is only for replay; write table, json, jsonl or csv";
        bail!(Usage(forms.to_owned()));
    }
    match &cli.command {
        None => return top::run(context, None),
        Some(Command::Top(args)) => return top::run(context, Some(args)),
        Some(Command::Check(args)) => return check::run(context, args),
        Some(Command::Convert(args)) => return convert::run(context, args),
        Some(Command::Init(args)) => return init::run(context, args),
        Some(Command::Demo(args)) => return demo::run(context, args),
        Some(Command::Replay(args)) => return replay::run(context, args),
        Some(Command::Status(args)) => status::run(context, args)?,
        Some(Command::Rules(args)) => rules::run(context, args)?,
        Some(Command::Buckets(args)) => buckets::run(context, args)?,
        Some(Command::Get(args)) => buckets::get(context, args)?,
        Some(Command::Explain(args)) => return explain::run(context, args),
        Some(Command::Set(args)) => return edit::set(context, args),
        Some(Command::Unset(args)) => return edit::unset(context, args),
        Some(Command::Reset(args)) => return on_key::reset(context, args),
        Some(Command::Ban(args)) => return on_key::ban(context, args),
        Some(Command::Unban(args)) => return on_key::unban(context, args),
        Some(Command::Override(args)) => return overrides::run(context, args),
        Some(Command::Events(args)) => events::run(context, args)?,
        Some(Command::Export(args)) => export::run(context, args)?,
        Some(Command::Import(args)) => return import::run(context, args),
        Some(Command::Relay(args)) => relay::run(&args.options, context.io.out)?,
        Some(Command::Schema { markdown }) => schema(context, *markdown)?,
        Some(Command::Completions { shell }) => {
            context.only_text()?;
            complete::script(*shell, context.io.out)?;
        }
        Some(Command::Man(args)) => man::run(context, args, command_line())?,
        Some(Command::Help(args)) => help::run(context, args, command_line())?,
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
