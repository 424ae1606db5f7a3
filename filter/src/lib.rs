//! Loudou's filter: limits requests inside Envoy, and answers the admin API.
//!
//! One `.wasm` has two roles, chosen by the plugin configuration. The logic uses the [`host::Host`]
//! trait and runs natively in tests; only `glue` knows proxy-wasm.

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
#[cfg(any(test, target_arch = "wasm32"))]
mod by_context;
mod bytes;
mod current;
pub mod data;
mod escaped;
mod events;
mod fleet;
mod formats;
#[cfg(feature = "fuzz")]
pub mod fuzzing;
#[cfg(target_arch = "wasm32")]
mod glue;
pub mod header_lines;
pub mod host;
mod instance;
mod json;
mod loan;
#[cfg(any(test, target_arch = "wasm32"))]
mod memory;
mod metrics;
pub mod plugin;
mod record;
mod request;
mod respond;
mod sweep;
mod upstream;
pub mod waiting;

pub use record::Shelves;

/// The version of this filter.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The commit it was built from, set by `cargo xtask build`.
pub const GIT: &str = match option_env!("LOUDOU_GIT") {
    Some(git) => git,
    None => "unknown",
};
