//! `cargo xtask bench instructions`: counts the wasm instructions that the filter executes per
//! request. The counts are the same in every run and on every machine, so checks can compare them
//! with budgets.
//!
//! The module that is shipped runs in an interpreter (wasmi), after [`meter`] has added a counter
//! to it. Each executed WebAssembly instruction counts as one, except instructions without an
//! effect (`block`, `loop`, `else`, `end`, `nop`). An instruction that copies many bytes also
//! counts as one. The count covers the whole life of a request, from the creation of its context to
//! its end. It includes the allocation of guest memory for values that the host returns. It
//! excludes the work of the host; host calls are counted separately. The alternatives are worse:
//! callgrind would count either a native build, which does not run in production, or Envoy with all
//! of its noise, and `setup` cannot install callgrind.
//!
//! Instruction counts are no measure of time. An instruction takes longer if its code or data are
//! not in the processor's caches, and the switch between guest and host takes longer than most of
//! what they do. `bench request` measures time.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use budgets::{FILE, Found};
use host::{Host, linker};
use loudou_limiter::Nanos;
use loudou_tests::wasm_path;
use meter::{COUNT, metered};
use serde_json::{Value, json};
use wasmi::{Engine, Instance, Linker, Module, Store, WasmParams, WasmResults};

use super::float;
use super::request::rows::{Limits, Row, loudou};
use crate::filter;

mod budgets;
mod host;
mod meter;

/// Number of requests before the measurement; after them, the buckets of all users exist, and the
/// guest has done all one-time work.
const WARM_UP: u64 = 1_000;
/// Number of counted requests.
const COUNTED: u64 = 1_000;
/// Number of users, who send requests in turn.
const USERS: u64 = 100;
/// Time between two consecutive requests.
const APART: Nanos = Nanos::new(50_000);

/// Prints the request costs of the given build of the filter, or of the current sources, as a table
/// and as a budget file.
pub(super) fn run_all(wasm: Option<PathBuf>) -> Result<()> {
    let found = count(&wasm.map_or_else(filter::build, Ok)?)?;
    print(&found);
    println!("\n{FILE}, if these are to be the budgets:\n");
    print!("{}", budgets::as_file(&found)?);
    Ok(())
}

/// Compares the request costs with the budgets. The module must already be built.
pub(crate) fn check() -> Result<()> {
    let found = count(&wasm_path()?)?;
    print(&found);
    let problems = budgets::problems(&found, &budgets::read()?);
    ensure!(
        problems.is_empty(),
        "{}\n`cargo xtask bench instructions` prints {FILE} anew",
        problems.join("\n")
    );
    Ok(())
}

fn print(found: &[Found]) {
    println!("{:<26} {:>12} {:>10}", "", "instructions", "host calls");
    for Found { scenario, cost } in found {
        let calls: u64 = cost.calls.values().sum();
        let (instructions, calls) = (cost.instructions, float(calls) / float(COUNTED));
        println!("{scenario:<26} {instructions:>12} {calls:>10.3}");
    }
}

/// Counts the request costs in all scenarios.
fn count(wasm: &Path) -> Result<Vec<Found>> {
    let program = Program::read(wasm)?;
    let rows = loudou(&[]);
    let rows = rows.iter().map(|row| {
        let scenario = row.name.trim_start_matches("Loudou, ").to_owned();
        let found = count_row(&program, row).with_context(|| scenario.clone());
        found.map(|cost| Found { scenario, cost })
    });
    rows.collect()
}

fn count_row(program: &Program, row: &Row) -> Result<budgets::Cost> {
    let Limits::Loudou { rules, .. } = &row.limits else {
        bail!("these are not the limits of Loudou: {:?}", row.limits);
    };
    let store = json!({ "namespace": "loudou", "buckets": 65_536 });
    let configuration = json!({ "version": 1, "store": store, "rules": rules });
    let mut guest = program.start(&configuration)?;
    for number in 0..WARM_UP {
        guest.request(headers(number), APART)?;
    }
    let before = guest.executed()?;
    guest.take_calls();
    for number in WARM_UP..WARM_UP + COUNTED {
        let status = guest.request(headers(number), APART)?.unwrap_or(200);
        let expected = u32::from(row.status);
        ensure!(status == expected, "status {status} instead of {expected}");
    }
    let executed = guest.executed()?.saturating_sub(before);
    Ok(budgets::Cost {
        instructions: executed.div_euclid(COUNTED),
        calls: guest.take_calls(),
    })
}

