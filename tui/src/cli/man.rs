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
    let loudou = loudou.styles(clap::builder::Styles::plain());
    let page = match &args.command {
        None => Man::new(loudou),
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
            Man::new(command).title(title)
        }
    };
    page.render(&mut context.io.out)?;
    Ok(())
}
