//! The help texts. `-h` is short, `--help` is complete, and `loudou help` also explains the
//! connection.

use anyhow::{Result, bail};
use clap::builder::StyledStr;
use clap::{Arg, Args, Command};

use super::context::Context;
use super::man;
use super::options::{CONNECTION, OUTPUT};
use super::outcome::exit_codes;
use super::world::Usage;

/// Commands that never call an Envoy. They accept the connection options, but do not list them.
const APART: [&str; 7] = [
    "check",
    "convert",
    "replay",
    "schema",
    "completions",
    "man",
    "help",
];
/// Commands that print only text. The output options do not apply to them either.
const TEXTS: [&str; 4] = ["convert", "completions", "man", "help"];
/// Name of the help topic about the connection options.
const TOPIC: &str = "connection";

/// Lines that replace the list of connection options in the short help.
const SHORT: &str = "\
Connection: --url, --token-file, TLS and more: see `loudou help connection`
Examples, colours and theme: see --help";
const LONG: &str = "`loudou help connection` explains the options of the connection, with examples";

const ABOUT: &str = "\
How `loudou` finds the admin listener of Envoy. These options may be in front of a command or behind it.";
const EXAMPLES: &str = "\
Examples:
  loudou --url http://10.0.0.7:9911 status
  loudou --url https://envoy.example.com:9911 --tls-ca ca.pem --token-file token buckets
  loudou --url unix:/run/loudou/admin.sock top
  loudou --url dns:http://envoy-admin:9911 top --by refused    all addresses of a name
  loudou --url @prod status                       a target of the config file
  export LOUDOU_URL=http://10.0.0.7:9911          for every command of this shell
  export LOUDOU_TOKEN_FILE=~/.loudou-token        mode 0600";

#[derive(Debug, Args)]
pub(crate) struct HelpArgs {
    /// A command, or `connection` [default: loudou itself]
    topic: Option<String>,
}

/// Returns true if this option determines how Envoy is reached.
pub(super) fn is_of_connection(arg: &Arg) -> bool {
    arg.get_help_heading() == Some(CONNECTION)
}

/// Adds the short and the long help to the command line.
pub(super) fn with_help(loudou: Command) -> Command {
    let is_of_all = |arg: &Arg| {
        let is_of_output = arg.get_help_heading() == Some(OUTPUT) && arg.get_id() != "output";
        arg.get_help_heading() == Some(CONNECTION) || is_of_output
    };
    let loudou = loudou.mut_args(|arg| {
        let is_of_all = is_of_all(&arg);
        arg.hide_short_help(is_of_all)
    });
    let global: Vec<Arg> = loudou.get_arguments().cloned().collect();
    let hidden = |name: &str| {
        let is_hidden = move |arg: &&Arg| {
            let is_of_screen = arg.get_id() == "theme";
            let is_of_output = arg.get_help_heading() == Some(OUTPUT) && TEXTS.contains(&name);
            arg.get_help_heading() == Some(CONNECTION) || is_of_screen || is_of_output
        };
        let hidden = global.iter().filter(is_hidden).cloned();
        hidden.map(|arg| arg.hide(true)).collect::<Vec<_>>()
    };
    let loudou = loudou.mut_subcommands(|command| {
        let name = command.get_name().to_owned();
        if APART.contains(&name.as_str()) {
            // An argument of the command replaces the global argument of the same name.
            command.args(hidden(&name))
        } else if name == "relay" {
            command
        } else {
            command.after_help(SHORT).after_long_help(LONG)
        }
    });
    let long = format!("{}\n\n{LONG}", exit_codes());
    loudou.after_help(SHORT).after_long_help(long)
}

/// Prints the help of a command, or of the connection.
pub(super) fn run(
    context: &mut Context<'_, '_>,
    args: &HelpArgs,
    mut loudou: Command,
) -> Result<()> {
    context.only_text()?;
    loudou.build();
    let text = match args.topic.as_deref() {
        None => loudou.render_long_help(),
        Some(TOPIC) => connection(&loudou),
        Some(name) => {
            let names = loudou.get_subcommands().map(Command::get_name);
            let names = names.collect::<Vec<_>>().join(", ");
            let Some(command) = loudou.find_subcommand_mut(name) else {
                bail!(Usage(format!(
                    "no topic `{name}`; allowed: {TOPIC}, {names}"
                )));
            };
            command.render_long_help()
        }
    };
    if context.style.color {
        write!(context.io.out, "{}", text.ansi())?;
    } else {
        write!(context.io.out, "{text}")?;
    }
    Ok(())
}

/// Returns the text of the `connection` topic: the connection options, with examples and
/// environment variables.
fn connection(loudou: &Command) -> StyledStr {
    let options = loudou.get_arguments();
    let options = options.filter(|arg| arg.get_help_heading() == Some(CONNECTION));
    let topic = Command::new("loudou")
        .styles(loudou.get_styles().clone())
        .max_term_width(100)
        .disable_help_flag(true)
        .about(ABOUT)
        .before_help(EXAMPLES)
        .args(options.cloned())
        .override_usage("loudou [CONNECTION] [COMMAND]");
    let variables = man::CONNECTION.map(|(name, text)| format!("\n  {name}\n          {text}"));
    let variables = format!("Other variables:{}", variables.concat());
    topic.after_help(variables).render_long_help()
}
