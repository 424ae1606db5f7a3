//! Configurations. Envoy refuses an invalid configuration, and the log reports every problem. A
//! valid update keeps all state that it does not change.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use loudou_rules::config;
use loudou_tests::{Config, Envoy, Http, Operator, Request, Update, eventually};
use serde_json::{Value, json};

/// Timeout within which every worker has applied an update.
const SOON: Duration = Duration::from_secs(10);

fn rule(name: &str, capacity: u32) -> Value {
    json!({
        "name": name,
        "match": { "path": { "prefix": format!("/{name}") } },
        "key": [{ "header": "x-user-id" }],
        "limits": [{ "name": "l", "algorithm": "funnel", "capacity": capacity, "rate": "1/d" }],
    })
}

fn status(http: &mut Http, rule: &str, user: &str) -> Result<u16> {
    let request = Request::get(&format!("/{rule}")).header("x-user-id", user);
    Ok(http.send(&request)?.status)
}

/// Uses up a new bucket, and then expects one refusal.
fn exhaust(envoy: &Envoy, rule: &str, user: &str, capacity: u32) -> Result<()> {
    let mut http = envoy.data();
    for _ in 0..capacity {
        ensure!(status(&mut http, rule, user)? == 200, "{rule} {user}");
    }
    ensure!(status(&mut http, rule, user)? == 429, "{rule} {user}");
    Ok(())
}

/// Waits until the admin API shows this capacity for a rule. `None` waits until the rule is gone.
fn in_force(ops: &mut Operator, rule: &str, capacity: Option<u64>) -> Result<()> {
    eventually(SOON, "the configuration to be in force", || {
        let rules = ops.get("/v1/rules")?;
        let mut list = rules
            .pointer("/rules")
            .and_then(Value::as_array)
            .into_iter()
            .flatten();
        let found = list.find(|view| view.get("name").is_some_and(|name| name == rule));
        let now = found.and_then(|view| view.pointer("/rule/limits/0/capacity")?.as_u64());
        Ok((now == capacity).then_some(()))
    })
}

/// Returns the number of events of one kind about one rule.
fn events(ops: &mut Operator, kind: &str, rule: &str) -> Result<usize> {
    let events = ops.events(0)?;
    let about = |event: &&Value| {
        event.get("kind").is_some_and(|k| k == kind) && event.get("rule").is_some_and(|r| r == rule)
    };
    Ok(events.iter().filter(about).count())
}

/// Returns invalid configurations with one problem or several.
fn wrong_ones() -> Vec<Value> {
    let with = |field: &str, value: Value| {
        let mut wrong = rule("a", 5);
        if let Some(fields) = wrong.as_object_mut() {
            fields.insert(field.to_owned(), value);
        }
        json!({ "version": 1, "rules": [wrong] })
    };
    let funnel = |algorithm: &str, rate: &str| json!([{ "algorithm": algorithm, "capacity": 5, "rate": rate }]);
    vec![
        with("onmissing_key", json!("skip")),
        with("limits", funnel("funnel", "0/s")),
        json!({ "version": 1, "rules": [rule("a", 5), rule("a", 6)] }),
        with("limits", funnel("funnle", "1/s")),
        json!({ "version": 1, "rulez": [], "rules": [
            { "name": "A b", "key": ["source"], "limits": funnel("funnel", "1/0s") },
            { "name": "b", "key": ["sauce"], "limits": funnel("funnel", "1/s"), "mode": "enforced" },
        ] }),
        json!({ "version": 2, "store": { "buckets": 0, "namespace": "\u{1b}[31m" }, "rules": {} }),
        json!([]),
    ]
}

#[test]
fn validation_reports_every_problem_in_the_same_words() -> Result<()> {
    for document in wrong_ones() {
        let ours = config::parse(&document).problems;
        ensure!(!ours.is_empty(), "no problem: {document}");
        let config = Config::new(json!([])).data_plugin(document.clone());
        let output = Envoy::validate(&config)?;
        ensure!(!output.status.success(), "accepted: {document}");
        let log = String::from_utf8_lossy(&output.stderr);
        for problem in ours {
            let line = format!("configuration: {problem}");
            ensure!(log.contains(&line), "the log lacks `{line}`:\n{log}");
        }
        ensure!(!log.contains("panicked"), "{log}");
    }
    Ok(())
}

