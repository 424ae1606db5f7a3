//! Shared data values that earlier builds left. This build reads all of them.
//!
//! `released/*.shared` are the values as a released build wrote them, a line for each, with key and
//! value in hexadecimal digits. A change that breaks the reading of an earlier format fails here.
//! `LOUDOU_WRITE_SHARED=FILE` writes such a file with this build's values, for the next release.

use super::*;
use crate::fleet::know_changes;

const RELEASED: [(&str, &str); 1] = [(
    "0.1.0 at 78246b28",
    include_str!("released/0.1.0-78246b28.shared"),
)];
/// The time of all changes and requests.
const NOW: Nanos = Nanos::from_secs(10_000);
const HOUR: Nanos = Nanos::from_secs(3_600);
/// More than fit into the open segment of events.
const MANY: usize = 70;

fn file() -> Value {
    let rule = |name: &str, limit: Value| {
        json!({
            "name": name,
            "match": { "path": { "prefix": format!("/{name}") } },
            "key": [{ "header": "x-user-id" }],
            "limits": [limit],
        })
    };
    let funnel =
        |capacity: u32| json!({ "algorithm": "funnel", "capacity": capacity, "rate": "1/d" });
    let mut penal = rule("penal", funnel(1));
    penal["penalty"] = json!({ "after": 2, "within": "1m", "ban": "10m" });
    let mut shared = rule("shared", funnel(10));
    shared["scope"] = json!("fleet");
    let of = |algorithm: &str| json!({ "algorithm": algorithm, "capacity": 7, "window": "7d" });
    json!({
        "version": 1,
        "store": { "buckets": 64 },
        "fleet": { "cluster": "relay" },
        "rules": [
            rule("edited", funnel(5)),
            rule("fixed", of("fixed_window")),
            rule("log", of("sliding_log")),
            rule("counter", of("sliding_counter")),
            rule("bucket", json!({ "algorithm": "token_bucket", "capacity": 7, "rate": "1/d" })),
            rule("queue", json!({ "algorithm": "leaky_queue", "capacity": 7, "rate": "1/h" })),
            rule("flight", json!({ "algorithm": "concurrency", "capacity": 7, "lease": "1h" })),
            penal,
            shared,
        ],
    })
}

fn bench() -> Bench {
    let host = FakeHost::default();
    host.now.set(NOW.get());
    know_changes(&host, "loudou");
    Bench::with_file(host, &file())
}

/// Requests of a user; the statuses do not matter.
fn sends(bench: &mut Bench, rule: &str, user: &str, count: u32) {
    for _ in 0..count {
        let path = format!("/{rule}");
        bench
            .host
            .request("GET", &path, &[("x-user-id", user.as_bytes())]);
        let _fate = bench.data.decide(&bench.host, 1, false);
    }
}

fn edits(bench: &mut Bench, method: &str, path: &str, body: Option<&Value>) {
    let (status, answer) = bench.edit(method, path, "*", body);
    assert_eq!(status, 200, "{path}: {answer}");
}

/// Leaves something in each kind of value.
fn leave(bench: &mut Bench) {
    drop(bench.data.tick(&bench.host));
    let limits = json!({ "limits": [{ "algorithm": "funnel", "capacity": 12, "rate": "1/d" }] });
    edits(
        bench,
        "PUT",
        "/v1/rules/edited?carry=keep&reason=sale",
        Some(&limits),
    );
    edits(
        bench,
        "PUT",
        "/v1/overrides/edited/vip?for=1h",
        Some(&json!({ "scale": 2 })),
    );
    for n in 0..MANY {
        let path = format!("/v1/overrides/edited/user-{n}");
        edits(bench, "PUT", &path, Some(&json!("unlimited")));
    }
    for rule in ["fixed", "log", "counter", "bucket", "queue", "flight"] {
        sends(bench, rule, "alice", 3);
    }
    sends(bench, "penal", "eve", 3);
    sends(bench, "shared", "alice", 1);
    edits(
        bench,
        "POST",
        "/v1/buckets/fixed/mallory/ban?for=1h&reason=spam",
        None,
    );
    edits(bench, "POST", "/v1/buckets/fixed/trent/ban", None);
    bench.host.pass(Nanos::from_millis(250));
    drop(bench.data.tick(&bench.host));
}

