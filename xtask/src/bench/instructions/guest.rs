//! The module in an interpreter, and a host that does as Envoy does, with a clock that the caller moves.

use std::collections::BTreeMap;
use std::path::Path;
use std::{fs, iter};

use anyhow::{Context as _, Result, anyhow, ensure};
use loudou_limiter::Nanos;
use serde_json::Value;
use wasmi::{
    AsContextMut, Caller, CompilationMode, Config, Engine, Extern, ExternType, Instance, Linker,
    Memory, Module, Store, TypedFunc, Val, WasmParams, WasmResults,
};

/// What the host functions answer.
const OK: i32 = 0;
const NOT_FOUND: i32 = 1;
const CAS_MISMATCH: i32 = 8;

const PLUGIN: i32 = 1;
const MONOTONIC: i32 = 1;
/// The level of log lines from which on something is wrong.
const WARN: i32 = 3;
/// 2023, on the wall clock.
const WALL_NS: u64 = 1_700_000_000_000_000_000;

/// The host: its inputs, and what the guest has done.
#[derive(Debug, Default)]
struct Host {
    now: Nanos,
    headers: BTreeMap<String, Vec<u8>>,
    configuration: Vec<u8>,
    /// Values of shared data, with their versions.
    shared: BTreeMap<Vec<u8>, (Vec<u8>, u32)>,
    versions: u32,
    metrics: Vec<(Vec<u8>, i64)>,
    /// The calls of each host function.
    calls: BTreeMap<String, u64>,
    /// The status of the last local reply.
    replied: Option<u64>,
    log: Vec<String>,
}

/// The guest, with one plugin that has a configuration.
pub(super) struct Guest {
    store: Store<Host>,
    instance: Instance,
    contexts: i32,
}

impl Guest {
    /// The module with this configuration in force.
    pub(super) fn start(wasm: &Path, configuration: &Value) -> Result<Self> {
        let mut config = Config::default();
        // Translation in advance: otherwise the first call of a function would pay for it.
        config
            .consume_fuel(true)
            .compilation_mode(CompilationMode::Eager);
        let engine = Engine::new(&config);
        let module = Module::new(&engine, fs::read(wasm)?)?;
        let configuration = configuration.to_string().into_bytes();
        let host = Host {
            now: Nanos::from_secs(1_000),
            configuration,
            ..Host::default()
        };
        let mut store = Store::new(&engine, host);
        store.set_fuel(u64::MAX)?;
        let linker = linker(&engine, &module)?;
        let instance = linker.instantiate_and_start(&mut store, &module)?;
        let mut guest = Self {
            store,
            instance,
            contexts: PLUGIN,
        };
        guest.call::<_, ()>("_initialize", ())?;
        guest.call::<_, ()>("proxy_on_context_create", (PLUGIN, 0))?;
        let size = i32::try_from(guest.store.data().configuration.len())?;
        let is_accepted: i32 = guest.call("proxy_on_configure", (PLUGIN, size))?;
        guest.call::<_, ()>("proxy_on_tick", PLUGIN)?;
        let log = &guest.store.data().log;
        ensure!(is_accepted == 1 && log.is_empty(), "{log:?}");
        Ok(guest)
    }

    fn call<P: WasmParams, R: WasmResults>(&mut self, name: &str, parameters: P) -> Result<R> {
        let function: TypedFunc<P, R> = self.instance.get_typed_func(&self.store, name)?;
        let called = function.call(&mut self.store, parameters);
        called.with_context(|| format!("{name}; log: {:?}", self.store.data().log))
    }

