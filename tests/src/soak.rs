//! A soak: load on a real Envoy while everything about its limits changes, and a model outside of Envoy
//! that computes the maximum and minimum number of requests for each key.
//!
//! ```text
//! plan     the actions, from a seed            clients  random requests over old and new connections
//! driver   carries them out and records when   book     keys, requests, changes, violations
//! keys     overrides, bans, resets             holders  requests that stay in flight for a while
//! model    compares the record with what       waiters  requests that wait for their turn
//!          is allowed                          passes   when those passed, by Envoy's clock
//!                                              heartbeat    how late the workers may have been
//! ```
//!
//! The same seed gives the same actions in the same order, and the same choices of each client; which
//! request meets which change depends on the machine.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use serde_json::{Value, json};

use crate::config::Config;
use crate::envoy::Envoy;
use crate::http::{Http, Request};
use crate::operator::Operator;
use crate::upstream::Upstream;

pub mod book;
pub mod clients;
pub mod driver;
pub mod heartbeat;
pub mod holders;
pub mod memory;
pub mod model;
pub mod passes;
pub mod plan;
pub mod random;
pub mod report;
pub mod rules;
pub mod timeline;
pub mod waiters;

use book::{Book, SECOND};
use driver::{Driver, configuration};
use memory::Samples;
use model::Promise;
use passes::Passes;
use plan::Plan;
use random::Random;
use rules::{FLOOD, KEY, Kind, Numbers, Rule};

const WORKERS: u32 = 2;
const CLIENTS: u64 = 4;
const HOLDERS: u64 = 2;
/// Number of clients that wait: as many as one run of the timer lets pass.
const WAITERS: u64 = 32;
/// Maximum time for which listeners drain, in seconds. It is Envoy's own default.
const LONGEST_DRAIN: u64 = 600;
const TURN: Duration = Duration::from_millis(100);
const PROGRESS: u64 = 10 * SECOND;

/// Options of a soak.
#[derive(Debug, Clone)]
pub struct Options {
    /// Duration of the load.
    pub lasts: Duration,
    /// Seed of all random choices.
    pub seed: u64,
    /// Names of the actions to leave out ([`plan::WORDS`]), to find out which of them a violation
    /// needs.
    pub without: Vec<String>,
    /// Filter, which must be able to panic on request.
    pub wasm: PathBuf,
    /// File to which every violation is written when it is found. Without a violation, the file is
    /// not created.
    pub violations: PathBuf,
}

/// Runs a soak. Returns the number of violations. `say` prints a line.
pub fn run(options: &Options, say: &mut dyn FnMut(&str)) -> Result<usize> {
    let seed = options.seed;
    let rules = Rule::all();
    let variants = Plan::variants(seed, &rules);
    let first = variants.first().context("a configuration")?;
    report::begin(options)?;
    let passes = Arc::new(Passes::default());
    let of_upstream = Arc::clone(&passes);
    let upstream = Upstream::start_before(move |request| of_upstream.see(request))?;
    let base = Config::new(json!([]))
        .cluster("upstream", Some(upstream.address()))
        .routes(routes(&rules))
        .concurrency(WORKERS)
        .drain_s(drain_s(options.lasts))
        .with_pulse()
        .log_level("warning")
        .wasm(&options.wasm);
    let start = base.clone().data_plugin(configuration(&rules, first));
    let envoy = Envoy::start(&start)?;
    say(&format!(
        "seed {seed}: {} rules, {WORKERS} workers, {CLIENTS} clients, {} s",
        rules.len(),
        options.lasts.as_secs()
    ));
    let mut random = Random::new(seed, 3);
    let workers = usize::try_from(WORKERS)?;
    let book = Book::new(rules, first, &mut random, passes, workers);
    let soak = Soak {
        options,
        envoy: &envoy,
        book: &book,
        variants: &variants,
        base: &base,
    };
    let ended = soak.run(&mut random, say);
    book.finish();
    // Write the violations even if the soak itself failed.
    report::write(&book, options)?;
    let samples = ended?;
    store_kept_everything(&book, &envoy)?;
    if let Some(growth) = samples.growth() {
        book.broke("-", Promise::Memory, growth);
    }
    report::table(&book, &samples, options, say);
    report::write(&book, options)?;
    let violations = book.violations();
    if violations.is_empty() {
        envoy.stop()?;
    }
    Ok(violations.len())
}

/// Returns the time for which listeners drain. It is long, so that connections outlive several
/// updates: while it runs, Envoy closes a connection after an answer with a probability that rises
/// to 1. But a dead sandbox stays in memory until the last listener that used it has drained, so
/// the memory becomes stable only after this time. It must therefore be within the first third of
/// the soak, because [`memory`] expects flat memory after it.
fn drain_s(lasts: Duration) -> u32 {
    let drain = lasts.as_secs() / 6;
    u32::try_from(drain.clamp(1, LONGEST_DRAIN)).unwrap_or(1)
}

