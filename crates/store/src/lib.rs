//! The bounded store of Loudou's buckets: a fixed number of buckets in a key-value store that can neither
//! list, delete nor expire, shared by workers that never wait for each other.
//!
//! [`SharedData`] is that key-value store, with exactly the semantics of Envoy's shared data. Buckets
//! live in pages ([`page`]); [`Table`] finds a bucket's page by a seeded hash. [`Take`] decides,
//! [`Give`] gives back, [`Leasing`] changes
//! the lease of a limit that many Envoys share, [`SetBan`] and the sweep change existing buckets, all with compare-and-swap;
//! [`swap`](mod@swap) does the same for other values. [`names`] keeps the printable keys beside the pages,
//! and [`scan`] reads many pages in search of a text. [`memory`] and [`paged`] are stores for tests and replays, and [`overlay`] is a store for previews.
//! [`upstreams`] counts the responses of upstreams ([`health`]), and [`top`] the most frequent keys. The
//! store knows of a rule only its [`LiveRule`].
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

pub use attempt::{Attempt, Charge, GaveUp, Receipt, StoreStats, Take};
pub use bans::{BanEffect, SetBan, SetTo};
pub use leasing::{ByLease, LeaseOf, Leased, Leasing, Outage};
pub use release::{Give, Giving, Why};
pub use shared_data::{
    CAS_ABSENT, CAS_OVERWRITE, Cas, MAX_RETRIES, SharedData, StoreFailed, Written,
};
pub use table::{Age, LiveRule};
pub use table::{BucketId, MAX_BUCKETS, Reset, Table};
pub use upstreams::When;