    /// A whole request with these headers, so long after the one before; the status of its local reply.
    pub(super) fn request(
        &mut self,
        headers: &[(&str, &str)],
        after: Nanos,
    ) -> Result<Option<u64>> {
        let host = self.store.data_mut();
        host.now = host.now.saturating_add(after);
        host.replied = None;
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), value.as_bytes().to_vec());
        host.headers = headers.iter().map(own).collect();
        let count = i32::try_from(headers.len())?;
        self.contexts += 1;
        let context = self.contexts;
        self.call::<_, ()>("proxy_on_context_create", (context, PLUGIN))?;
        self.call::<_, i32>("proxy_on_request_headers", (context, count, 1))?;
        self.call::<_, i32>("proxy_on_response_headers", (context, 1, 0))?;
        self.call::<_, i32>("proxy_on_done", context)?;
        Ok(self.store.data().replied)
    }

    /// What was spent so far: about one for each instruction.
    pub(super) fn spent(&self) -> Result<u64> {
        Ok(u64::MAX - self.store.get_fuel()?)
    }

    /// The calls of host functions so far.
    pub(super) fn calls(&self) -> u64 {
        self.store.data().calls.values().sum()
    }
}

/// All functions that the module imports.
fn linker(engine: &Engine, module: &Module) -> Result<Linker<Host>> {
    let mut linker = Linker::new(engine);
    for import in module.imports() {
        let ExternType::Func(kind) = import.ty() else {
            continue;
        };
        let name = import.name().to_owned();
        let function = move |caller: Caller<'_, Host>, inputs: &[Val], outputs: &mut [Val]| {
            let numbers: Vec<i64> = inputs.iter().map(number).collect();
            let status = Entry { caller, numbers }.call(&name);
            let status = status.map_err(|error| wasmi::Error::new(format!("{name}: {error:#}")))?;
            if let Some(output) = outputs.first_mut() {
                *output = Val::I32(status);
            }
            Ok(())
        };
        linker.func_new(import.module(), import.name(), kind.clone(), function)?;
    }
    Ok(linker)
}

fn number(input: &Val) -> i64 {
    match input {
        Val::I32(number) => i64::from(*number),
        Val::I64(number) => *number,
        _ => 0,
    }
}

/// A call of a host function with these numbers.
struct Entry<'a> {
    caller: Caller<'a, Host>,
    numbers: Vec<i64>,
}

