//! The harness of the end-to-end tests: each test starts a real Envoy with the real filter, and a guard
//! stops it.
//!
//! Ports come from the operating system, waiting goes through [`eventually`], and a failed test prints
//! Envoy's log and keeps its directory. Nothing is skipped: a missing Envoy, or a filter that is older
//! than its sources, is a failure that names the command to run.
//!
//! ```no_run
//! use loudou_tests::{Config, Envoy, Request};
//! use serde_json::json;
//!
//! fn main() -> anyhow::Result<()> {
//!     let rules = json!([{
//!         "name": "per-user",
//!         "key": [{ "header": "x-user-id" }],
//!         "limits": [{ "name": "burst", "algorithm": "funnel", "capacity": 3, "rate": "1/d" }],
//!     }]);
//!     let envoy = Envoy::start(&Config::new(rules).concurrency(4))?;
//!     let answer = envoy.data().send(&Request::get("/").header("x-user-id", "alice"))?;
//!     anyhow::ensure!(answer.status == 200, "{answer:?}");
//!     // 5 000 requests over 64 connections, counted by status.
//!     let counts = envoy.load(5_000, 64, |_| Request::get("/").header("x-user-id", "bob"))?;
//!     anyhow::ensure!(counts.of(200) == 3 && counts.of(429) == 4_997, "{counts:?}");
//!     envoy.stop() // proves that Envoy still ran; without it the test counts as failed
//! }
//! ```

pub mod bound;
pub mod clock;
pub mod config;
pub mod console;
pub mod cpu;
pub mod crowd;
pub mod envoy;
pub mod example;
pub mod filters;
pub mod fleet;
pub mod flood;
pub mod http;
pub mod load;
pub mod logs;
pub mod one_rule;
pub mod openapi;
pub mod operator;
pub mod paths;
pub mod process;
pub mod prometheus;
pub mod proxy;
pub mod relay;
pub mod replayed;
pub mod soak;
pub mod temp;
pub mod terminal;
pub mod traffic;
pub mod upstream;
pub mod valkey;
pub mod wasm;
mod wire;

pub use bound::{Bound, Pass};
pub use clock::{eventually, now};
pub use config::{Config, EDIT_TOKEN, VIEW_TOKEN};
pub use crowd::Crowd;
pub use envoy::{Envoy, Update};
pub use fleet::Fleet;
pub use http::{Http, Request, Response};
pub use load::Counts;
pub use operator::{Operator, expect, expect_problem};
pub use paths::{
    envoy_bin, loudou_bin, loudou_command, loudou_in_terminal, prometheus_bin, relay_bin,
    valkey_bin, without_config_file,
};
pub use process::Guarded;
pub use prometheus::Prometheus;
pub use proxy::{Mode, Proxy};
pub use relay::Relay;
pub use temp::TempDir;
pub use terminal::Terminal;
pub use traffic::{Exchange, Pace, Traffic};
pub use upstream::Upstream;
pub use valkey::{Valkey, ValkeyCluster, ValkeySentinels};
pub use wasm::{
    RELEASED_GIT, data_wasm_path, native_path, released_wasm, trap_native_path, trap_wasm_path,
    wasm_path,
};
