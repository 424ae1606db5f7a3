//! Paths of the workspace, the build directory, Envoy and the `loudou` command.
//!
//! `cargo xtask test` passes paths by environment; a plain `cargo test -p loudou-tests` finds
//! the same files by itself once `cargo xtask setup`, `cargo xtask build` and, for the test of crashes,
//! `cargo xtask build --trap` have run.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

/// The Envoy that `cargo xtask setup` installs, and the oldest that is accepted from `PATH`.
pub const ENVOY_VERSION: &str = "1.40.0";

/// The root of the workspace.
pub fn workspace_root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().unwrap_or(manifest).to_path_buf()
}

/// Cargo's build directory: `CARGO_TARGET_DIR`, or `target` in the workspace.
pub fn target_dir() -> PathBuf {
    let name = env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    workspace_root().join(name)
}

/// The directory of the pinned Envoy that `cargo xtask setup` installs.
pub fn installed_envoy() -> PathBuf {
    let version = Path::new("envoy").join(ENVOY_VERSION);
    target_dir().join(version).join("envoy/_bin/envoy")
}

/// The Envoy to run: `ENVOY_BIN`, then a recent enough `envoy` on `PATH`, then the installed one.
pub fn envoy_bin() -> Result<PathBuf> {
    if let Some(named) = env::var_os("ENVOY_BIN") {
        let path = PathBuf::from(named);
        envoy_version(&path).context("ENVOY_BIN must name an Envoy executable")?;
        return Ok(path);
    }
    // One that is too old or does not run is skipped: it may be there for another purpose.
    let found = find_on_path("envoy")
        .filter(|path| envoy_version(path).is_ok_and(|version| at_least(&version, ENVOY_VERSION)));
    if let Some(path) = found {
        return Ok(path);
    }
    let installed = installed_envoy();
    if installed.is_file() {
        return Ok(installed);
    }
    bail!("no Envoy {ENVOY_VERSION} or newer: run `cargo xtask setup`, or set ENVOY_BIN to one")
}

/// The version that an Envoy executable reports, such as `1.40.0`.
pub fn envoy_version(path: &Path) -> Result<String> {
    let output = Command::new(path)
        .arg("--version")
        .output()
        .with_context(|| format!("cannot run {} --version", path.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    // envoy  version: <commit>/1.40.0/Clean/RELEASE/BoringSSL
    let version = text
        .split('/')
        .find(|part| part.starts_with(|c: char| c.is_ascii_digit()) && part.contains('.'));
    let version = version.filter(|_| output.status.success() && text.contains("version:"));
    version.map(str::to_owned).with_context(|| {
        let errors = String::from_utf8_lossy(&output.stderr);
        format!(
            "{} is not Envoy: --version printed {text:?} {errors:?}",
            path.display()
        )
    })
}

/// The `loudou` command: `LOUDOU_BIN`, then the development build.
pub fn loudou_bin() -> Result<PathBuf> {
    let path = match env::var_os("LOUDOU_BIN") {
        Some(named) => PathBuf::from(named),
        None => target_dir().join("debug/loudou"),
    };
    if !path.is_file() {
        bail!(
            "no `loudou` at {}: run `cargo build -p loudou`",
            path.display()
        );
    }
    Ok(path)
}

/// The first executable file of this name in the directories of `PATH`.
pub fn find_on_path(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path)
        .map(|dir| dir.join(name))
        .find(|file| file.is_file())
}

/// Compares dotted version numbers; ignores text after a `-` (such as `-dev`).
fn at_least(version: &str, minimum: &str) -> bool {
    let numbers = |text: &str| -> Vec<u32> {
        let core = text.split('-').next().unwrap_or_default();
        core.split('.')
            .map(|part| part.parse().unwrap_or(0))
            .collect()
    };
    numbers(version) >= numbers(minimum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_compare_by_number() {
        assert!(at_least("1.40.0", "1.40.0"));
        assert!(at_least("1.100.1-dev", "1.40.0"));
        assert!(!at_least("1.9.9", "1.40.0"));
    }

    #[test]
    fn a_program_that_is_no_envoy_is_refused() {
        let message = envoy_version(Path::new("/bin/sh")).expect_err("a shell is not Envoy");
        assert!(message.to_string().contains("is not Envoy"), "{message}");
    }
}
