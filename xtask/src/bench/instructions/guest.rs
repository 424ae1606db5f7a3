//! The module in an interpreter, and the callbacks of a request in the order in which Envoy makes them.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, anyhow, ensure};
use loudou_limiter::Nanos;
use serde_json::Value;
use wasmi::{Engine, Instance, Linker, Module, Store, WasmParams, WasmResults};

use super::host::{Host, linker};
use super::meter::{COUNT, metered};

/// The context of the plugin; those of requests follow.
const PLUGIN: u32 = 1;
/// The time at which the plugin starts.
const START: Nanos = Nanos::from_secs(1_000);

/// The compiled module, from which guests start.
pub(super) struct Program {
    engine: Engine,
    module: Module,
    linker: Linker<Host>,
}

/// The guest, with one plugin.
pub(super) struct Guest {
    store: Store<Host>,
    instance: Instance,
    /// The newest context.
    context: u32,
}

impl Program {
    pub(super) fn read(wasm: &Path) -> Result<Self> {
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

    /// A guest with this configuration in force.
    pub(super) fn start(&self, configuration: &Value) -> Result<Guest> {
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

    /// A whole request with these headers, so long after the one before; the status with which the guest has
    /// answered it, unless it has admitted it.
    pub(super) fn request(
        &mut self,
        headers: Vec<(String, String)>,
        after: Nanos,
    ) -> Result<Option<u32>> {
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

    /// The instructions that were executed so far.
    pub(super) fn executed(&self) -> Result<u64> {
        let count = self.instance.get_global(&self.store, COUNT);
        let count = count.and_then(|count| count.get(&self.store).i64());
        Ok(count.context("the module does not count")?.try_into()?)
    }

    /// The calls of each host function since they were last taken.
    pub(super) fn take_calls(&mut self) -> BTreeMap<String, u64> {
        std::mem::take(&mut self.store.data_mut().calls)
    }

    fn log(&self) -> String {
        format!("the log of the guest: {:?}", self.store.data().log)
    }
}
