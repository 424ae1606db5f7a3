//! Rule files of Loudou: reading them, matching requests, keys, and evaluating a rule set.
//!
//! Requests implement the [`request::Request`] trait and shared memory implements
//! [`loudou_store::SharedData`], so the same code decides in Envoy, in a replay and in an editor's
//! preview. Nothing panics: lints deny it, and arithmetic is checked or saturating.
//!
//! Read it in this order: [`rule`], [`config`] (the rule file), [`versions`] (the limits of a rule through
//! time), [`rule_set`] with [`evaluate`](mod@evaluate) (the rules in force, all of them against one request),
//! [`explain`](mod@explain) (the reasons for a decision), [`fleet`](mod@fleet) (limits that many Envoys share),
//! [`size`] (the memory of a rule file).
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
pub mod patience;
pub mod request;
pub mod rule;
pub mod rule_set;
pub mod size;
pub mod versions;
