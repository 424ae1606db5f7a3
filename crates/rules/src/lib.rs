//! Loudou's rules: reads rule files, matches requests, computes keys, and evaluates rule sets.
//!
//! Requests implement the [`request::Request`] trait, and shared memory implements
//! [`loudou_store::SharedData`]. Decisions in Envoy, in a replay and in an editor's preview are
//! therefore made by the same code. The code never panics: lints deny operations that can panic,
//! and arithmetic is checked or saturating.
//!
//! Read the modules in this order:
//!
//! - [`rule`]: the types of a rule.
//! - [`config`]: the rule file.
//! - [`versions`]: how the limits of a rule change over time.
//! - [`rule_set`] and [`evaluate`](mod@evaluate): the rules in force, and their evaluation against
//!   a request.
//! - [`explain`](mod@explain): the reasons for a decision.
//! - [`fleet`](mod@fleet): limits that many Envoys share.
//! - [`metadata`]: values of Envoy's dynamic metadata.
//! - [`size`]: the memory that a rule file needs.
#![no_std]
#![forbid(unsafe_code)]
#![deny(
    clippy::arithmetic_side_effects,
    clippy::float_arithmetic,
    clippy::std_instead_of_core,
    clippy::std_instead_of_alloc
)]

extern crate alloc;

pub mod config;
pub mod evaluate;
pub mod explain;
pub mod fleet;
pub mod hex;
pub mod humanise;
pub mod joined;
pub mod level;
pub mod metadata;
pub mod numbers;
pub mod patience;
pub mod request;
pub mod rule;
pub mod rule_set;
pub mod size;
pub mod usage;
pub mod versions;
