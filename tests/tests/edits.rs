//! Live edits are conditional on `If-Match`, take effect on every worker at once, and end when they
//! expire or are dropped.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, ensure};
use loudou_tests::one_rule::{admitted, config, edit, limits, user};
use loudou_tests::{Envoy, Http, Operator, Request, eventually, expect, expect_problem, now};
use serde_json::{Value, json};

/// Maximum time between the answer to an edit and its effect on every worker.
const IN_FORCE: Duration = Duration::from_millis(200);
const SOON: Duration = Duration::from_secs(10);
const LOADERS: usize = 16;
/// Number of requests that are checked after a change.
const ENOUGH: usize = 500;

/// An edit with a capacity far above what a test takes. Its rate is so low that nothing refills
/// during a test.
fn plenty() -> Value {
    json!({ "limits": [
        { "name": "l", "algorithm": "funnel", "capacity": 1_000_000, "rate": "1000/d" },
    ] })
}

/// Returns an edit to capacity 9 with `seen` as `If-Match`.
fn put(seen: Option<&str>) -> Request {
    let request = Request::new("PUT", "/v1/rules/r").json(&edit(9));
    match seen {
        Some(seen) => request.header("if-match", seen),
        None => request,
    }
}

#[test]
fn a_stale_or_unseen_edit_changes_nothing() -> Result<()> {
    let envoy = Envoy::start(&config(3))?;
    let mut ops = Operator::editor(&envoy);
    let unseen = ops.send(put(None))?;
    expect_problem(&unseen, 428)?;
    ensure!(
        unseen.json()?["current"]["rule"]["limits"][0]["capacity"] == 3,
        "{}",
        unseen.text()
    );
    let right = ops.etag()?;
    let weak = format!("W/{right}");
    let later = ops.etag_at(2)?;
    for (stale, status) in [
        ("\"0\"", 412),
        ("\"1\"", 412),
        ("W/\"1\"", 412),
        ("\"x\"", 412),
        (&weak, 412),
        (&later, 412),
        ("\"0000000000000000-1\"", 412),
        ("1", 400),
        ("", 400),
        ("\"1", 400),
        ("\u{e9}", 400),
        (right.trim_matches('"'), 400),
    ] {
        let answer = ops.send(put(Some(stale)))?;
        ensure!(answer.status == status, "{stale}: {}", answer.text());
        ensure!(
            status == 400 || answer.json()?["current"]["generation"] == 1,
            "{stale}: {}",
            answer.text()
        );
    }
    for gone in [
        Request::new("DELETE", "/v1/rules/r"),
        Request::new("DELETE", "/v1/rules/r").header("if-match", "\"7\""),
    ] {
        ensure!(matches!(ops.send(gone)?.status, 412 | 428));
    }
    ensure!(ops.generation()? == 1, "nothing has changed");
    envoy.stop()
}

#[test]
fn an_edit_names_the_version_it_has_seen() -> Result<()> {
    let envoy = Envoy::start(&config(3))?;
    let mut ops = Operator::editor(&envoy);
    let first = ops.etag()?;
    let answer = ops.send(put(Some(&first)))?;
    let second = ops.etag_at(2)?;
    let body = expect(&answer, 200)?;
    ensure!(
        answer.header("etag") == Some(second.as_str()) && body["after"]["generation"] == 2,
        "{body}"
    );
    ensure!(
        body["change"] == "l: capacity 3 → 9" && body["before"]["limits"] == limits(3),
        "{body}"
    );
    let late = ops.send(put(Some(&first)))?;
    expect_problem(&late, 412)?;
    ensure!(
        late.json()?["current"]["rule"]["limits"] == limits(9),
        "the value that won: {}",
        late.text()
    );
    ensure!(
        late.json()?["current"]["edit"]["by"] == "ops",
        "and who it is of: {}",
        late.text()
    );
    ensure!(ops.send(put(Some("*")))?.status == 200);
    expect_problem(
        &ops.send(
            Request::new("PUT", "/v1/rules/none")
                .header("if-match", "*")
                .json(&edit(1)),
        )?,
        404,
    )?;
    envoy.stop()
}

/// Time at which a request was sent, and its status.
type Sent = (Instant, u16);

/// Sends requests for one key without pause until `done` is set.
fn refusals_until(done: &AtomicBool, count: &AtomicUsize, mut http: Http) -> Result<Vec<Sent>> {
    let mut own = Vec::new();
    while !done.load(Ordering::Acquire) {
        let sent = now();
        own.push((sent, http.send(&user("alice"))?.status));
        count.fetch_add(1, Ordering::Release);
    }
    Ok(own)
}

/// Waits until [`IN_FORCE`] has passed since `answered` and until enough requests were sent later.
fn enough_after(answered: Instant, count: &AtomicUsize) -> Result<()> {
    eventually(SOON, "the change to be in force", || {
        Ok((now() >= answered + IN_FORCE).then_some(()))
    })?;
    // The first [`LOADERS`] requests may have been sent before this moment.
    let until = count.load(Ordering::Acquire) + LOADERS + ENOUGH;
    eventually(SOON, "requests after the change", || {
        Ok((count.load(Ordering::Acquire) >= until).then_some(()))
    })
}

