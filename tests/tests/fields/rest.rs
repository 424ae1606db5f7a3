//! Fields that no other module tests.

use std::io::Write as _;
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use loudou_tests::{Config, Envoy, Http, Operator, Request, Upstream, eventually, now};
use serde_json::{Value, json};

const SOON: Duration = Duration::from_secs(30);

/// Returns a rule with this name for paths that begin with the name, with these limits.
fn rule(name: &str, limits: &Value) -> Value {
    json!({
        "name": name,
        "match": { "path": { "prefix": format!("/{name}") } },
        "key": [],
        "limits": limits,
    })
}

fn status(http: &mut Http, path: &str) -> Result<u16> {
    Ok(http.get(path)?.status)
}

#[test]
fn defaults_apply_where_a_rule_has_no_value() -> Result<()> {
    let limit = json!([{ "algorithm": "funnel", "capacity": 1, "rate": "1/d" }]);
    let config = Config::new(json!([])).data_plugin(json!({
        "version": 1,
        "defaults": { "limits": limit, "key": [], "refuse": { "status": 420 } },
        "rules": [
            { "name": "silent", "match": { "path": { "exact": "/silent" } } },
            { "name": "loud", "match": { "path": { "exact": "/loud" } }, "refuse": { "status": 421 } },
        ],
    }));
    let envoy = Envoy::start(&config)?;
    let mut http = envoy.data();
    for (path, refused) in [("/silent", 420), ("/loud", 421)] {
        let statuses = [status(&mut http, path)?, status(&mut http, path)?];
        ensure!(statuses == [200, refused], "{path}: {statuses:?}");
    }
    envoy.stop()
}

#[test]
fn clients_of_one_network_share_a_bucket() -> Result<()> {
    let limit = json!([{ "algorithm": "funnel", "capacity": 1, "rate": "1/d" }]);
    let mut usual = rule("usual", &limit);
    usual["key"] = json!(["source"]);
    let mut wide = rule("wide", &limit);
    wide["key"] = json!([{ "source": { "v6_prefix": 32 } }]);
    let envoy = Envoy::start(&Config::new(json!([usual, wide])).trusted_hops(1))?;
    let mut http = envoy.data();
    let mut from = |path: &str, address: &str| -> Result<u16> {
        let request = Request::get(path).header("x-forwarded-for", address);
        Ok(http.send(&request)?.status)
    };
    for (path, address, expected) in [
        ("/usual", "2001:db8:0:1::1", 200),
        ("/usual", "2001:db8:0:1:ffff::2", 429),
        ("/usual", "2001:db8:0:2::1", 200),
        ("/usual", "192.0.2.1", 200),
        ("/usual", "192.0.2.2", 200),
        ("/wide", "2001:db8:0:1::1", 200),
        ("/wide", "2001:db8:0:2::1", 429),
        ("/wide", "2001:db9::1", 200),
    ] {
        let status = from(path, address)?;
        ensure!(status == expected, "{path} from {address}: {status}");
    }
    envoy.stop()
}

