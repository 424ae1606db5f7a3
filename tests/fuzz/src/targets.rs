//! The readers of input, each with its seeds and its bounds.

mod admin;
mod config_files;
mod conversions;
mod files;
mod leases;
mod logs;
mod metadata;
mod patterns;
mod requests;
mod shared;
mod world;

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

/// How much slower a build for tests is: only an optimised one is measured.
const SLOWER: u64 = if cfg!(debug_assertions) && !cfg!(feature = "libfuzzer") {
    40
} else {
    1
};

/// One reader of input.
#[derive(Debug)]
pub struct Target {
    /// The name in commands and folders.
    pub name: &'static str,
    /// The input, in words.
    pub about: &'static str,
    /// Reads an input; panics if the result is wrong.
    pub run: fn(&[u8]),
    /// Inputs to start from.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Words of its grammar.
    pub words: &'static [&'static [u8]],
    /// Maximum length of an input, in bytes.
    pub longest: usize,
    /// CPU time and memory that any input may take, and more per byte of the input.
    pub bounds: Bounds,
}

/// The bounds of a target. They are generous: they are for what grows out of proportion.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Microseconds for any input.
    pub us: u64,
    /// Nanoseconds for each byte of it.
    pub ns_per_byte: u64,
    /// KiB for any input.
    pub kib: usize,
    /// Bytes for each byte of it.
    pub bytes_per_byte: usize,
}

impl Target {
    /// The CPU time that an input may take, in nanoseconds.
    pub fn most_ns(&self, input: &[u8]) -> u64 {
        let length = u64::try_from(input.len()).unwrap_or(u64::MAX);
        let fixed = self.bounds.us.saturating_mul(1_000);
        let more = self.bounds.ns_per_byte.saturating_mul(length);
        fixed.saturating_add(more).saturating_mul(SLOWER)
    }

    /// The memory that an input may take, in bytes.
    pub const fn most_bytes(&self, input: &[u8]) -> usize {
        let fixed = self.bounds.kib.saturating_mul(1024);
        fixed.saturating_add(self.bounds.bytes_per_byte.saturating_mul(input.len()))
    }
}

/// All targets.
pub const ALL: &[Target] = &[
    shared::PAGE,
    shared::SHARED,
    files::RULE_FILE,
    files::STRUCT,
    admin::ADMIN,
    leases::LEASE,
    requests::REQUEST,
    metadata::METADATA,
    patterns::PATTERN,
    logs::LOG,
    config_files::CONFIG_FILE,
    conversions::CONVERSION,
];

/// The target of a name.
pub fn find(name: &str) -> Option<&'static Target> {
    ALL.iter().find(|target| target.name == name)
}

/// Inputs from which the fuzzing of a target starts: its seeds, and inputs that once failed.
pub fn seeds(target: &Target) -> Result<Vec<Vec<u8>>> {
    let mut seeds = (target.seeds)();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("corpus")
        .join(target.name);
    if folder.is_dir() {
        for file in fs::read_dir(&folder)? {
            let path = file?.path();
            seeds.push(fs::read(&path).with_context(|| path.display().to_string())?);
        }
    }
    Ok(seeds)
}

/// Splits at the first `separator`; everything and nothing if there is none.
fn split(bytes: &[u8], separator: u8) -> (&[u8], &[u8]) {
    let at = bytes.iter().position(|byte| *byte == separator);
    let at = at.unwrap_or(bytes.len());
    let (head, tail) = bytes.split_at_checked(at).unwrap_or((bytes, &[]));
    (head, tail.get(1..).unwrap_or_default())
}
