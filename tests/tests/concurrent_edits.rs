//! Many concurrent editors. If several edits have the same `ETag`, exactly one succeeds, and
//! requests continue undisturbed.

use std::process::Output;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use loudou_tests::{Config, EDIT_TOKEN, Envoy, Operator, Request, eventually, loudou_command};
use serde_json::{Value, json};

const EDITORS: u64 = 12;
const ROUNDS: u64 = 20;
/// Minimum number of requests that must be answered in each round.
const BESIDE: u64 = 10;
const SOON: Duration = Duration::from_secs(10);

fn limits(capacity: u64) -> Value {
    json!([{ "name": "l", "algorithm": "funnel", "capacity": capacity, "rate": "1/d" }])
}

fn config() -> Config {
    let rule = |name: &str| json!({ "name": name, "key": [{ "header": "x-user-id" }], "limits": limits(5) });
    Config::new(json!([rule("r"), rule("s")])).concurrency(4)
}

/// Sends requests of fifty users without pause until `done` is set.
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

/// Runs the rounds during traffic. Each round ends when enough requests have been answered since it
/// began.
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
        // If the traffic failed, its error explains why a round timed out, so the error of the
        // traffic comes first.
        load.map_err(|_panic| anyhow!("the load panicked"))??;
        outcome
    })
}

/// Returns the capacity that an editor sends in a round. The values are unique, so each edit is a
/// change.
const fn capacity(round: u64, editor: u64) -> u64 {
    100 + round * EDITORS + editor
}

/// Each editor sends a different capacity on a separate connection with the same `If-Match`.
/// Returns the statuses in the order of the editors.
fn all_put(
    envoy: &Envoy,
    round: u64,
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
                    let body = json!({ "limits": limits(capacity(round, editor)) });
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
        let statuses = all_put(&envoy, round, |_| "r", &seen)?;
        let winner = statuses
            .iter()
            .position(|status| *status == 200)
            .context("a winner")?;
        let others = statuses.iter().filter(|status| **status == 412).count();
        ensure!(others == statuses.len() - 1, "{statuses:?}");
        let view = ops.get("/v1/rules/r")?;
        let found = view
            .pointer("/rule/limits/0/capacity")
            .and_then(Value::as_u64);
        ensure!(
            found == Some(capacity(round, u64::try_from(winner)?)),
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
    under_load(&envoy, |round| {
        let statuses = all_put(&envoy, round, rule, "*")?;
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

/// Runs `loudou` as an operator with the edit token.
fn loudou(envoy: &Envoy, args: &[&str]) -> Result<Output> {
    let mut command = loudou_command()?;
    command.args(args).env("LOUDOU_URL", envoy.admin_url());
    Ok(command.env("LOUDOU_TOKEN", EDIT_TOKEN).output()?)
}

/// Runs the work of all operators concurrently. Returns the first error.
fn at_once(operators: u64, work: impl Fn(u64) -> Result<()> + Sync) -> Result<()> {
    thread::scope(|scope| {
        let work = &work;
        let all: Vec<_> = (0..operators)
            .map(|operator| scope.spawn(move || work(operator)))
            .collect();
        let mut ended = all.into_iter().map(thread::ScopedJoinHandle::join);
        ended.try_for_each(|end| end.map_err(|_panic| anyhow!("an operator panicked"))?)
    })
}

/// Concurrent edits of different rules do not conflict, although each edit increments the shared
/// generation.
#[test]
fn operators_of_different_rules_do_not_conflict() -> Result<()> {
    const OPERATORS: u64 = 4;
    const EDITS: u64 = 6;
    let rules = (0..8).map(|n| json!({ "name": format!("r{n}"), "key": [{ "header": "x-user-id" }], "limits": limits(5) }));
    let envoy = Envoy::start(&Config::new(rules.collect()).concurrency(2))?;
    at_once(OPERATORS, |operator| {
        for edit in 0..EDITS {
            let rule = format!("r{}", operator * 2 + edit % 2);
            let value = format!("capacity={}", 10 + edit);
            let change = loudou(&envoy, &["set", &rule, &value, "--yes"])?;
            let errors = String::from_utf8_lossy(&change.stderr);
            ensure!(change.status.success(), "{rule} {value}: {errors}");
            let key = format!("k{edit}");
            let change = loudou(&envoy, &["override", &rule, &key, "banned", "--yes"])?;
            let errors = String::from_utf8_lossy(&change.stderr);
            ensure!(change.status.success(), "{rule} {key}: {errors}");
        }
        Ok(())
    })?;
    let mut ops = Operator::viewer(&envoy);
    ensure!(ops.generation()? == 1 + OPERATORS * EDITS * 2);
    for operator in 0..OPERATORS {
        let rule = ops.get(&format!("/v1/rules/r{}", operator * 2 + 1))?;
        let capacity = rule.pointer("/rule/limits/0/capacity");
        ensure!(capacity == Some(&json!(10 + EDITS - 1)), "{rule}");
    }
    envoy.stop()
}

/// If two operators set one rule concurrently, each edit either takes effect or fails with a
/// message about the other operator.
#[test]
fn operators_of_one_rule_overwrite_nothing_unseen() -> Result<()> {
    let envoy = Envoy::start(&config())?;
    let made = AtomicU64::new(0);
    at_once(2, |operator| {
        for edit in 0..8 {
            let value = format!("capacity={}", 1_000 * (operator + 1) + edit);
            let change = loudou(&envoy, &["set", "r", &value, "--yes"])?;
            if change.status.success() {
                made.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            let errors = String::from_utf8_lossy(&change.stderr);
            ensure!(
                errors.contains("another operator changed the rule"),
                "{errors}"
            );
        }
        Ok(())
    })?;
    let made = made.into_inner();
    let mut ops = Operator::viewer(&envoy);
    ensure!(
        ops.generation()? == 1 + made && made >= 8,
        "{made} were made"
    );
    // Each event's old value is the new value of the event before. So no edit was overwritten
    // silently.
    let events = ops.events(1)?;
    let details = events
        .iter()
        .filter_map(|event| event.get("detail")?.as_str());
    let mut before = "5".to_owned();
    for detail in details {
        let (was, is) = detail
            .trim_start_matches("l: capacity ")
            .split_once(" → ")
            .context("numbers")?;
        ensure!(was == before, "{detail} after {before}");
        is.clone_into(&mut before);
    }
    envoy.stop()
}
