//! A script as commands: by its hash, or with its text.

use redis::Cmd;

use crate::script::Call;

/// A script and its hash.
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

    /// The command for a server that knows the script.
    pub(super) fn hash(&self, call: &Call) -> Cmd {
        command("EVALSHA", &self.hash, call)
    }

    /// The command for a server that does not.
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