/// The earlier values are in force, and shown.
fn is_read(bench: &mut Bench, by: &str) {
    let rule = bench.get("/v1/rules/edited");
    assert_eq!(rule["rule"]["limits"][0]["capacity"], 12, "{by}");
    assert_eq!(
        (&rule["edit"]["by"], &rule["edit"]["reason"]),
        (&json!("ops"), &json!("sale"))
    );
    let overrides = rule["rule"]["overrides"]
        .as_object()
        .map(serde_json::Map::len);
    assert_eq!(overrides, Some(MANY + 1), "{by}");
    let status = bench.get("/v1/status");
    assert_eq!(status["generation"], MANY + 3, "{by}");
    assert_eq!(status["fleet"]["changes"]["unsent"], MANY + 4, "{by}");
    let warnings = status["warnings"].as_array().expect("a list");
    assert!(
        !warnings
            .iter()
            .any(|text| text.as_str().is_some_and(|text| text.contains("version")))
    );
    for (rule, left) in [
        ("fixed", 4),
        ("log", 4),
        ("counter", 4),
        ("bucket", 4),
        ("flight", 4),
    ] {
        let bucket = bench.get(&format!("/v1/buckets/{rule}/alice"));
        assert_eq!(bucket["limits"][0]["remaining"], left, "{by}: {bucket}");
        assert_eq!(bucket["admitted"], 3, "{by}: {bucket}");
    }
    let queue = bench.get("/v1/buckets/queue/alice");
    assert_eq!(queue["admitted"], 2, "{by}: {queue}");
    for (rule, key, ban) in [
        ("fixed", "mallory", "operator"),
        ("fixed", "trent", "operator"),
        ("penal", "eve", "penalty"),
    ] {
        let bucket = bench.get(&format!("/v1/buckets/{rule}/{key}"));
        assert!(bucket["ban"].is_object(), "{by}: {bucket}");
        let by_whom = bucket["ban"]["by"].as_str().unwrap_or_default();
        assert!(by_whom == ban, "{by}: {bucket}");
    }
    let events = bench.get("/v1/events?after=0");
    let count = |kind: &str| {
        let events = events["events"].as_array().expect("a list").iter();
        events.filter(|event| event["kind"] == kind).count()
    };
    assert_eq!(
        ["configured", "edit", "override", "ban"].map(count),
        [1, 1, MANY + 1, 2],
        "{by}"
    );
    let top = bench.get("/v1/top?by=refused");
    assert_eq!(top["top"][0]["key"], "eve", "{by}: {top}");
    // The end of a ban is known.
    bench.host.pass(HOUR);
    let events = bench.get("/v1/events?after=0");
    let events = events["events"].as_array().expect("a list");
    let ends = events.iter().filter(|event| event["kind"] == "ban_expired");
    assert_eq!(
        ends.map(|event| event["key"].clone()).collect::<Vec<_>>(),
        ["mallory"],
        "{by}"
    );
    let edited = bench.get("/v1/rules/edited");
    assert!(edited["rule"]["overrides"]["vip"].is_null(), "{by}");
}

fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"))
}

fn bytes(hex: &str) -> Vec<u8> {
    let pairs = hex.as_bytes().chunks(2);
    let byte = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok();
    pairs.map(|pair| byte(pair).expect("digits")).collect()
}

#[test]
fn what_a_build_leaves_is_read_by_the_same_one() {
    let mut bench = bench();
    leave(&mut bench);
    if let Some(file) = std::env::var_os("LOUDOU_WRITE_SHARED") {
        let store = bench.host.store.borrow();
        let lines = store
            .iter()
            .map(|(key, value)| format!("{} {}\n", hex(key), hex(value)));
        std::fs::write(file, lines.collect::<String>()).expect("written");
    }
    is_read(&mut bench, "this build");
}

#[test]
fn what_released_builds_left_is_read() {
    for (build, lines) in RELEASED {
        let host = FakeHost::default();
        host.now.set(NOW.get() + Nanos::from_millis(250).get());
        for line in lines.lines() {
            let (key, value) = line.split_once(' ').expect("a key");
            let written = host.shared_set(&bytes(key), &bytes(value), loudou_store::CAS_ABSENT);
            assert_eq!(written, Ok(loudou_store::Written::Done));
        }
        // The configuration is loaded again by this build. It adopts nothing, and loses nothing.
        let mut bench = Bench::with_file(host, &file());
        is_read(&mut bench, build);
    }
}
