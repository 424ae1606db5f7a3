//! Builds the native module for Envoy, and checks which libraries and functions it imports.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use loudou_tests::wasm::{built_native, built_trap_native, check_fresh, trap_target_dir};
use object::read::elf::ElfFile64;
use object::{Endianness, ImportFlags, NameOrOrdinal, Object as _, ObjectSymbol as _};

use crate::command::{cargo, run};
use crate::filter::commit;

/// File name of the module. Envoy looks for the module `loudou` under this name.
pub(crate) const FILE: &str = "libloudou.so";
/// Minor version of the newest glibc that the module may need: Envoy's own images contain 2.36
/// (Debian 12) and 2.35 (Ubuntu 22.04).
const GLIBC: u32 = 35;
/// Libraries that belong to glibc. Envoy's distroless image contains no other libraries.
const LIBRARIES: &[&str] = &[
    "ld-linux-aarch64.so.1",
    "ld-linux-x86-64.so.2",
    "libc.so.6",
    "libdl.so.2",
    "libm.so.6",
    "libpthread.so.0",
];

/// Builds the module for this machine, and returns its path.
pub(crate) fn build() -> Result<PathBuf> {
    let mut compile = cargo(&["build", "--package", "loudou-native", "--profile", "native"]);
    run(compile.env("LOUDOU_GIT", commit()))?;
    let path = built_native();
    check_fresh(&path)?;
    let module = fs::read(&path).with_context(|| path.display().to_string())?;
    let functions = check(&module, GLIBC).with_context(|| path.display().to_string())?;
    let kib = module.len().div_ceil(1024);
    println!(
        "{}: {kib} KiB, {functions} functions of Envoy",
        path.display()
    );
    Ok(path)
}

/// Builds the module with the feature that lets tests make it panic, in a separate build directory.
pub(crate) fn build_trap() -> Result<PathBuf> {
    let mut compile = cargo(&["build", "--package", "loudou-native"]);
    compile.args(["--features", "trap-for-tests", "--target-dir"]);
    run(compile.arg(trap_target_dir()))?;
    let path = built_trap_native();
    check_fresh(&path)?;
    Ok(path)
}

/// Checks that Envoy can load the module: the module may import only libraries that Envoy's images
/// contain, functions of glibc 2.`glibc` or older, and functions that Envoy 1.39 exports. Returns
/// the number of Envoy functions that the module imports.
pub(crate) fn check(module: &[u8], glibc: u32) -> Result<usize> {
    let module = ElfFile64::<Endianness>::parse(module).context("not a library")?;
    for library in module.import_libraries()? {
        let name = library?.name();
        let name = String::from_utf8_lossy(name);
        ensure!(
            LIBRARIES.contains(&&*name),
            "the module needs {name}, which Envoy's images do not have; they have {LIBRARIES:?}"
        );
    }
    let mut count: usize = 0;
    for import in module.imports()? {
        let import = import?;
        let NameOrOrdinal::Name(name) = import.name() else {
            continue;
        };
        let name = String::from_utf8_lossy(name);
        if let Some(function) = name.strip_prefix(PREFIX) {
            ensure!(
                FUNCTIONS.contains(&function),
                "the module calls {name}, which Envoy 1.39 does not have"
            );
            count = count.saturating_add(1);
        }
        if let ImportFlags::Elf { version, .. } = import.flags()
            && let Some(version) = version
        {
            let version = String::from_utf8_lossy(version);
            ensure!(
                minor(&version).is_none_or(|minor| minor <= glibc),
                "the module calls {name} of {version}; at most GLIBC_2.{glibc} is allowed"
            );
        }
    }
    Ok(count)
}

/// Returns the minor version of a glibc symbol version, such as `GLIBC_2.28` or `GLIBC_2.2.5`.
fn minor(version: &str) -> Option<u32> {
    let numbers = version.strip_prefix("GLIBC_2.")?;
    numbers.split('.').next()?.parse().ok()
}

/// Prefix of the functions that Envoy exports for modules.
const PREFIX: &str = "envoy_dynamic_module_callback_";

// Envoy cannot load a module that imports a function that this Envoy does not export. Envoy 1.39
// and 1.40 export all of these functions. Envoy 1.38 lacks five of them, which change the metrics
// of a configuration.
const FUNCTIONS: &[&str] = &[
    "get_concurrency",
    "http_add_header",
    "http_filter_config_decrement_gauge",
    "http_filter_config_define_counter",
    "http_filter_config_define_gauge",
    "http_filter_config_define_histogram",
    "http_filter_config_http_callout",
    "http_filter_config_increment_counter",
    "http_filter_config_increment_gauge",
    "http_filter_config_record_histogram_value",
    "http_filter_config_scheduler_commit",
    "http_filter_config_scheduler_delete",
    "http_filter_config_scheduler_new",
    "http_filter_config_set_gauge",
    "http_filter_continue_decoding",
    "http_filter_get_attribute_int",
    "http_filter_get_attribute_string",
    "http_filter_get_worker_index",
    "http_filter_scheduler_commit",
    "http_filter_scheduler_delete",
    "http_filter_scheduler_new",
    "http_get_body_chunks",
    "http_get_body_chunks_size",
    "http_get_body_size",
    "http_get_cluster_name",
    "http_get_header",
    "http_get_headers",
    "http_get_headers_size",
    "http_get_metadata_bool",
    "http_get_metadata_keys",
    "http_get_metadata_keys_count",
    "http_get_metadata_list_bool",
    "http_get_metadata_list_number",
    "http_get_metadata_list_size",
    "http_get_metadata_list_string",
    "http_get_metadata_number",
    "http_get_metadata_string",
    "http_received_buffered_request_body",
    "http_send_response",
    "http_set_filter_state_bytes",
    "http_set_header",
    "is_validation_mode",
    "log",
];

/// Returns the functions in [`FUNCTIONS`] that the Envoy program does not export.
pub(crate) fn missing(envoy: &[u8]) -> Result<Vec<&'static str>> {
    let envoy = ElfFile64::<Endianness>::parse(envoy).context("not a program")?;
    let exports = envoy.dynamic_symbols().filter(|it| !it.is_undefined());
    let names = exports.filter_map(|it| it.name().ok()?.strip_prefix(PREFIX));
    let names: BTreeSet<&str> = names.collect();
    let functions = FUNCTIONS.iter().copied();
    Ok(functions.filter(|name| !names.contains(name)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_the_c_library_are_compared_as_numbers() {
        assert_eq!(minor("GLIBC_2.2.5"), Some(2));
        assert_eq!(minor("GLIBC_2.34"), Some(34));
        assert_eq!(minor("GCC_3.0"), None);
        assert_eq!(minor("GLIBC_PRIVATE"), None);
    }

    /// The running test program itself imports other libraries or a newer glibc than a module may
    /// import.
    #[test]
    fn other_programs_are_refused() -> Result<()> {
        let program = fs::read(std::env::current_exe()?)?;
        let error = check(&program, 1).expect_err("a program for this machine");
        assert!(error.to_string().contains("the module "), "{error}");
        assert!(check(b"#!/bin/sh", GLIBC).is_err());
        assert_eq!(missing(&program)?.len(), FUNCTIONS.len());
        Ok(())
    }
}