#[test]
fn a_wrong_admin_configuration_is_refused() -> Result<()> {
    let wrong = json!({ "version": 1, "admin": { "role": "boss", "tokens": [
        { "name": "ops", "sha256": "abc", "may": "everything" },
    ] } });
    let output = Envoy::validate(&Config::new(json!([])).admin_plugin(wrong))?;
    let log = String::from_utf8_lossy(&output.stderr);
    ensure!(!output.status.success(), "{log}");
    for place in [
        "admin.role",
        "admin.tokens[0].sha256",
        "admin.tokens[0].may",
    ] {
        ensure!(log.contains(place), "the log lacks {place}:\n{log}");
    }
    Ok(())
}

#[test]
fn a_bad_update_leaves_limits_and_buckets_alone() -> Result<()> {
    let envoy = Envoy::start(&Config::new(json!([rule("a", 3)])))?;
    let mut ops = Operator::editor(&envoy);
    exhaust(&envoy, "a", "alice", 3)?;
    let before = ops.generation()?;
    for document in wrong_ones() {
        let bad = Config::new(json!([])).data_plugin(document.clone());
        ensure!(
            envoy.push(&bad)? == Update::Rejected,
            "accepted: {document}"
        );
        ensure!(
            status(&mut envoy.data(), "a", "alice")? == 429,
            "after {document}"
        );
    }
    exhaust(&envoy, "a", "bob", 3)?;
    ensure!(
        ops.generation()? == before && ops.events(0)?.len() == 1,
        "{:?}",
        ops.events(0)?
    );
    let log = envoy.log()?;
    ensure!(
        log.contains("did you mean `funnel`?"),
        "the log tells what is wrong"
    );
    envoy.stop()
}

#[test]
fn a_good_update_keeps_the_buckets_it_does_not_touch() -> Result<()> {
    let envoy = Envoy::start(&Config::new(json!([rule("a", 3), rule("b", 2)])))?;
    let mut ops = Operator::editor(&envoy);
    exhaust(&envoy, "a", "alice", 3)?;
    exhaust(&envoy, "b", "alice", 2)?;
    ensure!(envoy.push(&Config::new(json!([rule("a", 3), rule("c", 1)])))? == Update::Accepted);
    in_force(&mut ops, "c", Some(1))?;
    in_force(&mut ops, "b", None)?;
    ensure!(
        status(&mut envoy.data(), "a", "alice")? == 429,
        "the bucket is as it was"
    );
    ensure!(
        status(&mut envoy.data(), "b", "alice")? == 200,
        "the rule is gone"
    );
    exhaust(&envoy, "c", "alice", 1)?;
    exhaust(&envoy, "a", "bob", 3)?;
    let configured = ops.events(0)?.pop().context("an event")?;
    let detail = configured
        .get("detail")
        .and_then(Value::as_str)
        .unwrap_or_default();
    ensure!(detail == "added c; removed b", "{configured}");
    // The first rules return. The used units of `b` are still there, because the rule is the same.
    ensure!(envoy.push(&Config::new(json!([rule("b", 2), rule("a", 3)])))? == Update::Accepted);
    in_force(&mut ops, "b", Some(2))?;
    ensure!(status(&mut envoy.data(), "b", "alice")? == 429);
    ensure!(status(&mut envoy.data(), "a", "alice")? == 429);
    envoy.stop()
}

