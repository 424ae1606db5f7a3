//! `cargo xtask bench accuracy`: counts what limiters admit of equal traffic, beside the number that the limit allows.
//!
//! Every limiter gets "15 requests at once, then one every two seconds" for each user, as far as it can express this.
//! The traffic is a burst, a minute of steady requests, two bursts around a full minute, a burst through two proxies, a
//! burst before and after a restart, and a burst before and after requests of many other users.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, Result, anyhow, ensure};
use loudou_tests::clock::{both, now, pause_for};
use loudou_tests::cpu::process_time;
use loudou_tests::flood::flood;
use loudou_tests::process::{Group, signal};
use loudou_tests::temp::TempDir;
use loudou_tests::{Config, Envoy, Guarded, Http, Request, eventually};
use serde_json::json;

use super::fleet::programs;
use super::fleet::rig::{ASKED_PATH, Central, Programs, asking};
use super::parts::{NOWHERE, TYPE, answer, any_port, cluster, listener, no_admin, route, router};
use crate::setup::nginx;
use crate::{filter, native, setup};

/// The limit: a capacity, and the time in which one more request becomes possible.
const CAPACITY: u64 = 15;
const INTERVAL: Duration = Duration::from_secs(2);
/// Requests of a burst.
const BURST: u64 = 40;
/// Connections of a burst.
const CONNECTIONS: u64 = 8;
/// Time between two steady requests, and the duration of the steady requests.
const PAUSE: Duration = Duration::from_millis(250);
const STEADY: Duration = Duration::from_mins(1);
/// Time between the two bursts around a full minute. The first one is half of this before it.
const AROUND: Duration = Duration::from_secs(2);
/// A minute, in milliseconds.
const MINUTE: u128 = 60_000;
/// Number of other users that each send a request.
const OTHERS: u64 = 20_000;
const READY: Duration = Duration::from_secs(20);
/// Path of requests, below the path for which Envoy's rate limit filter calls the service.
const PATH: &str = ASKED_PATH;

/// A limiter with its configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// `limit_req` with `nodelay`.
    Nginx,
    /// Envoy's `local_ratelimit`, with a bucket for each user.
    Local,
    /// Envoy's `ratelimit` filter, and a service that counts in fixed windows in Valkey, as envoyproxy/ratelimit does.
    /// It has no burst apart from the window, so its limit is 30 a minute.
    Service,
    /// Loudou as a Wasm module.
    Wasm,
    /// Loudou as a native module that keeps its buckets in a file.
    Native,
    /// Loudou as a Wasm module, with `scope: fleet`.
    Fleet,
}

const KINDS: [(Kind, &str); 6] = [
    (Kind::Nginx, "NGINX, limit_req burst=14 nodelay"),
    (Kind::Local, "Envoy, local_ratelimit per user"),
    (
        Kind::Service,
        "Envoy, ratelimit with a service, 30 a minute",
    ),
    (Kind::Wasm, "Loudou, Wasm"),
    (Kind::Native, "Loudou, native, with store.file"),
    (Kind::Fleet, "Loudou, Wasm, scope: fleet"),
];

/// Programs to measure.
struct Parts {
    programs: Programs,
    native: PathBuf,
    nginx: PathBuf,
}

/// A proxy.
enum Proxy {
    Envoy(Envoy),
    Nginx(Guarded, SocketAddr),
}

impl Proxy {
    fn address(&self) -> SocketAddr {
        match self {
            Self::Envoy(envoy) => envoy.data_address(),
            Self::Nginx(_, address) => *address,
        }
    }

    fn stop(self) -> Result<()> {
        match self {
            Self::Envoy(envoy) => envoy.stop(),
            // A killed master process would leave its workers.
            Self::Nginx(mut nginx, _) => {
                signal(nginx.pid(), "TERM")?;
                nginx.wait().map(drop)
            }
        }
    }
}

/// A limiter that runs, on as many proxies as the traffic needs.
struct Limiter<'a> {
    kind: Kind,
    parts: &'a Parts,
    folder: TempDir,
    central: Option<Central>,
    proxies: Vec<Proxy>,
}

impl<'a> Limiter<'a> {
    fn start(kind: Kind, parts: &'a Parts) -> Result<Self> {
        let is_shared = matches!(kind, Kind::Service | Kind::Fleet);
        let central = is_shared
            .then(|| Central::start(&parts.programs))
            .transpose()?;
        let mut limiter = Self {
            kind,
            parts,
            folder: TempDir::new("accuracy")?,
            central,
            proxies: Vec::new(),
        };
        limiter.proxies = vec![limiter.proxy(0)?, limiter.proxy(1)?];
        Ok(limiter)
    }

