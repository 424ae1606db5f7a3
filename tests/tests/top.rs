//! Top keys. The lists match the sent requests over all workers, and a flood does not displace a
//! frequent key.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use loudou_tests::{
    Config, Envoy, Operator, Request, VIEW_TOKEN, eventually, expect_problem, loudou_command,
};
use serde_json::{Value, json};

const CONNECTIONS: usize = 16;
const WORKERS: u32 = 3;
/// Timeout, at least as long as the traffic of a test. Within this time the answer covers all
/// traffic, regardless of when the two halves of the window rotate.
const SOON: Duration = Duration::from_secs(20);
const COUNTERS: u64 = 256;

/// Number of requests by key.
type Counts = BTreeMap<String, u64>;

fn rule(name: &str, capacity: u32, more: &Value) -> Value {
    let mut rule = json!({
        "name": name,
        "key": [{ "header": "x-user-id" }],
        "limits": [{ "algorithm": "funnel", "capacity": capacity, "rate": "1/d" }],
    });
    if let (Some(rule), Some(more)) = (rule.as_object_mut(), more.as_object()) {
        rule.extend(more.clone());
    }
    rule
}

fn user(name: &str) -> Request {
    Request::get("/").header("x-user-id", name)
}

fn number(value: &Value, field: &str) -> Result<u64> {
    let number = value.get(field).and_then(Value::as_u64);
    number.with_context(|| format!("no {field}: {value}"))
}

fn text<'a>(value: &'a Value, field: &str) -> Result<&'a str> {
    let text = value.get(field).and_then(Value::as_str);
    text.with_context(|| format!("no {field}: {value}"))
}

fn entries(top: &Value) -> Result<&Vec<Value>> {
    let entries = top.get("top").and_then(Value::as_array);
    entries.with_context(|| format!("no list: {top}"))
}

/// Waits until all sent requests are counted, and returns the answer.
fn settled(ops: &mut Operator, query: &str, sent: u64) -> Result<Value> {
    let path = format!("/v1/top?limit=256&{query}");
    eventually(SOON, "all workers to tell what they counted", || {
        let top = ops.get(&path)?;
        let counted = entries(&top)?.iter().map(|one| number(one, "count"));
        let counted: u64 = counted.sum::<Result<u64>>()?;
        Ok((counted >= sent).then_some(top))
    })
}

/// Returns the counts in a list of `rule`, which must be exact and sorted.
fn exact(top: &Value, rule: &str) -> Result<Counts> {
    ensure!(number(top, "missing_at_most")? == 0, "{top}");
    let window = number(top, "window_ns")?;
    ensure!(window > 0 && window <= 120_000_000_000, "{top}");
    let mut counts = Counts::new();
    let mut before = u64::MAX;
    for one in entries(top)? {
        let count = number(one, "count")?;
        ensure!(
            number(one, "error")? == 0 && text(one, "rule")? == rule,
            "{one}"
        );
        ensure!(count <= before, "not in order: {top}");
        before = count;
        counts.insert(text(one, "key")?.to_owned(), count);
    }
    ensure!(
        u64::try_from(counts.len())? == number(top, "keys")?,
        "{top}"
    );
    Ok(counts)
}

/// Splits the number of requests per user into the part beyond `capacity` and the part within it.
fn split(sent: &Counts, capacity: u64) -> (Counts, Counts) {
    let part = |of: fn(u64, u64) -> u64| {
        let counts = sent
            .iter()
            .map(|(user, sent)| (user.clone(), of(*sent, capacity)));
        counts.filter(|(_, count)| *count > 0).collect()
    };
    (part(u64::saturating_sub), part(u64::min))
}

/// Returns the user of request `n`. There are at most 96 users, some of them much more frequent
/// than others.
fn skewed(n: u64) -> String {
    format!("user-{}", (n % 97) * (n % 89) % 96)
}

