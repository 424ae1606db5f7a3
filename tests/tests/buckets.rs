//! Buckets in the admin API: lists, filters and resets.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use loudou_tests::{Config, Envoy, Operator, Request};
use serde_json::{Value, json};

fn rule(name: &str, capacity: u32, rate: &str) -> Value {
    json!({
        "name": name,
        "match": { "path": { "prefix": format!("/{name}") } },
        "key": [{ "header": "x-user-id" }],
        "limits": [{ "name": "l", "algorithm": "funnel", "capacity": capacity, "rate": rate }],
    })
}

fn ask(rule: &str, user: &str) -> Request {
    Request::get(&format!("/{rule}")).header("x-user-id", user)
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}

fn number(value: &Value, pointer: &str) -> Result<u64> {
    let number = value.pointer(pointer).and_then(Value::as_u64);
    number.with_context(|| format!("no {pointer}: {value}"))
}

#[test]
fn a_bucket_shows_its_numbers() -> Result<()> {
    let envoy = Envoy::start(&Config::new(json!([rule("a", 3, "1/h")])))?;
    let (mut http, mut ops) = (envoy.data(), Operator::viewer(&envoy));
    ensure!(
        ops.bucket("a", "alice")?.is_none(),
        "looking makes no bucket"
    );
    for _ in 0..5 {
        http.send(&ask("a", "alice"))?;
    }
    let bucket = ops.bucket("a", "alice")?.context("a bucket")?;
    ensure!(
        text(&bucket, "state") == "refusing" && number(&bucket, "/admitted")? == 3,
        "{bucket}"
    );
    ensure!(
        number(&bucket, "/refused")? == 2 && number(&bucket, "/reported")? == 0,
        "{bucket}"
    );
    let limit = |field: &str| number(&bucket, &format!("/limits/0/{field}"));
    let hour = 3_600_000_000_000_u64;
    ensure!(
        limit("capacity")? == 3 && limit("remaining")? == 0 && limit("drain_ns")? == 3 * hour,
        "{bucket}"
    );
    let (retry, reset) = (limit("retry_after_ns")?, limit("reset_after_ns")?);
    ensure!(
        retry > 0 && retry <= hour && reset - retry == 2 * hour,
        "{bucket}"
    );
    let (since, last) = (
        number(&bucket, "/refused_since_ns")?,
        number(&bucket, "/last_seen_ns")?,
    );
    ensure!(since <= last && last - since < hour, "{bucket}");
    // Reading a bucket takes no units and counts no request.
    let again = ops.bucket("a", "alice")?.context("a bucket")?;
    ensure!(
        number(&again, "/refused")? == 2 && again["last_seen_ns"] == bucket["last_seen_ns"],
        "{again}"
    );
    let page = ops.get("/v1/buckets")?;
    ensure!(
        number(&page, "/now_ns")? >= number(&bucket, "/last_seen_ns")?,
        "{page}"
    );
    let listed = ops.buckets("")?;
    let [listed] = listed.as_slice() else {
        bail!("one bucket: {listed:?}")
    };
    ensure!(
        number(listed, "/refused")? == 2 && number(listed, "/refused_since_ns")? == since,
        "{listed}"
    );
    envoy.stop()
}

#[test]
fn a_reset_refills_a_bucket() -> Result<()> {
    let envoy = Envoy::start(
        &Config::new(json!([rule("a", 2, "1/d"), rule("b", 2, "1/d")])).concurrency(4),
    )?;
    let (mut http, mut ops) = (envoy.data(), Operator::editor(&envoy));
    let used = |ops: &mut Operator| number(&ops.get("/v1/status")?, "/store/used");
    for name in ["a", "b"] {
        let statuses = [
            http.send(&ask(name, "alice"))?,
            http.send(&ask(name, "alice"))?,
            http.send(&ask(name, "alice"))?,
        ];
        ensure!(
            statuses
                .iter()
                .map(|answer| answer.status)
                .eq([200, 200, 429])
        );
    }
    ensure!(used(&mut ops)? == 2);
    let answer = ops.reset("a", "alice")?;
    ensure!(
        answer["existed"] == true && number(&answer, "/before/admitted")? == 2,
        "{answer}"
    );
    ensure!(used(&mut ops)? == 1 && ops.bucket("a", "alice")?.is_none());
    let again = ops.reset("a", "alice")?;
    ensure!(
        again["existed"] == false && again.get("before").is_none(),
        "{again}"
    );
    ensure!(used(&mut ops)? == 1, "what is not there is not freed");
    // The reset applies on every worker, and only to this rule.
    let counts = envoy.load(64, 16, |_| ask("a", "alice"))?;
    ensure!(counts.of(200) == 2, "{counts:?}");
    ensure!(http.send(&ask("b", "alice"))?.status == 429);
    ensure!(used(&mut ops)? == 2);
    let mut events = ops.events(0)?;
    events.retain(|event| text(event, "kind") == "reset");
    ensure!(events.len() == 1, "{events:?}");
    let event = events.pop().context("an event")?;
    ensure!(
        text(&event, "rule") == "a"
            && text(&event, "key") == "alice"
            && text(&event, "by") == "ops",
        "{event}"
    );
    envoy.stop()
}

#[test]
fn resets_under_fire_lose_no_count() -> Result<()> {
    let envoy = Envoy::start(&Config::new(json!([rule("a", 10, "1/d")])).concurrency(4))?;
    let done = AtomicBool::new(false);
    let resets = thread::scope(|scope| {
        let resetting = scope.spawn(|| {
            let mut ops = Operator::editor(&envoy);
            let mut resets = 0_u64;
            while !done.load(Ordering::Acquire) {
                resets += u64::from(ops.reset("a", "alice")?["existed"] == true);
            }
            anyhow::Ok(resets)
        });
        let counts = envoy.load(20_000, 16, |_| ask("a", "alice"));
        done.store(true, Ordering::Release);
        let resets = resetting
            .join()
            .map_err(|_panic| anyhow!("the resets panicked"))??;
        let counts = counts?;
        ensure!(counts.of(200) + counts.of(429) == 20_000, "{counts:?}");
        ensure!(
            counts.of(200) <= 10 * (resets + 1),
            "{resets} resets: {counts:?}"
        );
        anyhow::Ok(resets)
    })?;
    ensure!(resets > 10, "only {resets} resets");
    let status = Operator::viewer(&envoy).get("/v1/status")?;
    ensure!(
        number(&status, "/store/used")? <= 1,
        "{resets} resets: {status}"
    );
    ensure!(number(&status, "/store/cas_give_ups")? == 0, "{status}");
    envoy.stop()
}
