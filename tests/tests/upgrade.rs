//! Another build of the filter replaces the module in a running Envoy. Operators' changes and
//! users' buckets are kept.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use loudou_tests::clock::pause_for;
use loudou_tests::{
    Config, Envoy, Http, Operator, RELEASED_GIT, Request, TempDir, Update, Upstream, eventually,
    released_wasm, wasm_path,
};
use serde_json::{Value, json};

/// Timeout within which every worker has applied an update.
const SOON: Duration = Duration::from_secs(20);

/// Returns a rule for requests to `/NAME`, with the header `x-user-id` as its key.
fn rule(name: &str, limit: &Value) -> Value {
    json!({
        "name": name,
        "match": { "path": { "prefix": format!("/{name}") } },
        "key": [{ "header": "x-user-id" }],
        "limits": [limit],
    })
}

fn funnel(capacity: u32) -> Value {
    json!({ "name": "l", "algorithm": "funnel", "capacity": capacity, "rate": "1/d" })
}

fn rules() -> Value {
    let window =
        json!({ "name": "w", "algorithm": "fixed_window", "capacity": 7, "window": "30d" });
    let bucket = json!({
        "name": "t", "algorithm": "token_bucket", "capacity": 9, "rate": "1/d", "refill": "greedy",
    });
    let log = json!({ "name": "s", "algorithm": "sliding_log", "capacity": 8, "window": "1d" });
    let queue = json!({ "name": "q", "algorithm": "leaky_queue", "capacity": 10, "rate": "100/s" });
    json!([
        rule("edited", &funnel(5)),
        rule("plain", &funnel(100)),
        rule("window", &window),
        rule("bucket", &bucket),
        rule("log", &log),
        rule("queue", &queue),
    ])
}

/// Sends a request of a user to a rule. Returns true if it was admitted.
fn passes(http: &mut Http, rule: &str, name: &str) -> Result<bool> {
    let request = Request::get(&format!("/{rule}")).header("x-user-id", name);
    match http.send(&request)?.status {
        200 => Ok(true),
        429 => Ok(false),
        other => bail!("{other} for {name} at {rule}"),
    }
}

/// Returns the number of consecutive requests that are admitted, up to 200.
fn admitted(http: &mut Http, rule: &str, name: &str) -> Result<u32> {
    let mut count = 0;
    while count < 200 && passes(http, rule, name)? {
        count += 1;
    }
    Ok(count)
}

/// Returns the build of the workers that answer the admin API.
fn build(ops: &mut Operator) -> Result<String> {
    let status = ops.get("/v1/status")?;
    let git = status.get("git").and_then(Value::as_str);
    Ok(git.context("no commit")?.to_owned())
}

/// Fails unless the operators' changes are in force and shown.
fn holds(envoy: &Envoy, ops: &mut Operator, step: &str) -> Result<()> {
    let mut http = envoy.data();
    ensure!(
        !passes(&mut http, "plain", "mallory")?,
        "the ban does not hold {step}"
    );
    ensure!(
        !passes(&mut http, "plain", "eve")?,
        "the override does not hold {step}"
    );
    let new = admitted(&mut http, "edited", &format!("new {step}"))?;
    ensure!(new == 12, "{new} of 12 by the edit {step}");
    let large = admitted(&mut http, "edited", &format!("large-{step}"))?;
    ensure!(large == 24, "{large} of 24 by the override {step}");
    let shown = ops.get("/v1/rules/edited")?;
    let by = shown.pointer("/edit/by").and_then(Value::as_str);
    ensure!(by == Some("ops"), "{shown}");
    let banned = ops
        .bucket("plain", "mallory")?
        .context("mallory's bucket")?;
    ensure!(
        banned.get("ban").is_some_and(|ban| !ban.is_null()),
        "{banned}"
    );
    let status = ops.get("/v1/status")?;
    ensure!(
        status.get("warnings") == Some(&json!([])),
        "{step}: {status}"
    );
    Ok(())
}

/// Clients that send requests until `stop` is set, with the number of admitted requests per key.
#[derive(Default)]
struct Load {
    stop: AtomicBool,
    admitted: [AtomicU64; 2],
    queued: AtomicU64,
}

