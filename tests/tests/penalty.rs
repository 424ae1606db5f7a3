//! Automatic bans. A key with too many refusals is banned, each time for longer, until an idle
//! period clears its earlier bans.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use loudou_tests::{Config, Envoy, Http, Operator, Request, Response, eventually};
use serde_json::{Value, json};

const SOON: Duration = Duration::from_secs(30);
const FORMAT: &str =
    "ACCESS %RESPONSE_CODE% | %RESPONSE_CODE_DETAILS% | %FILTER_STATE(wasm.loudou:PLAIN)%";
const MS: u64 = 1_000_000;

/// One request a day. The twentieth refusal within ten seconds starts a ban of half a second. Each
/// further ban is four times as long, up to three seconds.
fn rules() -> Value {
    json!([{
        "name": "r",
        "key": [{ "header": "x-user-id" }],
        "limits": [{ "name": "l", "algorithm": "funnel", "capacity": 1, "rate": "1/d" }],
        "penalty": { "after": 20, "within": "10s", "ban": "500ms", "factor": 4, "max": "3s" },
    }])
}

fn eve() -> Request {
    Request::get("/").header("x-user-id", "eve")
}

/// Returns the value at a JSON pointer, or null.
fn at<'a>(value: &'a Value, pointer: &str) -> &'a Value {
    value.pointer(pointer).unwrap_or(&Value::Null)
}

/// Returns true if a refusal is due to a ban.
fn is_ban(answer: &Response) -> Result<bool> {
    ensure!(answer.status == 429, "{answer:?}");
    let problem = answer.json()?;
    let kind = at(&problem, "/type").as_str().unwrap_or_default();
    Ok(kind.ends_with("#abnormal-usage-detected"))
}

/// Sends requests until a ban begins. Returns the number of refusals, and the last response.
fn until_banned(http: &mut Http) -> Result<(u32, Response)> {
    for count in 1..100 {
        let answer = http.send(&eve())?;
        if is_ban(&answer)? {
            return Ok((count, answer));
        }
    }
    anyhow::bail!("never banned")
}

/// Waits until the ban ends. The refusal that shows the end counts as the first refusal of the next
/// ban.
fn ban_ends(http: &mut Http) -> Result<()> {
    eventually(SOON, "the ban to end", || {
        Ok((!is_ban(&http.send(&eve())?)?).then_some(()))
    })
}

/// Returns the full duration of the current ban, and the number of consecutive bans.
fn ban(ops: &mut Operator) -> Result<(u64, u64)> {
    let bucket = ops.bucket("r", "eve")?.context("a bucket")?;
    ensure!(
        at(&bucket, "/state") == "banned" && at(&bucket, "/ban/by") == "penalty",
        "{bucket}"
    );
    let until = at(&bucket, "/ban/until_ns").as_u64().context("an end")?;
    let from = at(&bucket, "/last_seen_ns")
        .as_u64()
        .context("an instant")?;
    let times = at(&bucket, "/penalties").as_u64().context("a number")?;
    Ok((until.saturating_sub(from), times))
}

#[test]
fn bans_get_longer_and_are_forgotten() -> Result<()> {
    let envoy = Envoy::start(&Config::new(rules()).concurrency(4).access_log(FORMAT))?;
    let (mut http, mut ops) = (envoy.data(), Operator::viewer(&envoy));
    ensure!(http.send(&eve())?.status == 200);
    // The bans last half a second, two seconds and three seconds.
    for (number, span, retry_after) in [(1, 500, 1), (2, 2_000, 2), (3, 3_000, 3)] {
        let (refusals, answer) = until_banned(&mut http)?;
        // After a ban has ended, the refusal that showed its end already counts.
        ensure!(
            refusals == if number == 1 { 20 } else { 19 },
            "{refusals} refusals"
        );
        let wait: u64 = answer.header("retry-after").context("a wait")?.parse()?;
        ensure!(wait == retry_after, "{wait} for {span} ms");
        let (lasts, times) = ban(&mut ops)?;
        ensure!(lasts == span * MS, "{lasts} for {span} ms");
        ensure!(times == number, "{times} in a row");
        ban_ends(&mut http)?;
    }
    // After an idle time as long as the longest ban, all earlier bans are cleared.
    eventually(SOON, "the bans to be forgotten", || {
        let bucket = ops.bucket("r", "eve")?.context("a bucket")?;
        Ok(bucket.get("penalties").is_none().then_some(()))
    })?;
    until_banned(&mut http)?;
    let (lasts, times) = ban(&mut ops)?;
    ensure!(times == 1 && lasts == 500 * MS, "{lasts} {times}");
    envoy.stop()
}

#[test]
fn a_ban_is_shown_everywhere() -> Result<()> {
    let envoy = Envoy::start(&Config::new(rules()).access_log(FORMAT))?;
    let mut http = envoy.data();
    ensure!(http.send(&eve())?.status == 200);
    let (_, answer) = until_banned(&mut http)?;
    let problem = answer.json()?;
    ensure!(problem["title"] == "Abnormal usage detected", "{problem}");
    ensure!(problem["violated-policies"] == json!(["r"]), "{problem}");
    let detail = problem["detail"].as_str().unwrap_or_default();
    ensure!(detail.starts_with("banned by rule r for "), "{problem}");
    let line = eventually(SOON, "the access log", || {
        let log = envoy.log()?;
        let line = log.lines().find(|line| line.contains("loudou_banned{r}"));
        Ok(line.map(str::to_owned))
    })?;
    let key = loudou_limiter::fingerprint("eve");
    ensure!(
        line.contains("429 | loudou_banned{r} | r;-;ban;50"),
        "{line}"
    );
    ensure!(line.ends_with(&format!(";{key:016x}")), "{line}");
    // The ban counts like any other refusal.
    ensure!(envoy.counter("wasmcustom.loudou.rule.r.refused")? == 20);
    envoy.stop()
}

#[test]
fn strikes_are_shown_and_forgiven() -> Result<()> {
    let envoy = Envoy::start(&Config::new(rules()))?;
    let (mut http, mut ops) = (envoy.data(), Operator::editor(&envoy));
    for _ in 0..4 {
        http.send(&eve())?;
    }
    let bucket = ops.bucket("r", "eve")?.context("a bucket")?;
    ensure!(
        bucket["strikes"] == 3 && bucket["state"] == "refusing",
        "{bucket}"
    );
    ops.unban("r", "eve")?;
    let bucket = ops.bucket("r", "eve")?.context("a bucket")?;
    ensure!(bucket.get("strikes").is_none(), "{bucket}");
    ensure!(until_banned(&mut http)?.0 == 20);
    // Without a penalty there are no new bans, but existing bans last until they end.
    ops.edit("r", "", &json!({ "penalty": null }))?;
    ban_ends(&mut http)?;
    for _ in 0..20 {
        ensure!(!is_ban(&http.send(&eve())?)?);
    }
    envoy.stop()
}
