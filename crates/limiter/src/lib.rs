//! The rate limiting core of Loudou: algorithms, limits, buckets and decisions, as pure functions.
//!
//! Time is passed as an argument ([`Nanos`]), and state consists of a few words stored by the
//! caller. Envoy, replays and edit previews can therefore all use the same code. The crate does not
//! panic: lints deny panics, and arithmetic is checked or saturating. Decisions do not use
//! floating-point numbers. Rates are exact ratios, and values that must be rounded are rounded in
//! favour of the limit.
//!
//! # One decision
//!
//! A [`Limit`] is an algorithm, its parameters and a name. Given a cost and a time, it returns a
//! [`Decision`], which contains the verdict and the values that are reported to clients.
//!
//! ```
//! use loudou_limiter::{Limit, Limits, Nanos, Rate, Verdict, algorithm::Funnel};
//!
//! // Fifteen at once, then one every two seconds.
//! let funnel = Funnel::new(15, Rate::parse("30/m").unwrap()).unwrap();
//! let limits = Limits::new(vec![Limit::new("burst", funnel)]).unwrap();
//! let mut bucket = limits.start(Nanos::ZERO);
//!
//! let answer = limits.decide(&mut bucket, 15, Nanos::ZERO);
//! assert_eq!(answer.verdict(), Verdict::Admit);
//!
//! let answer = limits.decide(&mut bucket, 1, Nanos::from_secs(1));
//! assert_eq!(answer.verdict(), Verdict::Refuse);
//! let decision = answer.reported().unwrap();
//! assert_eq!(decision.remaining, 0);
//! assert_eq!(decision.retry_after, Some(Nanos::from_secs(1)));
//! ```
//!
//! [`algorithm`] contains all algorithms. A [`BucketRequest`] can also contain a wall clock time, for limits with
//! `align: clock`, and a maximum wait.
//!
//! # One bucket
//!
//! A [`Bucket`] contains the state of all limits for one key. Each request takes its cost from all limits or from none,
//! and the decision reports the most relevant limit. If an edit changes the limits of a live bucket,
//! [`convert`](fn@convert) converts its state, so that no edit grants units twice.
//!
//! ```
//! use loudou_limiter::algorithm::{Align, FixedWindow, Funnel};
//! use loudou_limiter::{Carry, Clock, Limit, Limits, Nanos, Rate, convert};
//!
//! let day = Nanos::from_secs(86_400);
//! let limits = |quota| {
//!     let burst = Funnel::new(5, Rate::parse("1/s").unwrap()).unwrap();
//!     let daily = FixedWindow::new(quota, day, Align::First).unwrap();
//!     Limits::new(vec![Limit::new("burst", burst), Limit::new("daily", daily)]).unwrap()
//! };
//! let (old, new) = (limits(6), limits(60));
//! let mut bucket = old.start(Nanos::ZERO);
//! old.decide(&mut bucket, 5, Nanos::ZERO);
//!
//! // `burst` has room again in two seconds, and `daily` in a day.
//! let answer = old.decide(&mut bucket, 2, Nanos::ZERO);
//! assert_eq!(answer.reported_index(), 1);
//! assert_eq!(answer.reported().unwrap().retry_after, Some(day));
//!
//! // Under the larger quota, five units of each limit are still used.
//! let bucket = convert(&old, &new, Carry::Keep, &bucket, Clock::at(Nanos::ZERO));
//! assert_eq!(new.used(&bucket, Nanos::ZERO), [5, 5]);
//! ```
//!
//! The cost of an abandoned request can be given back ([`Taken`]), and a key that is refused too
//! often can be banned ([`ban`]).
//!
//! # One limit across many processes
//!
//! The processes of a fleet share one limit through a central engine. [`lease`] contains the state that each process
//! keeps for a key, the decisions based on that state, and the computation done by the engine.
//!
//! ```
//! use loudou_limiter::lease::{Central, Held, Lease, LeaseSettings, LeaseVerdict, Phase, Terms};
//! use loudou_limiter::{Limit, Limits, Nanos, Rate, algorithm::Funnel};
//!
//! let at = Nanos::from_millis;
//! let funnel = Funnel::new(2, Rate::parse("1/m").unwrap()).unwrap();
//! let limits = Limits::new(vec![Limit::new("burst", funnel)]).unwrap();
//! let settings = LeaseSettings { lease: at(200), timeout: at(30), credit: 0 };
//! let terms = Terms::of(&limits, &settings).unwrap();
//!
//! // Three processes, one request each: the engine has two units.
//! let mut central = Central::default();
//! let verdicts = [0; 3].map(|_| {
//!     let mut lease = Lease::default();
//!     let request = lease.request(&terms, Held { units: 1, least: 1 }, at(5)).unwrap();
//!     let grant = central.grant(&terms, request.demand, Nanos::from_secs(1_700_000_000));
//!     lease.apply(&terms, &request, &grant, at(6), 0);
//!     lease.take(&terms, 1, at(6), Phase::Held, false)
//! });
//! assert_eq!(verdicts[1], LeaseVerdict::Admit);
//! assert_eq!(verdicts[2], LeaseVerdict::Refuse { retry_after: Some(Nanos::from_secs(60)) });
//! ```
//!
//! # One rule
//!
//! A rule selects the requests that it limits, computes a key for each request, and contains the
//! limits, overrides and penalty for these keys. The crate `loudou-rules` reads and evaluates
//! rules. The crate `loudou-store` keeps buckets in bounded memory that all workers share.
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
pub mod ban;
pub mod bounds;
pub mod calendar;
pub mod convert;
pub mod decimal;
pub mod decision;
pub mod hash;
mod leak;
pub mod lease;
pub mod limit;
mod meter;
pub mod taken;
pub mod time;
pub mod wide;

pub use algorithm::Settling;
pub use ban::{Ban, Penalty};
pub use bounds::BadNumbers;
pub use convert::{Carry, Later, convert, full_later, partly_used};
pub use decimal::Decimal;
pub use decision::{BucketRequest, Decision, NeedsMoreAfter, Verdict};
pub use hash::{HashSeed, fingerprint, mix};
pub use limit::numbers::{Numbers, RequestNumbers, Source, Sources};
pub use limit::{
    Bucket, BucketDecision, GIVEN, Limit, Limits, MAX_BUCKET_WORDS, MAX_LIMITS, Plan, Words,
};
pub use taken::Taken;
pub use time::{Clock, DURATION_FORM, Nanos};
pub use time::{RATE_FORM, Rate};
