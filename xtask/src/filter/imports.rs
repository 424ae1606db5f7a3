//! What a wasm module asks of its host, read from its import section.
//!
//! A function that the host does not have makes Envoy refuse the module, and one that only newer
//! hosts have narrows where it runs. So every import must be on the list: proxy-wasm ABI 0.2.1,
//! and the two WASI calls that stand in for what it lacks.

use anyhow::{Context as _, Result, bail, ensure};

const IMPORT_SECTION: u8 = 2;
const FUNCTION: u8 = 0;

const PROXY_WASM: &[&str] = &[
    "add_header_map_value",
    "call_foreign_function",
    "close_stream",
    "continue_stream",
    "define_metric",
    "dequeue_shared_queue",
    "done",
    "enqueue_shared_queue",
    "get_buffer_bytes",
    "get_buffer_status",
    "get_current_time_nanoseconds",
    "get_header_map_pairs",
    "get_header_map_size",
    "get_header_map_value",
    "get_log_level",
    "get_metric",
    "get_property",
    "get_shared_data",
    "get_status",
    "grpc_call",
    "grpc_cancel",
    "grpc_close",
    "grpc_send",
    "grpc_stream",
    "http_call",
    "increment_metric",
    "log",
    "record_metric",
    "register_shared_queue",
    "remove_header_map_value",
    "replace_header_map_value",
    "resolve_shared_queue",
    "send_local_response",
    "set_buffer_bytes",
    "set_effective_context",
    "set_header_map_pairs",
    "set_property",
    "set_shared_data",
    "set_tick_period_milliseconds",
];

const WASI: &[&str] = &["clock_time_get", "random_get"];

/// Checks every import and gives their number.
pub(super) fn check(module: &[u8]) -> Result<usize> {
    let imports = read(module)?;
    for (from, name) in &imports {
        let known = match from.as_str() {
            "env" => name
                .strip_prefix("proxy_")
                .is_some_and(|name| PROXY_WASM.contains(&name)),
            "wasi_snapshot_preview1" => WASI.contains(&name.as_str()),
            _ => false,
        };
        ensure!(
            known,
            "the filter imports {from}.{name}; allowed are proxy-wasm 0.2.1 and {WASI:?}"
        );
    }
    Ok(imports.len())
}

/// The imported functions as (module, name).
fn read(module: &[u8]) -> Result<Vec<(String, String)>> {
    let mut reader = Reader(module);
    let header = reader.take(8)?;
    ensure!(
        header == b"\0asm\x01\0\0\0",
        "not a wasm module of version 1: {header:?}"
    );
    while !reader.0.is_empty() {
        let section = reader.byte()?;
        let size = reader.number()?;
        let content = reader.take(size)?;
        if section == IMPORT_SECTION {
            return functions(Reader(content));
        }
    }
    Ok(Vec::new())
}

fn functions(mut section: Reader<'_>) -> Result<Vec<(String, String)>> {
    let mut functions = Vec::new();
    for _ in 0..section.number()? {
        let (from, name) = (section.name()?, section.name()?);
        if section.byte()? != FUNCTION {
            bail!("the filter imports {from}.{name}, which is no function");
        }
        // The function's type.
        section.number()?;
        functions.push((from, name));
    }
    Ok(functions)
}

/// The rest of the bytes.
#[derive(Debug)]
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self
            .0
            .split_at_checked(count)
            .context("the module ends too early")?;
        self.0 = rest;
        Ok(taken)
    }

    fn byte(&mut self) -> Result<u8> {
        Ok(self.take(1)?.first().copied().unwrap_or_default())
    }

    /// An unsigned LEB128 number of at most 32 bits.
    fn number(&mut self) -> Result<usize> {
        let mut value: u64 = 0;
        for shift in (0..35).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(usize::try_from(value)?);
            }
        }
        bail!("a number in the module is longer than 32 bits")
    }

    fn name(&mut self) -> Result<String> {
        let length = self.number()?;
        Ok(String::from_utf8(self.take(length)?.to_vec())?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A module with one imported function and a custom section before it.
    fn module(from: &str, name: &str) -> Vec<u8> {
        let text = |text: &str| {
            let length = u8::try_from(text.len()).expect("a short name");
            [&[length], text.as_bytes()].concat()
        };
        let imports = [vec![1], text(from), text(name), vec![FUNCTION, 0]].concat();
        let size = u8::try_from(imports.len()).expect("a short section");
        [
            b"\0asm\x01\0\0\0",
            &[0, 2, 1, b'x'][..],
            &[IMPORT_SECTION, size],
            &imports,
        ]
        .concat()
    }

    #[test]
    fn known_functions_pass() -> Result<()> {
        assert_eq!(check(&module("env", "proxy_log"))?, 1);
        assert_eq!(check(&module("wasi_snapshot_preview1", "random_get"))?, 1);
        Ok(())
    }

    #[test]
    fn unknown_functions_are_named() {
        let error = check(&module("env", "proxy_launch"))
            .expect_err("not in the ABI")
            .to_string();
        assert!(error.contains("env.proxy_launch"), "{error}");
        let error = check(&module("other", "proxy_log"))
            .expect_err("not our host")
            .to_string();
        assert!(error.contains("other.proxy_log"), "{error}");
    }

    #[test]
    fn a_cut_module_is_an_error() {
        let whole = module("env", "proxy_log");
        let cut = whole.get(..whole.len() - 3).expect("it is longer");
        assert!(check(cut).is_err());
        assert!(check(b"#!/bin/sh").is_err());
    }
}
