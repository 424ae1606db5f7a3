//! Loudou as a native Envoy module: `libloudou.so`, which Envoy loads as a *dynamic module*.
//!
//! The module has the same two roles as the Wasm filter, and both use the same code to decide on requests. This crate
//! connects Envoy's C interface to the [`Host`](loudou_filter::host::Host) trait:
//!
//! - `abi` declares the functions of Envoy that the module calls, and `hooks` defines the functions that Envoy calls.
//! - `host` implements the trait for one callback.
//! - `plugin` holds the state of a configuration: one role per worker, each behind a lock.
//! - `shared` replaces Envoy's shared data, in memory or in a file, and `values` opens it for each namespace.
//! - `metrics` stores the metrics of the process and defines them in Envoy.
//! - `timer` runs the thread that triggers the scheduled tasks of all roles, because Envoy gives a
//!   module no timers on its workers.
//!
//! Only these modules contain `unsafe` code: `abi` and `hooks`; `shared/region`, and two calls of its functions in
//! `shared`; and `plugin`, in one line that lets a worker's state move between threads.

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
