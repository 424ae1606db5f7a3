//! Loudou's Envoy filter, which limits requests and serves the admin API.
//!
//! Envoy runs the filter as WebAssembly. Each worker thread and the main thread load the `.wasm`
//! module into their own sandbox (a VM), whose memory is inaccessible to other threads. Within a
//! VM, proxy-wasm identifies *contexts* by number. A root context represents a plugin
//! configuration, and a stream context represents a request. Workers share state only through
//! Envoy's *shared data*, an in-process key-value store with compare-and-swap.
//!
//! The configuration of a plugin selects one of two roles: the data role limits requests, and the
//! admin role serves the admin API below `/v1`. The logic accesses Envoy through the [`host::Host`]
//! trait, so tests can run it natively. Only `glue` depends on proxy-wasm.

#![cfg_attr(
    not(feature = "admin"),
    expect(
        dead_code,
        unused_imports,
        reason = "only the admin API calls it, and the linker leaves it out"
    )
)]
#![cfg_attr(
    all(not(feature = "admin"), target_arch = "wasm32"),
    expect(
        unreachable_code,
        unused_variables,
        reason = "`glue` composes roles of which one cannot exist"
    )
)]

#[cfg(feature = "admin")]
pub mod admin;
#[cfg(not(feature = "admin"))]
#[path = "without_admin.rs"]
mod admin;
mod ban_ends;
mod behind;
pub mod by_context;
mod bytes;
mod current;
pub mod data;
mod escaped;
mod events;
mod fleet;
pub mod formats;
#[cfg(feature = "fuzz")]
pub mod fuzzing;
#[cfg(target_arch = "wasm32")]
mod glue;
pub mod header_lines;
pub mod host;
mod instance;
mod json;
#[cfg(any(test, target_arch = "wasm32"))]
mod memory;
mod metrics;
pub mod plugin;
mod record;
mod request;
mod reservation;
mod respond;
pub mod role;
mod settle;
mod sweep;
mod upstream;
pub mod waiting;

pub use record::RecordCaches;

/// Filter version.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Git commit of this build, set by `cargo xtask build`.
pub const GIT: &str = match option_env!("LOUDOU_GIT") {
    Some(git) => git,
    None => "unknown",
};
