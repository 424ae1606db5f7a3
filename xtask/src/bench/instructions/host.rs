//! A deterministic proxy-wasm host that imitates an Envoy with a single worker. Its clock advances
//! only when a scenario advances it, its random bytes are fixed, and it lacks features of Envoy
//! that no scenario needs.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use loudou_limiter::Nanos;
use loudou_store::memory::MemoryStore;
use loudou_store::{SharedData as _, StoreFailed, Written};
use wasmi::{AsContextMut as _, Caller, Engine, Extern, ExternType, Linker, Memory, Module, Val};

/// Status codes that host functions return.
const OK: u32 = 0;
const NOT_FOUND: u32 = 1;
const CAS_MISMATCH: u32 = 8;

const REQUEST_HEADERS: u32 = 0;
const PLUGIN_CONFIGURATION: u32 = 7;
const MONOTONIC: u32 = 1;
/// Lowest log level that indicates a problem.
const WARN: u32 = 3;

/// Wall-clock time at which the monotonic clock reads zero.
const WALL: Nanos = Nanos::from_secs(1_700_000_000);
const RANDOM: u8 = 7;
/// Connection number that all requests have.
const CONNECTION: u64 = 1;

/// State that the guest can read, and records of the guest's calls.
#[derive(Debug)]
pub(super) struct Host {
    pub(super) now: Nanos,
    /// Headers of the current request; names are in lower case.
    pub(super) headers: Vec<(String, String)>,
    pub(super) configuration: Vec<u8>,
    /// Number of calls that the guest has made to each host function.
    pub(super) calls: BTreeMap<String, u64>,
    /// Status of the response that the guest has sent to the current request.
    pub(super) answered: Option<u32>,
    pub(super) log: Vec<String>,
    /// True if the guest has logged a warning or an error.
    pub(super) has_warned: bool,
    shared: MemoryStore,
    metrics: Vec<(Vec<u8>, u64)>,
}

impl Host {
    /// Creates a host with this plugin configuration and an otherwise empty state.
    pub(super) const fn new(configuration: Vec<u8>, now: Nanos) -> Self {
        Self {
            now,
            headers: Vec::new(),
            configuration,
            calls: BTreeMap::new(),
            answered: None,
            log: Vec::new(),
            has_warned: false,
            shared: MemoryStore::new(),
            metrics: Vec::new(),
        }
    }
}

/// A host function, which returns a status code.
type Function = fn(&mut Call<'_>) -> Result<u32>;

/// Links all functions that the module imports.
pub(super) fn linker(engine: &Engine, module: &Module) -> Result<Linker<Host>> {
    let mut linker = Linker::new(engine);
    for import in module.imports() {
        let (from, name) = (import.module(), import.name().to_owned());
        let ExternType::Func(kind) = import.ty() else {
            bail!("the filter imports {from}.{name}, which is not a function");
        };
        let function = function(&name);
        let call = move |caller: Caller<'_, Host>, inputs: &[Val], outputs: &mut [Val]| {
            let mut call = Call { caller, inputs };
            let status = call.count(&name).and_then(|()| function(&mut call));
            let status = status.map_err(|error| wasmi::Error::new(format!("{name}: {error:#}")))?;
            if let Some(output) = outputs.first_mut() {
                *output = Val::I32(status.cast_signed());
            }
            Ok(())
        };
        linker.func_new(from, import.name(), kind.clone(), call)?;
    }
    Ok(linker)
}

fn function(name: &str) -> Function {
    match name {
        "clock_time_get" => |call| call.clock(),
        "random_get" => |call| call.random(),
        "proxy_log" => |call| call.log(),
        "proxy_get_current_time_nanoseconds" => |call| call.wall_clock(),
        "proxy_get_buffer_bytes" => |call| call.buffer(),
        "proxy_get_header_map_value" => |call| call.header(),
        "proxy_get_header_map_pairs" => |call| call.headers(),
        "proxy_get_header_map_size" => |call| call.headers_size(),
        "proxy_get_property" => |call| call.property(),
        "proxy_get_shared_data" => |call| call.shared_get(),
        "proxy_set_shared_data" => |call| call.shared_set(),
        "proxy_define_metric" => |call| call.define_metric(),
        "proxy_increment_metric" => |call| call.increment_metric(),
        "proxy_record_metric" => |call| call.record_metric(),
        "proxy_get_metric" => |call| call.get_metric(),
        "proxy_send_local_response" => |call| call.answer(),
        // No scenario uses the results of these calls.
        "proxy_set_tick_period_milliseconds"
        | "proxy_add_header_map_value"
        | "proxy_replace_header_map_value"
        | "proxy_set_property" => |_| Ok(OK),
        _ => |_| {
            Err(anyhow!(
                "no scenario needed this call so far; add it to {}",
                file!()
            ))
        },
    }
}

