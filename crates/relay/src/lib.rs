//! The relay leases tokens from fleet-wide limits to Envoys. The buckets are stored in the *engine*, either Redis or
//! Valkey.
//!
//! An Envoy batches all keys that need tokens into one call ([`loudou_api::LeaseRequest`]). The relay runs one script
//! per key, all of them concurrently, and responds when all scripts have replied or the deadline has passed. The relay
//! is stateless: all state is kept in the engine, and the scripts use the engine's clock. Any number of relays can
//! therefore run, either as a sidecar to each Envoy or as a central service.
//!
//! - [`script`]: the key names used in the engine, and the scripts' arguments. The scripts are `lease.lua` and
//!   `fleet.lua`.
//! - [`engine`]: connections to the engine, which background tasks keep open.
//! - [`call`]: handles calls from Envoys.
//! - [`service`], [`server`]: the HTTP service, with connection limits from [`connections`].
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
