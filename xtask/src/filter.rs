//! `cargo xtask build`: builds the Wasm filter, checks its imports and prints its size.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use anyhow::{Context as _, Result, ensure};
use loudou_tests::paths::workspace_root;
use loudou_tests::wasm::{
    built_data_wasm, built_trap_wasm, built_wasm, check_fresh, data_target_dir, trap_target_dir,
};
use wasmparser::{Encoding, Import, Parser, Payload, TypeRef};

use crate::command::{cargo, run};
use crate::setup::WASM_TARGET;

/// Builds the filter from the current sources, and returns its path.
pub(crate) fn build() -> Result<PathBuf> {
    // The filter reports this commit in Envoy's log and in its status.
    run(compile().env("LOUDOU_GIT", commit()))?;
    checked(built_wasm())
}

/// Builds the filter without the admin API, in a separate build directory, and returns its path.
pub(crate) fn build_without_admin() -> Result<PathBuf> {
    let mut compile = compile();
    compile.args(["--no-default-features", "--target-dir"]);
    compile.arg(data_target_dir());
    run(compile.env("LOUDOU_GIT", commit()))?;
    checked(built_data_wasm())
}

/// Checks the imports of the module at this path, and prints its size.
fn checked(path: PathBuf) -> Result<PathBuf> {
    check_fresh(&path)?;
    let module = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let functions = check(&module).with_context(|| path.display().to_string())?;
    let kib = u64::try_from(module.len())?.div_ceil(1024);
    println!("{}: {kib} KiB, {functions} host functions", path.display());
    Ok(path)
}

/// Builds the filter from the sources in another folder, and returns its path.
pub(crate) fn build_in(root: &Path) -> Result<PathBuf> {
    let target = root.join("target");
    let mut compile = compile();
    compile.current_dir(root).arg("--target-dir").arg(&target);
    run(compile.env("LOUDOU_GIT", commit_of(root)))?;
    Ok(target.join(WASM_TARGET).join("wasm/loudou_filter.wasm"))
}

/// Builds the filter with the feature that lets tests make it panic. The build has its own
/// directory, so that it never replaces the real filter.
pub(crate) fn build_trap() -> Result<PathBuf> {
    let mut compile = compile();
    compile.args(["--features", "trap-for-tests", "--target-dir"]);
    run(compile.arg(trap_target_dir()))?;
    let path = built_trap_wasm();
    check_fresh(&path)?;
    Ok(path)
}

fn compile() -> Command {
    compile_module("loudou-filter")
}

/// Returns the Cargo command that compiles a package to a wasm module.
pub(crate) fn compile_module(package: &str) -> Command {
    let mut compile = cargo(&[]);
    // Panic messages contain the source paths of dependencies. The flag replaces these paths, so
    // that the module is the same on every machine.
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
        // `cargo rustc` can set the crate type to `cdylib` alone. A library that is also an rlib would
        // get no link-time optimisation.
        "rustc",
        "--crate-type",
        "cdylib",
        "--package",
        package,
        "--target",
        WASM_TARGET,
        "--profile",
        "wasm",
    ]);
    compile
}

/// Returns the checked-out commit, with a `+` if tracked files have changed, or `unknown` if git is
/// not available.
pub(crate) fn commit() -> String {
    commit_of(&workspace_root())
}

