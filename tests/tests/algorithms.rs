//! Every algorithm that can refuse requests, in a real Envoy with real clocks.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, ensure};
use loudou_tests::{Config, Envoy, Http, Operator, Request, eventually, now};
use serde_json::{Value, json};

const SOON: Duration = Duration::from_secs(30);

/// Name of a rule, its limit, and the number of requests that the rule admits from a burst. Each
/// rule matches only the path `/{name}`.
fn bursts() -> Vec<(&'static str, Value, u64)> {
    let slow = |algorithm: &str, more: Value| {
        let mut limit = json!({ "algorithm": algorithm });
        if let (Some(limit), Some(more)) = (limit.as_object_mut(), more.as_object()) {
            limit.extend(more.clone());
        }
        limit
    };
    let leak = |more: Value| {
        let mut fields = json!({ "capacity": 5, "rate": "5/d" });
        if let (Some(fields), Some(more)) = (fields.as_object_mut(), more.as_object()) {
            fields.extend(more.clone());
        }
        fields
    };
    let window = json!({ "capacity": 5, "window": "1d" });
    let slots = json!({ "capacity": 5, "window": "1d", "slots": 4, "slot_capacity": 3 });
    vec![
        ("funnel", slow("funnel", leak(json!({}))), 5),
        ("greedy", slow("token_bucket", leak(json!({}))), 5),
        (
            "initial",
            slow("token_bucket", leak(json!({ "initial": 2 }))),
            2,
        ),
        ("fixed", slow("fixed_window", window.clone()), 5),
        ("slots", slow("sliding_window", slots), 3),
        ("log", slow("sliding_log", window.clone()), 5),
        ("counter", slow("sliding_counter", window), 5),
        // `immediate` lets the whole backlog of five pass at once. The request that finds an empty
        // backlog passes too.
        (
            "queue",
            slow("leaky_queue", leak(json!({ "immediate": 5 }))),
            6,
        ),
        // No permits are saved at the start, so one request passes. Its cost delays the second
        // request.
        (
            "bursty",
            slow(
                "smooth_bursty",
                json!({ "rate": "1/h", "burst_seconds": 3600 }),
            ),
            1,
        ),
        (
            "warmup",
            slow("smooth_warmup", json!({ "rate": "1/h", "warmup": "1h" })),
            1,
        ),
    ]
}

