//! A soak: load on a real Envoy while everything about its limits changes, and a model outside of Envoy
//! that computes the maximum and minimum number of requests for each key.
//!
//! ```text
//! plan     the actions, from a seed            clients  random requests over old and new connections
//! driver   carries them out and records when   book     keys, requests, changes, violations
//! keys     overrides, bans, resets             holders  requests that stay in flight for a while
//! model    compares the record with what is allowed
//! ```
//!
//! The same seed gives the same actions in the same order, and the same choices of each client; which
//! request meets which change depends on the machine.

use std::path::PathBuf;
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
pub mod holders;
pub mod memory;
pub mod model;
pub mod plan;
pub mod random;
pub mod report;
pub mod rules;
pub mod timeline;

use book::{Book, SECOND};
use driver::{Driver, configuration};
use memory::Samples;
use model::Promise;
use plan::Plan;
use random::Random;
use rules::{FLOOD, KEY, Kind, Numbers, Rule};

const WORKERS: u32 = 2;
const CLIENTS: u64 = 4;
const HOLDERS: u64 = 2;
/// Long, so that connections outlive several updates: Envoy closes a connection at an answer with a
/// probability that grows to 1 in this time. And the discovery of the filter ends with the last listener
/// that uses it.
const DRAIN_S: u32 = 600;
const TURN: Duration = Duration::from_millis(100);
const PROGRESS: u64 = 10 * SECOND;

/// The options of a soak.
#[derive(Debug, Clone)]
pub struct Options {
    /// The duration of the load.
    pub lasts: Duration,
    /// The seed of all random choices.
    pub seed: u64,
    /// Names of actions to leave out ([`plan::WORDS`]), to find out which of them a violation needs.
    pub without: Vec<String>,
    /// The filter, which must die on request.
    pub wasm: PathBuf,
}

/// Runs a soak; returns the number of violations. `say` prints a line.
pub fn run(options: &Options, say: &mut dyn FnMut(&str)) -> Result<usize> {
    let seed = options.seed;
    let rules = Rule::all();
    let variants = Plan::variants(seed, &rules);
    let first = variants.first().context("a configuration")?;
    let upstream = Upstream::start()?;
    let base = Config::new(json!([]))
        .cluster("upstream", Some(upstream.address()))
        .routes(routes(&rules))
        .concurrency(WORKERS)
        .drain_s(DRAIN_S)
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
    let book = Book::new(rules, first, &mut random);
    let soak = Soak {
        options,
        envoy: &envoy,
        book: &book,
        variants: &variants,
        base: &base,
    };
    let samples = soak.run(&mut random, say)?;
    book.finish();
    store_kept_everything(&book, &envoy)?;
    if let Some(growth) = samples.growth() {
        book.broke("-", Promise::Memory, growth);
    }
    report::table(&book, &samples, seed, say);
    let violations = book.violations();
    if violations.is_empty() {
        envoy.stop()?;
    }
    Ok(violations.len())
}

/// Requests that are to stay in flight go to the upstream; Envoy itself answers all others.
fn routes(rules: &[Rule]) -> Value {
    let held = rules.iter().filter(|rule| rule.kind == Kind::Concurrency);
    let held = held.map(|rule| {
        let path = json!({ "path": format!("/{}", rule.name) });
        json!({ "match": path, "route": { "cluster": "upstream" } })
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
        thread::scope(|scope| {
            // Dropping the senders stops all threads, also when this returns an error.
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
            let (floods, wanted) = channel();
            scope.spawn(move || flood(book, Http::new(address), &wanted));
            let (stop, stopped) = channel();
            stops.push(stop);
            let (ended, end) = channel();
            let plan = Plan::new(self.options.seed, book.rules.clone(), &self.options.without);
            let mut driver = Driver::new(book, self.envoy, self.variants, self.base, floods);
            scope.spawn(move || {
                let done = driver.run(plan, &stopped);
                drop(driver);
                drop(ended.send(done));
            });
            let samples = self.watch(&end, random, say)?;
            drop(stops);
            end.recv().context("the driver panicked")??;
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
                next_line += PROGRESS;
            }
            if now >= lasts {
                return Ok(samples);
            }
        }
    }
}

/// Sends the requested numbers of made-up keys.
fn flood(book: &Book, mut http: Http, wanted: &Receiver<u64>) {
    let path = format!("/{FLOOD}");
    let mut name = 0_u64;
    for keys in wanted {
        for _ in 0..keys {
            name += 1;
            let request = Request::get(&path).header(KEY, format!("made-up-{name}"));
            // A dead sandbox answers 503, or not at all.
            if http.send_once(&request).is_err() {
                http.close();
            }
        }
        book.count("made-up keys", keys);
    }
}

/// Checks that the store lost nothing; otherwise the bounds of the model do not apply.
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