/// Returns the algorithms that can hold a request, each with this rate and this `max_wait`.
fn holding(rate: &str, max_wait: &str) -> [(&'static str, Value); 5] {
    [
        ("funnel", json!({ "capacity": 1 })),
        ("token-bucket", json!({ "capacity": 1 })),
        ("leaky-queue", json!({ "capacity": 100 })),
        ("smooth-bursty", json!({ "burst_seconds": 1 })),
        ("smooth-warmup", json!({ "warmup": "1ms" })),
    ]
    .map(|(name, mut limit)| {
        limit["algorithm"] = json!(name.replace('-', "_"));
        limit["rate"] = json!(rate);
        limit["max_wait"] = json!(max_wait);
        (name, limit)
    })
}

#[test]
fn max_wait_bounds_the_wait_of_a_request() -> Result<()> {
    let patient = holding("20/s", "1m").map(|(name, limit)| rule(name, &json!([limit])));
    let hasty =
        holding("1/h", "1s").map(|(name, limit)| rule(&format!("hasty-{name}"), &json!([limit])));
    let envoy = Envoy::start(&Config::new(json!([patient, hasty].concat())))?;
    let mut http = envoy.data();
    for (name, _) in holding("1/s", "1s") {
        for _ in 0..4 {
            let answer = status(&mut http, &format!("/{name}"))?;
            ensure!(answer == 200, "{name}: held, not refused: {answer}");
        }
        let hasty = format!("/hasty-{name}");
        let statuses = [status(&mut http, &hasty)?, status(&mut http, &hasty)?];
        ensure!(
            statuses == [200, 429],
            "{name}: too long to wait: {statuses:?}"
        );
    }
    envoy.stop()
}

/// A client that keeps sending is admitted again, unless `count_refused` makes its refusals count.
#[test]
fn refusals_count_where_a_log_includes_them() -> Result<()> {
    let log = |count: bool| {
        json!([{
            "algorithm": "sliding_log", "capacity": 1, "window": "500ms", "count_refused": count,
        }])
    };
    let rules = json!([rule("lenient", &log(false)), rule("strict", &log(true))]);
    let envoy = Envoy::start(&Config::new(rules))?;
    let mut http = envoy.data();
    ensure!(status(&mut http, "/strict")? == 200);
    let mut last = now();
    let mut lenient = 0;
    while lenient < 3 {
        let sent = now();
        if status(&mut http, "/strict")? == 200 {
            // A slow machine may have paused for a whole window.
            let pause = now() - last;
            ensure!(pause >= Duration::from_millis(500), "after {pause:?}");
        }
        last = sent;
        lenient += u32::from(status(&mut http, "/lenient")? == 200);
    }
    envoy.stop()
}

#[test]
fn a_cold_start_is_as_slow_as_its_factor() -> Result<()> {
    let warmup = |factor: u32| {
        json!([{
            "algorithm": "smooth_warmup", "rate": "1/m", "warmup": "10m", "cold_factor": factor,
        }])
    };
    let rules = json!([rule("mild", &warmup(1)), rule("cold", &warmup(9))]);
    let envoy = Envoy::start(&Config::new(rules))?;
    let mut http = envoy.data();
    let mut waits = Vec::new();
    for path in ["/mild", "/cold"] {
        ensure!(status(&mut http, path)? == 200);
        let refused = http.get(path)?;
        let wait = refused.header("retry-after").context("no retry-after")?;
        waits.push(wait.parse::<u64>()?);
    }
    let [mild, cold] = waits.as_slice() else {
        anyhow::bail!("two waits");
    };
    ensure!((50..=60).contains(mild), "{mild}");
    ensure!(*cold > 4 * mild && *cold <= 9 * 60, "{cold}");
    envoy.stop()
}

/// Sends a request that the upstream never answers.
fn sent(envoy: &Envoy, path: &str) -> Result<TcpStream> {
    let mut socket = TcpStream::connect(envoy.data_address())?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: a\r\nx-answer-as: hang\r\n\r\n");
    socket.write_all(request.as_bytes())?;
    Ok(socket)
}

/// The slot of a request that does not end becomes free after its lease.
#[test]
fn a_lease_ends_requests_that_do_not() -> Result<()> {
    let places =
        |lease: &str| json!([{ "algorithm": "concurrency", "capacity": 1, "lease": lease }]);
    let rules = json!([rule("short", &places("1s")), rule("long", &places("1h"))]);
    let upstream = Upstream::start()?;
    let envoy = Envoy::start(&Config::new(rules).upstream(upstream.address()))?;
    let mut ops = Operator::viewer(&envoy);
    let mut hanging = Vec::new();
    for path in ["/short", "/long"] {
        hanging.push(sent(&envoy, path)?);
        eventually(SOON, "the place to be taken", || {
            let seen = ops.send(Request::get(&format!("/v1/buckets{path}/~all")))?;
            Ok((seen.status == 200).then_some(()))
        })?;
    }
    let mut http = envoy.data();
    eventually(SOON, "the short lease to end", || {
        Ok((status(&mut http, "/short")? == 200).then_some(()))
    })?;
    ensure!(
        status(&mut http, "/long")? == 429,
        "its lease has not ended"
    );
    drop(hanging);
    envoy.stop()
}

/// If bans fill the whole store, no other key gets a bucket, so `on_error` decides.
#[test]
fn requests_without_room_fall_back_to_on_error() -> Result<()> {
    let of = |name: &str, on_error: &str| {
        let mut rule = rule(
            name,
            &json!([{ "algorithm": "funnel", "capacity": 9, "rate": "1/d" }]),
        );
        rule["key"] = json!([{ "header": "x-user-id" }]);
        rule["on_error"] = json!(on_error);
        rule
    };
    let rules = json!([of("lenient", "admit"), of("strict", "refuse")]);
    let envoy = Envoy::start(&Config::new(rules).buckets(64))?;
    let mut ops = Operator::editor(&envoy);
    let (mut banned, mut no_room) = (0, 0);
    for n in 0..10_000 {
        let path = format!("/v1/buckets/strict/banned-{n}/ban");
        match ops.send(Request::post(&path))?.status {
            200 => banned += 1,
            503 => no_room += 1,
            status => anyhow::bail!("{status}"),
        }
        if banned == 64 {
            break;
        }
    }
    ensure!(
        banned == 64 && no_room > 0,
        "{banned} banned, no room for {no_room}"
    );
    let mut http = envoy.data();
    for (path, expected) in [("/lenient", 200), ("/strict", 429)] {
        let answer = http.send(&Request::get(path).header("x-user-id", "alice"))?;
        ensure!(answer.status == expected, "{path}: {answer:?}");
    }
    let status = ops.get("/v1/status")?;
    let warning = status["warnings"][0].as_str().unwrap_or_default();
    ensure!(warning.starts_with("2 decisions were given up"), "{status}");
    ensure!(
        envoy.verdicts("errors")? == 2,
        "{:?}",
        envoy.stats("loudou")?
    );
    envoy.stop()
}