impl Load {
    /// Sends requests of one key to `plain`. Some clients keep their connections, so the draining
    /// build continues to serve them.
    fn plain(&self, envoy: &Envoy, client: usize) -> Result<()> {
        let key = client % 2;
        let admitted = self.admitted.get(key).context("a counter")?;
        let mut http = envoy.data();
        let mut sent = 0_u32;
        while !self.stop.load(Ordering::Relaxed) {
            let passed = passes(&mut http, "plain", &format!("busy-{key}"))?;
            admitted.fetch_add(passed.into(), Ordering::Relaxed);
            sent += 1;
            if client >= 2 && sent.is_multiple_of(7) {
                http = envoy.data();
            }
        }
        Ok(())
    }

    /// Sends requests that wait in one queue.
    fn queue(&self, envoy: &Envoy) -> Result<()> {
        while !self.stop.load(Ordering::Relaxed) {
            let passed = passes(&mut envoy.data(), "queue", "all")?;
            self.queued.fetch_add(passed.into(), Ordering::Relaxed);
        }
        Ok(())
    }

    /// Runs the clients during `work`.
    fn beside(&self, envoy: &Envoy, work: impl FnOnce() -> Result<()>) -> Result<()> {
        thread::scope(|scope| {
            let plain = (0..4).map(|client| scope.spawn(move || self.plain(envoy, client)));
            let queue = (0..2).map(|_| scope.spawn(move || self.queue(envoy)));
            let clients: Vec<_> = plain.chain(queue).collect();
            let outcome = work();
            self.stop.store(true, Ordering::Relaxed);
            for client in clients {
                client
                    .join()
                    .map_err(|_panic| anyhow!("a client panicked"))??;
            }
            outcome
        })
    }
}

/// Listeners that get another build.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Of {
    /// The data listener, over ECDS, like a `WasmPlugin` with another image. The admin API keeps
    /// the old build.
    Data,
    /// All listeners, over LDS.
    All,
}

/// Pushes a configuration with another build to these listeners, and waits until the new build
/// answers.
fn push(envoy: &Envoy, ops: &mut Operator, config: &Config, of: Of) -> Result<()> {
    let before = build(ops)?;
    let pushed = match of {
        Of::Data => envoy.push_extension(config)?,
        Of::All => envoy.push(config)?,
    };
    ensure!(pushed == Update::Accepted);
    if of == Of::All {
        *ops = Operator::editor(envoy);
        eventually(SOON, "the other build to answer", || {
            Ok((build(ops)? != before).then_some(()))
        })?;
    }
    Ok(())
}

