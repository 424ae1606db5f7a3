//! Hostile requests. For all bytes, the verdict is right, the sandbox does not crash, and every
//! displayed text is printable.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use loudou_tests::{Config, Envoy, Operator, Request};
use serde_json::{Value, json};

const LONG: usize = 60 * 1024;

fn rule(name: &str, on_missing_key: &str) -> Value {
    json!({
        "name": name,
        "match": { "path": { "prefix": format!("/{name}") } },
        "key": [{ "header": "x-user-id" }],
        "on_missing_key": on_missing_key,
        "limits": [{ "algorithm": "funnel", "capacity": 2, "rate": "1/d" }],
    })
}

fn start() -> Result<Envoy> {
    let rules = json!([
        rule("skip", "skip"),
        rule("refuse", "refuse"),
        rule("share", "share")
    ]);
    Envoy::start(&Config::new(rules))
}

fn unharmed(envoy: &Envoy, before: &BTreeMap<String, u64>) -> Result<()> {
    let after = envoy.sandboxes()?;
    ensure!(after == *before, "{before:?} became {after:?}");
    let log = envoy.log()?;
    ensure!(
        !log.contains("panicked") && !log.contains("[critical]"),
        "the log tells of a panic"
    );
    let errors = envoy.verdicts("errors")?;
    ensure!(errors == 0, "{errors} decisions were given up");
    Ok(())
}

/// Header values that HTTP allows, each with the key that its bucket must have.
fn values() -> Vec<(Vec<u8>, String)> {
    let all_high: Vec<u8> = (0x80..=0xff).step_by(3).collect();
    let high = escaped(&all_high);
    vec![
        (b"plain".to_vec(), "plain".to_owned()),
        (b"\xff\xfe\xfd".to_vec(), "%FF%FE%FD".to_owned()),
        (b"a\xc3(".to_vec(), "a%C3(".to_owned()),
        (
            all_high.iter().copied().take(42).collect(),
            high.chars().take(126).collect(),
        ),
        (
            "ünïcødé 漢字".as_bytes().to_vec(),
            escaped("ünïcødé 漢字".as_bytes()),
        ),
        (
            "\u{202e}evil\u{200b}".as_bytes().to_vec(),
            escaped("\u{202e}evil\u{200b}".as_bytes()),
        ),
        (b"a:b".to_vec(), "a%3Ab".to_owned()),
        (b":".to_vec(), "%3A".to_owned()),
        (
            b":::%%%~~~".to_vec(),
            "%3A%3A%3A%25%25%25%7E%7E%7E".to_owned(),
        ),
        (b"%41".to_vec(), "%2541".to_owned()),
        (b"~missing".to_vec(), "%7Emissing".to_owned()),
        (b"~all".to_vec(), "%7Eall".to_owned()),
        (b"a\tb c".to_vec(), "a%09b%20c".to_owned()),
        (b"\"quoted\\\"".to_vec(), "\"quoted\\\"".to_owned()),
        (
            b"<script>&amp;</script>".to_vec(),
            "<script>&amp;</script>".to_owned(),
        ),
        (
            b"../../../etc/passwd".to_vec(),
            "../../../etc/passwd".to_owned(),
        ),
        (b"a?b#c&d=e+f".to_vec(), "a?b#c&d=e+f".to_owned()),
        (
            b"{}[]()''$(reboot)`".to_vec(),
            "{}[]()''$(reboot)`".to_owned(),
        ),
        (b"\x7f".to_vec(), "%7F".to_owned()),
    ]
}

/// Keeps printable ASCII except `%`, `:` and `~`, and escapes all other bytes.
fn escaped(bytes: &[u8]) -> String {
    let escape = |b: &u8| match *b {
        b if b.is_ascii_graphic() && !b"%:~".contains(&b) => char::from(b).to_string(),
        b => format!("%{b:02X}"),
    };
    bytes.iter().map(escape).collect()
}

