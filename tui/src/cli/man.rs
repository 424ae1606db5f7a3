//! `loudou man`: the help texts as manual pages.

use anyhow::{Result, bail};
use clap::builder::{Resettable, StyledStr};
use clap::{Args, Command};
use clap_mangen::Man;

use super::context::Context;
use super::outcome;
use super::world::Usage;

#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// The command; without, the page of loudou itself
    pub(crate) command: Option<String>,
}

/// Prints the page of a command of `loudou`.
pub(super) fn run(context: &mut Context<'_, '_>, args: &ManArgs, loudou: Command) -> Result<()> {
    context.only_text()?;
    // Without colours, which are no part of a page.
    let mut loudou = loudou.styles(clap::builder::Styles::plain());
    let exit_codes = of_help("EXIT STATUS", outcome::HEADING, loudou.get_after_help());
    // `Man` would call the section EXTRA.
    loudou = loudou.after_help(Resettable::Reset);
    // Before it is built, a command lacks the options that all commands have.
    loudou.build();
    let (page, command, exit_codes) = match &args.command {
        None => (Man::new(loudou.clone()), loudou, exit_codes),
        Some(name) => {
            let Some(command) = loudou.find_subcommand(name) else {
                let names = loudou.get_subcommands().map(Command::get_name);
                let names = names.collect::<Vec<_>>().join(", ");
                bail!(Usage(format!("no command `{name}`; allowed: {names}")));
            };
            // As the other pages refer to it.
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
    // An example is in front of a help text, which `Man` leaves out.
    let examples = of_help("EXAMPLES", "Examples:", command.get_before_help());
    write!(context.io.out, "{examples}{exit_codes}")?;
    Ok(())
}

/// The section with a part of a help text that begins with this heading.
fn of_help(title: &str, heading: &str, text: Option<&StyledStr>) -> String {
    let text = text.map(ToString::to_string).unwrap_or_default();
    let Some(lines) = text.strip_prefix(heading) else {
        return String::new();
    };
    // Nothing of it is a word of roff: neither its hyphens and backslashes, nor a dot or an apostrophe in front.
    let lines = lines.trim_start_matches('\n').lines().map(|line| {
        let line = line.replace('\\', "\\e").replace('-', "\\-");
        format!("\\&{line}\n")
    });
    format!(".SH {title}\n.nf\n{}.fi\n", lines.collect::<String>())
}
