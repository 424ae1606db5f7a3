//! Installs programs from the distribution's packages, for programs without a wheel. Package lists
//! and packages go into the build directory, so this needs no root and does not change the system.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use loudou_tests::paths::find_on_path;

use crate::command::run;

/// Packages and their needed files.
pub(crate) struct Packages<'a> {
    pub(crate) names: &'a [&'a str],
    /// Files below the root of the packages.
    pub(crate) files: &'a [&'a str],
    /// True if missing dependencies of the packages are installed too.
    pub(crate) with_dependencies: bool,
    /// Folder that serves as the root.
    pub(crate) place: &'a Path,
}

impl Packages<'_> {
    /// Returns true if all files exist.
    pub(crate) fn are_installed(&self) -> bool {
        self.are_in(self.place)
    }

    /// Returns the library folders below the root, for `LD_LIBRARY_PATH`:
    /// `usr/lib/x86_64-linux-gnu` and its subfolders, for example the folder of private libraries
    /// for `libpulse`.
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

    /// Installs the packages if files are missing.
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

    /// Downloads and unpacks the packages. Fresh package lists are never older than the packages.
    /// Apt checks the lists' signature and the packages' hashes.
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
                // Apt's download user may not write into the build directory.
                .args(["-o", "APT::Sandbox::User="])
                .args(arguments);
            run(apt.current_dir(draft))
        };
        apt(&["update"])?;
        let download: &[&str] = if self.with_dependencies {
            // Locks protect changes to the system, and need root.
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

    /// Installs with one rename, so that files at this path are always complete.
    fn move_in(&self, draft: &Path) -> Result<()> {
        let root = draft.join("root");
        let (names, files) = (self.names.join(", "), self.files.join(", "));
        ensure!(self.are_in(&root), "not all of {files} are in {names}");
        if fs::rename(&root, self.place).is_err() {
            // Another process has installed the files in the meantime.
            ensure!(
                self.are_installed(),
                "cannot write {}",
                self.place.display()
            );
        }
        Ok(())
    }
}