/// A new configuration keeps the units that a key has used, as an edit with `carry=keep` does.
#[test]
fn a_changed_rule_keeps_what_was_used() -> Result<()> {
    let envoy = Envoy::start(&Config::new(json!([rule("a", 10)])))?;
    let mut ops = Operator::editor(&envoy);
    exhaust(&envoy, "a", "full", 10)?;
    let mut http = envoy.data();
    for _ in 0..3 {
        ensure!(status(&mut http, "a", "little")? == 200);
    }
    ensure!(envoy.push(&Config::new(json!([rule("a", 20)])))? == Update::Accepted);
    in_force(&mut ops, "a", Some(20))?;
    exhaust(&envoy, "a", "full", 10)?;
    // Smaller and larger capacities in turn must not admit the key that has used more than each of
    // them. Each capacity occurs only once, because an earlier configuration would be a rollback,
    // which takes effect only with new connections.
    for capacity in [5, 8, 6, 7, 4] {
        ensure!(envoy.push(&Config::new(json!([rule("a", capacity)])))? == Update::Accepted);
        in_force(&mut ops, "a", Some(capacity.into()))?;
        ensure!(status(&mut envoy.data(), "a", "full")? == 429);
    }
    exhaust(&envoy, "a", "little", 1)?;
    exhaust(&envoy, "a", "new", 4)?;
    envoy.stop()
}

#[test]
fn a_changed_rule_retires_its_edit_and_no_other() -> Result<()> {
    let envoy = Envoy::start(&Config::new(json!([rule("a", 2), rule("b", 2)])))?;
    let mut ops = Operator::editor(&envoy);
    let edit =
        json!({ "limits": [{ "name": "l", "algorithm": "funnel", "capacity": 6, "rate": "1/d" }] });
    ops.edit("a", "carry=keep", &edit)?;
    ops.edit("b", "carry=keep", &edit)?;
    exhaust(&envoy, "a", "alice", 6)?;
    exhaust(&envoy, "b", "alice", 6)?;
    ensure!(envoy.push(&Config::new(json!([rule("a", 3), rule("b", 2)])))? == Update::Accepted);
    in_force(&mut ops, "a", Some(3))?;
    ensure!(
        ops.get("/v1/rules/a")?.get("edit").is_none(),
        "the configuration won"
    );
    ensure!(
        ops.get("/v1/rules/b")?.get("edit").is_some(),
        "an untouched rule keeps its edit"
    );
    ensure!(
        events(&mut ops, "edit_retired", "a")? == 1,
        "{:?}",
        ops.events(0)?
    );
    ensure!(
        events(&mut ops, "edit_retired", "b")? == 0,
        "{:?}",
        ops.events(0)?
    );
    exhaust(&envoy, "a", "bob", 3)?;
    exhaust(&envoy, "b", "bob", 6)?;
    ensure!(status(&mut envoy.data(), "a", "alice")? == 429);
    ensure!(status(&mut envoy.data(), "b", "alice")? == 429);
    envoy.stop()
}

#[test]
fn a_rollback_is_in_force_like_any_configuration() -> Result<()> {
    let (a, b) = (
        Config::new(json!([rule("a", 2)])),
        Config::new(json!([rule("a", 5)])),
    );
    let envoy = Envoy::start(&a)?;
    let mut ops = Operator::editor(&envoy);
    exhaust(&envoy, "a", "alice", 2)?;
    ensure!(envoy.push(&b)? == Update::Accepted);
    in_force(&mut ops, "a", Some(5))?;
    exhaust(&envoy, "a", "bob", 5)?;
    // While the first listener drains, Envoy would reuse its plugin unchanged.
    eventually(SOON, "the first configuration to be gone", || {
        let draining = envoy.stats(r"^listener_manager\.total_.*_draining$")?;
        Ok(draining.values().all(|count| *count == 0).then_some(()))
    })?;
    ensure!(envoy.push(&a)? == Update::Accepted);
    in_force(&mut ops, "a", Some(2))?;
    exhaust(&envoy, "a", "carol", 2)?;
    ensure!(status(&mut envoy.data(), "a", "bob")? == 429);
    // The rules can be edited as after any configuration.
    ops.edit("a", "carry=keep", &json!({ "mode": "shadow" }))?;
    eventually(SOON, "the edit to be in force", || {
        Ok((status(&mut envoy.data(), "a", "carol")? == 200).then_some(()))
    })?;
    envoy.stop()
}