    /// Starts the n-th proxy.
    fn proxy(&self, n: usize) -> Result<Proxy> {
        let wasm = &self.parts.programs.wasm;
        let envoy = match self.kind {
            Kind::Nginx => return self.nginx(n),
            Kind::Local => Envoy::start_yaml(&local(), wasm)?,
            Kind::Service => {
                let limit = json!({ "capacity": 30, "window_ns": 60_000_000_000_u64 });
                let central = self.central.as_ref().context("no service")?;
                Envoy::start_yaml(&asking(central, &limit.to_string())?, wasm)?
            }
            Kind::Wasm => Envoy::start(&config("envoy").wasm(wasm))?,
            Kind::Native => {
                let file = self.folder.path().join(format!("buckets-{n}"));
                Envoy::start(&config("envoy").wasm(&self.parts.native).file(&file))?
            }
            Kind::Fleet => {
                let central = self.central.as_ref().context("no relay")?;
                let settings = json!({ "timeout": "1s" });
                let config = config("fleet").wasm(wasm);
                Envoy::start(&config.fleet(&settings, central.relay.address()))?
            }
        };
        Ok(Proxy::Envoy(envoy))
    }

    fn nginx(&self, n: usize) -> Result<Proxy> {
        let folder = self.folder.path().join(format!("nginx-{n}"));
        fs::create_dir_all(&folder)?;
        // NGINX cannot report a port of the system's choice.
        let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
        let file = folder.join("nginx.conf");
        fs::write(&file, nginx_conf(&folder, address))?;
        let mut command = Command::new(&self.parts.nginx);
        command.arg("-p").arg(&folder).arg("-c").arg(&file);
        command.arg("-e").arg(folder.join("error.log"));
        command.stderr(Stdio::null());
        let mut nginx = Guarded::spawn("nginx", &mut command, Group::Own)?;
        eventually(READY, "NGINX", || {
            ensure!(nginx.ended()?.is_none(), "NGINX has stopped");
            Ok(Http::new(address).get("/ready").ok())
        })?;
        Ok(Proxy::Nginx(nginx, address))
    }

    fn restart(&mut self) -> Result<()> {
        self.proxies.remove(0).stop()?;
        let first = self.proxy(0)?;
        self.proxies.insert(0, first);
        Ok(())
    }

    fn addresses(&self, count: usize) -> Vec<SocketAddr> {
        self.proxies
            .iter()
            .take(count)
            .map(Proxy::address)
            .collect()
    }
}

/// The number of admitted requests, and the number that the limit allows.
#[derive(Debug, Clone, Copy)]
struct Count {
    admitted: u64,
    allowed: u64,
}

/// Runs the benchmark, with release builds.
pub(super) fn run_all(is_quick: bool) -> Result<()> {
    setup::run()?;
    let parts = Parts {
        programs: programs(filter::build()?, true)?,
        native: native::build()?,
        nginx: nginx::find_or_install()?,
    };
    let mut limiters = start(&KINDS.map(|(kind, _)| kind), &parts)?;
    let mut columns = at_once(&limiters)?;
    if !is_quick {
        columns.push(("a minute", together(&limiters, steady)?));
        columns.push(("around a minute", together(&limiters, around)?));
    }
    let restarted: Result<Vec<Count>> = limiters.iter_mut().map(restart).collect();
    columns.push(("restart", restarted?));
    let flooded = each(&limiters, |limiter| {
        let addresses = limiter.addresses(1);
        let begun = now();
        let before = burst(&addresses, "flooded")?;
        others(limiter)?;
        Ok(count(before + burst(&addresses, "flooded")?, begun))
    });
    columns.push(("flood of keys", flooded?));
    print(&columns);
    for ((_, name), microseconds) in KINDS.iter().zip(each(&limiters, cost)?) {
        println!(
            "{name:<46} {microseconds:6.1} us of processor time for a request, all processes together"
        );
    }
    stop(limiters)
}

/// Sends the bursts to development builds, and checks that each limiter behaves as the document says.
pub(super) fn check() -> Result<()> {
    let parts = Parts {
        programs: programs(loudou_tests::wasm_path()?, false)?,
        native: PathBuf::new(),
        nginx: PathBuf::new(),
    };
    let limiters = start(
        &[Kind::Local, Kind::Service, Kind::Wasm, Kind::Fleet],
        &parts,
    )?;
    let columns = at_once(&limiters)?;
    // A slow machine can send a burst for longer than an interval.
    for ((name, counts), expected) in columns.iter().zip([[1, 2, 1, 1], [2, 2, 2, 1]]) {
        for (count, factor) in counts.iter().zip(expected) {
            let expected = CAPACITY * factor..=(count.allowed * factor).min(BURST);
            ensure!(expected.contains(&count.admitted), "{name}: {counts:?}");
        }
    }
    stop(limiters)
}

fn start<'a>(kinds: &[Kind], parts: &'a Parts) -> Result<Vec<Limiter<'a>>> {
    let kinds = kinds.iter();
    kinds.map(|&kind| Limiter::start(kind, parts)).collect()
}

