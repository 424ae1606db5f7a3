//! The pure core of Loudou: algorithms, decisions, rules, keys, and the bucket store.
//!
//! Everything here is a function of its arguments. Time is passed in as [`Nanos`], requests come in
//! behind the [`request::Request`] trait and shared memory behind [`store::SharedData`], so the same code
//! decides in Envoy, in a replay and in an editor's preview. Nothing panics: lints deny it, and
//! arithmetic is checked or saturating.
//!
//! Read it in this order: [`time`] and [`rate`], [`limit`] with the algorithms below it, [`rule`],
//! [`config`] (the rule file), [`store`] (bounded buckets over shared data), [`health`] (how upstreams
//! do), [`versions`] and [`carry`] (live buckets under changed numbers), [`evaluate`] (a rule set against one request), [`explain`] (why that comes to what it does), [`top`]
//! (which keys come often).
#![no_std]
#![forbid(unsafe_code)]
#![deny(
    clippy::arithmetic_side_effects,
    clippy::float_arithmetic,
    clippy::std_instead_of_core,
    clippy::std_instead_of_alloc
)]

extern crate alloc;

mod active_rule;
pub mod algorithm;
mod ask;
pub mod ban;
pub mod carry;
pub mod config;
mod decimal;
mod decision;
pub mod evaluate;
pub mod explain;
mod hash;
pub mod health;
pub mod hex;
mod index;
mod limit;
mod rate;
pub mod request;
pub mod rule;
mod rule_set;
pub mod store;
mod taken;
mod time;
pub mod top;
pub mod versions;

pub use ask::Ask;
pub use ban::{Ban, Penalty};
pub use carry::Carry;
pub use decimal::Decimal;
pub use decision::{Decision, Verdict};
pub use hash::{HashSeed, fingerprint, mix};
pub use limit::{Bucket, BucketDecision, Limit, Limits, MAX_BUCKET_WORDS, MAX_LIMITS};
pub use rate::{RATE_FORM, Rate};
pub use taken::Taken;
pub use time::{Clock, DURATION_FORM, Nanos};
