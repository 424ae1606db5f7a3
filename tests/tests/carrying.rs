//! Used amounts while numbers change: edits, overrides that begin, change and end, and both together.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use loudou_tests::one_rule::{admitted, user};
use loudou_tests::{Config, Envoy, Http, Operator, eventually};
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

/// The remaining amount of each limit of a key's bucket.
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

/// Sends one more request, which is admitted; returns the first limit's remaining amount.
fn takes_one_of(envoy: &Envoy, ops: &mut Operator, key: &str, of: u64) -> Result<()> {
    let before = left(ops, key)?;
    ensure!(before.first() == Some(&of), "{before:?} of {key}");
    take(envoy, key, 1)?;
    let after = left(ops, key)?;
    ensure!(after.first() == Some(&(of - 1)), "{after:?} of {key}");
    Ok(())
}

/// Six of twenty are used, by a key with twice the rule's limits.
#[test]
fn a_key_with_a_scale_keeps_what_it_used_when_limits_come_go_and_move() -> Result<()> {
    for carry in ["keep", "proportional"] {
        let (envoy, mut ops) = start(&window(10))?;
        ops.set_override("r", "alice", "", &json!({ "scale": 2 }))?;
        take(&envoy, "alice", 6)?;
        let second =
            json!({ "name": "m", "algorithm": "funnel", "capacity": 1000, "rate": "1000/s" });
        for (limits, of) in [
            (json!([window(10), second]), 14),
            (json!([second, window(10)]), 0),
            (json!([window(10)]), 12),
        ] {
            ops.edit("r", &format!("carry={carry}"), &json!({ "limits": limits }))?;
            if of > 0 {
                takes_one_of(&envoy, &mut ops, "alice", of)?;
            } else {
                take(&envoy, "alice", 1)?;
                ensure!(left(&mut ops, "alice")?.last() == Some(&12));
            }
        }
        envoy.stop()?;
    }
    Ok(())
}

/// Four of ten are left, and an override for a second does not change that.
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
    // It begins again and is raised: nothing that was used is forgotten, nor counted twice.
    for (scale, of) in [(2, 10), (3, 19), (2, 8)] {
        ops.set_override("r", "dave", "", &json!({ "scale": scale }))?;
        takes_one_of(&envoy, &mut ops, "dave", of)?;
    }
    ops.drop_override("r", "dave")?;
    ensure!(admitted(&mut envoy.data(), "dave")? == 0);
    ensure!(left(&mut ops, "dave")? == [0]);
    // Special numbers, a beginning of keys, unlimited for a while, banned for a while.
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

/// One of ten is used, then come hundreds of raises by one: an untouched bucket has missed all of them,
/// and the rule does not remember all of them.
#[test]
fn hundreds_of_edits_carry_what_was_used() -> Result<()> {
    let (envoy, mut ops) = start(&window(10))?;
    for n in 0..40 {
        take(&envoy, &format!("user-{n}"), 1)?;
    }
    take(&envoy, "scaled", 3)?;
    ops.set_override("r", "scaled", "", &json!({ "scale": 2 }))?;
    for capacity in 11..=310 {
        ops.edit("r", "carry=keep", &json!({ "limits": [window(capacity)] }))?;
    }
    for n in [0, 17, 39] {
        takes_one_of(&envoy, &mut ops, &format!("user-{n}"), 309)?;
    }
    takes_one_of(&envoy, &mut ops, "scaled", 617)?;
    ensure!(envoy.counter("loudou.store.cas_give_ups")? == 0);
    envoy.stop()
}

/// Seven of ten are used: a slower rate leaves three, and so does a faster one.
#[test]
fn another_rate_hands_out_nothing() -> Result<()> {
    for carry in ["keep", "proportional"] {
        let (envoy, mut ops) = start(&funnel(10, "1/h"))?;
        take(&envoy, "alice", 7)?;
        for rate in ["1/d", "1/m", "1/30d", "2/h"] {
            ops.edit(
                "r",
                &format!("carry={carry}"),
                &json!({ "limits": [funnel(10, rate)] }),
            )?;
            ensure!(left(&mut ops, "alice")? == [3], "{carry} at {rate}");
        }
        ensure!(admitted(&mut envoy.data(), "alice")? == 3);
        envoy.stop()?;
    }
    Ok(())
}

#[test]
fn a_smaller_capacity_forgets_nothing() -> Result<()> {
    let (envoy, mut ops) = start(&funnel(100, "1/30d"))?;
    take(&envoy, "alice", 70)?;
    let keep = |capacity| json!({ "limits": [funnel(capacity, "1/30d")] });
    ops.edit("r", "carry=keep", &keep(10))?;
    ensure!(admitted(&mut envoy.data(), "alice")? == 0);
    ops.edit("r", "carry=keep", &keep(100))?;
    ensure!(left(&mut ops, "alice")? == [30]);
    // The same numbers again, on a new bucket.
    ops.edit("r", "carry=reset", &keep(100))?;
    ensure!(left(&mut ops, "alice")? == [100]);
    envoy.stop()
}

/// There and back, twenty times, with requests between: the larger of both capacities and no more.
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

fn queue(rate: &str) -> Value {
    json!({ "name": "l", "algorithm": "leaky_queue", "capacity": 50, "rate": rate })
}

/// Three requests wait when the rate becomes a hundred times as fast, and one comes after them. `replanning.rs` has
/// their instants.
#[test]
fn waiting_and_new_requests_pass_at_the_new_rate() -> Result<()> {
    let (envoy, mut ops) = start(&queue("1/s"))?;
    take(&envoy, "alice", 1)?;
    let (done, order) = mpsc::channel();
    let address = envoy.data_address();
    let asks = |name: &'static str| {
        let done = done.clone();
        thread::spawn(move || {
            let status = Http::new(address)
                .send(&user("alice"))
                .map(|answer| answer.status);
            done.send((name, status))
        })
    };
    let mut clients = Vec::new();
    for (waiting, name) in (1..).zip(["first", "second", "third"]) {
        clients.push(asks(name));
        eventually(SOON, "another one to wait", || {
            Ok((ops.waiting()? == waiting).then_some(()))
        })?;
    }
    ops.edit("r", "carry=keep", &json!({ "limits": [queue("100/s")] }))?;
    clients.push(asks("last"));
    // They are due within 40 ms; how late they are depends on their workers.
    for _ in 0..4 {
        let (name, status) = order.recv_timeout(SOON)?;
        ensure!(status? == 200, "{name}");
    }
    for client in clients {
        ensure!(client.join().is_ok_and(|sent| sent.is_ok()));
    }
    envoy.stop()
}
