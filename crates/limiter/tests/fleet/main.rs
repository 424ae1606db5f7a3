//! One limit across many Envoys, in virtual time. The bounds hold with any faults, and the fleet
//! admits nearly as much as one central bucket.
#![cfg(test)]

mod alone;
mod answers;
mod bound;
mod breaker;
mod cases;
mod central;
mod check;
mod engine;
mod faults;
mod numbers;
mod partial;
mod random;
mod random_fleets;
mod setup;
mod sim;
mod table;