#[test]
fn the_lists_match_the_sent_requests() -> Result<()> {
    let rules = json!([
        rule("enforced", 9, &json!({})),
        rule("tried", 30, &json!({ "mode": "shadow" })),
    ]);
    let envoy = Envoy::start(&Config::new(rules).concurrency(WORKERS))?;
    let mut ops = Operator::viewer(&envoy);
    let requests = 4_000;
    envoy.load(requests, CONNECTIONS, |n| user(&skewed(n)))?;
    let mut sent = Counts::new();
    for n in 0..requests {
        *sent.entry(skewed(n)).or_default() += 1;
    }
    for (name, capacity) in [("enforced", 9), ("tried", 30)] {
        let (refused, admitted) = split(&sent, capacity);
        for (by, expected) in [("refused", refused), ("admitted", admitted)] {
            let all = expected.values().sum();
            let top = settled(&mut ops, &format!("rule={name}&by={by}"), all)?;
            let counts = exact(&top, name)?;
            ensure!(
                counts == expected,
                "{name} {by}: {counts:?} and not {expected:?}"
            );
        }
    }

    let top = ops.get("/v1/top?rule=enforced&limit=3")?;
    ensure!(
        entries(&top)?.len() == 3 && number(&top, "keys")? > 3,
        "{top}"
    );
    let wrong = ops.send(Request::get("/v1/top?by=passed"))?;
    let detail = expect_problem(&wrong, 400)?;
    ensure!(detail.contains("refused, admitted"), "{detail}");
    let unknown = ops.send(Request::get("/v1/top?rule=none"))?;
    let detail = expect_problem(&unknown, 404)?;
    ensure!(detail.contains("enforced, tried"), "{detail}");
    envoy.stop()
}

/// A flood of keys must not displace a frequent key. The frequent user is among 20 000 users who
/// each send one request, in a store that evicts buckets quickly.
#[test]
fn a_flood_does_not_displace_a_frequent_key() -> Result<()> {
    const FLOOD: u64 = 20_000;
    const EVERY: u64 = 40;
    // In shadow mode with a cost above the capacity, every request counts as refused.
    let rules = json!([rule("r", 1, &json!({ "mode": "shadow", "cost": 2 }))]);
    let config = Config::new(rules).concurrency(WORKERS).buckets(256);
    let envoy = Envoy::start(&config)?;
    let mut ops = Operator::viewer(&envoy);
    let heavy = FLOOD / EVERY;
    let sent = FLOOD + heavy;
    let counts = envoy.load(sent, CONNECTIONS, |n| match n % (EVERY + 1) {
        EVERY => user("heavy"),
        _ => user(&format!("flood-{n}")),
    })?;
    ensure!(counts.of(200) == sent, "{counts:?}");
    let refused = envoy.counter("wasmcustom.loudou.rule.r.shadow_refused")?;
    ensure!(refused == sent, "{refused}");

    let top = eventually(SOON, "the heavy one to be counted", || {
        let top = ops.get("/v1/top?limit=1")?;
        let first = entries(&top)?.first().cloned();
        let counted = first.map(|one| number(&one, "count")).transpose()?;
        Ok(counted.is_some_and(|count| count >= heavy).then_some(top))
    })?;
    let first = entries(&top)?.first().context("a first one")?;
    let (count, error) = (number(first, "count")?, number(first, "error")?);
    let missing = number(&top, "missing_at_most")?;
    ensure!(text(first, "key")? == "heavy", "{top}");
    ensure!(count - error <= heavy && heavy <= count, "{top}");
    ensure!(error <= missing && missing <= sent / COUNTERS, "{top}");

    let output = loudou_command()?
        .args(["top", "--by", "refused", "--limit", "1", "--output", "csv"])
        .env("LOUDOU_URL", envoy.admin_url())
        .env("LOUDOU_TOKEN", VIEW_TOKEN)
        .output()?;
    let listed = String::from_utf8_lossy(&output.stdout);
    ensure!(listed.contains("\r\nr,heavy,"), "{output:?}");
    envoy.stop()
}