impl Entry<'_> {
    fn call(&mut self, name: &str) -> Result<i32> {
        *self
            .caller
            .data_mut()
            .calls
            .entry(name.to_owned())
            .or_default() += 1;
        match name {
            "proxy_log" => self.log(),
            "clock_time_get" => self.clock(),
            "random_get" => self.random(),
            "proxy_get_buffer_bytes" => {
                let configuration = self.caller.data().configuration.clone();
                self.give(&configuration, 3)
            }
            "proxy_get_header_map_value" => {
                let name = String::from_utf8(self.bytes(1)?)?;
                match self.caller.data().headers.get(&name).cloned() {
                    Some(value) => self.give(&value, 3),
                    None => Ok(NOT_FOUND),
                }
            }
            "proxy_get_property" if self.bytes(0)? == b"connection\0id" => {
                self.give(&1_u64.to_le_bytes(), 2)
            }
            "proxy_get_property" => Ok(NOT_FOUND),
            "proxy_get_shared_data" => self.shared(),
            "proxy_set_shared_data" => self.share(),
            "proxy_define_metric" => self.metric(),
            "proxy_increment_metric" => self.count(),
            "proxy_get_metric" => self.read_metric(),
            "proxy_send_local_response" => {
                self.caller.data_mut().replied = Some(self.number(0)?.try_into()?);
                Ok(OK)
            }
            _ => Ok(OK),
        }
    }

    fn number(&self, place: usize) -> Result<i64> {
        self.numbers.get(place).copied().context("a number")
    }

    fn address(&self, place: usize) -> Result<usize> {
        // Addresses are unsigned.
        let number = self.number(place)? & i64::from(u32::MAX);
        Ok(usize::try_from(number)?)
    }

    fn memory(&self) -> Result<Memory> {
        let memory = self.caller.get_export("memory");
        memory
            .and_then(Extern::into_memory)
            .context("the guest's memory")
    }

    /// The bytes whose address and length are at these places.
    fn bytes(&self, place: usize) -> Result<Vec<u8>> {
        let (from, length) = (self.address(place)?, self.address(place + 1)?);
        let memory = self.memory()?.data(&self.caller);
        let bytes = memory.get(from..from.saturating_add(length));
        Ok(bytes.context("bytes beyond the memory")?.to_vec())
    }

    fn write(&mut self, at: usize, bytes: &[u8]) -> Result<()> {
        let memory = self.memory()?;
        memory
            .write(&mut self.caller, at, bytes)
            .map_err(|error| anyhow!("{error}"))
    }

    /// Returns bytes in memory of the guest, whose address and length go to the addresses at these places.
    fn give(&mut self, bytes: &[u8], place: usize) -> Result<i32> {
        let allocate = self.caller.get_export("proxy_on_memory_allocate");
        let allocate = allocate
            .and_then(Extern::into_func)
            .context("an allocator")?;
        let size = u32::try_from(bytes.len())?;
        let at = allocate
            .typed::<u32, u32>(&self.caller)?
            .call(self.caller.as_context_mut(), size)?;
        self.write(usize::try_from(at)?, bytes)?;
        self.write(self.address(place)?, &at.to_le_bytes())?;
        self.write(self.address(place + 1)?, &size.to_le_bytes())?;
        Ok(OK)
    }

    fn log(&mut self) -> Result<i32> {
        let line = String::from_utf8_lossy(&self.bytes(1)?).into_owned();
        if self.number(0)? >= i64::from(WARN) {
            self.caller.data_mut().log.push(line);
        }
        Ok(OK)
    }

    fn clock(&mut self) -> Result<i32> {
        let now = self.caller.data().now.get();
        let is_wall = self.number(0)? != i64::from(MONOTONIC);
        let time = if is_wall { WALL_NS + now } else { now };
        self.write(self.address(2)?, &time.to_le_bytes())?;
        Ok(OK)
    }

    fn random(&mut self) -> Result<i32> {
        let bytes: Vec<u8> = iter::repeat_n(7, self.address(1)?).collect();
        self.write(self.address(0)?, &bytes)?;
        Ok(OK)
    }

    fn shared(&mut self) -> Result<i32> {
        let key = self.bytes(0)?;
        let Some((value, version)) = self.caller.data().shared.get(&key).cloned() else {
            return Ok(NOT_FOUND);
        };
        self.write(self.address(4)?, &version.to_le_bytes())?;
        self.give(&value, 2)
    }

    /// As in Envoy, any version fits where there is no value yet.
    fn share(&mut self) -> Result<i32> {
        let (key, value) = (self.bytes(0)?, self.bytes(2)?);
        let expected = u32::try_from(self.address(4)?)?;
        let host = self.caller.data_mut();
        let found = host.shared.get(&key).map(|(_, version)| *version);
        if expected != 0 && found.is_some_and(|version| version != expected) {
            return Ok(CAS_MISMATCH);
        }
        host.versions += 1;
        host.shared.insert(key, (value, host.versions));
        Ok(OK)
    }

    fn metric(&mut self) -> Result<i32> {
        let name = self.bytes(1)?;
        let metrics = &mut self.caller.data_mut().metrics;
        let known = metrics.iter().position(|(known, _)| *known == name);
        let id = known.unwrap_or_else(|| {
            metrics.push((name, 0));
            metrics.len() - 1
        });
        self.write(self.address(3)?, &u32::try_from(id)?.to_le_bytes())?;
        Ok(OK)
    }

    fn count(&mut self) -> Result<i32> {
        let (id, offset) = (self.address(0)?, self.number(1)?);
        let metric = self.caller.data_mut().metrics.get_mut(id);
        metric.context("a metric")?.1 += offset;
        Ok(OK)
    }

    fn read_metric(&mut self) -> Result<i32> {
        let id = self.address(0)?;
        let (_, value) = self.caller.data().metrics.get(id).context("a metric")?;
        let value = value.to_le_bytes();
        self.write(self.address(1)?, &value)?;
        Ok(OK)
    }
}
