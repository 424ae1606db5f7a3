//! Builds the commands for running a script: `EVALSHA` with the script's hash, or `EVAL` with its
//! text.

use redis::Cmd;

use crate::script::Call;

/// A script and its SHA-1 hash.
pub(super) struct Script {
    text: &'static str,
    hash: String,
}

impl Script {
    pub(super) fn new(text: &'static str) -> Self {
        Self {
            text,
            hash: redis::Script::new(text).get_hash().to_owned(),
        }
    }

    /// Returns the command to send if the server has cached the script.
    pub(super) fn hash(&self, call: &Call) -> Cmd {
        command("EVALSHA", &self.hash, call)
    }

    /// Returns the command to send if the server has not cached the script.
    pub(super) fn text(&self, call: &Call) -> Cmd {
        command("EVAL", self.text, call)
    }
}

fn command(name: &str, script: &str, call: &Call) -> Cmd {
    let mut command = redis::cmd(name);
    command.arg(script).arg(call.keys.len());
    for text in call.keys.iter().chain(&call.arguments) {
        command.arg(text);
    }
    command
}