#[test]
fn unusual_keys_are_limited_and_shown_escaped() -> Result<()> {
    let envoy = start()?;
    let before = envoy.sandboxes()?;
    let (mut http, mut ops) = (envoy.data(), Operator::editor(&envoy));
    let mut let_through = 0;
    for (value, key) in values() {
        let request = Request::get("/refuse").header("x-user-id", &value);
        let first = http.send(&request)?;
        if first.status == 400 {
            // Envoy's parser refuses this value, so the filter never sees it.
            ensure!(ops.bucket("refuse", &key)?.is_none(), "{key}");
            continue;
        }
        let_through += 1;
        let (second, third) = (http.send(&request)?, http.send(&request)?);
        let statuses = [first.status, second.status, third.status];
        ensure!(statuses == [200, 200, 429], "{key}: {statuses:?}");
        let bucket = ops.bucket("refuse", &key)?;
        let bucket = bucket.with_context(|| format!("no bucket {key}"))?;
        ensure!(
            bucket["key"] == key.as_str() && bucket["refused"] == 1,
            "{bucket}"
        );
    }
    ensure!(let_through >= 17, "only {let_through} values came through");
    for bucket in ops.buckets("rule=refuse&limit=3")? {
        let key = bucket["key"].as_str().context("a key")?;
        ensure!(
            key.bytes().all(|b| b.is_ascii_graphic()),
            "{key:?} is not printable"
        );
        ensure!(
            ops.bucket("refuse", key)?.is_some(),
            "{key} cannot be requested"
        );
        ensure!(
            ops.reset("refuse", key)?["existed"] == true,
            "{key} cannot be reset"
        );
    }
    ensure!(
        ops.buckets("rule=refuse")?.is_empty(),
        "every bucket was reset"
    );
    unharmed(&envoy, &before)?;
    envoy.stop()
}

#[test]
fn control_characters_stop_at_envoy_or_are_escaped() -> Result<()> {
    let envoy = start()?;
    let before = envoy.sandboxes()?;
    let mut ops = Operator::editor(&envoy);
    for byte in (0..0x20_u8).chain([0x7f]) {
        let value = [b"a", &[byte][..], b"z"].concat();
        // Each request uses a new connection, because Envoy closes the connection of a malformed
        // request.
        let answer = envoy
            .data()
            .send(&Request::get("/refuse").header("x-user-id", &value))?;
        ensure!(
            matches!(answer.status, 200 | 400 | 429),
            "{byte:#04x}: {answer:?}"
        );
        if answer.status == 200 && byte != b'\n' && byte != b'\r' {
            let key = format!("a%{byte:02X}z");
            ensure!(ops.bucket("refuse", &key)?.is_some(), "{key}");
        }
    }
    for nonsense in [
        "GET /skip\r\n\r\n",
        "\r\n\r\n\x00",
        "GET",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ] {
        let method = nonsense.split(' ').next().unwrap_or_default();
        drop(envoy.data().send(&Request::new(method, "/skip")));
    }
    unharmed(&envoy, &before)?;
    envoy.stop()
}

#[test]
fn huge_keys_get_a_verdict() -> Result<()> {
    let envoy = start()?;
    let before = envoy.sandboxes()?;
    let (mut http, mut ops) = (envoy.data(), Operator::editor(&envoy));
    for (n, byte) in [(0, b'A'), (1, 0xff), (2, b'%')] {
        let mut long = vec![byte; LONG];
        let mut statuses = Vec::new();
        for _ in 0..3 {
            statuses.push(
                http.send(&Request::get("/refuse").header("x-user-id", &long))?
                    .status,
            );
        }
        ensure!(statuses == [200, 200, 429], "{byte:#04x}: {statuses:?}");
        // A different last byte makes a different key.
        if let Some(last) = long.last_mut() {
            *last = b'z';
        }
        let other = http.send(&Request::get("/refuse").header("x-user-id", &long))?;
        ensure!(
            other.status == 200,
            "the end of the value counts: {byte:#04x}"
        );
        let keys = ops.buckets("rule=refuse")?;
        ensure!(keys.len() == 2 * (n + 1), "{} buckets", keys.len());
        for bucket in keys {
            let key = bucket["key"].as_str().context("a key")?;
            ensure!(key.len() <= 128 && key.contains('~'), "{key}");
            ensure!(
                ops.bucket("refuse", key)?.is_some(),
                "{key} cannot be requested"
            );
        }
    }
    unharmed(&envoy, &before)?;
    envoy.stop()
}

