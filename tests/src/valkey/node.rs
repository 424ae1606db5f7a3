//! A server on a port. Several such servers know each other by their ports.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

use super::{Reply, Resp, START};
use crate::clock::eventually;
use crate::paths::valkey_bin;
use crate::process::{Group, Guarded, signal};
use crate::temp::TempDir;

/// A server.
#[derive(Debug)]
pub(crate) struct Node {
    /// `None` while the server is killed.
    process: Option<Guarded>,
    address: SocketAddr,
}

impl Node {
    /// Starts a server in a separate directory, with the options that `options` adds for its port.
    /// Another process may take a port after it was found to be free. The next port is tried then.
    pub(crate) fn start(
        dir: &TempDir,
        options: impl Fn(&mut Command, u16, &Path) -> Result<()>,
    ) -> Result<Self> {
        for _ in 0..8 {
            let port = free_port()?;
            let path = dir.path().join(port.to_string());
            fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
            let mut command = Command::new(valkey_bin()?);
            options(&mut command, port, &path)?;
            let log = fs::File::create(path.join("log")).context("cannot write a log")?;
            command
                .stdin(Stdio::null())
                .stdout(log.try_clone()?)
                .stderr(log);
            let mut process = Guarded::spawn("valkey", &mut command, Group::Own)?;
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
            let is_ready = eventually(START, "a node to answer", || {
                if process.ended()?.is_some() {
                    return Ok(Some(false));
                }
                let pong = Resp::tcp(address).and_then(|mut resp| resp.ask(&["PING"]));
                Ok(pong.is_ok().then_some(true))
            })?;
            if is_ready {
                return Ok(Self {
                    process: Some(process),
                    address,
                });
            }
        }
        bail!(
            "no node could start; the logs are in {}",
            dir.path().display()
        )
    }

    /// Adds the options of a server without persistence.
    pub(crate) fn serve(command: &mut Command, port: u16, path: &Path) {
        command
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
            .args(["--save", "", "--appendonly", "no", "--dir"])
            .arg(path)
            .args(["--repl-diskless-sync-delay", "0"]);
    }

    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the URL for the relay's `--engine`.
    pub(crate) fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// Runs a command. An error reply counts as an error.
    pub(crate) fn run(&self, command: &[&str]) -> Result<Reply> {
        Resp::tcp(self.address)?.run(command)
    }

    pub(crate) fn kill(&mut self) {
        self.process = None;
    }

    /// Makes the server hang.
    pub(crate) fn pause(&self) -> Result<()> {
        self.signal("STOP")
    }

    /// Lets the hanging server continue.
    pub(crate) fn resume(&self) -> Result<()> {
        self.signal("CONT")
    }

    fn signal(&self, name: &str) -> Result<()> {
        let process = self.process.as_ref().context("the node is killed")?;
        signal(process.pid(), name)
    }

    /// Returns true if the node reports that it is a primary.
    pub(crate) fn is_primary(&self) -> Result<bool> {
        let role = self.run(&["ROLE"])?;
        let primary = Reply::Text("master".to_owned());
        Ok(matches!(&role, Reply::List(list) if list.first() == Some(&primary)))
    }

    /// Returns true if the node is a replica whose primary answers.
    pub(crate) fn is_following(&self) -> Result<bool> {
        let Reply::Text(info) = self.run(&["INFO", "replication"])? else {
            bail!("no information");
        };
        Ok(info.contains("master_link_status:up"))
    }
}

/// Returns a port that is free now, and whose successor is free, too.
fn free_port() -> Result<u16> {
    loop {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no free port")?;
        let port = listener.local_addr()?.port();
        let Some(next) = port.checked_add(1) else {
            continue;
        };
        if TcpListener::bind((Ipv4Addr::LOCALHOST, next)).is_ok() {
            return Ok(port);
        }
    }
}
