//! Searches in a large store find every key and take only a small share of the workers.

use std::collections::BTreeSet;
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use loudou_tests::clock::{now, pause_for};
use loudou_tests::cpu::worker_time;
use loudou_tests::flood::flood;
use loudou_tests::one_rule::{config, user};
use loudou_tests::{Envoy, Operator, Request, expect_problem};
use serde_json::Value;

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}

fn number(value: &Value, pointer: &str) -> Result<u64> {
    let number = value.pointer(pointer).and_then(Value::as_u64);
    number.with_context(|| format!("no {pointer}: {value}"))
}

/// Number of users in the large store, and number of its pages.
const MANY: u64 = 20_000;
const PAGES: u64 = 4_096;
/// Minimum number of pages that every answer searches, even on a slow machine.
const LEAST_PAGES: u64 = 15;

fn large_store() -> Result<Envoy> {
    let envoy = Envoy::start(&config(5))?;
    flood(envoy.data_address(), MANY, |n| user(&format!("user-{n}")))?;
    Ok(envoy)
}

#[test]
fn a_large_store_is_listed_whole_and_pages_are_empty_only_after_work() -> Result<()> {
    let envoy = large_store()?;
    let mut ops = Operator::viewer(&envoy);
    let used = number(&ops.get("/v1/status")?, "/store/used")?;
    let all = ops.buckets("limit=500")?;
    let keys: BTreeSet<&str> = all.iter().map(|bucket| text(bucket, "key")).collect();
    ensure!(keys.len() == all.len(), "listed twice");
    ensure!(u64::try_from(all.len())? == used, "{used} in the store");
    ensure!(used > MANY * 9 / 10, "too few to be a test: {used}");
    // Most answers to this search are empty.
    let (mut cursor, mut done, mut found) = (String::new(), 0, 0);
    loop {
        let page = ops.search(&format!("/v1/buckets?key=user-777{cursor}"))?;
        let buckets = page["buckets"].as_array().context("a list")?;
        found += buckets.len();
        ensure!(
            buckets
                .iter()
                .all(|bucket| text(bucket, "key").contains("user-777"))
        );
        ensure!(number(&page, "/pages")? == PAGES, "{page}");
        let now_done = number(&page, "/pages_done")?;
        let Some(next) = page["next_cursor"].as_str() else {
            ensure!(now_done == PAGES, "{page}");
            break;
        };
        ensure!(
            !buckets.is_empty() || now_done >= done + LEAST_PAGES,
            "{page}"
        );
        done = now_done;
        cursor = format!("&cursor={next}");
    }
    let all = keys.iter().filter(|key| key.contains("user-777"));
    ensure!(found == all.count(), "{found} found");
    envoy.stop()
}

/// Two callers that follow the cursors as fast as allowed must use only a small share of the
/// workers. The share is worker time divided by clock time, so other load on the machine can only
/// make it smaller.
#[test]
fn searches_take_a_small_share_of_the_workers() -> Result<()> {
    let envoy = large_store()?;
    let searching = || {
        let (mut ops, mut cursor, begun) = (Operator::viewer(&envoy), String::new(), now());
        while begun.elapsed() < Duration::from_secs(3) {
            let page = ops.search(&format!("/v1/buckets?key=nobody{cursor}"))?;
            let next = page["next_cursor"].as_str();
            cursor = next.map_or_else(String::new, |next| format!("&cursor={next}"));
        }
        anyhow::Ok(())
    };
    let (before, begun) = (worker_time(envoy.pid())?, now());
    thread::scope(|scope| {
        let callers = [scope.spawn(searching), scope.spawn(searching)];
        let mut ended = callers.into_iter().map(thread::ScopedJoinHandle::join);
        ended.try_for_each(|end| end.map_err(|_panic| anyhow!("a caller panicked"))?)
    })?;
    let spent = worker_time(envoy.pid())?.saturating_sub(before);
    let share = spent.as_secs_f64() / begun.elapsed().as_secs_f64();
    println!("searches take {share:.2} of a worker");
    // Each of the two workers may spend a tenth of its time. The rest is Envoy's work for the
    // calls.
    ensure!(share < 0.35, "searches take {share:.2} of a worker");
    envoy.stop()
}

#[test]
fn a_client_that_does_not_wait_is_refused_for_a_while() -> Result<()> {
    let envoy = large_store()?;
    // Enough concurrent callers to leave the workers no pause, even on a slow machine.
    let refused = OnceLock::new();
    let calling = || {
        let mut ops = Operator::viewer(&envoy);
        for _ in 0..2_000 {
            let answer = ops.send(Request::get("/v1/buckets?key=nobody"))?;
            if answer.status != 200 {
                refused.get_or_init(|| answer);
            }
            if refused.get().is_some() {
                break;
            }
        }
        anyhow::Ok(())
    };
    thread::scope(|scope| {
        let callers: Vec<_> = (0..16).map(|_| scope.spawn(calling)).collect();
        let mut ended = callers.into_iter().map(thread::ScopedJoinHandle::join);
        ended.try_for_each(|end| end.map_err(|_panic| anyhow!("a caller panicked"))?)
    })?;
    let refused = refused.into_inner().context("never refused")?;
    let problem = expect_problem(&refused, 429)?;
    ensure!(problem.contains("retry_after_ns"), "{problem}");
    let seconds: u64 = refused.header("retry-after").context("when")?.parse()?;
    let ns = number(&refused.json()?, "/retry_after_ns")?;
    ensure!(
        ns > 0 && seconds == ns.div_ceil(1_000_000_000),
        "{refused:?}"
    );
    // Other calls are not refused, and after the wait a search is not refused either.
    let mut ops = Operator::viewer(&envoy);
    ops.get("/v1/status")?;
    pause_for(Duration::from_nanos(ns));
    ops.get("/v1/buckets?key=nobody")?;
    envoy.stop()
}