fn config(limits: &[(&'static str, Value, u64)]) -> Config {
    let rule = |(name, limit, _): &(&str, Value, u64)| {
        json!({
            "name": name,
            "match": { "path": { "exact": format!("/{name}") } },
            "key": [{ "header": "x-user-id" }],
            "limits": [limit],
        })
    };
    Config::new(limits.iter().map(rule).collect())
}

fn status(http: &mut Http, name: &str) -> Result<u16> {
    let request = Request::get(&format!("/{name}")).header("x-user-id", "alice");
    Ok(http.send(&request)?.status)
}

/// Sends ten requests and returns how many were admitted. Fails if a request is admitted after a
/// refusal.
fn burst(http: &mut Http, name: &str) -> Result<u64> {
    let mut admitted = 0;
    let mut refused = false;
    for _ in 0..10 {
        let request = Request::get(&format!("/{name}")).header("x-user-id", "alice");
        let answer = http.send(&request)?;
        match answer.status {
            200 => {
                ensure!(!refused, "{name}: admitted after a refusal");
                admitted += 1;
            }
            429 => {
                refused = true;
                let wait = answer.header("retry-after").context("no retry-after")?;
                ensure!(wait.parse::<u64>()? > 0, "{name}: {wait}");
            }
            _ => anyhow::bail!("{name}: {answer:?}"),
        }
    }
    Ok(admitted)
}

#[test]
fn each_algorithm_admits_exactly_its_capacity() -> Result<()> {
    let limits = bursts();
    let envoy = Envoy::start(&config(&limits))?;
    let (mut http, mut ops) = (envoy.data(), Operator::viewer(&envoy));
    for (name, limit, expected) in &limits {
        let admitted = burst(&mut http, name)?;
        ensure!(admitted == *expected, "{name}: {admitted} of {expected}");
        let bucket = ops.get(&format!("/v1/buckets/{name}/alice"))?;
        let of = |path: &str| bucket.pointer(path).cloned().unwrap_or_default();
        ensure!(of("/limits/0/algorithm") == limit["algorithm"], "{bucket}");
        ensure!(of("/limits/0/remaining") == 0, "{bucket}");
        ensure!(of("/state") == "refusing", "{bucket}");
        ensure!(of("/admitted") == *expected, "{bucket}");
        let wait = of("/limits/0/retry_after_ns").as_u64().context("a wait")?;
        let drain = of("/limits/0/drain_ns").as_u64().context("a drain time")?;
        ensure!(wait > 0 && wait <= drain, "{bucket}");
    }
    envoy.stop()
}

/// Name of a rule, its limit, and the minimum time in milliseconds between the first request and
/// the first admission after a refusal.
fn recoveries() -> Vec<(&'static str, Value, u64)> {
    let window = |algorithm: &str| json!({ "algorithm": algorithm, "capacity": 3, "window": "2s" });
    vec![
        (
            "funnel",
            json!({ "algorithm": "funnel", "capacity": 3, "rate": "3/6s" }),
            2_000,
        ),
        ("fixed", window("fixed_window"), 2_000),
        ("log", window("sliding_log"), 2_000),
        ("counter", window("sliding_counter"), 0),
        (
            "slots",
            json!({ "algorithm": "sliding_window", "capacity": 3, "window": "2s", "slots": 4,
            "slot_capacity": 3 }),
            1_500,
        ),
        (
            "bursty",
            json!({ "algorithm": "smooth_bursty", "rate": "1/2s" }),
            2_000,
        ),
        // While the limit is cold, a permit costs three times as much time.
        (
            "warmup",
            json!({ "algorithm": "smooth_warmup", "rate": "1/s", "warmup": "10s" }),
            2_000,
        ),
    ]
}

#[test]
fn each_algorithm_admits_again_and_not_too_early() -> Result<()> {
    let limits = recoveries();
    let envoy = Envoy::start(&config(&limits))?;
    let mut http = envoy.data();
    for (name, _, least_ms) in &limits {
        // Read before the first decision, so that slow answers can only make the measured time
        // longer.
        let begun = now();
        ensure!(burst(&mut http, name)? >= 1, "{name}");
        eventually(SOON, "an admission", || {
            Ok((status(&mut http, name)? == 200).then_some(()))
        })?;
        let after = begun.elapsed();
        ensure!(
            after >= Duration::from_millis(*least_ms),
            "{name}: {after:?}"
        );
    }
    envoy.stop()
}

#[expect(
    clippy::disallowed_methods,
    reason = "Envoy's wall clock is the one of this machine"
)]
fn wall() -> Result<Duration> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?)
}

/// With `align: clock`, the quota of all keys returns at the same instant of the wall clock.
#[test]
fn clock_windows_end_together() -> Result<()> {
    let limits = [
        json!({ "algorithm": "fixed_window", "capacity": 1, "window": "3s", "align": "clock" }),
        json!({
            "algorithm": "token_bucket", "capacity": 1, "rate": "1/3s", "refill": "interval",
            "align": "clock"
        }),
        json!({
            "algorithm": "sliding_window", "capacity": 1, "window": "6s", "slots": 2,
            "align": "clock"
        }),
        json!({ "algorithm": "sliding_counter", "capacity": 1, "window": "3s", "align": "clock" }),
    ];
    let names = ["fixed", "tokens", "slots", "counter"];
    let limits: Vec<_> = names
        .into_iter()
        .zip(limits)
        .map(|(n, l)| (n, l, 1))
        .collect();
    // With few buckets, one answer contains the complete search result.
    let envoy = Envoy::start(&config(&limits).buckets(64))?;
    let (mut http, mut ops) = (envoy.data(), Operator::viewer(&envoy));
    for name in names {
        for user in ["alice", "bob"] {
            let request = Request::get(&format!("/{name}")).header("x-user-id", user);
            ensure!(http.send(&request)?.status == 200, "{user} is new");
            let page = ops.get(&format!("/v1/buckets?rule={name}&key={user}"))?;
            let left = page.pointer("/buckets/0/limits/0/reset_after_ns");
            let left = Duration::from_nanos(left.and_then(Value::as_u64).context("a reset time")?);
            let end = wall()? + left;
            // Between the reading of the reset time and the reading of this clock, the admin call
            // takes time. The worker also reads its two clocks at slightly different instants.
            let off = end.as_millis() % 3_000;
            ensure!(
                !(700..=2_300).contains(&off),
                "{name} of {user}: {off} ms off"
            );
        }
    }
    envoy.stop()
}