/// Returns the routes. Requests that stay in flight or wait for their turn go to the upstream.
/// Envoy itself answers all others.
fn routes(rules: &[Rule]) -> Value {
    let is_passed_on = |rule: &&Rule| rule.kind == Kind::Concurrency || rule.kind.waits();
    let held = rules.iter().filter(is_passed_on).map(|rule| {
        let path = json!({ "path": format!("/{}", rule.name) });
        let route = json!({ "cluster": "upstream" });
        json!({ "match": path, "route": route, "request_headers_to_add": passes::stamps() })
    });
    let ok = json!({ "status": 200, "body": { "inline_string": "ok\n" } });
    let all = json!({ "match": { "prefix": "/" }, "direct_response": ok });
    held.chain([all]).collect()
}

struct Soak<'a> {
    options: &'a Options,
    envoy: &'a Envoy,
    book: &'a Book,
    variants: &'a [Vec<Numbers>],
    base: &'a Config,
}

impl Soak<'_> {
    fn run(&self, random: &mut Random, say: &mut dyn FnMut(&str)) -> Result<Samples> {
        let (book, address) = (self.book, self.envoy.data_address());
        let heartbeats = heartbeat::open(self.envoy, usize::try_from(WORKERS)?)?;
        thread::scope(|scope| {
            // Dropping the senders stops all threads, even if this function returns an error.
            let mut stops: Vec<Sender<()>> = Vec::new();
            for client in 0..CLIENTS {
                let (stop, stopped) = channel();
                stops.push(stop);
                let random = Random::new(self.options.seed, 10 + client);
                scope.spawn(move || clients::run(book, address, random, &stopped));
            }
            for holder in 0..HOLDERS {
                let (stop, stopped) = channel();
                stops.push(stop);
                let random = Random::new(self.options.seed, 50 + holder);
                scope.spawn(move || holders::run(book, address, random, &stopped));
            }
            for waiter in 0..WAITERS {
                let (stop, stopped) = channel();
                stops.push(stop);
                let random = Random::new(self.options.seed, 100 + waiter);
                scope.spawn(move || waiters::run(book, address, random, &stopped));
            }
            for (worker, http) in heartbeats.into_iter().enumerate() {
                let (stop, stopped) = channel();
                stops.push(stop);
                scope.spawn(move || heartbeat::run(book, worker, http, &stopped));
            }
            let (floods, wanted) = channel();
            scope.spawn(move || flood(book, Http::new(address), &wanted));
            let (stop, stopped) = channel();
            let (ended, end) = channel();
            let plan = Plan::new(self.options.seed, book.rules.clone(), &self.options.without);
            let mut driver = Driver::new(book, self.envoy, self.variants, self.base, floods);
            scope.spawn(move || {
                let done = driver.run(plan, &stopped);
                drop(driver);
                drop(ended.send(done));
            });
            let samples = self.watch(&end, random, say)?;
            // The clients send until the last action is done, because workers notice only with a
            // request that a configuration is back.
            drop(stop);
            end.recv().context("the driver panicked")??;
            drop(stops);
            Ok(samples)
        })
    }

    /// Rotates keys, samples memory and prints progress until the time is over.
    fn watch(
        &self,
        end: &Receiver<Result<()>>,
        random: &mut Random,
        say: &mut dyn FnMut(&str),
    ) -> Result<Samples> {
        let lasts = u64::try_from(self.options.lasts.as_nanos())?;
        let mut samples = Samples::default();
        let (mut next_sample, mut next_line) = (0, PROGRESS);
        loop {
            match end.recv_timeout(TURN) {
                Err(RecvTimeoutError::Timeout) => {}
                Ok(done) => return Err(done.err().unwrap_or_else(|| anyhow!("no more actions"))),
                Err(RecvTimeoutError::Disconnected) => return Err(anyhow!("the driver panicked")),
            }
            self.book.turn(random);
            let now = self.book.now();
            if now >= next_sample {
                samples.add(self.envoy.memory()?);
                next_sample = now + SECOND;
            }
            if now >= next_line {
                say(&report::progress(self.book, now));
                report::write(self.book, self.options)?;
                next_line += PROGRESS;
            }
            if now >= lasts {
                return Ok(samples);
            }
        }
    }
}

/// Sends floods of made-up keys, each with the requested number of keys.
fn flood(book: &Book, mut http: Http, wanted: &Receiver<u64>) {
    let path = format!("/{FLOOD}");
    let mut name = 0_u64;
    for keys in wanted {
        for _ in 0..keys {
            name += 1;
            let request = Request::get(&path).header(KEY, format!("made-up-{name}"));
            // A dead sandbox answers 503, or does not answer.
            if http.send_once(&request).is_err() {
                http.close();
            }
        }
        book.count("made-up keys", keys);
    }
}

/// Checks that the store lost nothing. If it did, the bounds of the model do not apply.
fn store_kept_everything(book: &Book, envoy: &Envoy) -> Result<()> {
    let status = Operator::viewer(envoy).get("/v1/status")?;
    for field in ["evicted_lossy", "cas_give_ups"] {
        let count = status.pointer(&format!("/store/{field}"));
        let count = count.and_then(Value::as_u64);
        if count != Some(0) {
            let what = format!("{field}: {count:?}");
            book.broke("-", Promise::Store, what);
        }
    }
    Ok(())
}
