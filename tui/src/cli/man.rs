//! Implements `loudou man`, which prints the help texts as manual pages.

use anyhow::{Result, bail};
use clap::builder::{Resettable, StyledStr};
use clap::{Args, Command};
use clap_mangen::Man;

use super::context::Context;
use super::world::Usage;
use super::{markdown, outcome};

/// Environment variables for the connection that do not set an option. An empty variable counts as
/// unset.
pub(super) const CONNECTION: [(&str, &str); 4] = [
    ("LOUDOU_TOKEN", "The bearer token, without --token-file."),
    (
        "LOUDOU_TOKEN_FILE",
        "The file with the bearer token, without either.",
    ),
    (
        "https_proxy, all_proxy",
        "The proxy for https:// addresses, except loopback; also in capitals.",
    ),
    ("no_proxy", "Hosts that need no proxy; also in capitals."),
];
/// Environment variables that do not affect the connection.
const VARIABLES: [(&str, &str); 3] = [
    (
        "NO_COLOR, TERM, COLORTERM",
        "Whether the terminal shows colours, and how many.",
    ),
    (
        "HOME, XDG_CONFIG_HOME",
        "Where the config file is looked for.",
    ),
    (
        "TZDIR",
        "The time zone database of check, instead of /usr/share/zoneinfo.",
    ),
];
const FILES: [(&str, &str); 1] = [(
    "~/.config/loudou/config.toml",
    "The config file: Envoys by name, the time limit, and the look of the screen.",
)];

#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// The command [default: loudou itself]
    pub(crate) command: Option<String>,

    /// Print all commands as a page in Markdown instead
    #[arg(long, conflicts_with = "command")]
    markdown: bool,
}

/// Prints the manual page of `loudou` or of one command, or all commands as one page in Markdown.
pub(super) fn run(context: &mut Context<'_, '_>, args: &ManArgs, loudou: Command) -> Result<()> {
    context.only_text()?;
    if args.markdown {
        write!(context.io.out, "{}", markdown::page(&loudou))?;
        return Ok(());
    }
    // A manual page has no colours.
    let mut loudou = loudou.styles(clap::builder::Styles::plain());
    let exit_codes = StyledStr::from(outcome::exit_codes());
    let exit_codes = of_help("EXIT STATUS", outcome::HEADING, Some(&exit_codes));
    // The text after the help is removed. `Man` would print it in a section named EXTRA, and every
    // page lists the connection options anyway.
    let ends = |command: Command| {
        let command = command.after_help(Resettable::Reset);
        command.after_long_help(Resettable::Reset)
    };
    loudou = ends(loudou).mut_subcommands(ends);
    // `Man` omits the help of options that are hidden in the short help.
    loudou = loudou.mut_args(|arg| arg.hide_short_help(false));
    let around = around(&loudou);
    // A command includes the global options only after `build`.
    loudou.build();
    let (page, command, end) = match &args.command {
        None => (
            Man::new(loudou.clone()),
            loudou,
            format!("{exit_codes}{around}"),
        ),
        Some(name) => {
            let Some(command) = loudou.find_subcommand(name) else {
                let names = loudou.get_subcommands().map(Command::get_name);
                let names = names.collect::<Vec<_>>().join(", ");
                bail!(Usage(format!("no command `{name}`; allowed: {names}")));
            };
            // The other pages refer to this title.
            let title = format!("loudou-{name}");
            let command = command.clone().display_name(title.clone());
            let command = command.bin_name(format!("loudou {name}"));
            (
                Man::new(command.clone()).title(title),
                command,
                String::new(),
            )
        }
    };
    let source = concat!("loudou ", env!("CARGO_PKG_VERSION"));
    let page = page.source(source).manual("Loudou");
    page.render(&mut context.io.out)?;
    // `Man` leaves out the examples, which come before the help text, so they are appended here.
    let examples = of_help("EXAMPLES", "Examples:", command.get_before_long_help());
    write!(context.io.out, "{examples}{end}")?;
    Ok(())
}

/// Returns the manual page sections about environment variables and files.
fn around(loudou: &Command) -> String {
    format!(
        "{}{}",
        terms("ENVIRONMENT", &variables(loudou)),
        terms("FILES", &files())
    )
}

/// Returns all environment variables, with their meanings.
fn variables(loudou: &Command) -> Vec<(String, String)> {
    let of_options = loudou.get_arguments().filter_map(|arg| {
        let name = arg.get_env()?.to_string_lossy().into_owned();
        Some((name, format!("The value of --{}.", arg.get_long()?)))
    });
    of_options.chain(other_variables()).collect()
}

/// Returns the environment variables that do not set an option, with their meanings.
pub(super) fn other_variables() -> Vec<(String, String)> {
    let others = CONNECTION.into_iter().chain(VARIABLES);
    let others = others.map(|(name, text)| (name.to_owned(), text.to_owned()));
    others.collect()
}

/// Returns the files that `loudou` reads even if no option names them, with their meanings.
pub(super) fn files() -> Vec<(String, String)> {
    FILES
        .map(|(name, text)| (name.to_owned(), text.to_owned()))
        .to_vec()
}

/// Returns a manual page section that lists terms with their meanings.
fn terms(title: &str, terms: &[(String, String)]) -> String {
    let terms = terms.iter().map(|(name, text)| {
        let [name, text] = [name, text].map(|text| text.replace('-', "\\-"));
        format!(".TP\n\\fB{name}\\fR\n{text}\n")
    });
    let terms: Vec<String> = terms.collect();
    format!(".SH {title}\n{}", terms.concat())
}

/// Returns a manual page section with the text below `heading`, or an empty string if `text` does
/// not begin with this heading.
fn of_help(title: &str, heading: &str, text: Option<&StyledStr>) -> String {
    let text = text.map(ToString::to_string).unwrap_or_default();
    let Some(lines) = text.strip_prefix(heading) else {
        return String::new();
    };
    // Escapes hyphens, backslashes, and a dot or an apostrophe at the start of a line, because roff
    // interprets them.
    let lines = lines.trim_start_matches('\n').lines().map(|line| {
        let line = line.replace('\\', "\\e").replace('-', "\\-");
        format!("\\&{line}\n")
    });
    format!(".SH {title}\n.nf\n{}.fi\n", lines.collect::<String>())
}
