//! The relay of a fleet: it leases tokens of limits that hold across many Envoys, out of one Redis or Valkey.
//!
//! An Envoy sends every key that asks for something in one call ([`loudou_api::LeaseRequest`]); the relay runs
//! one script for each of them, all at once, and answers when they have or when the time is up. It keeps no
//! state: the engine has it all, and the engine's clock decides. So any number of relays can run, beside each
//! Envoy or in one place.
//!
//! - [`script`]: the names of keys and the arguments of scripts; `lease.lua` and `fleet.lua` are the scripts.
//! - [`engine`]: the connection, kept by a task of its own.
//! - [`call`]: one call of an Envoy.
//! - [`service`], [`server`]: HTTP around it, within the bounds of [`connections`].
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