#[test]
fn absent_keys_are_skipped_refused_or_shared() -> Result<()> {
    let envoy = start()?;
    let before = envoy.sandboxes()?;
    let (mut http, mut ops) = (envoy.data(), Operator::editor(&envoy));
    for empty in [Some(""), Some("   "), None] {
        let add = |request: Request| match empty {
            Some(value) => request.header("x-user-id", value),
            None => request,
        };
        ensure!(
            http.send(&add(Request::get("/skip")))?.status == 200,
            "{empty:?}"
        );
        ensure!(
            http.send(&add(Request::get("/refuse")))?.status == 429,
            "{empty:?}"
        );
    }
    let shared = |value: Option<&str>| match value {
        Some(value) => Request::get("/share").header("x-user-id", value),
        None => Request::get("/share"),
    };
    ensure!(http.send(&shared(None))?.status == 200);
    ensure!(http.send(&shared(Some("")))?.status == 200);
    ensure!(
        http.send(&shared(Some(" ")))?.status == 429,
        "all that lack a key share one bucket"
    );
    let missing = ops
        .bucket("share", "~missing")?
        .context("the shared bucket")?;
    ensure!(missing["admitted"] == 2, "{missing}");
    unharmed(&envoy, &before)?;
    envoy.stop()
}

#[test]
fn unusual_paths_and_methods_get_a_verdict() -> Result<()> {
    let by_path = json!({
        "name": "by-path", "key": ["path", "source", "route"],
        "limits": [{ "algorithm": "funnel", "capacity": 1, "rate": "1/d" }],
    });
    let only_post = json!({
        "name": "posts", "match": { "methods": ["POST"], "path": { "prefix": "/posts" } }, "key": [],
        "limits": [{ "algorithm": "funnel", "capacity": 1, "rate": "1/d" }],
    });
    let envoy = Envoy::start(&Config::new(json!([only_post, by_path])))?;
    let before = envoy.sandboxes()?;
    let mut ops = Operator::editor(&envoy);
    let long = format!("/{}", "x".repeat(LONG));
    let paths = [
        "/", "//", "/?", "/a?b=c", "/%00", "/%ff%fe", "/%", "/%zz", "/a%2Fb", "/..;/x", "/a/../b",
        "/:a:b", "/~", "/a;b=c", "/\"<>", "/{}|\\^`", &long, "/a#frag",
    ];
    let mut limited = 0;
    for path in paths {
        let first = envoy.data().get(path)?.status;
        let again = envoy.data().get(path)?.status;
        ensure!(matches!(first, 200 | 400 | 429), "{path:.40}: {first}");
        ensure!(first == 400 || again == 429, "{path:.40}: {first} {again}");
        limited += u32::from(first == 200);
    }
    // Some of these paths are spellings of other paths in the list.
    ensure!(limited >= 9, "only {limited} paths came through");
    // The query is not part of the path, so it does not lead to a new bucket.
    ensure!(envoy.data().get("/a?other")?.status == 429);
    for bucket in ops.buckets("rule=by-path")? {
        let key = bucket["key"].as_str().context("a key")?;
        ensure!(
            key.len() <= 128 && key.bytes().all(|b| b.is_ascii_graphic()),
            "{key:?}"
        );
        ensure!(
            ops.bucket("by-path", key)?.is_some(),
            "{key} cannot be requested"
        );
    }
    for method in [
        "POST", "post", "PoSt", "BREW", "OPTIONS", "TRACE", "M-SEARCH",
    ] {
        let answer = envoy.data().send(&Request::new(method, "/posts/new"));
        let status = answer.map_or(0, |answer| answer.status);
        ensure!(
            matches!(status, 0 | 200 | 400 | 403 | 405 | 429 | 501),
            "{method}: {status}"
        );
    }
    unharmed(&envoy, &before)?;
    envoy.stop()
}
