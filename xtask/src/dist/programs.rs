//! Builds the programs of a release. They are static and contain no path of this machine.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::command::run;
use crate::oci::File;
use crate::setup::zig::Zig;
use crate::{filter, native};

/// A kind of machine that a release supports.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) triple: &'static str,
    /// Names that other systems use for its architecture.
    pub(super) oci: &'static str,
    pub(super) debian: &'static str,
    /// True if the relay can be built. Its cryptography needs a C compiler, which exists only for
    /// this machine's own processor.
    has_relay: bool,
}

/// All kinds of machines.
pub(super) const TARGETS: [Target; 2] = [
    Target {
        triple: "x86_64-unknown-linux-musl",
        oci: "amd64",
        debian: "amd64",
        has_relay: true,
    },
    Target {
        triple: "aarch64-unknown-linux-musl",
        oci: "arm64",
        debian: "arm64",
        has_relay: false,
    },
];

impl Target {
    /// Returns true if this machine can run its programs.
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
    /// Returns the program as a file in this folder of an archive.
    pub(super) fn file(&self, folder: &str) -> File {
        let slash = if folder.is_empty() { "" } else { "/" };
        File {
            path: format!("{folder}{slash}{}", self.name),
            bytes: self.bytes.clone(),
            is_program: true,
        }
    }
}

/// Installs the compilation targets if they are missing.
pub(super) fn targets() -> Result<()> {
    let mut rustup = Command::new("rustup");
    rustup.args(["target", "add"]);
    rustup.args(TARGETS.iter().map(|target| target.triple));
    // The native module is loaded by an Envoy that has a C library.
    rustup.args(TARGETS.map(|target| target.triple.replace("musl", "gnu")));
    run(&mut rustup).context("the targets of a release come from rustup (https://rustup.rs)")
}

/// Builds the programs for a target from the sources in `root`.
pub(super) fn build(root: &Path, target: &Target) -> Result<Vec<Program>> {
    let mut names = vec![("loudou", "loudou")];
    if target.has_relay {
        names.push(("loudou-relay", "loudou-relay"));
    }
    let mut build = cargo_in(root, target.triple, STATIC);
    build.args(["build", "--release", "--locked", "--target", target.triple]);
    build.arg("--target-dir").arg(directory(root));
    for (package, _) in &names {
        build.args(["--package", package]);
    }
    // The C code in the relay's cryptography needs no C library.
    build.env("CC_x86_64_unknown_linux_musl", "cc");
    build.env(
        "CFLAGS_x86_64_unknown_linux_musl",
        format!("-ffile-prefix-map={}=crates", sources().display()),
    );
    run(&mut build)?;
    let folder = folder(root, target);
    let read = |(_, name): (_, &'static str)| {
        let path = folder.join(name);
        let bytes = fs::read(&path).with_context(|| path.display().to_string())?;
        has_no_paths(root, &path, &bytes)?;
        Ok(Program { name, bytes })
    };
    names.into_iter().map(read).collect()
}

/// Minor version of the C library that the native module of a release needs.
const GLIBC: u32 = 28;

/// Builds the native module for a target's processor from the sources in `root`. Zig links it,
/// because it has the libraries of both processors, and of old systems.
pub(super) fn module(root: &Path, target: &Target) -> Result<Vec<u8>> {
    let triple = target.triple.replace("musl", "gnu");
    let mut build = Zig::find_or_install()?.cargo_build();
    build.current_dir(root);
    build.args(["--package", "loudou-native", "--profile", "native"]);
    build.args(["--locked", "--target", &format!("{triple}.2.{GLIBC}")]);
    build.arg("--target-dir").arg(directory(root));
    // Cargo separates these flags by this character, because paths may have spaces.
    build.env(
        "CARGO_ENCODED_RUSTFLAGS",
        without_paths(root).join("\u{1f}"),
    );
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

/// Fails if a program contains a path of this machine.
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

/// Returns the built command line that can run on this machine.
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

/// Linker flags that need neither a C compiler nor a system library.
const STATIC: &[&str] = &[
    "-Clinker=rust-lld",
    "-Clink-self-contained=yes",
    "-Ctarget-feature=+crt-static",
];

/// Returns flags that replace this machine's paths in a program.
fn without_paths(root: &Path) -> [String; 2] {
    [
        format!("--remap-path-prefix={}=crates", sources().display()),
        format!("--remap-path-prefix={}=.", root.display()),
    ]
}

/// Returns a Cargo command with flags for a target that keep this machine's paths out of the
/// program.
fn cargo_in(root: &Path, triple: &str, flags: &[&str]) -> Command {
    let program = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut cargo = Command::new(program);
    cargo.current_dir(root);
    let flags = flags.iter().map(|flag| (*flag).to_owned());
    let flags = flags.chain(without_paths(root));
    let flags: Vec<String> = flags.map(|flag| format!("{flag:?}")).collect();
    let config = format!("target.{triple}.rustflags=[{}]", flags.join(","));
    // All `--config` flags come before the sub-command, because Cargo ignores them if another one
    // follows it.
    cargo.args([
        "--config",
        &config,
        "--config",
        "profile.release.strip=true",
    ]);
    // These variables would replace the flags above.
    for name in ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS"] {
        cargo.env_remove(name);
    }
    cargo
}

/// Returns true if a program contains this text.
fn has(bytes: &[u8], text: &str) -> bool {
    bytes
        .windows(text.len().max(1))
        .any(|window| window == text.as_bytes())
}

/// Returns the folder in which Cargo keeps the sources of dependencies.
fn sources() -> PathBuf {
    let home = env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(env::home_dir()?.join(".cargo")));
    home.unwrap_or_default().join("registry/src")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_of_a_release_are_before_the_sub_command() {
        let root = Path::new("/here");
        let mut build = cargo_in(root, "x86_64-unknown-linux-musl", STATIC);
        build.arg("build");
        let words: Vec<_> = build
            .get_args()
            .map(|word| word.to_string_lossy())
            .collect();
        assert_eq!(words[words.len() - 1], "build");
        assert!(
            words[1]
                .starts_with("target.x86_64-unknown-linux-musl.rustflags=[\"-Clinker=rust-lld\"")
        );
        assert!(
            words[1].contains("\"--remap-path-prefix=/here=.\""),
            "{}",
            words[1]
        );
        let mut names = build.get_envs().filter(|(_, value)| value.is_none());
        assert!(names.any(|(name, _)| name == "RUSTFLAGS"));
    }

    #[test]
    fn a_path_in_a_program_is_found() {
        assert!(has(b"\0panic at /build/x\0", "/build"));
        assert!(!has(b"\0panic at crates/x\0", "/root"));
        assert!(!has(b"", "/root"));
    }
}