fn stop(limiters: Vec<Limiter<'_>>) -> Result<()> {
    let mut proxies = limiters.into_iter().flat_map(|limiter| limiter.proxies);
    proxies.try_for_each(Proxy::stop)
}

/// Sends a burst through one proxy and a burst through two.
fn at_once(limiters: &[Limiter<'_>]) -> Result<Vec<Column>> {
    [("burst", 1), ("two proxies", 2)]
        .into_iter()
        .map(|(name, proxies)| {
            let counts = each(limiters, |limiter| {
                let begun = now();
                Ok(count(burst(&limiter.addresses(proxies), name)?, begun))
            });
            Ok((name, counts?))
        })
        .collect()
}

/// Name of a kind of traffic, and the count of each limiter.
type Column = (&'static str, Vec<Count>);

fn each<'a, T>(limiters: &[Limiter<'a>], of: impl Fn(&Limiter<'a>) -> Result<T>) -> Result<Vec<T>> {
    limiters.iter().map(of).collect()
}

/// Measures all limiters at once, because the traffic takes a minute and leaves the processor idle.
fn together(
    limiters: &[Limiter<'_>],
    of: impl Fn(&[SocketAddr]) -> Result<Count> + Sync,
) -> Result<Vec<Count>> {
    let of = &of;
    thread::scope(|scope| {
        let threads: Vec<_> = limiters
            .iter()
            .map(|limiter| {
                let addresses = limiter.addresses(1);
                scope.spawn(move || of(&addresses))
            })
            .collect();
        let ended = threads.into_iter().map(thread::ScopedJoinHandle::join);
        ended
            .map(|end| end.unwrap_or_else(|_| Err(anyhow!("a thread panicked"))))
            .collect()
    })
}

/// Returns a count of traffic that began at `begun` and ends now.
fn count(admitted: u64, begun: Instant) -> Count {
    Count {
        admitted,
        allowed: allowed(begun),
    }
}

/// Returns the number of requests that the limit allows between `begun` and now.
fn allowed(begun: Instant) -> u64 {
    let refilled = begun.elapsed().as_millis() / INTERVAL.as_millis();
    CAPACITY.saturating_add(u64::try_from(refilled).unwrap_or(u64::MAX))
}

/// Sends the requests of a burst through these proxies, on several connections. Returns the number of admitted ones.
fn burst(addresses: &[SocketAddr], user: &str) -> Result<u64> {
    thread::scope(|scope| {
        let threads: Vec<_> = (0..CONNECTIONS)
            .zip(addresses.iter().cycle())
            .map(|(_, &address)| {
                scope.spawn(move || {
                    let mut http = Http::new(address);
                    let mut admitted = 0;
                    for _ in 0..BURST / CONNECTIONS {
                        admitted += u64::from(http.send(&request(user))?.status == 200);
                    }
                    Ok(admitted)
                })
            })
            .collect();
        let ended = threads.into_iter().map(thread::ScopedJoinHandle::join);
        ended
            .map(|end| end.unwrap_or_else(|_| Err(anyhow!("a thread panicked"))))
            .sum()
    })
}

fn request(user: &str) -> Request {
    Request::get(PATH).header("x-user-id", user)
}

/// Sends steady requests, more than the limit allows.
fn steady(addresses: &[SocketAddr]) -> Result<Count> {
    let mut http = Http::new(*addresses.first().context("no proxy")?);
    let begun = now();
    let mut admitted = 0;
    while begun.elapsed() < STEADY {
        admitted += u64::from(http.send(&request("steady"))?.status == 200);
        pause_for(PAUSE);
    }
    Ok(count(admitted, begun))
}

/// Sends a burst before and a burst after the turn of a minute.
fn around(addresses: &[SocketAddr]) -> Result<Count> {
    let since_epoch = both().1.duration_since(SystemTime::UNIX_EPOCH)?;
    let first = MINUTE - (AROUND / 2).as_millis();
    let wait = (first + MINUTE - since_epoch.as_millis() % MINUTE) % MINUTE;
    pause_for(Duration::from_millis(u64::try_from(wait)?));
    let begun = now();
    let mut admitted = burst(addresses, "around")?;
    pause_for(AROUND.saturating_sub(begun.elapsed()));
    admitted += burst(addresses, "around")?;
    Ok(count(admitted, begun))
}

/// Sends a burst before and a burst after a restart of the proxy.
fn restart(limiter: &mut Limiter<'_>) -> Result<Count> {
    let begun = now();
    let mut admitted = burst(&limiter.addresses(1), "restarted")?;
    limiter.restart()?;
    admitted += burst(&limiter.addresses(1), "restarted")?;
    Ok(count(admitted, begun))
}

/// Sends a request of each other user.
fn others(limiter: &Limiter<'_>) -> Result<()> {
    let address = *limiter.addresses(1).first().context("no proxy")?;
    flood(address, OTHERS, |n| request(&format!("other-{n}")))
}

/// Returns the processor time of a request, in microseconds. All users send one more request.
fn cost(limiter: &Limiter<'_>) -> Result<f64> {
    let spent = || -> Result<Duration> {
        let mut pids = Vec::new();
        for proxy in limiter.proxies.iter().take(1) {
            match proxy {
                Proxy::Envoy(envoy) => pids.push(envoy.pid()),
                Proxy::Nginx(nginx, _) => pids.extend(workers(nginx.pid())?),
            }
        }
        if let Some(central) = &limiter.central {
            let asked = if limiter.kind == Kind::Service {
                &central.service
            } else {
                &central.relay
            };
            pids.extend(asked.pid());
            pids.extend(central.valkey.pid());
        }
        pids.into_iter().map(process_time).sum()
    };
    let before = spent()?;
    others(limiter)?;
    let after = spent()?;
    Ok(after.saturating_sub(before).as_secs_f64() * 1e6 / super::float(OTHERS))
}

/// Returns the processes that a process has started.
fn workers(parent: u32) -> Result<Vec<u32>> {
    let list = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"))?;
    list.split_whitespace()
        .map(|pid| Ok(pid.parse()?))
        .collect()
}

fn print(columns: &[Column]) {
    print!("{:<46}", "admitted / allowed");
    for (name, _) in columns {
        print!(" {name:>15}");
    }
    println!();
    for (row, (_, name)) in KINDS.iter().enumerate() {
        print!("{name:<46}");
        for (_, counts) in columns {
            let cell = counts
                .get(row)
                .map(|count| format!("{} / {}", count.admitted, count.allowed));
            print!(" {:>15}", cell.unwrap_or_default());
        }
        println!();
    }
}

fn config(scope: &str) -> Config {
    Config::new(json!([{
        "name": "per-user",
        "key": [{ "header": "x-user-id" }],
        "scope": scope,
        "limits": [{ "name": "burst", "algorithm": "funnel", "capacity": CAPACITY, "rate": "30/60s" }],
    }]))
    .buckets(65_536)
    .cluster(NOWHERE, None)
    .routes(json!([route("/")]))
    .filter_behind(answer())
}

/// Returns the configuration of an Envoy with its own local limiter.
fn local() -> String {
    let bucket = json!({ "max_tokens": CAPACITY, "tokens_per_fill": 1, "fill_interval": "2s" });
    // A request without a user takes from this bucket.
    let all =
        json!({ "max_tokens": 1_000_000, "tokens_per_fill": 1_000_000, "fill_interval": "1s" });
    let always = json!({ "default_value": { "numerator": 100 } });
    let user =
        json!({ "request_headers": { "header_name": "x-user-id", "descriptor_key": "user" } });
    let filter = json!({ "name": "local", "typed_config": {
        "@type": format!("{TYPE}filters.http.local_ratelimit.v3.LocalRateLimit"),
        "stat_prefix": "local", "token_bucket": all,
        "filter_enabled": always, "filter_enforced": always,
        "rate_limits": [{ "actions": [user] }],
        "descriptors": [{ "entries": [{ "key": "user" }], "token_bucket": bucket }],
        // Loudou's store has room for 65 536 buckets. The default here is 20.
        "max_dynamic_descriptors": 65_536,
    } });
    let data = listener(
        "data",
        &json!([route("/")]),
        &json!([filter, answer(), router()]),
    );
    let bootstrap = json!({
        "admin": { "address": any_port() },
        "static_resources": {
            "listeners": [data, no_admin()],
            "clusters": [cluster(NOWHERE, &json!([]))],
        },
    });
    bootstrap.to_string()
}

fn nginx_conf(folder: &Path, address: SocketAddr) -> String {
    let folder = folder.display();
    format!(
        "worker_processes 2;\n\
         daemon off;\n\
         pid {folder}/nginx.pid;\n\
         error_log {folder}/error.log crit;\n\
         events {{ worker_connections 1024; }}\n\
         http {{\n\
           access_log off;\n\
           keepalive_requests 1000000;\n\
           client_body_temp_path {folder}/body;\n\
           proxy_temp_path {folder}/proxy;\n\
           fastcgi_temp_path {folder}/fastcgi;\n\
           uwsgi_temp_path {folder}/uwsgi;\n\
           scgi_temp_path {folder}/scgi;\n\
           limit_req_zone $http_x_user_id zone=users:10m rate=30r/m;\n\
           limit_req_status 429;\n\
           server {{\n\
             listen {address};\n\
             location / {{ limit_req zone=users burst=14 nodelay; empty_gif; }}\n\
           }}\n\
         }}\n"
    )
}
