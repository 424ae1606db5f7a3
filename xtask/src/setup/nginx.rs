//! Finds NGINX for the benchmark of accuracy. It uses `PATH`, or else the distribution's package.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use loudou_tests::paths::{find_on_path, target_dir};

use super::debian::Packages;

const PROGRAM: &str = "usr/sbin/nginx";

/// Returns the path of NGINX. Installs it below the build directory if necessary.
pub(crate) fn find_or_install() -> Result<PathBuf> {
    if let Some(found) = find_on_path("nginx") {
        return Ok(found);
    }
    let place = target_dir().join("nginx");
    packages(&place).install().context("cannot install NGINX")?;
    Ok(place.join(PROGRAM))
}

fn packages(place: &Path) -> Packages<'_> {
    Packages {
        names: &["nginx"],
        files: &[PROGRAM],
        with_dependencies: false,
        place,
    }
}