/// Returns the month and the day of the month, both from 1, of a day since 1970.
fn date(mut day: u64) -> (u64, u64) {
    let mut year = 1970;
    loop {
        let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let february = if is_leap { 29 } else { 28 };
        let lengths = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
        for (month, days) in (1..).zip(lengths) {
            if day < days {
                return (month, day + 1);
            }
            day -= days;
        }
        year += 1;
    }
}

/// Name of a window, its `starts`, and the days since 1970 on which it begins.
type Period<'a> = (&'a str, Value, &'a dyn Fn(u64) -> bool);

/// The headers announce the length of the present window, and its end on the clocks of the zone.
#[test]
fn a_calendar_window_ends_with_the_month_of_its_zone() -> Result<()> {
    const DAY: u64 = 86_400;
    // The zone is nine hours ahead of UTC.
    const AHEAD: u64 = 9 * 3_600;
    // 1970-01-01 was a Thursday.
    let is_saturday = |day: u64| (day + 3) % 7 == 5;
    let is_first = |day: u64| date(day).1 == 1;
    let is_october = |day: u64| date(day) == (10, 6);
    let periods: [Period<'_>; 3] = [
        ("week", json!({ "weekday": "sat" }), &is_saturday),
        ("month", json!({ "day": 1 }), &is_first),
        ("year", json!({ "month": 10, "day": 6 }), &is_october),
    ];
    let rule = |(name, starts, _): &(&str, Value, _)| {
        json!({
            "name": name,
            "match": { "path": { "exact": format!("/{name}") } },
            "key": [],
            "limits": [{
                "name": "quota", "algorithm": "fixed_window", "capacity": 2,
                "window": name, "zone": "JST-9", "starts": starts,
            }],
            "respond": { "ratelimit_headers": "draft11" },
        })
    };
    let envoy = Envoy::start(&Config::new(periods.iter().map(rule).collect()))?;
    let mut http = envoy.data();
    for (name, _, is_start) in &periods {
        let before = wall()?.as_secs();
        let answer = http.get(&format!("/{name}"))?;
        let after = wall()?.as_secs();
        // Both headers that would be right at a second.
        let at = |second: u64| {
            let today = (second + AHEAD) / DAY;
            let next = (today + 1..today + 400)
                .find(|day| is_start(*day))
                .context("a next")?;
            let start = (0..=today)
                .rev()
                .find(|day| is_start(*day))
                .context("a start")?;
            let left = next * DAY - AHEAD - second;
            let policy = format!("\"{name}.quota\";q=2;w={}", (next - start) * DAY);
            anyhow::Ok((policy, format!("\"{name}.quota\";r=1;t={left}")))
        };
        let header = |name: &str| answer.header(name).unwrap_or_default().to_owned();
        let got = (header("ratelimit-policy"), header("ratelimit"));
        // The filter reads its clock at a slightly different instant.
        let right: Vec<_> = (before - 1..=after + 1).map(at).collect::<Result<_>>()?;
        ensure!(right.contains(&got), "{name}: {got:?}, not {right:?}");
    }
    envoy.stop()
}
