//! Builds the programs of a release. The programs are linked statically and contain no local paths.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::command::run;
use crate::oci::File;
use crate::setup::zig::Zig;
use crate::{filter, native};

/// A platform that a release supports.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) triple: &'static str,
    /// Architecture names in OCI images and in Debian packages.
    pub(super) oci: &'static str,
    pub(super) debian: &'static str,
}

/// All supported platforms.
pub(super) const TARGETS: [Target; 2] = [
    Target {
        triple: "x86_64-unknown-linux-musl",
        oci: "amd64",
        debian: "amd64",
    },
    Target {
        triple: "aarch64-unknown-linux-musl",
        oci: "arm64",
        debian: "arm64",
    },
];

impl Target {
    /// Returns true if this machine can run programs for this target.
    pub(super) fn is_here(&self) -> bool {
        env::consts::OS == "linux" && self.triple.starts_with(env::consts::ARCH)
    }
}

/// A program.
#[derive(Clone, Debug)]
pub(super) struct Program {
    pub(super) name: &'static str,
    pub(super) bytes: Vec<u8>,
}

impl Program {
    /// Returns the program as an archive file in this folder.
    pub(super) fn file(&self, folder: &str) -> File {
        let slash = if folder.is_empty() { "" } else { "/" };
        File {
            path: format!("{folder}{slash}{}", self.name),
            bytes: self.bytes.clone(),
            is_program: true,
        }
    }
}

/// Installs the Rust targets if they are missing.
pub(super) fn targets() -> Result<()> {
    let mut rustup = Command::new("rustup");
    rustup.args(["target", "add"]);
    rustup.args(TARGETS.iter().map(|target| target.triple));
    // The native module needs the glibc targets, because the Envoy that loads it is linked to
    // glibc.
    rustup.args(TARGETS.map(|target| target.triple.replace("musl", "gnu")));
    run(&mut rustup).context("the targets of a release come from rustup (https://rustup.rs)")
}

const NAMES: [&str; 2] = ["loudou", "loudou-relay"];

/// Builds the programs for a target from the sources in `root`.
pub(super) fn build(root: &Path, target: &Target) -> Result<Vec<Program>> {
    let mut build = cargo_in(root, target.triple)?;
    build.arg("--release");
    for name in NAMES {
        build.args(["--package", name]);
    }
    run(&mut build)?;
    let folder = folder(root, target);
    let read = |name: &'static str| {
        let path = folder.join(name);
        let bytes = fs::read(&path).with_context(|| path.display().to_string())?;
        has_no_paths(root, &path, &bytes)?;
        Ok(Program { name, bytes })
    };
    NAMES.map(read).into_iter().collect()
}

/// Minor version of the oldest glibc that can load the native module of a release.
const GLIBC: u32 = 28;

/// Builds the native module for the target's architecture from the sources in `root`.
pub(super) fn module(root: &Path, target: &Target) -> Result<Vec<u8>> {
    let triple = target.triple.replace("musl", "gnu");
    let mut build = cargo_in(root, &format!("{triple}.2.{GLIBC}"))?;
    build.args(["--package", "loudou-native", "--profile", "native"]);
    run(build.env("LOUDOU_GIT", filter::commit_of(root)))?;
    let path = directory(root)
        .join(triple)
        .join("native")
        .join(native::FILE);
    let module = fs::read(&path).with_context(|| path.display().to_string())?;
    native::check(&module, GLIBC).with_context(|| path.display().to_string())?;
    has_no_paths(root, &path, &module)?;
    Ok(module)
}

/// Fails if a program contains a local path.
fn has_no_paths(root: &Path, path: &Path, bytes: &[u8]) -> Result<()> {
    for kept in [sources(), root.to_path_buf()] {
        let kept = kept.display().to_string();
        ensure!(
            !has(bytes, &kept),
            "{}: has the path {kept}",
            path.display()
        );
    }
    Ok(())
}

/// Returns the path of the built `loudou` program that can run on this machine.
pub(super) fn here(root: &Path) -> Option<PathBuf> {
    let target = TARGETS.iter().find(|target| target.is_here())?;
    Some(folder(root, target).join("loudou"))
}

fn folder(root: &Path, target: &Target) -> PathBuf {
    directory(root).join(target.triple).join("release")
}

fn directory(root: &Path) -> PathBuf {
    root.join("target/dist-build")
}

/// Returns a Cargo command that builds for this target triple and keeps local paths out of the
/// result. Zig is the linker and C compiler, because it includes the libraries of all targets.
fn cargo_in(root: &Path, target: &str) -> Result<Command> {
    let mut cargo = Zig::find_or_install()?.cargo_build();
    cargo.current_dir(root);
    cargo.args(["--locked", "--target", target, "--target-dir"]);
    cargo.arg(directory(root));
    cargo.args(["--config", "profile.release.strip=true"]);
    let (sources, root) = (sources(), root.display());
    let sources = sources.display();
    // In this variable, Cargo separates flags by the character U+001F, so paths may contain spaces.
    let flags = format!("--remap-path-prefix={sources}=crates\u{1f}--remap-path-prefix={root}=.");
    cargo.env("CARGO_ENCODED_RUSTFLAGS", flags);
    cargo.env("CFLAGS", format!("-ffile-prefix-map={sources}=crates"));
    // Keep the user's flags out of the build.
    cargo.env_remove("RUSTFLAGS");
    Ok(cargo)
}

/// Returns true if a program contains this string.
fn has(bytes: &[u8], text: &str) -> bool {
    bytes
        .windows(text.len().max(1))
        .any(|window| window == text.as_bytes())
}

/// Returns the folder in which Cargo stores the sources of dependencies.
fn sources() -> PathBuf {
    let home = env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(env::home_dir()?.join(".cargo")));
    home.unwrap_or_default().join("registry/src")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_in_a_program_is_found() {
        assert!(has(b"\0panic at /build/x\0", "/build"));
        assert!(!has(b"\0panic at crates/x\0", "/root"));
        assert!(!has(b"", "/root"));
    }
}
