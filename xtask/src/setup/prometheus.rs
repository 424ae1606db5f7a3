//! Installs Prometheus from the distribution's package: no wheel has it. Lists of packages and the package go into the
//! build directory, so it needs no root and changes nothing of the system.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use loudou_tests::paths::{find_on_path, installed_prometheus, prometheus_bin, prometheus_version};

use crate::command::run as run_command;

/// The programs that the tests need.
const PROGRAMS: [&str; 2] = ["prometheus", "promtool"];

/// The Prometheus for the tests.
pub(super) fn find_or_install() -> Result<PathBuf> {
    match prometheus_bin() {
        Ok(path) => Ok(path),
        // The user has to correct a wrong PROMETHEUS_BIN.
        Err(error) if env::var_os("PROMETHEUS_BIN").is_some() => Err(error),
        Err(_) => install(),
    }
}

fn install() -> Result<PathBuf> {
    println!("installing Prometheus (a download of about 35 MB)…");
    ensure!(
        ["apt-get", "dpkg-deb"]
            .map(find_on_path)
            .iter()
            .all(Option::is_some),
        "Prometheus is installed from Debian's or Ubuntu's package, and there is no apt-get here: install \
         `prometheus` with your package manager, or set PROMETHEUS_BIN to one that has promtool beside it"
    );
    let place = installed_prometheus();
    let home = place.parent().unwrap_or(&place);
    let draft = home.join(format!(".installing-prometheus-{}", std::process::id()));
    let installed = unpack(&draft).and_then(|bin| move_in(&bin, &place));
    drop(fs::remove_dir_all(&draft));
    installed.context("cannot install Prometheus; try again, or set PROMETHEUS_BIN to its path")?;
    let program = place.join("prometheus");
    prometheus_version(&program)?;
    Ok(program)
}

/// Downloads and unpacks the package; returns the directory of its programs. Lists of its own are never older than the
/// package is; apt checks their signature and the package's hash.
fn unpack(draft: &Path) -> Result<PathBuf> {
    let [lists, cache] = ["lists", "cache"].map(|name| draft.join(name));
    for directory in [lists.join("partial"), cache.join("archives/partial")] {
        fs::create_dir_all(&directory).with_context(|| directory.display().to_string())?;
    }
    let apt = |arguments: &[&str]| {
        let mut apt = Command::new("apt-get");
        apt.args(["--quiet", "--quiet", "-o"])
            .arg(format!("Dir::State::Lists={}", lists.display()))
            .arg("-o")
            .arg(format!("Dir::Cache={}", cache.display()))
            // Its user for downloads may not write into the build directory.
            .args(["-o", "APT::Sandbox::User="])
            .args(arguments);
        run_command(apt.current_dir(draft))
    };
    apt(&["update"])?;
    apt(&["download", "prometheus"])?;
    let mut files = fs::read_dir(draft)?.filter_map(Result::ok);
    let package = files
        .find(|file| file.path().extension().is_some_and(|end| end == "deb"))
        .context("apt-get has downloaded no package")?;
    let root = draft.join("root");
    run_command(
        Command::new("dpkg-deb")
            .arg("--extract")
            .args([&package.path(), &root]),
    )?;
    Ok(root.join("usr/bin"))
}

/// Installs with one rename, so that what is in this place is always complete.
fn move_in(bin: &Path, place: &Path) -> Result<()> {
    let is_complete = |folder: &Path| PROGRAMS.iter().all(|name| folder.join(name).is_file());
    ensure!(
        is_complete(bin),
        "the package has no {}",
        PROGRAMS.join(" or no ")
    );
    if fs::rename(bin, place).is_err() {
        // Another process was faster.
        ensure!(is_complete(place), "cannot write {}", place.display());
    }
    Ok(())
}
