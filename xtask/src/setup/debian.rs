//! Programs out of the distribution's packages, for what no wheel has. Lists of packages and the packages go into the
//! build directory, so this needs no root and changes nothing of the system.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use loudou_tests::paths::find_on_path;

use crate::command::run;

/// Packages, and what is needed of them.
pub(crate) struct Packages<'a> {
    pub(crate) names: &'a [&'a str],
    /// Files below the root of the packages.
    pub(crate) files: &'a [&'a str],
    /// The folder that takes the place of the root.
    pub(crate) place: &'a Path,
}

impl Packages<'_> {
    /// Whether all is there.
    pub(crate) fn are_installed(&self) -> bool {
        self.are_in(self.place)
    }

    fn are_in(&self, root: &Path) -> bool {
        self.files.iter().all(|file| root.join(file).is_file())
    }

    /// Installs what is not there yet.
    pub(crate) fn install(&self) -> Result<()> {
        if self.are_installed() {
            return Ok(());
        }
        let tools = ["apt-get", "dpkg-deb"].map(find_on_path);
        ensure!(
            tools.iter().all(Option::is_some),
            "there is no apt-get here"
        );
        let home = self.place.parent().unwrap_or(self.place);
        let draft = home.join(format!(".installing-packages-{}", std::process::id()));
        let installed = self.unpack(&draft).and_then(|()| self.move_in(&draft));
        drop(fs::remove_dir_all(&draft));
        installed
    }

    /// Downloads and unpacks the packages. Lists of its own are never older than the packages are; apt checks their
    /// signature and the packages' hashes.
    fn unpack(&self, draft: &Path) -> Result<()> {
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
            run(apt.current_dir(draft))
        };
        apt(&["update"])?;
        apt(&[&["download"], self.names].concat())?;
        for file in fs::read_dir(draft)? {
            let package = file?.path();
            if package.extension().is_some_and(|end| end == "deb") {
                let mut unpack = Command::new("dpkg-deb");
                unpack.arg("--extract").arg(&package);
                run(unpack.arg(draft.join("root")))?;
            }
        }
        Ok(())
    }

    /// Installs with one rename, so that what is in this place is always complete.
    fn move_in(&self, draft: &Path) -> Result<()> {
        let root = draft.join("root");
        let (names, files) = (self.names.join(", "), self.files.join(", "));
        ensure!(self.are_in(&root), "not all of {files} are in {names}");
        if fs::rename(&root, self.place).is_err() {
            // Another process was faster.
            ensure!(
                self.are_installed(),
                "cannot write {}",
                self.place.display()
            );
        }
        Ok(())
    }
}
