//! Used units stay correct while limits change: by edits, by overrides that begin, change and end,
//! and by both together.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use loudou_tests::one_rule::{admitted, user};
use loudou_tests::{Config, Envoy, Operator, eventually};
use serde_json::{Value, json};

const SOON: Duration = Duration::from_secs(20);

fn window(capacity: u64) -> Value {
    json!({ "name": "l", "algorithm": "fixed_window", "capacity": capacity, "window": "1d" })
}

fn funnel(capacity: u64, rate: &str) -> Value {
    json!({ "name": "l", "algorithm": "funnel", "capacity": capacity, "rate": rate })
}

fn start(limit: &Value) -> Result<(Envoy, Operator)> {
    let key = json!([{ "header": "x-user-id" }]);
    let config = Config::new(json!([{ "name": "r", "key": key, "limits": [limit] }]));
    let envoy = Envoy::start(&config)?;
    let ops = Operator::editor(&envoy);
    Ok((envoy, ops))
}

/// Returns the remaining units of each limit in the bucket of a key.
fn left(ops: &mut Operator, key: &str) -> Result<Vec<u64>> {
    let bucket = ops.bucket("r", key)?.context("a bucket")?;
    let limits = bucket.get("limits").and_then(Value::as_array);
    let left = limits.context("limits")?.iter();
    let left = left.map(|limit| limit.get("remaining").and_then(Value::as_u64));
    left.collect::<Option<Vec<u64>>>().context("what is left")
}

fn take(envoy: &Envoy, key: &str, count: u32) -> Result<()> {
    let mut http = envoy.data();
    for n in 0..count {
        let status = http.send(&user(key))?.status;
        ensure!(status == 200, "{status} for {key}, the {n}th");
    }
    Ok(())
}

/// Sends one request, which must be admitted. The first limit must have `of` units remaining before
/// the request and one fewer after it.
fn takes_one_of(envoy: &Envoy, ops: &mut Operator, key: &str, of: u64) -> Result<()> {
    let before = left(ops, key)?;
    ensure!(before.first() == Some(&of), "{before:?} of {key}");
    take(envoy, key, 1)?;
    let after = left(ops, key)?;
    ensure!(after.first() == Some(&(of - 1)), "{after:?} of {key}");
    Ok(())
}

/// An override that ends after a second leaves four of ten units, as many as before the override.
#[test]
fn an_override_that_ends_leaves_what_was_left() -> Result<()> {
    let (envoy, mut ops) = start(&window(10))?;
    take(&envoy, "dave", 6)?;
    ops.set_override("r", "dave", "for=1s", &json!({ "scale": 10 }))?;
    ensure!(left(&mut ops, "dave")? == [94]);
    eventually(SOON, "the override to end", || {
        Ok((left(&mut ops, "dave")? == [4]).then_some(()))
    })?;
    ensure!(admitted(&mut envoy.data(), "dave")? == 4);
    // The override begins again with other scales. Used units are neither lost nor counted twice.
    for (scale, of) in [(2, 10), (3, 19), (2, 8)] {
        ops.set_override("r", "dave", "", &json!({ "scale": scale }))?;
        takes_one_of(&envoy, &mut ops, "dave", of)?;
    }
    ops.drop_override("r", "dave")?;
    ensure!(admitted(&mut envoy.data(), "dave")? == 0);
    ensure!(left(&mut ops, "dave")? == [0]);
    // Limits in the override, a key prefix, unlimited for a while, banned for a while.
    take(&envoy, "erin", 6)?;
    let own = json!({ "limits": [window(50)] });
    for (pattern, gives, of) in [
        ("er*", &own, Some(44)),
        ("erin", &json!({ "scale": 2 }), Some(13)),
        ("erin", &json!("unlimited"), None),
        ("erin", &json!("banned"), None),
        ("erin", &json!({ "scale": 2 }), Some(12)),
    ] {
        ops.set_override("r", pattern, "", gives)?;
        if let Some(of) = of {
            takes_one_of(&envoy, &mut ops, "erin", of)?;
        }
    }
    envoy.stop()
}

/// Edits that change the capacity back and forth twenty times admit at most the larger capacity in
/// total.
#[test]
fn edits_there_and_back_hand_out_nothing() -> Result<()> {
    for limit in [funnel(60, "1/d"), window(60)] {
        for carry in ["keep", "proportional"] {
            let (envoy, mut ops) = start(&limit)?;
            let mut all = admitted(&mut envoy.data(), "alice")?;
            for n in 0..20 {
                let mut edited = limit.clone();
                if let Some(capacity) = edited.get_mut("capacity") {
                    *capacity = json!(60 + (n + 1) % 2);
                }
                ops.edit(
                    "r",
                    &format!("carry={carry}"),
                    &json!({ "limits": [edited] }),
                )?;
                all += admitted(&mut envoy.data(), "alice")?;
            }
            ensure!((60..=61).contains(&all), "{all} with {carry}: {limit}");
            envoy.stop()?;
        }
    }
    Ok(())
}
