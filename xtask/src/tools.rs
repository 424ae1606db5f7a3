//! Installs tools for the checks, in pinned versions, from crates.io into the build directory.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, ensure};
use loudou_tests::paths::target_dir;

use crate::command::{cargo, run};

/// A tool.
pub(crate) struct Tool {
    /// Name of the crate and of its program.
    name: &'static str,
    version: &'static str,
    /// Text before the version in the output of `--version`.
    prefix: &'static str,
    /// Options of `cargo install`.
    options: &'static [&'static str],
    /// Environment variables for the installation.
    variables: &'static [(&'static str, &'static str)],
}

/// mdBook builds the documents as a site.
pub(crate) const MDBOOK: Tool = Tool {
    name: "mdbook",
    version: "0.5.4",
    prefix: "mdbook v",
    options: &["--no-default-features", "--features", "search"],
    variables: &[],
};

/// cargo-deny checks the dependencies. It runs for only a second, so it is built without
/// optimisation. On one core, such a build takes about two minutes; an optimised build would take
/// much longer.
pub(crate) const DENY: Tool = Tool {
    name: "cargo-deny",
    version: "0.20.2",
    prefix: "cargo-deny ",
    options: &["--no-default-features", "--debug"],
    variables: &[
        ("CARGO_PROFILE_DEV_DEBUG", "0"),
        ("CARGO_PROFILE_DEV_INCREMENTAL", "false"),
    ],
};

impl Tool {
    /// Returns the path of the tool's program, and installs the tool if necessary.
    pub(crate) fn program(&self) -> Result<PathBuf> {
        let tools = target_dir().join("tools");
        let program = tools.join("bin").join(self.name);
        let found = Command::new(&program).arg("--version").output();
        let found = found.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
        let expected = format!("{}{}", self.prefix, self.version);
        if found.is_ok_and(|found| found.trim() == expected) {
            return Ok(program);
        }
        let package = format!("{}@{}", self.name, self.version);
        println!("installing {package} into target/tools (this takes a few minutes)…");
        let mut install = cargo(&["install", "--locked", "--force"]);
        install.args(self.options).arg("--root").arg(&tools);
        install.envs(self.variables.iter().copied());
        run(install.arg(&package))?;
        ensure!(
            program.is_file(),
            "{package} has no program at {}",
            program.display()
        );
        Ok(program)
    }
}
