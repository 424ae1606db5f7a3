//! Four targets of one Prometheus: the example, an Envoy with many faults, an Envoy without
//! Loudou's metrics, and a target that does not answer.

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use loudou_tests::example::{Example, Running};
use loudou_tests::one_rule;
use loudou_tests::{
    Config, Envoy, Operator, Prometheus, Relay, Request, Valkey, eventually, trap_wasm_path,
};
use serde_json::{Value, json};

use super::read;

/// Timeout, with a margin for a busy machine.
pub(crate) const SOON: Duration = Duration::from_mins(2);
const BUCKETS: u64 = 64;
const WORKERS: u32 = 2;
/// Number of consecutive new connections that reaches every worker.
const CONNECTIONS: usize = 24;
/// Header that makes a filter built for tests panic.
const TRAP: &str = "x-loudou-trap";

/// The targets, and the Prometheus that scrapes them.
#[derive(Debug)]
pub(crate) struct Scene {
    pub(crate) prometheus: Prometheus,
    pub(crate) example: Running,
    pub(crate) faulty: Envoy,
    pub(crate) other: Envoy,
    /// A listener that never accepts a connection.
    pub(crate) silent: TcpListener,
    relay: Relay,
    _valkey: Valkey,
}

fn rule(name: &str, limit: &Value) -> Value {
    json!({
        "name": name,
        "match": { "path": { "prefix": format!("/{name}") } },
        "key": [{ "header": "x-user-id" }],
        "limits": [limit],
    })
}

/// Returns a configuration with a small store, room for one held request, and a fleet-wide rule.
fn faulty(relay: &Relay) -> Result<Config> {
    let a_day = json!({ "algorithm": "funnel", "capacity": 3, "rate": "1/d" });
    let at_once = json!({ "algorithm": "funnel", "capacity": 1, "rate": "1000/s" });
    let queue = json!({ "algorithm": "leaky_queue", "capacity": 20, "rate": "5/s" });
    let mut shared = rule("shared", &a_day);
    if let Some(fields) = shared.as_object_mut() {
        fields.insert("scope".to_owned(), json!("fleet"));
    }
    let rules = [
        rule("r", &a_day),
        rule("idle", &at_once),
        rule("queue", &queue),
        shared,
    ];
    let config = Config::new(json!(rules)).concurrency(WORKERS);
    let config = config
        .buckets(BUCKETS)
        .waiting(&json!({ "requests": 1 }))
        .fleet(
            &json!({ "on_outage": "local", "timeout": "1s" }),
            relay.address(),
        );
    Ok(config.wasm(trap_wasm_path()?))
}

/// Returns the alert rules with `for: 0s`, so that alerts fire at once.
fn impatient(alerts: &str) -> String {
    let lines = alerts.lines().map(|line| {
        let indent = line.split("for: ").next().unwrap_or_default();
        if line.trim().starts_with("for: ") {
            format!("{indent}for: 0s\n")
        } else {
            format!("{line}\n")
        }
    });
    lines.collect()
}

fn ask(rule: &str, user: &str) -> Request {
    Request::get(&format!("/{rule}")).header("x-user-id", user)
}

impl Scene {
    /// Starts everything and waits until Prometheus has scraped every target.
    pub(crate) fn start() -> Result<Self> {
        let valkey = Valkey::start()?;
        let relay = Relay::start_with(&valkey, &["--timeout-ms", "900"])?;
        let example = Example::read("monitoring")?.start()?;
        let faulty = Envoy::start(&faulty(&relay)?)?;
        let other = Envoy::start(&one_rule::config(3).namespace("other"))?;
        let silent = TcpListener::bind("127.0.0.1:0")?;
        let configuration = read("prometheus.yml")?;
        let targets = [
            example.envoy.envoy_admin_address(),
            faulty.envoy_admin_address(),
            other.envoy_admin_address(),
            silent.local_addr()?,
        ];
        let targets = targets.map(|address| format!("'{address}'")).join(", ");
        for place in ["'127.0.0.1:9921'", "15s"] {
            ensure!(
                configuration.contains(place),
                "prometheus.yml has no {place}"
            );
        }
        let configuration = configuration
            .replace("'127.0.0.1:9921'", &targets)
            .replace("15s", "1s");
        let prometheus = Prometheus::start(&[
            ("prometheus.yml", &configuration),
            ("alerts.yml", &impatient(&read("alerts.yml")?)),
        ])?;
        let scene = Self {
            prometheus,
            example,
            faulty,
            other,
            silent,
            relay,
            _valkey: valkey,
        };
        eventually(SOON, "the targets to be read", || {
            let up = scene.prometheus.query("count_over_time(up[5m]) > 1")?;
            let loudou = scene.prometheus.query("loudou_fleet_down == 0")?;
            Ok((up.len() == 4 && loudou.len() == 1).then_some(()))
        })?;
        Ok(scene)
    }

    /// Returns the `instance` label of an Envoy.
    pub(crate) fn instance(envoy: &Envoy) -> String {
        envoy.envoy_admin_address().to_string()
    }

    pub(crate) fn silent_instance(&self) -> Result<SocketAddr> {
        self.silent.local_addr().context("no address")
    }

