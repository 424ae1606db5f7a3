//! `cargo xtask build`: builds the filter for Envoy, checks its imports and prints its size.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use loudou_tests::paths::workspace_root;
use loudou_tests::wasm::{built_trap_wasm, built_wasm, check_fresh, trap_target_dir};

use crate::command::{cargo, run};
use crate::setup::WASM_TARGET;

mod imports;

/// Builds the filter and returns its path.
pub(crate) fn build() -> Result<PathBuf> {
    // The filter reports its commit in Envoy's log and in its status.
    run(compile().env("LOUDOU_GIT", commit()))?;
    let path = built_wasm();
    check_fresh(&path)?;
    let module = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let functions = imports::check(&module).with_context(|| path.display().to_string())?;
    let kib = u64::try_from(module.len())?.div_ceil(1024);
    println!("{}: {kib} KiB, {functions} host functions", path.display());
    Ok(path)
}

/// Builds the filter of the sources in another folder, and returns its path.
pub(crate) fn build_in(root: &Path) -> Result<PathBuf> {
    let target = root.join("target");
    let mut compile = compile();
    compile.current_dir(root).arg("--target-dir").arg(&target);
    run(compile.env("LOUDOU_GIT", commit_of(root)))?;
    Ok(target.join(WASM_TARGET).join("wasm/loudou_filter.wasm"))
}

/// Builds the filter that panics on request, in a separate build directory, so that it never
/// replaces the real one.
pub(crate) fn build_trap() -> Result<PathBuf> {
    let mut compile = compile();
    compile.args(["--features", "trap-for-tests", "--target-dir"]);
    run(compile.arg(trap_target_dir()))?;
    let path = built_trap_wasm();
    check_fresh(&path)?;
    Ok(path)
}

fn compile() -> Command {
    let mut compile = cargo(&[]);
    // The sources of dependencies have the same names on every machine: they are in messages of panics.
    let home = env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(env::home_dir()?.join(".cargo")));
    if let Some(home) = home {
        let sources = home.join("registry/src").display().to_string();
        let flags = format!(
            "target.{WASM_TARGET}.rustflags=[{:?}]",
            format!("--remap-path-prefix={sources}=crates")
        );
        compile.args(["--config", &flags]);
    }
    compile.args([
        // `rustc` sets the crate type: a library that is also an rlib gets no link-time optimisation.
        "rustc",
        "--crate-type",
        "cdylib",
        "--package",
        "loudou-filter",
        "--target",
        WASM_TARGET,
        "--profile",
        "wasm",
    ]);
    compile
}

/// The checked-out commit, with a `+` when files differ from it; `unknown` without git.
pub(crate) fn commit() -> String {
    commit_of(&workspace_root())
}

fn commit_of(root: &Path) -> String {
    let git = |arguments: &[&str]| {
        let output = Command::new("git")
            .args(arguments)
            .current_dir(root)
            .output()
            .ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| text.trim().to_owned())
    };
    let Some(hash) = git(&["rev-parse", "--short=12", "HEAD"]) else {
        return "unknown".to_owned();
    };
    let changed = git(&["status", "--porcelain", "--untracked-files=no"]);
    if changed.is_none_or(|files| files.is_empty()) {
        hash
    } else {
        format!("{hash}+")
    }
}
