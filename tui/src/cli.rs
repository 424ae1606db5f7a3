//! The command line: reads it, runs the command, and turns the outcome into an exit code.
//!
//! The exit codes are in `outcome`. Where nobody reads the output any more, SIGPIPE ends the command. Standard
//! output gets only data.

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
mod edit;
mod envoys;
mod events;
mod explain;
mod export;
mod files;
#[cfg(feature = "fuzz")]
pub mod fuzzing;
mod import;
mod man;
mod on_key;
mod options;
mod outcome;
mod overrides;
mod printed;
mod relay;
mod replay;
mod rules;
mod status;
mod table;
mod target;
mod targets;
#[cfg(test)]
mod tests;
mod top;
mod typed_limits;
mod watch;
mod world;

use context::Context;
use options::Global;
use outcome::{Outcome, exit_codes};
use world::{Env, Io, Usage};

use loudou_client::Client;

const EXAMPLES: &str = "\
Examples:
  loudou                                          watch the buckets, live
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
#[command(name = "loudou", version, styles = STYLES, before_help = EXAMPLES)]
#[command(after_help = exit_codes())]
#[command(disable_help_subcommand = true, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    global: Global,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Watch the buckets on a live screen (the default); without a terminal, list the most refused keys
    Top(top::TopArgs),
    /// Check rule files, or the rules in an envoy.yaml, and describe them in words
    Check(check::CheckArgs),
    /// Run a rule file over recorded traffic and report how it would have decided
    Replay(replay::ReplayArgs),
    /// Show filter and store health
    Status(status::StatusArgs),
    /// List the rules, or show one
    Rules(rules::RulesArgs),
    /// List live buckets
    Buckets(buckets::BucketsArgs),
    /// Show one bucket
    Get(buckets::GetArgs),
    /// Show how a request would be decided, rule by rule, without taking anything
    Explain(explain::ExplainArgs),
    /// Edit the limits or the mode of a rule while Envoy runs
    Set(edit::SetArgs),
    /// Drop the edit of a rule and return to the plugin configuration
    Unset(edit::UnsetArgs),
    /// Reset a bucket to its initial state; requests that wait keep their places
    Reset(on_key::ResetArgs),
    /// Refuse all requests of a key, for some time or until it is unbanned
    Ban(on_key::BanArgs),
    /// Lift the ban of a key and clear the refusals and penalties that led to it
    Unban(on_key::UnbanArgs),
    /// Give one key, or all keys with a prefix, limits other than those of the rule
    Override(overrides::OverrideArgs),
    /// Show changes, with their authors, and warnings
    Events(events::EventsArgs),
    /// Print the effective rule file as JSON, to commit it, or everything that a restart would lose
    Export(export::ExportArgs),
    /// Apply the edits, overrides and bans that `export --live` printed
    Import(import::ImportArgs),
    /// Start the relay, through which Envoys share limits
    #[command(disable_help_flag = true)]
    Relay(relay::RelayArgs),
    /// Print the JSON Schema of rule files, for editors and pipelines
    #[command(before_help = SCHEMA_EXAMPLES)]
    Schema {
        /// Print the fields as tables in Markdown instead
        #[arg(long)]
        markdown: bool,
    },
    /// Print a completion script, which also knows the rules and keys of the live Envoy
    #[command(before_help = COMPLETIONS_EXAMPLES)]
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Print a manual page: of loudou, or of one of its commands
    #[command(before_help = MAN_EXAMPLES)]
    Man(man::ManArgs),
}

/// Runs `loudou` with the arguments and the terminal of this process.
pub fn main() -> ExitCode {
    if let Some(code) = complete::answered(Cli::command) {
        return code;
    }
    // Not locked: the screen writes to the terminal from several places.
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
        succeed_on_interrupt: world::succeed_on_interrupt,
    };
    let outcome = run(std::env::args_os(), &mut io);
    if outcome == Outcome::Unread {
        // Ends like other programs whose reader has gone: by the signal that Rust ignores.
        drop(emulate_default_handler(SIGPIPE));
    }
    ExitCode::from(outcome.code())
}

fn run(args: impl IntoIterator<Item = OsString>, io: &mut Io<'_>) -> Outcome {
    let args: Vec<OsString> = args.into_iter().collect();
    // The relay has options of the same names, which are not for this program.
    if let [_, name, options @ ..] = args.as_slice()
        && name == "relay"
    {
        return failed(&relay::run(options), io);
    }
    match parsed_by(&Cli::command(), &args) {
        Ok(mut cli) => {
            if let Err(error) = configured(&mut cli, io) {
                return failed(&error, io);
            }
            let words = args.iter().skip(1).map(|word| word.to_string_lossy());
            let typed = words.collect::<Vec<_>>().join(" ");
            let outcome = match envoys::several(&cli) {
                Ok(Some(addresses)) => envoys::run(&cli, &typed, &addresses, io),
                Ok(None) => command(&cli, &typed, None, io),
                Err(error) => Err(error),
            };
            // Output that was printed before a failure is kept.
            let flushed = io.out.flush();
            match outcome.and_then(|outcome| flushed.map(|()| outcome).map_err(Into::into)) {
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
    // The usage in an error of clap has the options that are set, also those that only the environment sets: it is
    // taken from a command without them.
    parsed(options::is_empty_variable).map_err(|error| parsed(|_| true).err().unwrap_or(error))
}

/// Applies the config file, for commands that ask an Envoy.
fn configured(cli: &mut Cli, io: &mut Io<'_>) -> Result<()> {
    let is_apart = matches!(
        cli.command,
        Some(
            Command::Check(_)
                | Command::Replay(_)
                | Command::Schema { .. }
                | Command::Completions { .. }
                | Command::Man(_)
        )
    );
    if is_apart {
        return Ok(());
    }
    for warning in config_file::apply(&mut cli.global, &io.env)? {
        writeln!(io.err, "warning: {warning}")?;
    }
    let asks_envoys = match &cli.command {
        Some(Command::Explain(args)) => args.asks_envoy(),
        _ => true,
    };
    if asks_envoys {
        targets::add(&mut cli.global.connect, io)?;
    }
    Ok(())
}

/// Help and version go to standard output, wrong arguments to standard error.
fn unparsed(error: &clap::Error, io: &mut Io<'_>) -> Outcome {
    // `print` handles colours, which only a real terminal shows.
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
    // `loudou buckets | head` closes the pipe early: nothing to report.
    if outcome != Outcome::Unread {
        // If standard error is closed too, there is no place left to report.
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
        Some(Command::Relay(args)) => return Err(relay::run(&args.options)),
        Some(Command::Schema { markdown }) => schema(context, *markdown)?,
        Some(Command::Completions { shell }) => {
            context.only_text()?;
            complete::script(*shell, context.io.out)?;
        }
        Some(Command::Man(args)) => man::run(context, args, Cli::command())?,
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
