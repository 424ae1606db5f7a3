//! Programs out of the distribution's packages, for what no wheel has. Lists of packages and the packages go into the
//! build directory, so this needs no root and changes nothing of the system.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use loudou_tests::paths::find_on_path;

use crate::command::run;

/// Packages, and what is needed of them.
pub(crate) struct Packages<'a> {
    pub(crate) names: &'a [&'a str],
    /// Files below the root of the packages.
    pub(crate) files: &'a [&'a str],
    /// Whether the packages that they depend on come too, as far as the system lacks them.
    pub(crate) with_dependencies: bool,
    /// The folder that takes the place of the root.
    pub(crate) place: &'a Path,
}

impl Packages<'_> {
    /// Whether all is there.
    pub(crate) fn are_installed(&self) -> bool {
        self.are_in(self.place)
    }

    /// The folders of libraries below the root, for `LD_LIBRARY_PATH`: `usr/lib/x86_64-linux-gnu` and the folders in it,
    /// such as that of the libraries which only `libpulse` uses.
    pub(crate) fn libraries(&self) -> Vec<PathBuf> {
        let folders = |folder: &PathBuf| -> Vec<PathBuf> {
            let entries = fs::read_dir(folder).into_iter().flatten().flatten();
            let paths = entries.map(|entry| entry.path());
            paths.filter(|path| path.is_dir()).collect()
        };
        let roots = ["usr/lib", "lib"].map(|name| self.place.join(name));
        let mut found: Vec<PathBuf> = roots.iter().flat_map(folders).collect();
        found.retain(|folder| folder.to_string_lossy().contains("-linux-"));
        let inner: Vec<PathBuf> = found.iter().flat_map(folders).collect();
        found.extend(inner);
        found
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
        let download: &[&str] = if self.with_dependencies {
            // Locks are for changes of the system, and need root.
            let options = ["--download-only", "--no-install-recommends", "--yes"];
            &[&["-o", "Debug::NoLocking=1", "install"][..], &options].concat()
        } else {
            &["download"]
        };
        apt(&[download, self.names].concat())?;
        for file in fs::read_dir(draft)?.chain(fs::read_dir(cache.join("archives"))?) {
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