pub(crate) fn commit_of(root: &Path) -> String {
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

// Checks the functions that a wasm module imports; `wasmparser` reads the import section.
//
// Envoy rejects a module that imports a function that Envoy does not provide. If the module
// imported a function that only newer hosts provide, it could not run in older hosts. Every import
// must therefore be on these lists: proxy-wasm ABI 0.2.1, and two WASI calls that replace missing
// functions of the ABI.

const PROXY_WASM: &[&str] = &[
    "add_header_map_value",
    "call_foreign_function",
    "close_stream",
    "continue_stream",
    "define_metric",
    "dequeue_shared_queue",
    "done",
    "enqueue_shared_queue",
    "get_buffer_bytes",
    "get_buffer_status",
    "get_current_time_nanoseconds",
    "get_header_map_pairs",
    "get_header_map_size",
    "get_header_map_value",
    "get_log_level",
    "get_metric",
    "get_property",
    "get_shared_data",
    "get_status",
    "grpc_call",
    "grpc_cancel",
    "grpc_close",
    "grpc_send",
    "grpc_stream",
    "http_call",
    "increment_metric",
    "log",
    "record_metric",
    "register_shared_queue",
    "remove_header_map_value",
    "replace_header_map_value",
    "resolve_shared_queue",
    "send_local_response",
    "set_buffer_bytes",
    "set_effective_context",
    "set_header_map_pairs",
    "set_property",
    "set_shared_data",
    "set_tick_period_milliseconds",
];

const WASI: &[&str] = &["clock_time_get", "random_get"];

/// Checks every import, and returns the number of imports.
fn check(module: &[u8]) -> Result<usize> {
    let mut count: usize = 0;
    for payload in Parser::new(0).parse_all(module) {
        match payload? {
            Payload::Version { encoding, .. } => {
                ensure!(encoding == Encoding::Module, "not a wasm module");
            }
            Payload::ImportSection(section) => {
                for import in section.into_imports() {
                    allowed(&import?)?;
                    count = count.saturating_add(1);
                }
            }
            _ => {}
        }
    }
    Ok(count)
}

fn allowed(import: &Import<'_>) -> Result<()> {
    let Import { module, name, ty } = import;
    ensure!(
        matches!(ty, TypeRef::Func(_)),
        "the filter imports {module}.{name}, which is not a function"
    );
    let known = match *module {
        "env" => name
            .strip_prefix("proxy_")
            .is_some_and(|name| PROXY_WASM.contains(&name)),
        "wasi_snapshot_preview1" => WASI.contains(name),
        _ => false,
    };
    ensure!(
        known,
        "the filter imports {module}.{name}; only proxy-wasm 0.2.1 and {WASI:?} are allowed"
    );
    Ok(())
}

#[cfg(test)]
mod imports_tests {
    use super::*;

    const IMPORT_SECTION: u8 = 2;
    const FUNCTION: u8 = 0;
    const MEMORY: u8 = 2;

    /// Returns a module that imports one function, with a custom section before the import section.
    fn module(from: &str, name: &str) -> Vec<u8> {
        importing(from, name, &[FUNCTION, 0])
    }

    fn importing(from: &str, name: &str, what: &[u8]) -> Vec<u8> {
        let text = |text: &str| {
            let length = u8::try_from(text.len()).expect("a short name");
            [&[length], text.as_bytes()].concat()
        };
        let imports = [&[1][..], &text(from), &text(name), what].concat();
        let size = u8::try_from(imports.len()).expect("a short section");
        [
            b"\0asm\x01\0\0\0",
            &[0, 2, 1, b'x'][..],
            &[IMPORT_SECTION, size],
            &imports,
        ]
        .concat()
    }

    #[test]
    fn known_functions_pass() -> Result<()> {
        assert_eq!(check(&module("env", "proxy_log"))?, 1);
        assert_eq!(check(&module("wasi_snapshot_preview1", "random_get"))?, 1);
        Ok(())
    }

    #[test]
    fn unknown_functions_are_named() {
        let error = check(&module("env", "proxy_launch"))
            .expect_err("not in the ABI")
            .to_string();
        assert!(error.contains("env.proxy_launch"), "{error}");
        let error = check(&module("other", "proxy_log"))
            .expect_err("not our host")
            .to_string();
        assert!(error.contains("other.proxy_log"), "{error}");
    }

    #[test]
    fn other_imports_than_functions_are_refused() {
        let error = check(&importing("env", "memory", &[MEMORY, 0, 1]))
            .expect_err("a memory")
            .to_string();
        assert!(
            error.contains("env.memory, which is not a function"),
            "{error}"
        );
    }

    #[test]
    fn a_cut_module_is_an_error() {
        let whole = module("env", "proxy_log");
        let cut = whole.get(..whole.len() - 3).expect("it is longer");
        assert!(check(cut).is_err());
        assert!(check(b"#!/bin/sh").is_err());
    }
}
