//! Installs Zig and cargo-zigbuild from their Python packages. A release links its programs and the
//! native module with them, for architectures and C libraries other than this machine's.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;
use loudou_tests::paths::target_dir;

use super::Wheel;

const ZIG: &str = "0.17.1";
const ZIGBUILD: &str = "0.24.1";

/// An installation of Zig with cargo-zigbuild.
pub(crate) struct Zig {
    place: PathBuf,
}

impl Zig {
    /// Returns the Zig in the build directory, and installs it if necessary.
    pub(crate) fn find_or_install() -> Result<Self> {
        let zig = Self {
            place: target_dir().join("zig").join(ZIG),
        };
        if !zig.is_installed() {
            println!("installing Zig {ZIG} (a download of about 90 MB)…");
            let wheel = Wheel {
                program: "Zig",
                place: zig.place.clone(),
                requirement: format!("ziglang=={ZIG}\ncargo-zigbuild=={ZIGBUILD}\n"),
                ..Wheel::default()
            };
            wheel.install(|| zig.is_installed())?;
        }
        Ok(zig)
    }

    fn is_installed(&self) -> bool {
        self.zig().is_file() && self.zigbuild().is_file()
    }

    fn zig(&self) -> PathBuf {
        self.place.join("ziglang/zig")
    }

    fn zigbuild(&self) -> PathBuf {
        self.place.join("bin/cargo-zigbuild")
    }

    /// Returns a command that works like `cargo build`, but links with Zig.
    pub(crate) fn cargo_build(&self) -> Command {
        let mut command = Command::new(self.zigbuild());
        command.arg("zigbuild");
        command.env("CARGO_ZIGBUILD_ZIG_PATH", self.zig());
        command
    }
}
