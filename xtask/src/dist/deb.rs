//! Writes a package for Debian and Ubuntu: an `ar` archive that contains two compressed archives
//! (deb(5)).
//!
//! `cargo-deb` would have to be compiled on every machine that tests a release, and the compilation
//! would take longer than the rest of the test.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

use super::programs::{Program, Target};
use crate::image::VERSION;
use crate::oci::{File, gzip, tar_of};

/// Returns a package that contains these programs and pages.
pub(super) fn package(
    root: &Path,
    target: &Target,
    programs: &[Program],
    pages: &[File],
) -> Result<Vec<u8>> {
    let license = fs::read(root.join("LICENSE")).context("LICENSE")?;
    let mut files: Vec<File> = programs
        .iter()
        .map(|program| program.file("usr/bin"))
        .collect();
    for page in pages {
        let is_page = page.path.starts_with("share/man/");
        files.push(File {
            // Debian requires compressed man pages.
            path: format!("usr/{}{}", page.path, if is_page { ".gz" } else { "" }),
            bytes: if is_page {
                gzip(&page.bytes)?
            } else {
                page.bytes.clone()
            },
            is_program: false,
        });
    }
    files.push(File {
        path: "usr/share/doc/loudou/copyright".to_owned(),
        bytes: license,
        is_program: false,
    });
    let bytes: usize = files.iter().map(|file| file.bytes.len()).sum();
    let control = File {
        path: "control".to_owned(),
        bytes: control(target, bytes.div_ceil(1024)).into_bytes(),
        is_program: false,
    };
    Ok(ar(&[
        ("debian-binary", b"2.0\n"),
        ("control.tar.gz", &gzip(&tar_of(&[control])?)?),
        ("data.tar.gz", &gzip(&tar_of(&files)?)?),
    ]))
}

fn control(target: &Target, kib: usize) -> String {
    format!(
        "Package: loudou\n\
         Version: {VERSION}\n\
         Architecture: {}\n\
         Maintainer: Loudou <loudou@example.com>\n\
         Installed-Size: {kib}\n\
         Section: net\n\
         Priority: optional\n\
         Description: watch and edit the limits that Loudou enforces inside Envoy\n \
         The terminal app and command line of a rate limiter that runs inside Envoy.\n",
        target.debian
    )
}

/// Returns an `ar` archive whose members have the time 0 and the owner 0. Each member starts at an
/// even offset.
fn ar(members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut archive = b"!<arch>\n".to_vec();
    for (name, bytes) in members {
        let size = bytes.len();
        let head = format!(
            "{name:<16}{:<12}{:<6}{:<6}{:<8}{size:<10}`\n",
            0, 0, 0, "100644"
        );
        archive.extend(head.as_bytes());
        archive.extend(*bytes);
        if size % 2 == 1 {
            archive.push(b'\n');
        }
    }
    archive
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;
    use std::process::Command;

    use loudou_tests::paths::{find_on_path, workspace_root};
    use loudou_tests::temp::TempDir;

    use super::super::programs::TARGETS;
    use super::*;

    #[test]
    fn members_begin_at_even_places() {
        let archive = ar(&[("a", b"x"), ("b", b"yz")]);
        assert_eq!(archive.len(), 8 + 60 + 2 + 60 + 2);
        assert_eq!(&archive[8 + 58..8 + 60], b"`\n");
        assert_eq!(&archive[70..86], b"b               ");
    }

    /// Installs the package into an empty root directory.
    fn installs(dir: &TempDir, package: &Path) {
        if fs::metadata(dir.path()).expect("a folder").uid() != 0 {
            println!("not installed: dpkg gives files to root, which only root may");
            return;
        }
        let root = dir.path().join("root");
        for folder in ["info", "updates"] {
            fs::create_dir_all(root.join("var/lib/dpkg").join(folder)).expect("a folder");
        }
        fs::write(root.join("var/lib/dpkg/status"), "").expect("written");
        let mut dpkg = Command::new("dpkg");
        dpkg.arg("--root")
            .arg(&root)
            .args(["--force-not-root", "--force-architecture"]);
        // A user's `PATH` may lack the system administration directories, which dpkg requires.
        dpkg.arg("--force-bad-path").arg("--install").arg(package);
        let output = dpkg.output().expect("runs");
        assert!(output.status.success(), "{output:?}");
        for file in ["usr/bin/loudou", "usr/share/doc/loudou/copyright"] {
            assert!(root.join(file).is_file(), "{file}");
        }
    }

    /// Checks that dpkg, if it is installed, can read and install the package.
    #[test]
    fn a_package_is_read_and_installed_by_dpkg() {
        let program = Program {
            name: "loudou",
            bytes: b"#!/bin/sh\n".to_vec(),
        };
        let page = File {
            path: "share/man/man1/loudou.1".to_owned(),
            bytes: b".TH loudou 1\n".to_vec(),
            is_program: false,
        };
        let make = || {
            let programs = [program.clone()];
            let pages = std::slice::from_ref(&page);
            package(&workspace_root(), &TARGETS[0], &programs, pages).expect("a package")
        };
        let bytes = make();
        assert_eq!(bytes, make());
        if find_on_path("dpkg-deb").is_none() {
            println!("not read: there is no dpkg-deb here");
            return;
        }
        let dir = TempDir::new("deb").expect("a folder");
        let file = dir.path().join("loudou.deb");
        fs::write(&file, bytes).expect("written");
        let dpkg = |option: &str| {
            let output = Command::new("dpkg-deb").arg(option).arg(&file).output();
            let output = output.expect("runs");
            assert!(output.status.success(), "{output:?}");
            String::from_utf8(output.stdout).expect("text")
        };
        assert!(dpkg("--info").contains("Architecture: amd64"));
        let listed = dpkg("--contents");
        assert!(listed.contains("-rwxr-xr-x 0/0"), "{listed}");
        assert!(
            listed.contains(" usr/share/man/man1/loudou.1.gz"),
            "{listed}"
        );
        installs(&dir, &file);
    }
}
