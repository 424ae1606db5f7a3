//! A running Valkey, which a guard ends. It is one server on a Unix socket. The submodules start
//! several servers on ports: a cluster, or a primary with a replica and sentinels.
//!
//! The path of a Unix socket stays free between a restart and the next start, whereas another
//! process could take a port.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use crate::clock::eventually;
use crate::paths::valkey_bin;
use crate::process::{Group, Guarded, signal};
use crate::temp::TempDir;

pub mod cluster;
mod node;
pub mod resp;
pub mod sentinels;

pub use cluster::ValkeyCluster;
pub use resp::{Reply, Resp};
pub use sentinels::ValkeySentinels;

/// Time limit for the start. Valkey starts in milliseconds. The rest is a margin for a busy
/// machine.
pub(crate) const START: Duration = Duration::from_mins(1);

/// A running Valkey without persistence.
#[derive(Debug)]
pub struct Valkey {
    /// `None` while the server is killed.
    process: Option<Guarded>,
    dir: TempDir,
    options: Vec<String>,
}

impl Valkey {
    /// Starts an empty server and waits until it answers.
    pub fn start() -> Result<Self> {
        Self::start_with(&[])
    }

    /// Starts a server with further options, such as `["--requirepass", "secret"]`.
    pub fn start_with(options: &[&str]) -> Result<Self> {
        let mut valkey = Self {
            process: None,
            dir: TempDir::new("valkey")?,
            options: options.iter().map(|&option| option.to_owned()).collect(),
        };
        valkey.restart()?;
        Ok(valkey)
    }

    /// Returns the URL for the relay's `--engine`.
    pub fn url(&self) -> String {
        format!("unix://{}", self.socket().display())
    }

    /// Returns the path of the socket.
    pub fn socket(&self) -> PathBuf {
        self.dir.path().join("socket")
    }

    /// Returns the process id. `None` while the server is killed.
    pub fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(Guarded::pid)
    }

    /// Runs a command. An error reply counts as an error.
    pub fn run(&self, command: &[&str]) -> Result<Reply> {
        Resp::unix(&self.socket())?.run(command)
    }

    /// Makes the server hang: connections stay open, and nothing is answered.
    pub fn pause(&self) -> Result<()> {
        self.signal("STOP")
    }

    /// Lets the hanging server continue. It then reads everything that was sent meanwhile.
    pub fn resume(&self) -> Result<()> {
        self.signal("CONT")
    }

    /// Kills the server, including its data.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// Kills the server if it runs, and starts an empty one at the same path.
    pub fn restart(&mut self) -> Result<()> {
        self.kill();
        // Remove the socket of the killed server, because it accepts no connection.
        drop(fs::remove_file(self.socket()));
        let log = fs::File::create(self.dir.path().join("log")).context("cannot write a log")?;
        let mut command = Command::new(valkey_bin()?);
        command
            .args(["--port", "0", "--unixsocket"])
            .arg(self.socket())
            .args(["--save", "", "--appendonly", "no", "--dir"])
            .arg(self.dir.path())
            .args(&self.options);
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        self.process = Some(Guarded::spawn("valkey", &mut command, Group::Own)?);
        eventually(START, "Valkey to answer", || {
            if let Some(status) = self.ended()? {
                bail!("Valkey has ended by itself: {status}; {}", self.log());
            }
            let pong = Resp::unix(&self.socket()).and_then(|mut resp| resp.ask(&["PING"]));
            Ok(pong.is_ok().then_some(()))
        })
    }

    fn ended(&mut self) -> Result<Option<std::process::ExitStatus>> {
        self.process.as_mut().map_or(Ok(None), Guarded::ended)
    }

    fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    fn signal(&self, name: &str) -> Result<()> {
        let process = self.process.as_ref().context("Valkey is killed")?;
        signal(process.pid(), name)
    }
}

impl Drop for Valkey {
    fn drop(&mut self) {
        // Use KILL, because a paused process ignores all other signals.
        self.kill();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_pauses_and_forgets() -> Result<()> {
        let mut valkey = Valkey::start()?;
        assert_eq!(
            valkey.run(&["SET", "a", "1"])?,
            Reply::Text("OK".to_owned())
        );
        valkey.pause()?;
        let mut resp = Resp::unix(&valkey.socket())?;
        resp.patience(Duration::from_millis(50))?;
        assert!(resp.run(&["GET", "a"]).is_err(), "a paused server answered");
        valkey.resume()?;
        assert_eq!(valkey.run(&["GET", "a"])?, Reply::Text("1".to_owned()));
        valkey.kill();
        assert!(valkey.run(&["PING"]).is_err(), "a killed server answered");
        valkey.restart()?;
        assert_eq!(valkey.run(&["GET", "a"])?, Reply::Nil);
        assert!(valkey.run(&["NO-SUCH-COMMAND"]).is_err());
        Ok(())
    }
}