/// A call of a host function, with the guest's arguments.
struct Call<'a> {
    caller: Caller<'a, Host>,
    inputs: &'a [Val],
}

impl Call<'_> {
    fn count(&mut self, name: &str) -> Result<()> {
        let calls = &mut self.caller.data_mut().calls;
        if !calls.contains_key(name) {
            calls.insert(name.to_owned(), 0);
        }
        *calls.get_mut(name).context("no count")? += 1;
        Ok(())
    }

    fn clock(&mut self) -> Result<u32> {
        let is_monotonic = self.word(0)? == MONOTONIC;
        let now = self.caller.data().now;
        let now = if is_monotonic {
            now
        } else {
            now.saturating_add(WALL)
        };
        self.write(2, &now.get().to_le_bytes())
    }

    fn wall_clock(&mut self) -> Result<u32> {
        let now = self.caller.data().now.saturating_add(WALL);
        self.write(0, &now.get().to_le_bytes())
    }

    fn random(&mut self) -> Result<u32> {
        let random = vec![RANDOM; usize::try_from(self.word(1)?)?];
        self.write(0, &random)
    }

    fn log(&mut self) -> Result<u32> {
        let line = String::from_utf8_lossy(&self.bytes(1)?).into_owned();
        let is_warning = self.word(0)? >= WARN;
        let host = self.caller.data_mut();
        host.has_warned |= is_warning;
        host.log.push(line);
        Ok(OK)
    }

    fn buffer(&mut self) -> Result<u32> {
        let kind = self.word(0)?;
        ensure!(
            kind == PLUGIN_CONFIGURATION,
            "buffer {kind}; this host has only {PLUGIN_CONFIGURATION}, the configuration"
        );
        let configuration = self.caller.data().configuration.clone();
        self.give(&configuration, 3)
    }

    fn header(&mut self) -> Result<u32> {
        self.is_of_request()?;
        let name = self.bytes(1)?;
        let mut headers = self.caller.data().headers.iter();
        let found = headers.find(|(own, _)| own.as_bytes() == name);
        match found.map(|(_, value)| value.clone()) {
            Some(value) => self.give(value.as_bytes(), 3),
            None => Ok(NOT_FOUND),
        }
    }

    fn headers(&mut self) -> Result<u32> {
        self.is_of_request()?;
        let lines = serialized(&self.caller.data().headers)?;
        self.give(&lines, 1)
    }

    fn headers_size(&mut self) -> Result<u32> {
        self.is_of_request()?;
        let headers = self.caller.data().headers.iter();
        let size: usize = headers.map(|(name, value)| name.len() + value.len()).sum();
        self.write(1, &u32::try_from(size)?.to_le_bytes())
    }

    fn is_of_request(&self) -> Result<()> {
        let map = self.word(0)?;
        ensure!(
            map == REQUEST_HEADERS,
            "header map {map}; this host has only {REQUEST_HEADERS}, the request's"
        );
        Ok(())
    }

    fn property(&mut self) -> Result<u32> {
        match self.bytes(0)?.as_slice() {
            b"connection\0id" => self.give(&CONNECTION.to_le_bytes(), 2),
            _ => Ok(NOT_FOUND),
        }
    }

    fn shared_get(&mut self) -> Result<u32> {
        let (key, mut value) = (self.bytes(0)?, Vec::new());
        let shared = &mut self.caller.data_mut().shared;
        let found = shared.get(&key, &mut value);
        let Some(version) = found.map_err(|StoreFailed| anyhow!("shared data failed"))? else {
            return Ok(NOT_FOUND);
        };
        self.write(4, &version.to_le_bytes())?;
        self.give(&value, 2)
    }

    fn shared_set(&mut self) -> Result<u32> {
        let (key, value, expected) = (self.bytes(0)?, self.bytes(2)?, self.word(4)?);
        let shared = &mut self.caller.data_mut().shared;
        let written = shared.set(&key, &value, expected);
        match written.map_err(|StoreFailed| anyhow!("shared data failed"))? {
            Written::Done => Ok(OK),
            Written::Conflict => Ok(CAS_MISMATCH),
        }
    }

    fn define_metric(&mut self) -> Result<u32> {
        let name = self.bytes(1)?;
        let metrics = &mut self.caller.data_mut().metrics;
        let known = metrics.iter().position(|(known, _)| *known == name);
        let id = known.unwrap_or(metrics.len());
        if known.is_none() {
            metrics.push((name, 0));
        }
        self.write(3, &u32::try_from(id)?.to_le_bytes())
    }

    fn increment_metric(&mut self) -> Result<u32> {
        let offset = self.long(1)?;
        let value = self.metric()?;
        *value = value.saturating_add_signed(offset.cast_signed());
        Ok(OK)
    }

    fn record_metric(&mut self) -> Result<u32> {
        let value = self.long(1)?;
        *self.metric()? = value;
        Ok(OK)
    }

    fn get_metric(&mut self) -> Result<u32> {
        let value = self.metric()?.to_le_bytes();
        self.write(1, &value)
    }

    fn metric(&mut self) -> Result<&mut u64> {
        let id = self.word(0)?;
        let metrics = &mut self.caller.data_mut().metrics;
        let metric = metrics.get_mut(usize::try_from(id)?);
        Ok(&mut metric.with_context(|| format!("no metric {id}"))?.1)
    }

    fn answer(&mut self) -> Result<u32> {
        let status = self.word(0)?;
        self.caller.data_mut().answered = Some(status);
        Ok(OK)
    }

    /// Returns the 32-bit argument at this index, which is a number or an address.
    fn word(&self, place: usize) -> Result<u32> {
        match self.inputs.get(place) {
            Some(Val::I32(word)) => Ok(word.cast_unsigned()),
            other => bail!("input {place} is {other:?}, not of 32 bits"),
        }
    }

    fn long(&self, place: usize) -> Result<u64> {
        match self.inputs.get(place) {
            Some(Val::I64(long)) => Ok(long.cast_unsigned()),
            other => bail!("input {place} is {other:?}, not of 64 bits"),
        }
    }

    /// Returns the bytes at the address in the argument at this index; the next argument is their
    /// length.
    fn bytes(&self, place: usize) -> Result<Vec<u8>> {
        let from = usize::try_from(self.word(place)?)?;
        let to = from.saturating_add(usize::try_from(self.word(place + 1)?)?);
        let bytes = self.memory()?.data(&self.caller).get(from..to);
        Ok(bytes
            .with_context(|| format!("no bytes {from}..{to}"))?
            .to_vec())
    }

    /// Writes bytes to the address in the argument at this index.
    fn write(&mut self, place: usize, bytes: &[u8]) -> Result<u32> {
        let at = self.word(place)?;
        self.write_at(at, bytes)
    }

    fn write_at(&mut self, at: u32, bytes: &[u8]) -> Result<u32> {
        let memory = self.memory()?;
        let written = memory.write(&mut self.caller, usize::try_from(at)?, bytes);
        written.map_err(|error| anyhow!("cannot write at {at}: {error}"))?;
        Ok(OK)
    }

    fn memory(&self) -> Result<Memory> {
        let memory = self.caller.get_export("memory");
        memory.and_then(Extern::into_memory).context("no memory")
    }

    /// Copies bytes into memory that the guest allocates. Then writes their address and length to
    /// the addresses in the argument at this index and in the next argument. Like Envoy, does not
    /// allocate memory for zero bytes.
    fn give(&mut self, bytes: &[u8], place: usize) -> Result<u32> {
        let size = u32::try_from(bytes.len())?;
        let mut at = 0;
        if size > 0 {
            let allocate = self.caller.get_export("proxy_on_memory_allocate");
            let allocate = allocate.and_then(Extern::into_func);
            let allocate = allocate.context("no proxy_on_memory_allocate")?;
            let allocate = allocate.typed::<u32, u32>(&self.caller)?;
            at = allocate.call(self.caller.as_context_mut(), size)?;
            self.write_at(at, bytes)?;
        }
        self.write(place, &at.to_le_bytes())?;
        self.write(place + 1, &size.to_le_bytes())
    }
}

/// Encodes headers in the ABI's format: the number of headers, the lengths of all names and values,
/// and then the names and values, each followed by a NUL.
fn serialized(headers: &[(String, String)]) -> Result<Vec<u8>> {
    let length = |text: &str| Ok::<_, anyhow::Error>(u32::try_from(text.len())?.to_le_bytes());
    let mut lines = u32::try_from(headers.len())?.to_le_bytes().to_vec();
    for (name, value) in headers {
        lines.extend(length(name)?);
        lines.extend(length(value)?);
    }
    for text in headers.iter().flat_map(|(name, value)| [name, value]) {
        lines.extend(text.as_bytes());
        lines.push(0);
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_have_the_form_of_the_abi() -> Result<()> {
        let headers = [("a".to_owned(), "bc".to_owned())];
        let expected = b"\x01\0\0\0\x01\0\0\0\x02\0\0\0a\0bc\0";
        assert_eq!(serialized(&headers)?, expected);
        assert_eq!(serialized(&[])?, [0; 4]);
        Ok(())
    }
}
