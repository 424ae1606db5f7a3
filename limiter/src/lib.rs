//! The pure core of Loudou: the algorithms, a limit, a bucket. Numbers only.
//!
//! Everything here is a function of its arguments. Time is passed in as [`Nanos`]; there is no clock, no
//! I/O, no host and no text but that of rates and durations. Nothing panics: lints deny it, and
//! arithmetic is checked or saturating.
//!
//! Read it in this order: [`time`] and [`rate`], [`limit`] with the algorithms below it
//! ([`algorithm`], of which each is a `meter`), [`carry`] and [`convert`](mod@convert) (live buckets
//! under changed numbers), [`taken`] (giving back), [`ban`]. The crate `loudou-store` keeps many buckets,
//! and `loudou-rules` finds the bucket of a request.
#![no_std]
#![forbid(unsafe_code)]
#![deny(
    clippy::arithmetic_side_effects,
    clippy::float_arithmetic,
    clippy::std_instead_of_core,
    clippy::std_instead_of_alloc
)]

extern crate alloc;

pub mod algorithm;
pub mod ask;
pub mod ban;
pub mod bounds;
pub mod carry;
pub mod convert;
pub mod decimal;
pub mod decision;
pub mod hash;
mod leak;
pub mod limit;
mod meter;
pub mod rate;
pub mod taken;
pub mod time;
mod used;
pub mod wide;

pub use ask::Ask;
pub use ban::{Ban, Penalty};
pub use bounds::BadNumbers;
pub use carry::Carry;
pub use convert::{Later, convert, full_later};
pub use decimal::Decimal;
pub use decision::{Decision, Verdict};
pub use hash::{HashSeed, fingerprint, mix};
pub use limit::{
    Bucket, BucketDecision, GIVEN, Limit, Limits, MAX_BUCKET_WORDS, MAX_LIMITS, Words,
};
pub use rate::{RATE_FORM, Rate};
pub use taken::Taken;
pub use time::{Clock, DURATION_FORM, Nanos};