/// Runs `change` under load on all workers. Returns the statuses of the requests that were sent at
/// least [`IN_FORCE`] after its answer.
fn after_the_change(envoy: &Envoy, change: impl FnOnce() -> Result<()>) -> Result<Vec<u16>> {
    let (done, count) = (AtomicBool::new(false), AtomicUsize::new(0));
    let (seen, answered) = thread::scope(|scope| {
        let loaders: Vec<_> = (0..LOADERS)
            .map(|_| scope.spawn(|| refusals_until(&done, &count, envoy.data())))
            .collect();
        let answered = change().and_then(|()| {
            let answered = now();
            enough_after(answered, &count).map(|()| answered)
        });
        done.store(true, Ordering::Release);
        let mut seen = Vec::new();
        for loader in loaders {
            let own = loader.join();
            seen.extend(own.map_err(|_panic| anyhow!("a loader panicked"))??);
        }
        anyhow::Ok((seen, answered?))
    })?;
    let late = seen.iter().filter(|(sent, _)| *sent >= answered + IN_FORCE);
    let late: Vec<u16> = late.map(|(_, status)| *status).collect();
    ensure!(late.len() >= ENOUGH, "only {} were late", late.len());
    Ok(late)
}

#[test]
fn an_edit_is_in_force_on_every_worker_at_once() -> Result<()> {
    let envoy = Envoy::start(&config(1).concurrency(4))?;
    let mut ops = Operator::editor(&envoy);
    ensure!(admitted(&mut envoy.data(), "alice")? == 1);
    let raise = || ops.edit("r", "carry=keep", &plenty()).map(|_| ());
    let late = after_the_change(&envoy, raise)?;
    ensure!(
        late.iter().all(|status| *status == 200),
        "refused after the limit was raised"
    );
    let mut ops = Operator::editor(&envoy);
    let undo = || ops.drop_edit("r", "carry=keep").map(|_| ());
    let late = after_the_change(&envoy, undo)?;
    ensure!(
        late.iter().all(|status| *status == 429),
        "admitted after the limit was lowered"
    );
    let mut ops = Operator::editor(&envoy);
    let shadow = || ops.edit("r", "", &json!({ "mode": "shadow" })).map(|_| ());
    let late = after_the_change(&envoy, shadow)?;
    ensure!(
        late.iter().all(|status| *status == 200),
        "a shadow rule refuses no request"
    );
    envoy.stop()
}

#[test]
fn a_level_is_carried_over_as_requested() -> Result<()> {
    // Each case takes 5 of 10 units at 1/d. Then the edit changes the limit.
    let cases = [
        ("carry=keep", 4, "1/d", 0),
        ("carry=keep", 20, "2/d", 15),
        ("carry=proportional", 4, "1/d", 2),
        ("carry=proportional", 20, "2/d", 10),
        // After this edit, half of 20 drains in ten days instead of five.
        ("carry=proportional", 20, "1/d", 10),
        ("", 4, "1/d", 0),
        ("", 20, "2/d", 15),
        ("carry=reset", 4, "1/d", 4),
        ("carry=reset", 20, "2/d", 20),
    ];
    let envoy = Envoy::start(&config(10))?;
    let mut ops = Operator::editor(&envoy);
    let mut http = envoy.data();
    for (number, (query, capacity, rate, left)) in cases.into_iter().enumerate() {
        // Each case uses separate keys and begins with the rule as configured.
        let (alice, new) = (format!("alice{number}"), format!("new{number}"));
        for _ in 0..5 {
            ensure!(http.send(&user(&alice))?.status == 200);
        }
        let limit =
            json!({ "name": "l", "algorithm": "funnel", "capacity": capacity, "rate": rate });
        ops.edit("r", query, &json!({ "limits": [limit] }))?;
        let shown = ops.bucket("r", &alice)?.context("a bucket")?;
        ensure!(
            shown["limits"][0]["remaining"] == left,
            "{query} {capacity}: {shown}"
        );
        let passed = admitted(&mut http, &alice)?;
        ensure!(
            passed == left,
            "{query} {capacity}: {passed} instead of {left}"
        );
        ensure!(admitted(&mut http, &new)? == capacity, "{query} {capacity}");
        ops.drop_edit("r", "carry=reset")?;
    }
    envoy.stop()
}

#[test]
fn dropping_an_edit_goes_back_to_the_base() -> Result<()> {
    let envoy = Envoy::start(&config(10))?;
    let mut ops = Operator::editor(&envoy);
    let mut http = envoy.data();
    ops.edit(
        "r",
        "carry=keep",
        &json!({ "limits": limits(20), "mode": "shadow" }),
    )?;
    for _ in 0..30 {
        ensure!(
            http.send(&user("alice"))?.status == 200,
            "a shadow rule refuses no request"
        );
    }
    let answer = ops.drop_edit("r", "carry=proportional&reason=enough")?;
    ensure!(
        answer["change"] == "l: capacity 20 → 10; mode shadow → enforce",
        "{answer}"
    );
    ensure!(
        answer["after"].get("edit").is_none() && answer["after"]["rule"] == answer["after"]["base"],
        "{answer}"
    );
    ensure!(admitted(&mut http, "alice")? == 0 && admitted(&mut http, "new")? == 10);
    let event = ops.events(0)?.pop().context("an event")?;
    ensure!(
        event["kind"] == "edit_dropped" && event["reason"] == "enough" && event["by"] == "ops",
        "{event}"
    );
    // An edit that equals the base is not stored as an edit.
    let same = ops.edit("r", "", &edit(10))?;
    ensure!(
        same["change"] == "" && same["after"].get("edit").is_none(),
        "{same}"
    );
    envoy.stop()
}
