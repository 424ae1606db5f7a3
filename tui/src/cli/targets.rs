//! Reads the addresses of Envoys from a file, or from the output of a command.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Result, bail};

use super::options::ConnectArgs;
use super::printed::{self, BOUNDS, printed};
use super::target::{self, Address};
use super::world::{Io, Usage};
use crate::config::NamedTarget;
use loudou_words::text::escape;

/// Maximum number of Envoys that the screen watches. Each Envoy needs two threads.
const MAX_ENVOYS: usize = 64;
/// Maximum number of Envoys that a file or a command may name.
const MOST: usize = 4096;
/// Byte order mark, which Windows editors write before the first line.
const BOM: char = '\u{feff}';

/// Targets in the config file, by name.
type Named = BTreeMap<String, NamedTarget>;

/// Adds the addresses from `--targets` and `--targets-from` to the addresses from `--url`. They
/// replace the default address.
pub(super) fn add(connect: &mut ConnectArgs, io: &mut Io<'_>) -> Result<()> {
    let (file, command) = (connect.targets.as_deref(), connect.targets_from.as_deref());
    if file.is_none() && command.is_none() {
        return Ok(());
    }
    let named = &connect.named;
    let listed = file.map(|file| listed(file, named)).transpose()?;
    let command = command.map(|command| from_command(command, named, io));
    let printed = command.transpose()?;
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

/// Returns the Envoys to watch, without duplicates.
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

/// Reads the addresses in a file, one per line.
pub(super) fn listed(file: &Path, named: &Named) -> Result<Vec<String>> {
    let (text, _) = target::read_file(file)?;
    let place = escape(&file.display().to_string()).into_owned();
    lines(&place, &text, named)
}

/// Reads the addresses that a shell command prints, one per line. Passes on the command's standard
/// error.
fn from_command(command: &str, named: &Named, io: &mut Io<'_>) -> Result<Vec<String>> {
    let printed = printed(command, BOUNDS, &mut |line| {
        if io.err_terminal {
            writeln!(io.err, "{}", escape(line))?;
        }
        Ok(())
    })?;
    for line in String::from_utf8_lossy(&printed.err).lines() {
        writeln!(io.err, "{}", escape(line))?;
    }
    lines(&printed::name_of(command), &printed.out, named)
}

/// Parses one address per line, and skips comments. Error messages contain `place` and the line
/// number.
fn lines(place: &str, text: &[u8], named: &Named) -> Result<Vec<String>> {
    let text = String::from_utf8_lossy(text);
    let mut urls = Vec::new();
    for (number, line) in (1_u64..).zip(text.trim_start_matches(BOM).lines()) {
        let url = line.split(" #").next().unwrap_or_default().trim();
        if url.is_empty() || url.starts_with('#') {
            continue;
        }
        if urls.len() == MOST {
            bail!(Usage(format!("{place} names more than {MOST} Envoys")));
        }
        if let Err(error) = target::check(url, named) {
            bail!(Usage(format!("{place}, line {number}: {error}")));
        }
        urls.push(url.to_owned());
    }
    Ok(urls)
}
