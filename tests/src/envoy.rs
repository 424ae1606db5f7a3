//! A running Envoy, owned by a guard.
//!
//! The guard kills Envoy when it is dropped. A passing test ends with [`Envoy::stop`]. If the guard
//! is dropped without that call, the test has failed (by a panic or by `?`), so the guard prints
//! the end of Envoy's log and keeps the directory.

use std::fs;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with, sockopt};
use serde_json::{Value, json};

use crate::clock::eventually;
use crate::config::{Config, EDIT_TOKEN};
use crate::http::{Http, Request};
use crate::load::{Counts, load};
use crate::paths::{envoy_bin, workspace_root};
use crate::process::{Group, Guarded, threads};
use crate::temp::TempDir;
use crate::wasm::wasm_path;

pub use stats::Memory;

mod stats;

/// Envoy starts in a second. The rest is a margin for a busy machine.
const START: Duration = Duration::from_mins(1);
const UPDATE: Duration = Duration::from_secs(30);
const LOG: &str = "envoy.log";
const BASE_ID: &str = "base-id";
const LDS: &str = "lds.json";
/// The listeners have a separate directory, because Envoy reads them again when any file next to
/// them changes.
const ECDS: &str = "filter/ecds.json";
/// Counts the configurations of the data listener's filter that Envoy has accepted or rejected.
const ECDS_STATS: &str = "extension_config_discovery.http_filter.loudou";
const LOG_TAIL: usize = 40;

/// Outcome of a pushed update.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Update {
    /// The update is in effect.
    Accepted,
    /// The update was rejected, and the previous configuration stays in effect.
    Rejected,
}

/// A running Envoy with two listeners, `data` and `admin`.
#[derive(Debug)]
pub struct Envoy {
    process: Guarded,
    dir: TempDir,
    own_admin: SocketAddr,
    data: SocketAddr,
    admin: SocketAddr,
    wasm: PathBuf,
    stopped: bool,
}

impl Envoy {
    /// Starts Envoy with this configuration and waits until it serves on both listeners.
    pub fn start(config: &Config) -> Result<Self> {
        let wasm = wasm_of(config)?;
        Self::start_with(config, None, wasm)
    }

    /// Starts Envoy with its listeners on `ports`, or on any.
    fn start_with(config: &Config, ports: Option<[u16; 2]>, wasm: PathBuf) -> Result<Self> {
        let dir = TempDir::new("envoy")?;
        let lds = write_listeners(&dir, config, &wasm, ports)?;
        let bootstrap = config.bootstrap(&wasm, Some(&lds)).to_string();
        let file = dir.write("bootstrap.json", &bootstrap)?;
        let mut command = command(&file, config)?;
        command
            .arg("--drain-time-s")
            .arg(config.drain_s.to_string());
        if config.restart_epoch.is_some() {
            let end = config.drain_s.saturating_add(1);
            command.arg("--parent-shutdown-time-s").arg(end.to_string());
        }
        let mut envoy = Self::launch(command, dir, wasm)?;
        envoy.await_rules()?;
        Ok(envoy)
    }

    /// Starts Envoy with the text of a whole bootstrap file in YAML, whose listeners must be named
    /// `data` and `admin`. The working directory is the root of the workspace.
    pub fn start_yaml(yaml: &str, wasm: &Path) -> Result<Self> {
        Self::start_workers(yaml, wasm, 2)
    }

    /// Like [`Self::start_yaml`], but with one worker thread, so that requests are its work.
    pub fn start_one_worker(yaml: &str, wasm: &Path) -> Result<Self> {
        Self::start_workers(yaml, wasm, 1)
    }

    /// Like [`Self::start_yaml`], but with this many worker threads.
    pub fn start_workers(yaml: &str, wasm: &Path, workers: u32) -> Result<Self> {
        let dir = TempDir::new("envoy-yaml")?;
        let file = dir.write("envoy.yaml", yaml)?;
        let command = command(&file, &Config::new(Value::Null).concurrency(workers))?;
        Self::launch(command, dir, wasm.to_path_buf())
    }

