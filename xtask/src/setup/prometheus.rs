//! Installs Prometheus from the distribution's package: no wheel has it.

use std::env;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use loudou_tests::paths::{installed_prometheus, prometheus_bin, prometheus_version};

use super::debian::Packages;

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
    let packages = Packages {
        names: &["prometheus"],
        files: &["usr/bin/prometheus", "usr/bin/promtool"],
        with_dependencies: false,
        place: &installed_prometheus(),
    };
    packages.install().context(
        "cannot install Prometheus from Debian's or Ubuntu's package: install it with your package manager, or set \
         PROMETHEUS_BIN to one that has promtool beside it",
    )?;
    let program = prometheus_bin()?;
    prometheus_version(&program)?;
    Ok(program)
}
