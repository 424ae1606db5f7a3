//! Tests of the relay and its scripts with a real Valkey.

mod calls;
mod changes;
mod cluster;
mod evictions;
mod faults;
mod model;
mod order;
mod overload;
mod rediss;
mod sentinel;
mod support;
mod timed;
mod tls;
mod traces;
mod vectors;