/// Returns the headers of a request, as Envoy passes them to filters.
fn headers(number: u64) -> Vec<(String, String)> {
    let user = format!("user-{:07}", number % USERS);
    let headers = [
        (":authority", "127.0.0.1:10000"),
        (":path", "/path7"),
        (":method", "GET"),
        (":scheme", "http"),
        ("x-user-id", &user),
        ("x-forwarded-for", "127.0.0.1"),
        ("x-forwarded-proto", "http"),
        ("x-envoy-internal", "true"),
        ("x-request-id", "6d3e5b8c-2f0f-4f2c-9d6f-0c5a7e1b9a42"),
    ];
    let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
    headers.map(owned).into()
}

// Runs the module in an interpreter, and invokes the callbacks of a request in the same order as
// Envoy.

/// Context number of the plugin. Request contexts have higher numbers.
const PLUGIN: u32 = 1;
/// Monotonic time at which the plugin starts.
const START: Nanos = Nanos::from_secs(1_000);

/// Compiled module, from which guests are instantiated.
struct Program {
    engine: Engine,
    module: Module,
    linker: Linker<Host>,
}

/// A running instance of the module, with one plugin.
struct Guest {
    store: Store<Host>,
    instance: Instance,
    /// Number of the context that was created last.
    context: u32,
}

impl Program {
    fn read(wasm: &Path) -> Result<Self> {
        let engine = Engine::default();
        let bytes = fs::read(wasm).with_context(|| format!("cannot read {}", wasm.display()))?;
        let metered = metered(&bytes).with_context(|| wasm.display().to_string())?;
        let module = Module::new(&engine, metered)?;
        let linker = linker(&engine, &module)?;
        Ok(Self {
            engine,
            module,
            linker,
        })
    }

    /// Starts a guest with this configuration.
    fn start(&self, configuration: &Value) -> Result<Guest> {
        let configuration = configuration.to_string().into_bytes();
        let size = u32::try_from(configuration.len())?;
        let mut store = Store::new(&self.engine, Host::new(configuration, START));
        let instance = self
            .linker
            .instantiate_and_start(&mut store, &self.module)?;
        let mut guest = Guest {
            store,
            instance,
            context: PLUGIN,
        };
        guest.call::<_, ()>("_initialize", ())?;
        guest.call::<_, ()>("proxy_on_context_create", (PLUGIN, 0_u32))?;
        let accepted: u32 = guest.call("proxy_on_configure", (PLUGIN, size))?;
        ensure!(accepted == 1, "configuration refused; {}", guest.log());
        guest.call::<_, ()>("proxy_on_tick", PLUGIN)?;
        Ok(guest)
    }
}

impl Guest {
    fn call<P: WasmParams, R: WasmResults>(&mut self, name: &str, inputs: P) -> Result<R> {
        let function = self.instance.get_typed_func::<P, R>(&self.store, name);
        let result = function.and_then(|function| function.call(&mut self.store, inputs));
        result.map_err(|error| anyhow!("{name}: {error}; {}", self.log()))
    }

    /// Runs a complete request with these headers, `after` the previous request. Returns the status
    /// of the filter's response, or `None` if the filter admitted the request.
    fn request(&mut self, headers: Vec<(String, String)>, after: Nanos) -> Result<Option<u32>> {
        let count = u32::try_from(headers.len())?;
        let host = self.store.data_mut();
        host.now = host.now.saturating_add(after);
        host.headers = headers;
        host.answered = None;
        self.context += 1;
        let context = self.context;
        self.call::<_, ()>("proxy_on_context_create", (context, PLUGIN))?;
        let paused: u32 = self.call("proxy_on_request_headers", (context, count, 1_u32))?;
        let answered = self.store.data().answered;
        ensure!(
            (paused != 0) == answered.is_some(),
            "action {paused} and answer {answered:?}, although no scenario holds requests; {}",
            self.log()
        );
        if answered.is_none() {
            self.call::<_, u32>("proxy_on_response_headers", (context, 1_u32, 0_u32))?;
        }
        self.call::<_, u32>("proxy_on_done", context)?;
        ensure!(!self.store.data().has_warned, "{}", self.log());
        Ok(answered)
    }

    /// Returns the number of instructions that the guest has executed so far.
    fn executed(&self) -> Result<u64> {
        let count = self.instance.get_global(&self.store, COUNT);
        let count = count.and_then(|count| count.get(&self.store).i64());
        Ok(count.context("the module does not count")?.try_into()?)
    }

    /// Returns the number of calls of each host function since this method was last called.
    fn take_calls(&mut self) -> BTreeMap<String, u64> {
        std::mem::take(&mut self.store.data_mut().calls)
    }

    fn log(&self) -> String {
        format!("the log of the guest: {:?}", self.store.data().log)
    }
}