    /// Runs `envoy --mode validate` on this configuration, with the listeners in the bootstrap.
    /// The filter's own messages are in the output's `stderr`.
    pub fn validate(config: &Config) -> Result<Output> {
        let wasm = wasm_of(config)?;
        let dir = TempDir::new("validate")?;
        let bootstrap = config.bootstrap(&wasm, None).to_string();
        let file = dir.write("bootstrap.json", &bootstrap)?;
        let mut command = command(&file, config)?;
        command
            .args(["--mode", "validate"])
            .output()
            .context("cannot run Envoy")
    }

    fn launch(mut command: Command, dir: TempDir, wasm: PathBuf) -> Result<Self> {
        let address_file = dir.path().join("envoy-admin");
        let log = fs::File::create(dir.path().join(LOG)).context("cannot write Envoy's log")?;
        command
            .arg("--admin-address-path")
            .arg(&address_file)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        let process = Guarded::spawn("envoy", &mut command, Group::Own)?;
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 0));
        // The guard owns Envoy from here on, so a failed start prints the log like any other
        // failure.
        let mut envoy = Self {
            process,
            dir,
            own_admin: nowhere,
            data: nowhere,
            admin: nowhere,
            wasm,
            stopped: false,
        };
        envoy.own_admin = eventually(START, "Envoy's own admin address", || {
            envoy.check_alive()?;
            let text = fs::read_to_string(&address_file).unwrap_or_default();
            Ok(text.trim().parse().ok())
        })?;
        eventually(START, "Envoy to be ready", || {
            envoy.check_alive()?;
            Ok(envoy
                .ask("/ready")
                .is_ok_and(|text| text.trim() == "LIVE")
                .then_some(()))
        })
        .with_context(|| threads(envoy.pid()))?;
        (envoy.data, envoy.admin) = eventually(START, "the data and admin listeners", || {
            envoy.check_alive()?;
            envoy.check_not_rejected()?;
            envoy.listeners()
        })?;
        Ok(envoy)
    }

    /// Returns the address for users' requests.
    pub const fn data_address(&self) -> SocketAddr {
        self.data
    }

    /// Returns the address of the admin API.
    pub const fn admin_address(&self) -> SocketAddr {
        self.admin
    }

    /// Returns the address of Envoy's own admin interface.
    pub const fn envoy_admin_address(&self) -> SocketAddr {
        self.own_admin
    }

    /// Creates a client of the data listener.
    pub const fn data(&self) -> Http {
        Http::new(self.data)
    }

    /// Creates a client of the admin API.
    pub const fn admin(&self) -> Http {
        Http::new(self.admin)
    }

    /// Returns the URL of the admin API, as for `LOUDOU_URL`.
    pub fn admin_url(&self) -> String {
        format!("http://{}", self.admin)
    }

    /// Sends many requests to the data listener. See [`load()`](crate::load::load).
    pub fn load(
        &self,
        requests: u64,
        connections: usize,
        request: impl Fn(u64) -> Request + Sync,
    ) -> Result<Counts> {
        load(self.data, requests, connections, request)
    }

    /// Pushes new listeners through LDS and waits until Envoy has accepted or rejected them. Open
    /// connections drain: Envoy closes each with one of its next answers.
    pub fn push(&self, config: &Config) -> Result<Update> {
        let accepted = self.counter("listener_manager.lds.update_success")?;
        let rejected = self.counter("listener_manager.lds.update_rejected")?;
        let wasm = config.wasm.as_deref().unwrap_or(&self.wasm);
        write_listeners(&self.dir, config, wasm, None)?;
        let update = eventually(UPDATE, "Envoy to read the new listeners", || {
            if self.counter("listener_manager.lds.update_rejected")? > rejected {
                return Ok(Some(Update::Rejected));
            }
            let taken = self.counter("listener_manager.lds.update_success")? > accepted;
            Ok(taken.then_some(Update::Accepted))
        })?;
        eventually(UPDATE, "the new listeners to be in force", || {
            let warming = self.counter("listener_manager.total_listeners_warming")?;
            Ok((warming == 0).then_some(()))
        })?;
        ensure!(
            self.listeners()? == Some((self.data, self.admin)),
            "the listeners moved to other ports with the update"
        );
        Ok(update)
    }

    /// Pushes a new configuration of the data listener's filter through ECDS, and waits until Envoy
    /// has accepted or rejected it. The filter must already use ECDS ([`Config::extension`]).
    /// Connections stay open, and their next requests use the new configuration.
    pub fn push_extension(&self, config: &Config) -> Result<Update> {
        let count = |what: &str| {
            let stats = self.stats(&format!(r"{}\..*{what}$", ECDS_STATS.replace('.', r"\.")))?;
            Ok::<u64, anyhow::Error>(stats.values().sum())
        };
        let (accepted, rejected) = (count("config_reload")?, count("config_fail")?);
        let wasm = config.wasm.as_deref().unwrap_or(&self.wasm);
        self.dir.write(ECDS, &config.ecds(wasm).to_string())?;
        eventually(UPDATE, "Envoy to read the new filter", || {
            if count("config_fail")? > rejected {
                return Ok(Some(Update::Rejected));
            }
            Ok((count("config_reload")? > accepted).then_some(Update::Accepted))
        })
    }

    /// Returns Envoy's log so far, including the filter's messages.
    pub fn log(&self) -> Result<String> {
        let path = self.dir.path().join(LOG);
        let bytes = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Returns Envoy's directory of this run, with bootstrap, listeners and log.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Returns Envoy's process id.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Ends a passing test. Stops Envoy, and fails if it is no longer running.
    pub fn stop(mut self) -> Result<()> {
        self.check_alive()?;
        self.stopped = true;
        Ok(())
    }

    /// Waits until a configuration is active, which is a moment after Envoy accepts it. Until then
    /// the admin API answers 503.
    fn await_rules(&mut self) -> Result<()> {
        eventually(START, "the rules to be active", || {
            self.check_alive()?;
            let status = Request::get("/v1/status").token(EDIT_TOKEN);
            // Without tokens, another host is refused before the rules are looked for.
            let status = status.header("host", "localhost");
            Ok((self.admin().send(&status)?.status != 503).then_some(()))
        })
    }

    fn check_alive(&mut self) -> Result<()> {
        if let Some(status) = self.process.ended()? {
            bail!("Envoy has ended by itself: {status}");
        }
        Ok(())
    }

    fn check_not_rejected(&self) -> Result<()> {
        let rejected = self.counter("listener_manager.lds.update_rejected")?;
        ensure!(
            rejected == 0,
            "Envoy refuses the listeners; its log says why"
        );
        Ok(())
    }

    /// Returns the addresses of the listeners `data` and `admin`, once both exist.
    fn listeners(&self) -> Result<Option<(SocketAddr, SocketAddr)>> {
        Ok(self.listener("data")?.zip(self.listener("admin")?))
    }

    /// Returns the address of a listener, once it exists.
    pub fn listener(&self, name: &str) -> Result<Option<SocketAddr>> {
        let all: Value = serde_json::from_str(&self.ask("/listeners?format=json")?)?;
        let list = all.pointer("/listener_statuses").and_then(Value::as_array);
        let mut listeners = list.into_iter().flatten();
        let found = listeners.find(|status| status.get("name").is_some_and(|n| n == name));
        Ok(found.and_then(|found| {
            let socket = found.pointer("/local_address/socket_address")?;
            let ip = socket.get("address")?.as_str()?.parse().ok()?;
            let port = u16::try_from(socket.get("port_value")?.as_u64()?).ok()?;
            Some(SocketAddr::new(ip, port))
        }))
    }

    #[expect(
        clippy::print_stderr,
        reason = "the harness speaks to the reader of a failed test"
    )]
    fn report(&self) {
        let log = self.log().unwrap_or_else(|error| format!("{error:#}"));
        // Envoy lists all that it was built with, on pages that would hide the rest.
        let lines = log
            .lines()
            .filter(|line| !line.contains("[info][main] [source/server/server.cc:"));
        let lines: Vec<&str> = lines.collect();
        let tail = lines
            .get(lines.len().saturating_sub(LOG_TAIL)..)
            .unwrap_or_default();
        eprintln!(
            "--- the last lines of Envoy's log ---\n{}\n--- everything: {} ---",
            tail.join("\n"),
            self.dir.path().display()
        );
    }
}

