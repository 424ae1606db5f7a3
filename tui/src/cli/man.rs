//! `loudou man`: the help texts as manual pages.

use anyhow::{Result, bail};
use clap::{Args, Command};
use clap_mangen::Man;

use super::context::Context;
use super::world::Usage;

#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// The command; without, the page of loudou itself
    pub(crate) command: Option<String>,
}

/// Prints the page of a command of `loudou`.
pub(super) fn run(context: &mut Context<'_, '_>, args: &ManArgs, loudou: Command) -> Result<()> {
    // Without colours, which are no part of a page.
    let mut loudou = loudou.styles(clap::builder::Styles::plain());
    // Before it is built, a command lacks the options that all commands have.
    loudou.build();
    let (page, command) = match &args.command {
        None => (Man::new(loudou.clone()), loudou),
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
            (Man::new(command.clone()).title(title), command)
        }
    };
    let source = concat!("loudou ", env!("CARGO_PKG_VERSION"));
    let page = page.source(source).manual("Loudou");
    page.render(&mut context.io.out)?;
    Ok(context.io.out.write_all(examples(&command).as_bytes())?)
}

/// The section with the examples, which are in front of a help text and which `Man` leaves out.
fn examples(command: &Command) -> String {
    let text = command.get_before_help().map(ToString::to_string);
    let text = text.unwrap_or_default();
    let Some(lines) = text.strip_prefix("Examples:\n") else {
        return String::new();
    };
    // Nothing of a shell is a word of roff: neither its hyphens and backslashes, nor a dot or an apostrophe in front.
    let lines = lines.lines().map(|line| {
        let line = line.replace('\\', "\\e").replace('-', "\\-");
        format!("\\&{line}\n")
    });
    format!(".SH EXAMPLES\n.nf\n{}.fi\n", lines.collect::<String>())
}
