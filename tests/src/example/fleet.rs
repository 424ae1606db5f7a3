//! Starts the example `envoy/fleet` as its README does: two Envoys, a relay and a Valkey.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::{Address, Example, follow};
use crate::clock::eventually;
use crate::console::Shell;
use crate::envoy::Envoy;
use crate::http::Request;
use crate::paths::workspace_root;
use crate::relay::Relay;
use crate::valkey::Valkey;
use crate::wasm::wasm_path;

/// Time limit for the start. All of it takes seconds. The rest is a margin for a busy machine.
const SOON: Duration = Duration::from_mins(1);
/// Begin and end of the second Envoy's configuration in the README.
const SECOND: [&str; 2] = ["$(", ")"];
const RELAY: &str = "target/release/loudou-relay ";
const SOCKET: &str = "unix:///tmp/loudou.sock";
/// Port of the relay in the file.
const RELAY_PORT: &str = "port_value: 8095 ";
const TOKEN: &str = "ops";

/// The running example.
#[derive(Debug)]
pub struct RunningFleet {
    valkey: Valkey,
    relay: Relay,
    envoys: Vec<Envoy>,
    shell: Shell,
    addresses: Vec<Address>,
    example: Example,
}

impl RunningFleet {
    /// Starts the example.
    pub fn start() -> Result<Self> {
        let example = Example::read("fleet")?;
        let valkey = Valkey::start()?;
        let options = between(&example.readme, RELAY, " 2>")?;
        let options = options.replace(SOCKET, &valkey.url());
        let mut options: Vec<&str> = options.split(' ').collect();
        options.extend(["--timeout-ms", "900"]);
        let relay = Relay::launch(&options)?;
        relay.await_engine()?;

        let mut running = Self {
            shell: Shell::new()?,
            addresses: vec![("127.0.0.1:8095".to_owned(), relay.address())],
            envoys: Vec::new(),
            valkey,
            relay,
            example,
        };
        let second = Example {
            yaml: running.second()?,
            ..running.example.clone()
        };
        for example in [running.example.clone(), second] {
            running.start_envoy(&example)?;
        }
        let pid = running.valkey.pid().context("Valkey is killed")?;
        running.shell.export("VALKEY", &pid.to_string());
        running.await_fleet()?;
        Ok(running)
    }

    /// Returns the second Envoy's file, which the README's command creates.
    fn second(&self) -> Result<String> {
        let command = between(&self.example.readme, SECOND[0], SECOND[1])?;
        let output = Command::new("sh")
            .args(["-c", &command])
            .current_dir(workspace_root())
            .output()
            .context("cannot run sh")?;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{command}: {errors}");
        Ok(String::from_utf8(output.stdout)?)
    }

    fn start_envoy(&mut self, example: &Example) -> Result<()> {
        let wasm = wasm_path()?;
        let ports = example.ports()?;
        let mut yaml = example.render(&wasm)?;
        // Use a long timeout, so that a busy machine does not look like an outage.
        for (theirs, ours) in [
            (
                RELAY_PORT,
                format!("port_value: {} ", self.relay.address().port()),
            ),
            ("timeout: 30ms ", "timeout: 1s ".to_owned()),
        ] {
            ensure!(yaml.contains(theirs), "envoy.yaml does not have {theirs:?}");
            yaml = yaml.replace(theirs, &ours);
        }
        let envoy = Envoy::start_yaml(&yaml, &wasm)?;
        self.addresses.extend(ports.of(&envoy));
        self.envoys.push(envoy);
        Ok(())
    }

    /// Runs the commands of the README in order and compares their output. Starts Valkey again at
    /// the beginning of the section `restart`.
    pub fn follow_the_readme(&mut self, restart: &str) -> Result<()> {
        let line = self.example.readme.lines().position(|line| line == restart);
        let line = line.with_context(|| format!("the README has no line {restart:?}"))?;
        let steps = self.example.steps();
        let (before, behind): (Vec<_>, Vec<_>) =
            steps.into_iter().partition(|step| step.line <= line);
        ensure!(
            !before.is_empty() && !behind.is_empty(),
            "no commands before or behind {restart:?}"
        );
        follow("fleet", &before, &mut self.shell, &self.addresses)?;
        self.valkey.restart()?;
        self.relay.await_engine()?;
        self.await_fleet()?;
        follow("fleet", &behind, &mut self.shell, &self.addresses)
    }

    /// Waits until each worker knows both Envoys. A worker looks once a second, and its Envoy calls
    /// the relay as often.
    fn await_fleet(&self) -> Result<()> {
        for envoy in &self.envoys {
            let number = |name: &str| {
                let answer = envoy
                    .admin()
                    .send(&Request::get("/v1/status").token(TOKEN))?;
                let status: Value = serde_json::from_str(&answer.text())?;
                let number = status.pointer(&format!("/fleet/{name}"));
                Ok::<_, anyhow::Error>(number.and_then(Value::as_u64))
            };
            eventually(SOON, "two Envoys that are answered", || {
                let is_so = number("envoys")? == Some(2) && number("workers_down")? == Some(0);
                Ok(is_so.then_some(()))
            })?;
            let calls = number("calls")?;
            eventually(SOON, "three more calls", || {
                Ok((number("calls")? >= calls.map(|calls| calls + 3)).then_some(()))
            })?;
        }
        Ok(())
    }

    /// Ends a test that passed.
    pub fn stop(self) -> Result<()> {
        self.envoys.into_iter().try_for_each(Envoy::stop)
    }
}

/// Returns the text between the first `begin` and the next `end`.
fn between(text: &str, begin: &str, end: &str) -> Result<String> {
    let found = text
        .split_once(begin)
        .and_then(|(_, rest)| rest.split_once(end));
    let (found, _) =
        found.with_context(|| format!("the README has no {begin:?} with {end:?} behind it"))?;
    Ok(found.to_owned())
}