impl Drop for Envoy {
    fn drop(&mut self) {
        if !self.stopped {
            self.dir.keep();
            self.report();
        }
    }
}

/// Writes the files that Envoy watches. Returns the path of the listeners' file. Writes the
/// filter's file first, because the listeners may name it.
fn write_listeners(
    dir: &TempDir,
    config: &Config,
    wasm: &Path,
    ports: Option<[u16; 2]>,
) -> Result<PathBuf> {
    if config.extension {
        dir.write(ECDS, &config.ecds(wasm).to_string())?;
    }
    let ecds = dir.path().join(ECDS);
    let mut listeners = config.lds(wasm, &ecds);
    for (index, port) in ports.iter().flatten().enumerate() {
        let place = format!("/resources/{index}/address/socket_address/port_value");
        let value = listeners.pointer_mut(&place);
        *value.context("a listener without a port")? = json!(port);
    }
    dir.write(LDS, &listeners.to_string())
}

fn wasm_of(config: &Config) -> Result<PathBuf> {
    config
        .wasm
        .as_ref()
        .map_or_else(wasm_path, |path| Ok(path.clone()))
}

fn command(file: &Path, config: &Config) -> Result<Command> {
    let mut command = Command::new(envoy_bin()?);
    command
        .arg("--config-path")
        .arg(file)
        .args(["--concurrency", &config.concurrency.to_string()])
        .args(["--log-level", &config.log_level])
        .args(["--file-flush-interval-msec", "20"])
        .current_dir(workspace_root());
    match config.restart_epoch {
        None => command.arg("--disable-hot-restart"),
        Some((None, _)) => {
            let base_id = file.with_file_name(BASE_ID);
            let command = command.arg("--use-dynamic-base-id");
            command.arg("--base-id-path").arg(base_id)
        }
        Some((Some(base_id), epoch)) => {
            let command = command.args(["--base-id", &base_id.to_string()]);
            command.args(["--restart-epoch", &epoch.to_string()])
        }
    };
    Ok(command)
}