/// Switches from the released build to the current build, back, and to the current build again,
/// while clients send requests and old connections stay open.
fn swapped(of: Of) -> Result<()> {
    let dir = TempDir::new("upgrade")?;
    let (old, new) = (released_wasm(&dir)?, wasm_path()?);
    let config = Config::new(rules()).drain_s(3_600);
    let config = if of == Of::Data {
        config.extension()
    } else {
        config
    };
    let envoy = Envoy::start(&config.clone().wasm(&old))?;
    let mut ops = Operator::editor(&envoy);
    // Changes of operators before the upgrade.
    ops.edit("edited", "carry=keep", &json!({ "limits": [funnel(12)] }))?;
    ops.set_override("edited", "large-*", "", &json!({ "scale": 2 }))?;
    ops.set_override("plain", "eve", "", &json!("banned"))?;
    let mut http = envoy.data();
    ensure!(passes(&mut http, "plain", "mallory")?);
    ops.ban("plain", "mallory", "for=1h")?;
    holds(&envoy, &mut ops, "before")?;
    // Units that users have used before the upgrade.
    for (rule, used) in [("edited", 3), ("window", 3), ("bucket", 4), ("log", 2)] {
        for _ in 0..used {
            ensure!(passes(&mut http, rule, "alice")?, "{rule}");
        }
    }
    let load = Load::default();
    load.beside(&envoy, || {
        let mut kept = envoy.data();
        for (step, module) in [("new", &new), ("old again", &old), ("new again", &new)] {
            ensure!(passes(&mut kept, "plain", step)?, "{step}");
            push(&envoy, &mut ops, &config.clone().wasm(module), of)?;
            holds(&envoy, &mut ops, step)?;
            // A connection of the previous build shares the bucket.
            ensure!(passes(&mut kept, "plain", step)?, "{step}");
            let left = admitted(&mut envoy.data(), "plain", step)?;
            ensure!(left == 98, "{left} of 98 {step}");
        }
        Ok(())
    })?;
    ensure!(
        load.queued.load(Ordering::Relaxed) > 0,
        "nobody passed the queue"
    );
    let log = envoy.log()?;
    let builds = |git: &str| log.matches(&format!("({git}): data role")).count();
    ensure!(builds(RELEASED_GIT) > 0 && log.matches(": data role").count() > builds(RELEASED_GIT));
    // In total, exactly the capacity of each key was admitted, whichever build decided. One unit
    // returns per day, so none returns during the test.
    let mut http = envoy.data();
    for (key, before) in load.admitted.iter().enumerate() {
        let rest = admitted(&mut http, "plain", &format!("busy-{key}"))?;
        let all = before.load(Ordering::Relaxed) + u64::from(rest);
        ensure!(all == 100, "{all} of 100 for busy-{key}");
    }
    for (rule, left) in [("edited", 9), ("window", 4), ("bucket", 5), ("log", 6)] {
        let of = admitted(&mut http, rule, "alice")?;
        ensure!(of == left, "{of} of {left} for alice at {rule}");
    }
    // The audit trail contains all changes, and edits still work.
    let kinds: Vec<_> = ops
        .events(0)?
        .into_iter()
        .filter_map(|event| event.get("kind").cloned())
        .collect();
    for kind in ["edit", "override", "ban"] {
        ensure!(kinds.contains(&json!(kind)), "no {kind} in {kinds:?}");
    }
    ops.unban("plain", "mallory")?;
    ops.drop_edit("edited", "")?;
    ensure!(passes(&mut http, "plain", "mallory")?);
    ensure!(admitted(&mut http, "edited", "bob")? == 5);
    ensure!(
        !envoy.log()?.contains("panicked"),
        "the log tells of a panic"
    );
    envoy.stop()
}

#[test]
fn another_build_of_all_listeners_keeps_what_is_in_force() -> Result<()> {
    swapped(Of::All)
}

#[test]
fn another_build_of_the_data_listener_keeps_what_is_in_force() -> Result<()> {
    swapped(Of::Data)
}

/// Maximum number of concurrent requests of a key.
const FLIGHTS: usize = 6;
/// Pause between two requests of a client that opens a connection for each, so that the local ports
/// suffice.
const PACE: Duration = Duration::from_millis(20);

/// Sends a request and reads the start of its response. The slot is returned when the connection is
/// dropped. Returns `None` if the request was refused.
fn in_flight(envoy: &Envoy, user: &str) -> Result<Option<TcpStream>> {
    let mut socket = TcpStream::connect(envoy.data_address())?;
    socket.set_read_timeout(Some(SOON))?;
    let head =
        format!("GET / HTTP/1.1\r\nhost: a\r\nx-user-id: {user}\r\nx-answer-as: hold\r\n\r\n");
    socket.write_all(head.as_bytes())?;
    let mut line = String::new();
    BufReader::new(&socket).read_line(&mut line)?;
    match line.split(' ').nth(1) {
        Some("200") => Ok(Some(socket)),
        Some("429") => Ok(None),
        _ => bail!("{line:?} for {user}"),
    }
}

/// Returns the number of free slots of a user.
fn permits(ops: &mut Operator, user: &str) -> Result<usize> {
    let bucket = ops.bucket("flights", user)?;
    let left = bucket
        .as_ref()
        .map(|bucket| bucket.pointer("/limits/0/remaining"));
    let left = left.map(|left| left.and_then(Value::as_u64).context("a number"));
    Ok(usize::try_from(
        left.transpose()?.unwrap_or(u64::try_from(FLIGHTS)?),
    )?)
}

fn await_permits(ops: &mut Operator, user: &str, left: usize) -> Result<()> {
    eventually(SOON, &format!("{left} permits of {user}"), || {
        Ok((permits(ops, user)? == left).then_some(()))
    })
}

