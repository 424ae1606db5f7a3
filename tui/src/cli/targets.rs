//! The Envoys that a file or a command names, and the clients of several Envoys.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use loudou_limiter::Nanos;

use super::context::Context;
use super::options::ConnectArgs;
use super::target::{self, Address};
use super::world::Usage;
use crate::client::Client;
use crate::tape::MAX_ENVOYS;
use crate::text::escape;

/// Adds the addresses of the file and of the command to the others. They come in place of the default.
pub(super) fn add(connect: &mut ConnectArgs) -> Result<()> {
    let (file, command) = (connect.targets.as_deref(), connect.targets_from.as_deref());
    if file.is_none() && command.is_none() {
        return Ok(());
    }
    let listed = file.map(listed).transpose()?;
    let printed = command.map(printed).transpose()?;
    if connect.is_default {
        connect.url.clear();
    }
    connect
        .url
        .extend(listed.into_iter().chain(printed).flatten());
    if connect.url.is_empty() {
        bail!("no Envoy: the file or the command names none");
    }
    Ok(())
}

/// The Envoys to watch, each once.
pub(super) fn watched(connect: &ConnectArgs) -> Result<Vec<Address>> {
    let addresses = target::all(connect)?;
    if addresses.len() > MAX_ENVOYS {
        bail!(
            "{} Envoys are too many to watch; at most {MAX_ENVOYS}",
            addresses.len()
        );
    }
    Ok(addresses)
}

/// The clients of several Envoys. None may be there twice: it would count twice.
pub(super) fn clients(
    context: &mut Context<'_, '_>,
    addresses: &[Address],
    timeout: Nanos,
) -> Result<Vec<Client>> {
    let mut clients = Vec::new();
    for address in addresses {
        clients.push(context.client_at(address, timeout)?);
    }
    let mut urls = BTreeSet::new();
    if let Some(client) = clients.iter().find(|client| !urls.insert(client.url())) {
        bail!(Usage(format!(
            "{} is given twice; leave one out",
            escape(client.url())
        )));
    }
    Ok(clients)
}

/// The addresses in a file, one per line.
pub(super) fn listed(file: &Path) -> Result<Vec<String>> {
    let (text, _) = target::read_file(file)?;
    Ok(lines(&String::from_utf8_lossy(&text)))
}

/// The addresses that a shell command prints, one per line.
fn printed(command: &str) -> Result<Vec<String>> {
    let output = Command::new("sh").args(["-c", command]).output();
    let output = output.context("cannot run sh for --targets-from")?;
    if !output.status.success() {
        let error = String::from_utf8_lossy(&output.stderr);
        let first = escape(error.lines().next().unwrap_or_default()).into_owned();
        bail!("--targets-from failed ({}): {first}", output.status);
    }
    Ok(lines(&String::from_utf8_lossy(&output.stdout)))
}

/// The lines of a text without comments.
fn lines(text: &str) -> Vec<String> {
    let lines = text
        .lines()
        .map(|line| line.split(" #").next().unwrap_or_default().trim());
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(ToOwned::to_owned).collect()
}
