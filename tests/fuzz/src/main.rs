//! The program that `cargo xtask fuzz` runs: libFuzzer's `main`, with the target that `LOUDOU_FUZZ_TARGET` names.
//!
//! Without this variable it writes, for each target, a folder in `LOUDOU_FUZZ_DIR` with the seeds in `seeds`, the
//! dictionary in `words`, and the length of the longest input in `longest`; libFuzzer takes these as arguments.

#![no_main]
#![expect(
    clippy::print_stderr,
    clippy::exit,
    reason = "libFuzzer's main calls these functions and takes no errors from them"
)]

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::exit;
use std::sync::OnceLock;

use anyhow::{Context as _, Result};
use libfuzzer_sys::fuzz_target;
use loudou_fuzz::targets::{self, Target};
use loudou_fuzz::trial;

static TARGET: OnceLock<&'static Target> = OnceLock::new();

fuzz_target!(
    init: match start() {
        Ok(Some(target)) => drop(TARGET.set(target)),
        Ok(None) => exit(0),
        Err(error) => {
            eprintln!("error: {error:#}");
            exit(2)
        }
    },
    |input: &[u8]| {
        if let Some(target) = TARGET.get() {
            let ran = trial::run(target, input);
            assert!(ran.is_ok(), "{ran:?}");
        }
    }
);

/// The target to fuzz; `None` if the folders of all targets were written instead.
fn start() -> Result<Option<&'static Target>> {
    if let Ok(name) = std::env::var("LOUDOU_FUZZ_TARGET") {
        let target = targets::find(&name).with_context(|| format!("no target `{name}`"))?;
        return Ok(Some(target));
    }
    let folder = std::env::var("LOUDOU_FUZZ_DIR").context("neither a target nor a folder")?;
    for target in targets::ALL {
        write(target, &Path::new(&folder).join(target.name))?;
    }
    Ok(None)
}

fn write(target: &Target, folder: &Path) -> Result<()> {
    let seeds = folder.join("seeds");
    fs::create_dir_all(&seeds)?;
    for (n, seed) in targets::seeds(target)?.iter().enumerate() {
        fs::write(seeds.join(n.to_string()), seed)?;
    }
    let mut words = String::new();
    for word in target.words {
        words.push('"');
        for byte in *word {
            write!(words, "\\x{byte:02x}")?;
        }
        words.push_str("\"\n");
    }
    // libFuzzer refuses an empty dictionary.
    if !words.is_empty() {
        fs::write(folder.join("words"), words)?;
    }
    fs::write(folder.join("longest"), target.longest.to_string())?;
    Ok(())
}
