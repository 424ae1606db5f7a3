//! One limit across many Envoys, in virtual time: the bounds hold whatever happens, and hardly anything is
//! lost against one central bucket.
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