/// Opens requests of one key repeatedly until `stop` is set. `flights` counts the requests of all
/// these clients that are certainly in flight, from the start of the response until the connection
/// is dropped. Returns the number of this client's requests that passed.
fn crowd(envoy: &Envoy, stop: &AtomicBool, flights: &AtomicU64) -> Result<u64> {
    let mut passed = 0;
    while !stop.load(Ordering::Relaxed) {
        pause_for(PACE);
        let Some(flight) = in_flight(envoy, "busy")? else {
            continue;
        };
        let count = flights.fetch_add(1, Ordering::Relaxed) + 1;
        ensure!(
            count <= u64::try_from(FLIGHTS)?,
            "{count} of {FLIGHTS} in flight"
        );
        // Keep the slot for as long as another request takes.
        in_flight(envoy, "others")?;
        flights.fetch_sub(1, Ordering::Relaxed);
        drop(flight);
        passed += 1;
    }
    Ok(passed)
}

/// Requests must stay in flight and keep their slots while the build changes three times.
fn swapped_in_flight(of: Of) -> Result<()> {
    let dir = TempDir::new("upgrade")?;
    let (old, new) = (released_wasm(&dir)?, wasm_path()?);
    let upstream = Upstream::start()?;
    let rules = json!([{
        "name": "flights",
        "key": [{ "header": "x-user-id" }],
        "limits": [{ "algorithm": "concurrency", "capacity": FLIGHTS, "lease": "1h" }],
    }]);
    let routes = json!([{ "match": { "prefix": "/" }, "route": { "cluster": "upstream", "timeout": "0s" } }]);
    let config = Config::new(rules)
        .drain_s(3_600)
        .upstream(upstream.address())
        .routes(routes);
    let config = if of == Of::Data {
        config.extension()
    } else {
        config
    };
    let envoy = Envoy::start(&config.clone().wasm(&old))?;
    let mut ops = Operator::viewer(&envoy);
    let (stop, flights) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut work = || {
        let mut held = Vec::new();
        for (step, module) in [("new", &new), ("old again", &old), ("new again", &new)] {
            // Each build gets two more requests. One of the oldest requests ends after each change
            // of the build.
            for _ in 0..2 {
                held.push(in_flight(&envoy, "alice")?.context("a permit")?);
            }
            push(&envoy, &mut ops, &config.clone().wasm(module), of)?;
            await_permits(&mut ops, "alice", FLIGHTS - held.len())?;
            let mut more = Vec::new();
            while let Some(flight) = in_flight(&envoy, "alice")? {
                more.push(flight);
            }
            let (all, old) = (more.len() + held.len(), held.len());
            ensure!(
                all == FLIGHTS,
                "{all} of {FLIGHTS} in flight {step}, {old} of them before"
            );
            // End the requests of this step and one request of an earlier build.
            drop(more);
            held.remove(0);
            await_permits(&mut ops, "alice", FLIGHTS - held.len())?;
        }
        held.clear();
        await_permits(&mut ops, "alice", FLIGHTS)
    };
    thread::scope(|scope| -> Result<()> {
        let clients = (0..FLIGHTS + 2).map(|_| scope.spawn(|| crowd(&envoy, &stop, &flights)));
        let clients: Vec<_> = clients.collect();
        let outcome = work();
        stop.store(true, Ordering::Relaxed);
        let mut passed = 0;
        for client in clients {
            passed += client
                .join()
                .map_err(|_panic| anyhow!("a client panicked"))??;
        }
        outcome?;
        ensure!(passed > 0, "nobody passed");
        Ok(())
    })?;
    for user in ["busy", "others"] {
        await_permits(&mut ops, user, FLIGHTS)?;
    }
    ensure!(envoy.counter("wasmcustom.loudou.store.lost_returns")? == 0);
    envoy.stop()
}

#[test]
fn another_build_of_all_listeners_counts_requests_in_flight() -> Result<()> {
    swapped_in_flight(Of::All)
}

#[test]
fn another_build_of_the_data_listener_counts_requests_in_flight() -> Result<()> {
    swapped_in_flight(Of::Data)
}
