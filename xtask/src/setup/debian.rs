//! Installs programs for which there is no wheel from packages of the distribution. Package lists
//! and packages are stored in the build directory, so the installation needs no root and does not
//! change the system.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use loudou_tests::paths::find_on_path;

use crate::command::run;

/// Packages to install, and the files that are needed from them.
pub(crate) struct Packages<'a> {
    pub(crate) names: &'a [&'a str],
    /// Paths of the needed files, relative to `place`.
    pub(crate) files: &'a [&'a str],
    /// True if the missing dependencies of the packages must be installed, too.
    pub(crate) with_dependencies: bool,
    /// Folder into which the packages are unpacked, as if it were the root directory.
    pub(crate) place: &'a Path,
}

impl Packages<'_> {
    /// Returns true if all needed files exist.
    pub(crate) fn are_installed(&self) -> bool {
        self.are_in(self.place)
    }

    /// Returns the library folders for `LD_LIBRARY_PATH`: `usr/lib/x86_64-linux-gnu` and its
    /// subfolders, because libraries such as `libpulse` keep private libraries in a subfolder.
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

    /// Installs the packages if needed files are missing.
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

    /// Downloads and unpacks the packages. The package lists are downloaded first, so that they
    /// match the packages on the server. Apt verifies the signature of the lists and the hashes of
    /// the packages.
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
                // Do not switch to apt's download user, which may be unable to write into the build
                // directory.
                .args(["-o", "APT::Sandbox::User="])
                .args(arguments);
            run(apt.current_dir(draft))
        };
        apt(&["update"])?;
        let download: &[&str] = if self.with_dependencies {
            // Apt's locks need root, and only protect changes to the system.
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

    /// Moves the unpacked files to their final path with a single rename, so that the files at this
    /// path are always complete.
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