    /// Sends traffic to the example. One user is far above the limit, and other requests wait in
    /// the queue. Returns the number of refused requests of `per-user`.
    pub(crate) fn load_example(&self) -> Result<u64> {
        let envoy = &self.example.envoy;
        let counts = envoy.load(150, 4, |_| Request::get("/").header("x-user-id", "mallory"))?;
        ensure!(counts.of(200) >= 15 && counts.of(429) > 100, "{counts:?}");
        let queued = envoy.load(6, 6, |_| Request::get("/reports"))?;
        ensure!(queued.of(200) >= 5, "{queued:?}");
        Ok(counts.of(429))
    }

    /// Calls the admin API with a wrong token.
    pub(crate) fn guess_tokens(&self) -> Result<()> {
        let mut http = self.example.envoy.admin();
        for _ in 0..30 {
            let answer = http.send(&Request::get("/v1/status").token("guess"))?;
            ensure!(matches!(answer.status, 401 | 429), "{answer:?}");
        }
        Ok(())
    }

    /// Makes a call that the token does not allow.
    pub(crate) fn overstep(&self) -> Result<()> {
        let mut viewer = Operator::viewer(&self.faulty);
        let answer = viewer.send(Request::post("/v1/buckets/r/k/reset"))?;
        ensure!(answer.status == 403, "{answer:?}");
        Ok(())
    }

    /// Sends more requests than Envoy may hold.
    pub(crate) fn fill_the_queue(&self) -> Result<()> {
        let counts = self.faulty.load(10, 10, |_| ask("queue", "all"))?;
        ensure!(counts.of(429) > 0 && counts.of(200) > 0, "{counts:?}");
        Ok(())
    }

    /// Sends five times as many keys as the store has buckets, first idle keys and then live keys.
    pub(crate) fn fill_the_store(&self) -> Result<()> {
        for rule in ["idle", "r"] {
            let counts = self
                .faulty
                .load(BUCKETS * 5, 4, |n| ask(rule, &format!("user-{n}")))?;
            ensure!(counts.of(200) == BUCKETS * 5, "{rule}: {counts:?}");
        }
        Ok(())
    }

    /// Edits a rule permanently, and sends requests so that every worker applies the edit.
    pub(crate) fn edit(&self) -> Result<()> {
        let limits = json!([{ "algorithm": "funnel", "capacity": 4, "rate": "1/d" }]);
        Operator::editor(&self.faulty).edit("r", "reason=test", &json!({ "limits": limits }))?;
        self.pass_by()
    }

    /// Sends requests that no rule matches, to every worker.
    pub(crate) fn pass_by(&self) -> Result<()> {
        for _ in 0..CONNECTIONS {
            self.faulty.data().send(&ask("none", "x"))?;
        }
        Ok(())
    }

    /// Overwrites the shared rules in a format that this version cannot read.
    pub(crate) fn damage_the_rules(&self) -> Result<()> {
        let damage = ask("none", "x").header(TRAP, "damage");
        let answer = self.faulty.data().send(&damage)?;
        ensure!(answer.status == 200, "{answer:?}");
        Ok(())
    }

    /// Crashes the sandbox of every worker, and waits until all workers answer again.
    pub(crate) fn kill_sandboxes(&self) -> Result<()> {
        for _ in 0..CONNECTIONS {
            let answer = self.faulty.data().send(&ask("r", "x").header(TRAP, "1"))?;
            ensure!(answer.status == 503, "{answer:?}");
        }
        eventually(SOON, "every worker to serve again", || {
            for _ in 0..CONNECTIONS {
                if self.faulty.data().send(&ask("none", "x"))?.status == 503 {
                    return Ok(None);
                }
            }
            Ok(Some(()))
        })
    }

    /// Sends requests of the fleet-wide rule while the relay answers.
    pub(crate) fn lease(&self) -> Result<()> {
        let counts = self.faulty.load(10, 1, |_| ask("shared", "all"))?;
        ensure!(counts.of(200) == 3, "{counts:?}");
        Ok(())
    }

    /// Stops the relay.
    pub(crate) fn kill_relay(&mut self) {
        self.relay.kill();
    }

    /// Sends requests of the fleet-wide rule, and accepts any response.
    pub(crate) fn ask_the_fleet(&self, round: u64) -> Result<()> {
        self.faulty
            .load(8, 2, |n| ask("shared", &format!("user-{round}-{n}")))?;
        Ok(())
    }

    /// Fills the store with bans, which are never evicted, and sends requests that find no room.
    pub(crate) fn fill_with_bans(&self) -> Result<()> {
        let mut ops = Operator::editor(&self.faulty);
        let mut full = 0;
        for n in 0..BUCKETS * 8 {
            let answer = ops.send(Request::post(&format!("/v1/buckets/r/k{n}/ban")))?;
            full += u64::from(answer.status == 503);
        }
        ensure!(full > 0, "there was room for all");
        let counts = self
            .faulty
            .load(100, 4, |n| ask("r", &format!("new-{n}")))?;
        ensure!(counts.of(200) == 100, "{counts:?}");
        Ok(())
    }

    /// Stops all processes at the end of a test that passed.
    pub(crate) fn stop(self) -> Result<()> {
        self.prometheus.stop()?;
        for envoy in [self.example.envoy, self.faulty, self.other] {
            envoy.stop()?;
        }
        Ok(())
    }
}
