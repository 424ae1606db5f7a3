//! The relay leases tokens of fleet-wide limits to Envoys. The buckets are stored in the *engine*, which is Redis or
//! Valkey.
//!
//! An Envoy batches all keys that need tokens into one call ([`loudou_api::LeaseRequest`]). The relay runs one script
//! per key, all of them concurrently, and answers when all scripts have replied or the deadline has passed. The relay
//! is stateless, because all state is in the engine and the scripts use the engine's clock. Therefore, any number of
//! relays can run, either as a sidecar of each Envoy or as a central service.
//!
//! - [`script`]: the names of the keys in the engine, and the arguments of the scripts. The scripts are `lease.lua` and
//!   `fleet.lua`.
//! - [`engine`]: connections to the engine, which background tasks keep open.
//! - [`call`]: handles a call from an Envoy.
//! - [`service`], [`server`]: the HTTP service, with the connection limits of [`connections`].
#![forbid(unsafe_code)]

pub mod call;
pub mod connections;
pub mod engine;
mod files;
pub mod log;
pub mod metrics;
pub mod options;
pub mod script;
pub mod server;
pub mod service;
mod tls;
