//! The options that name several Envoys, for the screen and for recordings.

use std::collections::BTreeSet;
use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Args;

use super::context::Context;
use super::target::{self, Address};
use crate::tape::MAX_ENVOYS;

#[derive(Clone, Debug, Default, Args)]
pub(crate) struct TargetArgs {
    /// With the screen or a recording: file with the addresses of more Envoys, one per line; # begins a comment
    #[arg(long, value_name = "FILE")]
    targets: Option<PathBuf>,
    /// With the screen or a recording: shell command that prints the addresses of more Envoys, one per line
    #[arg(long, value_name = "CMD")]
    targets_from: Option<String>,
}

impl TargetArgs {
    /// The addresses of the Envoys to watch, each once. Those of a file or a command come in place of the default.
    pub(super) fn addresses(&self, context: &Context<'_, '_>) -> Result<Vec<Address>> {
        let (file, command) = (self.targets.as_deref(), self.targets_from.as_deref());
        let typed = &context.global.connect.url;
        let mut urls: Vec<String> = Vec::new();
        if !context.global.connect.is_default || file.is_none() && command.is_none() {
            urls.extend(typed.iter().cloned());
        }
        let listed = file.map(target::listed).transpose()?;
        let printed = command.map(target::printed).transpose()?;
        urls.extend(listed.into_iter().chain(printed).flatten());
        let mut addresses = Vec::new();
        for url in &urls {
            addresses.extend(target::resolved(url, &context.global.connect.named)?);
        }
        let mut seen = BTreeSet::new();
        addresses.retain(|address| seen.insert(address.clone()));
        match addresses.len() {
            0 => bail!("there is no Envoy to watch: the file or the command names none"),
            1..=MAX_ENVOYS => Ok(addresses),
            many => bail!("{many} Envoys are too many to watch; at most {MAX_ENVOYS}"),
        }
    }
}
