//! Checks how grpcio handles refused calls, with and without a retry policy.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use loudou_tests::paths::workspace_root;
use loudou_tests::{Config, Envoy, eventually};
use serde_json::{Value, json};

/// Timeout until the counters must show all refusals.
const SOON: Duration = Duration::from_secs(20);

/// Makes gRPC calls through Envoy to a server. One Python script contains both the client and the
/// server, and uses the packages in `modules`.
pub(super) fn check(modules: &Path) -> Result<()> {
    let mut python = Command::new("python3");
    python
        .arg(workspace_root().join("tests/clients/grpc_retry.py"))
        .env("PYTHONPATH", modules)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut script = python.spawn().context("cannot run python3")?;
    // The script exits when its standard input is closed.
    let mut input = script.stdin.take().context("no input")?;
    let mut output = BufReader::new(script.stdout.take().context("no output")?);
    let mut port = String::new();
    output.read_line(&mut port)?;
    let port = port.trim().parse().context("no server of grpcio")?;
    let envoy = start(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))?;
    writeln!(input, "{}", envoy.data_address())?;
    io::copy(&mut output, &mut io::stdout())?;
    let status = script.wait()?;
    ensure!(status.success(), "grpc_retry.py failed: {status}");
    // Rule `calls` refuses a call without a retry policy, and a call that is then retried after the
    // pushback time. Rule `never` refuses a call that is never retried.
    for (rule, refusals) in [("calls", 2), ("never", 1)] {
        let counter = format!("wasmcustom.loudou.rule.{rule}.refused");
        eventually(SOON, &counter, || {
            Ok((envoy.counter(&counter)? == refusals).then_some(()))
        })?;
    }
    envoy.stop()
}

/// Starts an Envoy whose upstream is this server.
fn start(server: SocketAddr) -> Result<Envoy> {
    let rule = |name: &str, method: &str, cost: u32| -> Value {
        json!({
            "name": name,
            "key": [],
            "match": { "path": { "exact": format!("/reply.v1.Replies/{method}") } },
            "cost": cost,
            "limits": [{ "name": "l", "algorithm": "funnel", "capacity": 1, "rate": "1/4s" }],
        })
    };
    let http2 = json!({ "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
        "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
        "explicit_http_config": { "http2_protocol_options": {} },
    } });
    let config = Config::new(json!([rule("calls", "Send", 1), rule("never", "Never", 2)]));
    let config = config.upstream(server);
    Envoy::start(&config.cluster_field("typed_extension_protocol_options", http2))
}
