//! Loudou as a native Envoy module: `libloudou.so`, which Envoy loads as a *dynamic module*.
//!
//! The module has the same two roles as the Wasm filter, and the same code decides. This crate is
//! the glue between Envoy's C interface and the [`Host`](loudou_filter::host::Host) trait:
//!
//! - `abi` declares Envoy's functions, and `hooks` the functions that Envoy calls.
//! - `host` implements the trait for one callback.
//! - `plugin` has the state of a configuration: one role per worker, behind a lock.
//! - `shared` replaces Envoy's shared data, in memory or in a file, and `values` has one per namespace.
//! - `metrics` defines Envoy's metrics.
//! - `timer` is the thread that makes roles do their timed work, because Envoy gives a module no
//!   timer on its workers.
//!
//! `unsafe` code is only in `abi` and `hooks`, in `shared/region` with two calls of it in `shared`, and in
//! the one line of `plugin` that lets a worker's state move between threads.

mod abi;
mod clock;
mod hooks;
mod host;
mod metadata;
mod metrics;
mod plugin;
mod shared;
mod timer;
mod values;
