//! Many concurrent editors: of those with the same `ETag` one wins, and requests are not disturbed.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use loudou_tests::{Config, Envoy, Operator, Request, eventually};
use serde_json::{Value, json};

const EDITORS: u64 = 12;
const ROUNDS: u64 = 20;
/// The minimum number of requests answered in each round.
const BESIDE: u64 = 10;
const SOON: Duration = Duration::from_secs(10);

fn limits(capacity: u64) -> Value {
    json!([{ "name": "l", "algorithm": "funnel", "capacity": capacity, "rate": "1/d" }])
}

fn config() -> Config {
    let rule = |name: &str| json!({ "name": name, "key": [{ "header": "x-user-id" }], "limits": limits(5) });
    Config::new(json!([rule("r"), rule("s")])).concurrency(4)
}

/// Sends requests of fifty users without pause until stopped.
fn traffic(envoy: &Envoy, done: &AtomicBool, answered: &AtomicU64) -> Result<()> {
    let mut http = envoy.data();
    for n in (0_u64..).take_while(|_| !done.load(Ordering::Acquire)) {
        let user = format!("user-{}", n % 50);
        let status = http
            .send(&Request::get("/").header("x-user-id", user))?
            .status;
        ensure!(
            matches!(status, 200 | 429),
            "{status} while rules are edited"
        );
        answered.fetch_add(1, Ordering::Release);
    }
    Ok(())
}

/// Runs the rounds during traffic; each waits until some requests have been answered since it began.
fn under_load(envoy: &Envoy, mut round: impl FnMut(u64) -> Result<()>) -> Result<()> {
    let (done, answered) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let load = scope.spawn(|| traffic(envoy, &done, &answered));
        let outcome = (0..ROUNDS).try_for_each(|number| {
            let before = answered.load(Ordering::Acquire);
            round(number)?;
            eventually(SOON, "requests beside the edits", || {
                let since = answered.load(Ordering::Acquire) - before;
                Ok((since >= BESIDE).then_some(()))
            })
        });
        done.store(true, Ordering::Release);
        let load = load.join();
        // The reason for which the load ended explains why a round waited in vain.
        load.map_err(|_panic| anyhow!("the load panicked"))??;
        outcome
    })
}

/// Every editor sends a different capacity, on its own connection, with the same `If-Match`; returns
/// the statuses by editor.
fn all_put(
    envoy: &Envoy,
    rule: impl Fn(u64) -> &'static str + Sync,
    generation: &str,
) -> Result<Vec<u16>> {
    thread::scope(|scope| {
        let rule = &rule;
        let editors: Vec<_> = (0..EDITORS)
            .map(|editor| {
                scope.spawn(move || {
                    let path = format!("/v1/rules/{}", rule(editor));
                    let request = Request::new("PUT", &path).header("if-match", generation);
                    let body = json!({ "limits": limits(100 + editor) });
                    Ok(Operator::editor(envoy).send(request.json(&body))?.status)
                })
            })
            .collect();
        let ended = editors.into_iter().map(thread::ScopedJoinHandle::join);
        ended
            .map(|end| end.unwrap_or_else(|_panic| Err(anyhow!("an editor panicked"))))
            .collect()
    })
}

#[test]
fn one_of_several_edits_with_the_same_etag_wins() -> Result<()> {
    let envoy = Envoy::start(&config())?;
    let mut ops = Operator::editor(&envoy);
    under_load(&envoy, |round| {
        let generation = round + 1;
        let seen = ops.etag_at(generation)?;
        let statuses = all_put(&envoy, |_| "r", &seen)?;
        let winner = statuses
            .iter()
            .position(|status| *status == 200)
            .context("a winner")?;
        let others = statuses.iter().filter(|status| **status == 412).count();
        ensure!(others == statuses.len() - 1, "{statuses:?}");
        let view = ops.get("/v1/rules/r")?;
        let capacity = view
            .pointer("/rule/limits/0/capacity")
            .and_then(Value::as_u64);
        ensure!(
            capacity == Some(100 + u64::try_from(winner)?),
            "editor {winner} won: {view}"
        );
        ensure!(
            view.get("generation").and_then(Value::as_u64) == Some(generation + 1),
            "{view}"
        );
        Ok(())
    })?;
    let events = Operator::viewer(&envoy).events(0)?;
    ensure!(
        u64::try_from(events.len())? == ROUNDS + 1,
        "one event for each success: {}",
        events.len()
    );
    envoy.stop()
}

#[test]
fn edits_at_any_generation_all_count() -> Result<()> {
    let envoy = Envoy::start(&config())?;
    let rule = |editor: u64| if editor.is_multiple_of(2) { "r" } else { "s" };
    under_load(&envoy, |_| {
        let statuses = all_put(&envoy, rule, "*")?;
        ensure!(statuses.iter().all(|status| *status == 200), "{statuses:?}");
        Ok(())
    })?;
    let successes = ROUNDS * EDITORS;
    let mut ops = Operator::viewer(&envoy);
    ensure!(
        ops.generation()? == successes + 1,
        "{} after {successes}",
        ops.generation()?
    );
    let page = ops.get("/v1/events")?;
    ensure!(
        page.get("last_seq").and_then(Value::as_u64) == Some(successes + 1),
        "an event is missing"
    );
    let events = ops.events(0)?;
    let seqs: Vec<u64> = events
        .iter()
        .filter_map(|event| event.get("seq")?.as_u64())
        .collect();
    ensure!(
        seqs.windows(2)
            .all(|pair| matches!(pair, [a, b] if a + 1 == *b)),
        "{seqs:?}"
    );
    for name in ["r", "s"] {
        let view = ops.get(&format!("/v1/rules/{name}"))?;
        let capacity = view
            .pointer("/rule/limits/0/capacity")
            .and_then(Value::as_u64);
        let admitted = (0..200).try_fold(0, |count, _| {
            let request = Request::get("/").header("x-user-id", format!("fresh-for-{name}"));
            Ok::<u64, anyhow::Error>(count + u64::from(envoy.data().send(&request)?.status == 200))
        })?;
        ensure!(
            Some(admitted) >= capacity.min(Some(100)),
            "{admitted} admitted: {view}"
        );
    }
    envoy.stop()
}
