//! A running relay. A guard ends it.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use rustix::net::{
    AddressFamily, SocketFlags, SocketType, bind, getsockname, socket_with, sockopt,
};
use serde_json::Value;

use crate::clock::eventually;
use crate::http::Http;
use crate::paths::relay_bin;
use crate::process::{Group, Guarded, signal};
use crate::temp::TempDir;
use crate::valkey::{Valkey, ValkeyCluster, ValkeySentinels};

/// Time limit for the start. The relay starts in milliseconds. The rest is a margin for a busy
/// machine.
const START: Duration = Duration::from_mins(1);

/// A running relay.
#[derive(Debug)]
pub struct Relay {
    /// `None` while the relay is killed.
    process: Option<Guarded>,
    program: PathBuf,
    dir: TempDir,
    options: Vec<String>,
    address: SocketAddr,
    /// Socket that keeps the port reserved while the relay is killed.
    _reserved: OwnedFd,
}

impl Relay {
    /// Starts a relay for this server, and waits until the relay reaches it.
    pub fn start(valkey: &Valkey) -> Result<Self> {
        Self::start_with(valkey, &[])
    }

    /// Starts a relay for this server with further options.
    pub fn start_with(valkey: &Valkey, options: &[&str]) -> Result<Self> {
        Self::start_program(relay_bin()?, valkey, options)
    }

    /// Starts another build of the relay for this server, with further options.
    pub fn start_program(program: PathBuf, valkey: &Valkey, options: &[&str]) -> Result<Self> {
        let url = valkey.url();
        let relay = Self::launch_program(program, &[&["--engine", &url], options].concat())?;
        relay.await_engine()?;
        Ok(relay)
    }

    /// Starts a relay for this cluster, and waits until the relay reaches it.
    pub fn start_on_cluster(cluster: &ValkeyCluster, options: &[&str]) -> Result<Self> {
        Self::start_on(&cluster.urls(), &[&["--cluster"], options].concat())
    }

    /// Starts a relay for the primary that these sentinels name, and waits until the relay reaches
    /// it.
    pub fn start_on_sentinels(sentinels: &ValkeySentinels, options: &[&str]) -> Result<Self> {
        let master = ["--sentinel-master", ValkeySentinels::NAME];
        Self::start_on(&sentinels.urls(), &[&master, options].concat())
    }

    fn start_on(urls: &[String], options: &[&str]) -> Result<Self> {
        let mut all = options.to_vec();
        for url in urls {
            all.extend(["--engine", url]);
        }
        let relay = Self::launch(&all)?;
        relay.await_engine()?;
        Ok(relay)
    }

    /// Starts a relay with these options, and waits until it listens. An engine need not exist.
    pub fn launch(options: &[&str]) -> Result<Self> {
        Self::launch_program(relay_bin()?, options)
    }

    fn launch_program(program: PathBuf, options: &[&str]) -> Result<Self> {
        let (reserved, address) = reserve()?;
        let mut relay = Self {
            process: None,
            program,
            dir: TempDir::new("relay")?,
            options: options.iter().map(|&option| option.to_owned()).collect(),
            address,
            _reserved: reserved,
        };
        relay.restart()?;
        Ok(relay)
    }

    /// Kills the relay if it runs, and starts it on the same port.
    pub fn restart(&mut self) -> Result<()> {
        self.kill();
        let log = fs::File::create(self.log_file()).context("cannot write the relay's log")?;
        let mut command = Command::new(&self.program);
        command
            .args(["--listen", &self.address.to_string()])
            .args(&self.options);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        self.process = Some(Guarded::spawn("the relay", &mut command, Group::Own)?);
        eventually(START, "the relay to listen", || {
            if let Some(status) = self.ended()? {
                bail!("the relay has ended by itself: {status}; {}", self.log()?);
            }
            Ok(self.logged("listening")?.map(drop))
        })
    }

    /// Waits until `/healthz` reports that the engine is reached.
    pub fn await_engine(&self) -> Result<()> {
        eventually(START, "the relay to reach its engine", || {
            let answer = self.http().get("/healthz")?;
            Ok((answer.status == 200).then_some(()))
        })
    }

    /// Returns the relay's address.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Creates a client of the relay.
    pub const fn http(&self) -> Http {
        Http::new(self.address)
    }

    /// Returns the process id. `None` while the relay is killed.
    pub fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(Guarded::pid)
    }

    /// Returns the log so far.
    pub fn log(&self) -> Result<String> {
        let path = self.log_file();
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    }

    /// Returns the last line of the log that has this message.
    pub fn logged(&self, message: &str) -> Result<Option<Value>> {
        let log = self.log()?;
        let lines = log.lines().rev();
        let mut lines = lines.filter_map(|line| serde_json::from_str::<Value>(line).ok());
        Ok(lines.find(|line| line.get("message").is_some_and(|text| text == message)))
    }

    /// Makes the relay hang.
    pub fn pause(&self) -> Result<()> {
        self.signal("STOP")
    }

    /// Lets the hanging relay continue.
    pub fn resume(&self) -> Result<()> {
        self.signal("CONT")
    }

    /// Asks the relay to stop gracefully.
    pub fn terminate(&self) -> Result<()> {
        self.signal("TERM")
    }

    /// Kills the relay.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// Returns the exit status if the relay has ended without a signal of the test.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        self.process.as_mut().map_or(Ok(None), Guarded::ended)
    }

    fn log_file(&self) -> PathBuf {
        self.dir.path().join("log")
    }

    fn signal(&self, name: &str) -> Result<()> {
        let process = self.process.as_ref().context("the relay is killed")?;
        signal(process.pid(), name)
    }
}

/// Reserves a free port. As long as the returned socket is open, the system gives the port to no
/// other process, even while no relay listens there. The socket never listens, and it allows others
/// to bind the same port (`SO_REUSEADDR`), as the relay does.
fn reserve() -> Result<(OwnedFd, SocketAddr)> {
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    bind(&socket, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).context("no port for the relay")?;
    let address = SocketAddr::try_from(getsockname(&socket)?)?;
    Ok((socket, address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_killed_relay_keeps_its_port() -> Result<()> {
        let mut relay = Relay::launch(&["--engine", "unix:///nowhere"])?;
        relay.kill();
        let other = socket_with(
            AddressFamily::INET,
            SocketType::STREAM,
            SocketFlags::CLOEXEC,
            None,
        )?;
        assert!(bind(&other, &relay.address()).is_err(), "taken by another");
        let before = relay.address();
        relay.restart()?;
        assert_eq!(
            (relay.address(), relay.http().get("/healthz")?.status),
            (before, 503)
        );
        Ok(())
    }
}
