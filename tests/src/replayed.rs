//! Runs `loudou replay` over logs in a folder.

use std::ffi::OsStr;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::paths::loudou_command;
use crate::temp::TempDir;

/// Files of one test: rules and logs.
#[derive(Debug)]
pub struct Folder(TempDir);

impl Folder {
    /// Creates a folder with these rules (a JSON array as in a rule file).
    pub fn new(rules: &Value) -> Result<Self> {
        let folder = Self(TempDir::new("replay")?);
        let file = json!({ "version": 1, "rules": rules });
        folder.write("rules.json", file.to_string().as_bytes())?;
        Ok(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a file.
    pub fn write(&self, name: &str, bytes: &[u8]) -> Result<()> {
        fs::write(self.path(name), bytes).with_context(|| name.to_owned())
    }

    /// Replays these files. Returns standard output and standard error.
    pub fn replay<S: AsRef<OsStr>>(
        &self,
        traces: &[&str],
        options: &[S],
    ) -> Result<(String, String)> {
        let mut command = loudou_command()?;
        command
            .arg("replay")
            .arg("--config")
            .arg(self.path("rules.json"));
        for trace in traces {
            command.arg("--trace").arg(self.path(trace));
        }
        let output = command.args(options).output()?;
        let (out, err) = (output.stdout, output.stderr);
        let (out, err) = (String::from_utf8(out)?, String::from_utf8(err)?);
        ensure!(output.status.success(), "{traces:?}: {err}");
        Ok((out, err))
    }
}
