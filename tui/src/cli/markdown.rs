//! Implements `loudou man --markdown`, which prints the command-line reference of the
//! documentation.

use clap::builder::StyledStr;
use clap::{Arg, Command};

use super::help::is_of_connection;
use super::man;
use super::outcome;

/// Returns a section for each command, followed by the global options, the environment variables
/// and the exit codes.
pub(super) fn page(loudou: &Command) -> String {
    // Only `build` adds the usage and the global options to each command.
    let mut built = loudou.clone().styles(clap::builder::Styles::plain());
    built.build();
    let shared: Vec<Arg> = loudou.get_arguments().cloned().collect();
    let commands: Vec<String> = built
        .get_subcommands_mut()
        .map(|command| section(command, &shared))
        .collect();
    [
        "## Commands\n\n",
        &index(&built),
        &commands.concat(),
        "## Options of every command\n\n",
        "`check`, `replay`, `schema`, `completions`, `man` and `help` do not call Envoy, so options of the connection \
         have no effect on them.\n\n",
        &options("option", shared.iter().filter(|arg| is_of_connection(arg))),
        &options(
            "output option",
            shared.iter().filter(|arg| !is_of_connection(arg)),
        ),
        "## Other variables and files\n\n",
        &terms("variable", &man::other_variables()),
        &terms("file", &man::files()),
        "## Exit codes\n\n| code | meaning |\n| ---: | --- |\n",
        &exit_codes(),
    ]
    .concat()
}

/// Returns a table of the commands, with a link to each command's section.
fn index(loudou: &Command) -> String {
    let rows = loudou.get_subcommands().map(|command| {
        let name = command.get_name();
        let about = about(command.get_about());
        format!("| [`{name}`](#loudou-{name}) | {about} |\n")
    });
    let rows: String = rows.collect();
    format!("| command | purpose |\n| --- | --- |\n{rows}\n")
}

fn about(text_of_command: Option<&StyledStr>) -> String {
    text(&text_of_command.map(ToString::to_string).unwrap_or_default())
}

/// Describes a command: purpose, usage, arguments, options and examples.
fn section(command: &mut Command, shared: &[Arg]) -> String {
    let usage = command.render_usage().to_string();
    let usage = usage.trim_start_matches("Usage:").lines().map(str::trim);
    let usage: Vec<&str> = usage.filter(|line| !line.is_empty()).collect();
    let purpose = about(command.get_long_about().or_else(|| command.get_about()));
    let is_shared = |arg: &Arg| {
        let same = shared.iter().find(|other| other.get_id() == arg.get_id());
        same.is_some_and(|other| other.get_help() == arg.get_help())
    };
    let shown: Vec<&Arg> = command
        .get_arguments()
        .filter(|arg| !arg.is_hide_set() && arg.get_id() != "help" && !is_shared(arg))
        .collect();
    let (arguments, named): (Vec<&Arg>, Vec<&Arg>) =
        shown.into_iter().partition(|arg| arg.is_positional());
    let examples = command.get_before_long_help().map(ToString::to_string);
    let examples = examples.unwrap_or_default();
    let examples: Vec<&str> = examples.lines().skip(1).map(str::trim).collect();
    let examples = if examples.is_empty() {
        String::new()
    } else {
        format!("```text\n{}\n```\n\n", examples.join("\n"))
    };
    format!(
        "### `loudou {}`\n\n{purpose}\n\n```text\n{}\n```\n\n{}{}{examples}",
        command.get_name(),
        usage.join("\n"),
        options("argument", arguments.into_iter()),
        options("option", named.into_iter()),
    )
}

/// Returns a table of arguments or options, or an empty string if there are none.
fn options<'a>(title: &str, args: impl Iterator<Item = &'a Arg>) -> String {
    let rows: Vec<(String, String)> = args.map(|arg| (form(arg), meaning(arg))).collect();
    if rows.is_empty() {
        return String::new();
    }
    terms(title, &rows)
}

