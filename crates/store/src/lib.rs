//! Bounded store for Loudou's buckets. This crate keeps at most a fixed number of buckets in a
//! key-value store that cannot list, delete or expire keys. Workers share the store without
//! locking, so they never wait for each other.
//!
//! [`SharedData`] is the interface to that key-value store, with exactly the semantics of Envoy's
//! shared data. Buckets are stored in pages ([`page`]), and [`Table`] locates a bucket's page using
//! a seeded hash of its rule and key.
//!
//! The following types and functions change stored values, all using compare-and-swap:
//!
//! - [`Acquire`] decides on a request and takes its cost.
//! - [`Release`] gives back a request's cost.
//! - [`Leasing`] changes a bucket's lease on limits that a fleet of Envoys shares.
//! - [`SetBan`] bans or unbans a key, and the sweep converts buckets after an edit of their rule.
//! - [`swap`](mod@swap) changes values other than pages.
//!
//! [`names`] stores the printable keys in values separate from the pages, and [`scan`] searches
//! many pages for a string. [`memory`] and [`paged`] are stores for tests and replays, and
//! [`overlay`] is a store for previews. [`upstreams`] counts responses from upstreams ([`health`]),
//! and [`top`] counts the most frequent keys. The store accesses rules only through the
//! [`LiveRule`] trait.
#![no_std]
#![forbid(unsafe_code)]
#![deny(
    clippy::arithmetic_side_effects,
    clippy::float_arithmetic,
    clippy::std_instead_of_core,
    clippy::std_instead_of_alloc
)]

extern crate alloc;

mod attempt;
mod bans;
mod change;
pub mod health;
mod leasing;
pub mod memory;
pub mod names;
pub mod overlay;
pub mod page;
pub mod paged;
mod release;
mod renew;
pub mod scan;
mod shared_data;
pub mod swap;
mod sweep;
mod table;
pub mod top;
pub mod upstreams;

pub use attempt::{Acquire, Attempt, Charge, GaveUp, Receipt, StoreStats};
pub use bans::{BanChange, BanEffect, SetBan};
pub use leasing::{ByLease, LeaseOf, Leased, Leasing, Outage};
pub use release::{Release, ReleaseAttempt, ReleaseReason};
pub use shared_data::{
    CAS_ABSENT, CAS_OVERWRITE, Cas, MAX_PATCH, MAX_RETRIES, Patch, PlanPatch, SharedData,
    StoreFailed, Written,
};
pub use table::{Age, LiveRule};
pub use table::{BucketId, MAX_BUCKETS, Reset, Table};
pub use upstreams::UpstreamCondition;
