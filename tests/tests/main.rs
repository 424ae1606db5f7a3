//! End-to-end tests in a real Envoy. All tests are one program, so that it is linked once and tests
//! of different modules run in parallel.
//!
//! Each module covers one subject. `cargo test -p loudou-tests --test envoy bans::` runs the tests
//! of one module.

#![cfg(test)]

mod algorithms;
mod answers;
mod audit;
mod auth;
mod bans;
mod bodies;
mod bounded;
mod buckets;
mod carrying;
mod completions;
mod concurrent_edits;
mod configuration;
mod connecting;
mod cost;
mod costs;
mod crash;
mod documents;
mod edits;
mod embedded;
mod exact;
mod examples;
mod expiry;
mod explain;
mod fields;
mod fleet;
mod floods;
mod generations;
mod grpc;
mod harness;
mod holding;
mod hostile;
mod hostile_admin;
mod hostile_regex;
mod in_flight;
mod keys;
mod live_edit;
mod matching;
mod memory;
mod mesh;
mod monitoring;
mod native;
mod numbers;
mod openapi;
mod overrides;
mod penalty;
mod pipes;
mod refusing;
mod relay;
mod repeated;
mod replanning;
mod replay;
mod replay_envoy;
mod responding;
mod retry;
mod rollback;
mod searches;
mod settling;
mod several;
mod smoke;
mod store_file;
mod top;
mod trials;
mod upgrade;
mod waiting;
mod when;
mod without_admin;