fn terms(title: &str, rows: &[(String, String)]) -> String {
    let rows = rows
        .iter()
        .map(|(name, meaning)| format!("| `{}` | {meaning} |\n", name.replace('|', "\\|")));
    let rows: String = rows.collect();
    format!("| {title} | meaning |\n| --- | --- |\n{rows}\n")
}

/// Returns an argument as a user types it, such as `-o, --output <FORM>`.
fn form(arg: &Arg) -> String {
    let names = arg.get_value_names().unwrap_or_default();
    let takes_value = arg.get_action().takes_values();
    let values: Vec<String> = names.iter().map(|name| format!("<{name}>")).collect();
    let value = match arg.get_num_args().map_or(1, |range| range.min_values()) {
        _ if !takes_value => String::new(),
        0 if arg.is_require_equals_set() => format!("[={}]", values.join(" ")),
        0 => format!("[{}]", values.join(" ")),
        _ => values.join(" "),
    };
    let long = arg.get_long().map(|long| format!("--{long}"));
    let short = arg.get_short().map(|short| format!("-{short}"));
    let typed: Vec<String> = short.into_iter().chain(long).collect();
    match (typed.join(", "), value) {
        (typed, value) if typed.is_empty() => value,
        (typed, value) if value.is_empty() || value.starts_with("[=") => typed + &value,
        (typed, value) => format!("{typed} {value}"),
    }
}

/// Returns the long help of an argument, with its possible values, its default and its environment
/// variable.
fn meaning(arg: &Arg) -> String {
    const DEFAULT: &str = " [default: ";
    let help = arg.get_long_help().or_else(|| arg.get_help());
    let mut help = help.map(ToString::to_string).unwrap_or_default();
    let mut defaults = Vec::new();
    // Most help texts state the default in words. The default is moved to the end.
    if let Some((before, rest)) = help.split_once(DEFAULT)
        && let Some((default, after)) = rest.split_once(']')
    {
        defaults.push(default.replace('\n', " "));
        help = format!("{before}{after}");
    }
    let mut sentences = vec![text(&help)];
    if arg.get_action().takes_values() {
        let values = arg.get_possible_values();
        let values = values.iter().filter(|value| !value.is_hide_set());
        let values: Vec<String> = values
            .map(|value| format!("`{}`", value.get_name()))
            .collect();
        if !values.is_empty() && !arg.is_hide_possible_values_set() {
            sentences.push(format!("Values: {}.", values.join(", ")));
        }
        if defaults.is_empty() && !arg.is_hide_default_value_set() {
            let given = arg.get_default_values().iter();
            defaults.extend(given.map(|value| format!("`{}`", value.to_string_lossy())));
        }
    }
    if !defaults.is_empty() {
        sentences.push(format!("Default: {}.", defaults.join(", ")));
    }
    if let Some(name) = arg.get_env() {
        sentences.push(format!("Variable: `{}`.", name.to_string_lossy()));
    }
    sentences.join(" ")
}

/// Returns a help text as one line of Markdown, in which each paragraph ends with a full stop.
fn text(help: &str) -> String {
    let paragraphs = help.split("\n\n").map(|paragraph| {
        let words: Vec<&str> = paragraph.split_whitespace().collect();
        let words = words.join(" ");
        let end = if words.is_empty() || words.ends_with(['.', ':']) {
            ""
        } else {
            "."
        };
        format!("{words}{end}")
    });
    let paragraphs: Vec<String> = paragraphs.collect();
    let text = paragraphs.join(" ");
    text.replace('|', "\\|")
        .replace('<', "\\<")
        .replace('*', "\\*")
}

/// Returns a table row for each exit code.
fn exit_codes() -> String {
    let codes = outcome::exit_codes();
    let lines = codes.lines().map(str::trim);
    let rows = lines.filter_map(|line| line.split_once("  "));
    let rows = rows.map(|(code, meaning)| format!("| {code} | {meaning} |\n"));
    rows.collect()
}