// Starts Envoy again on the same ports.

impl Envoy {
    /// Stops Envoy and starts another one with this configuration on the same ports. Clients see
    /// this as a restart.
    pub fn restart(self, config: &Config) -> Result<Self> {
        let addresses = [self.data, self.admin];
        let _reserved = addresses
            .map(reserve)
            .into_iter()
            .collect::<Result<Vec<_>>>()?;
        self.stop()?;
        let ports = addresses.map(|address| address.port());
        Self::start_with(config, Some(ports), wasm_of(config)?)
    }

    /// Starts the process that replaces this one, with this configuration, on the same ports. This one drains, and ends
    /// after its drain time and a second.
    pub fn hot_restart(&self, config: &Config) -> Result<Self> {
        let base_id = fs::read_to_string(self.dir.path().join(BASE_ID))?;
        let mut config = config.clone();
        config.restart_epoch = Some((Some(base_id.trim().parse()?), 1));
        let ports = [self.data, self.admin].map(|address| address.port());
        let wasm = wasm_of(&config)?;
        Self::start_with(&config, Some(ports), wasm)
    }
}

/// Reserves an address for Envoy while nothing listens there, because the system gives the ports of
/// ended listeners to any process. The socket never listens, so clients are refused as in a
/// restart. Envoy's listeners can still use the port, because both sides allow this
/// (`SO_REUSEPORT`). A process that another thread starts meanwhile must not inherit the socket,
/// which would then stay open too long.
fn reserve(address: SocketAddr) -> Result<OwnedFd> {
    let (family, kind) = (AddressFamily::INET, SocketType::STREAM);
    let socket = socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
    sockopt::set_socket_reuseport(&socket, true)?;
    bind(&socket, &address).with_context(|| format!("cannot reserve {address}"))?;
    Ok(socket)
}

#[cfg(test)]
mod restart_tests {
    use std::net::{Ipv4Addr, TcpListener, TcpStream};

    use rustix::net::{getsockname, listen};

    use super::*;

    #[test]
    fn a_reserved_port_is_free_for_listeners_that_share_it_alone() -> Result<()> {
        // Bind as Envoy does.
        let before = reserve((Ipv4Addr::LOCALHOST, 0).into())?;
        listen(&before, 1)?;
        let address = SocketAddr::try_from(getsockname(&before)?)?;
        let reserved = reserve(address)?;
        let client = TcpStream::connect(address)?;
        drop((client, before));
        assert!(TcpListener::bind(address).is_err(), "taken by another");
        assert!(TcpStream::connect(address).is_err(), "nobody listens");
        let after = reserve(address)?;
        listen(&after, 1)?;
        drop(reserved);
        TcpStream::connect(address)?;
        Ok(())
    }
}
