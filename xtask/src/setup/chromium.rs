//! Finds Chromium, which the check of pages needs. A Chromium on `PATH` takes precedence over the
//! distribution's headless build, which `setup` installs.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use loudou_tests::paths::{find_on_path, target_dir};

use super::debian::Packages;

/// Possible names of the program.
const NAMES: [&str; 4] = [
    "chromium",
    "chromium-browser",
    "google-chrome",
    "chromium-headless-shell",
];
/// Package to install: the headless build needs no window toolkit, which saves 100 MB.
const PACKAGE: &str = "chromium-headless-shell";
/// Path of the program itself: `usr/bin` contains only a script that starts an absolute system
/// path.
const PROGRAM: &str = "usr/lib/chromium/chromium-headless-shell";

/// A Chromium.
pub(crate) struct Chromium {
    program: PathBuf,
    /// Library folders for libraries that the system may lack.
    libraries: Vec<PathBuf>,
}

impl Chromium {
    /// Returns the Chromium on `PATH`, or the one that `setup` has installed.
    pub(crate) fn find() -> Option<Self> {
        let on_path = NAMES.iter().find_map(|name| find_on_path(name));
        let on_path = on_path.map(|program| Self {
            program,
            libraries: Vec::new(),
        });
        on_path.or_else(|| {
            let place = place();
            let packages = packages(&place);
            packages.are_installed().then(|| Self {
                program: place.join(PROGRAM),
                libraries: packages.libraries(),
            })
        })
    }

    pub(super) fn find_or_install() -> Result<Self> {
        if let Some(found) = Self::find() {
            return Ok(found);
        }
        println!("installing Chromium (a download of 100 to 200 MB)…");
        packages(&place()).install()?;
        let chromium = Self::find().context("the package has no Chromium")?;
        let output = chromium.command().arg("--version").output()?;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{chromium} does not run: {errors}");
        Ok(chromium)
    }

    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        if let Ok(libraries) = env::join_paths(&self.libraries)
            && !libraries.is_empty()
        {
            command.env("LD_LIBRARY_PATH", libraries);
        }
        command
    }
}

impl std::fmt::Display for Chromium {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.program.display().fmt(f)
    }
}

fn place() -> PathBuf {
    target_dir().join("chromium")
}

fn packages(place: &Path) -> Packages<'_> {
    Packages {
        names: &[PACKAGE],
        files: &[PROGRAM],
        with_dependencies: true,
        place,
    }
}
