//! The bounded store of Loudou's buckets. It keeps a fixed number of buckets in a key-value store
//! that cannot list, delete or expire keys. Workers share it without locks, so they never wait for
//! each other.
//!
//! [`SharedData`] is the interface of that key-value store, with exactly the semantics of Envoy's
//! shared data. Buckets live in pages ([`page`]), and [`Table`] finds the page of a bucket by a
//! seeded hash.
//!
//! These types change buckets, all with compare-and-swap:
//!
//! - [`Acquire`] decides a request and takes its cost.
//! - [`Release`] gives a cost back.
//! - [`Leasing`] changes the lease of a limit that many Envoys share.
//! - [`SetBan`] and the sweep change existing buckets.
//! - [`swap`](mod@swap) changes other values.
//!
//! [`names`] stores the printable keys in separate values next to the pages, and [`scan`] searches
//! many pages for a text. [`memory`] and [`paged`] are stores for tests and replays, and
//! [`overlay`] is a store for previews. [`upstreams`] counts the responses of upstreams
//! ([`health`]), and [`top`] counts the most frequent keys. The store knows a rule only through its
//! [`LiveRule`].
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
