//! `loudou replay --suggest`: a log with a known answer, and the refusals of the suggested limits
//! in a replay.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;

use serde_json::{Value, json};

use super::*;

/// Times of each user's requests, in milliseconds from the start.
type Users = BTreeMap<String, Vec<u64>>;

/// Returns 1 000 users: 900 send one request, 99 send five per second for four seconds, one sends
/// 500 at once.
fn users() -> Users {
    let mut users = Users::new();
    for user in 0..900 {
        users.insert(format!("u{user}"), vec![user * 3_100]);
    }
    for user in 0..99 {
        let from = user * 20_000 + 7;
        let bursts = (0..20).map(|number| from + number / 5 * 1_000);
        users.insert(format!("busy{user}"), bursts.collect());
    }
    users.insert("abuser".to_owned(), vec![1_000_000; 500]);
    users
}

/// Returns a trace of all requests, not sorted by time.
fn trace(users: &Users) -> String {
    let mut trace = String::new();
    for (user, times) in users {
        for ms in times {
            let line = json!({ "at_ns": ms * 1_000_000, "headers": { "x-user-id": user } });
            writeln!(trace, "{line}").expect("a string");
        }
    }
    trace
}

/// Returns the number of requests that a leaky bucket of this capacity and rate refuses. The
/// implementation is independent of the tested code, in whole thousandths of a unit.
fn refused(times: &[u64], capacity: u64, per_second: u64) -> u64 {
    let (mut level, mut last, mut refused) = (0_u64, 0, 0);
    for ms in times {
        level = level.saturating_sub((ms - last) * per_second);
        last = *ms;
        if level + 1_000 > capacity * 1_000 {
            refused += 1;
        } else {
            level += 1_000;
        }
    }
    refused
}

fn suggest(options: &str) -> Ran {
    let trace = trace(&users());
    let loudou = Loudou {
        bytes: trace.as_bytes(),
        ..Loudou::default()
    };
    let key = r#"--key {"header":"x-user-id"}"#;
    loudou.run(&format!("replay {key} --suggest {options}"))
}

fn suggested(options: &str) -> Value {
    let ran = suggest(&format!("{options} --output json"));
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    let document: Value = serde_json::from_str(&ran.out).expect("JSON");
    document["rules"][0].clone()
}

#[test]
fn the_answer_is_found() {
    let rule = suggested("--rates 1/s,5/s,10/s --capacities 1,4,5,19,100,500");
    assert_eq!(
        (&rule["requests"], &rule["keys"]),
        (&json!(3_380), &json!(1_000))
    );
    // At 1/s, bursts of five per second fill the bucket to 5, 9, 13 and 17.
    let found: Vec<[&Value; 4]> = rule["rates"]
        .as_array()
        .expect("rates")
        .iter()
        .map(|rate| {
            [
                &rate["rate"],
                &rate["capacity"],
                &rate["most"],
                &rate["p99.9"],
            ]
        })
        .collect();
    let line =
        |rate: &str, capacity: u32| [json!(rate), json!(capacity), json!(500), json!(capacity)];
    let expected = [line("1/s", 17), line("5/s", 5), line("10/s", 5)];
    for (found, expected) in found.iter().zip(&expected) {
        assert_eq!(*found, expected.each_ref());
    }
    assert_eq!(found.len(), expected.len());
    assert_eq!(
        rule["suggested"],
        json!({ "name": "suggested", "algorithm": "funnel", "capacity": 5, "rate": "5/s" })
    );
}

/// The times are request times. The lines are in any order, and there are edits before and
/// after them.
#[test]
fn the_span_of_the_log_is_told() {
    let span = |trace: &str| {
        let loudou = Loudou {
            bytes: trace.as_bytes(),
            ..Loudou::default()
        };
        let ran = loudou.run("replay --key method --suggest --output json");
        let document: Value = serde_json::from_str(&ran.out).expect("JSON");
        [document["first_ns"].clone(), document["last_ns"].clone()]
    };
    let edit = |at_ns: u64| json!({ "at_ns": at_ns, "set": { "rule": "suggest", "mode": "off" } });
    let requests = "{\"at_ns\":7}\n{\"at_ns\":900}\n{\"at_ns\":5}\n";
    assert_eq!(span(requests), [json!(5), json!(900)]);
    let edits = format!("{}\n{requests}{}\n", edit(1), edit(2_000));
    assert_eq!(span(&edits), [json!(5), json!(900)]);
    assert_eq!(span("{\"at_ns\":5}\n"), [json!(5), json!(5)]);
    assert_eq!(span(&edit(1).to_string()), [Value::Null, Value::Null]);
}

/// Every share equals the refusals of an independent bucket, and of a replay with that limit.
#[test]
fn every_share_is_that_of_a_replay() {
    let users = users();
    let rule = suggested("--rates 1/s,2/s,5/s,50/s --capacities 1,3,5,9,16,17,18,400,500");
    let trace = trace(&users);
    let mut seen = 0;
    for rate in rule["rates"].as_array().expect("rates") {
        let name = rate["rate"].as_str().expect("a rate");
        let per_second = name.trim_end_matches("/s").parse().expect("a number");
        for cell in rate["refusals"].as_array().expect("cells") {
            let capacity = cell["capacity"].as_u64().expect("a number");
            let of_users = users
                .values()
                .map(|times| refused(times, capacity, per_second));
            let of_users: Vec<u64> = of_users.filter(|refused| *refused > 0).collect();
            let place = format!("{capacity} at {name}");
            let found = (&cell["keys_refused"], &cell["requests_refused"]);
            let requests: u64 = of_users.iter().sum();
            assert_eq!(found, (&json!(of_users.len()), &json!(requests)), "{place}");
            let replayed = replayed(&trace, capacity, name);
            assert_eq!(replayed["requests"]["refused"], json!(requests), "{place}");
            assert_eq!(
                replayed["refused_keys"]["keys"],
                json!(of_users.len()),
                "{place}"
            );
            let keys = &replayed["rules"][0]["keys"];
            let shares = users.values().map(|times| {
                let refused = refused(times, capacity, per_second);
                (refused * 1_000).div_euclid(u64::try_from(times.len()).expect("few"))
            });
            let mut shares: Vec<u64> = shares.collect();
            shares.sort_unstable();
            let expected = json!({
                "seen": 1_000, "refused": of_users.len(), "left_out": 0,
                "requests": { "p50": 1, "p90": 1, "p99": 20, "max": 500 },
                "refused_per_mille":
                    { "p50": shares[499], "p90": shares[899], "p99": shares[989], "max": shares[999] },
            });
            assert_eq!(*keys, expected, "{place}");
            seen += 1;
        }
    }
    assert_eq!(seen, 36);
}

/// Replays the trace under a rule with one funnel.
fn replayed(trace: &str, capacity: u64, rate: &str) -> Value {
    let rules = json!({ "version": 1, "rules": [{ "name": "all", "key": [{ "header": "x-user-id" }], "limits": [
        { "name": "suggested", "algorithm": "funnel", "capacity": capacity, "rate": rate },
    ] }] });
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    write!(file, "{rules}").expect("room");
    let loudou = Loudou {
        bytes: trace.as_bytes(),
        ..Loudou::default()
    };
    let config = file.path().display();
    let ran = loudou.run(&format!("replay --config {config} --output json"));
    assert_eq!(ran.code, 0, "{}", ran.err);
    serde_json::from_str(&ran.out).expect("JSON")
}

#[test]
fn a_bound_on_requests_is_the_least_capacity_that_keeps_it() {
    // With a capacity of 20, the abuser alone has 480 refused requests (14.2 %). With 400, the
    // number is 100 (3.0 %).
    let of = |bound: &str| {
        let options = format!("--rates 5/s --capacities 5,20,400 --at-most {bound}");
        suggested(&options)["rates"][0]["capacity"].clone()
    };
    assert_eq!(of("15%requests"), json!(5));
    assert_eq!(of("14.3%requests"), json!(20));
    assert_eq!(of("3%requests"), json!(400));
    assert_eq!(
        of("2.9%requests"),
        json!(500),
        "none of the tried ones: no refusals"
    );
}

/// At a very low rate, the capacity exceeds the range of numbers. Then neither a capacity nor a
/// limit is shown.
#[test]
fn a_capacity_beyond_all_numbers_is_not_shown() {
    let line = "{\"at_ns\":0}\n".repeat(80_000);
    let loudou = || Loudou {
        bytes: line.as_bytes(),
        ..Loudou::default()
    };
    let options = "--suggest --rates 1/36500d --capacities 1";
    let ran = loudou().run(&format!("replay --key method {options} --output json"));
    let document: Value = serde_json::from_str(&ran.out).expect("JSON");
    let rule = &document["rules"][0];
    assert_eq!(
        (&rule["rates"][0]["most"], &rule["suggested"]),
        (&Value::Null, &Value::Null)
    );
    let ran = loudou().run(&format!("replay --key method {options}"));
    assert!(!ran.out.contains("4294967295"), "{}", ran.out);
    assert!(ran.out.contains("try higher --rates"), "{}", ran.out);
}

/// Each rule is analysed independently, except for `stop`. Keys with overrides are left out. Both
/// are reported.
#[test]
fn rules_of_a_file_are_looked_at_each() {
    let limits = json!([{ "algorithm": "funnel", "capacity": 9, "rate": "1/s" }]);
    let rules = json!({ "version": 1, "rules": [
        { "name": "busy", "match": { "headers": [{ "name": "x-user-id", "prefix": "busy" }] },
          "key": [{ "header": "x-user-id" }], "stop": true, "limits": limits },
        { "name": "others", "key": [{ "header": "x-user-id" }], "limits": limits,
          "overrides": { "abuser": "unlimited" } },
        { "name": "costly", "key": [], "cost": 3, "mode": "shadow", "limits": limits },
        { "name": "nobody", "key": [{ "header": "x-other" }], "limits": limits },
    ] });
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    write!(file, "{rules}").expect("room");
    let trace = trace(&users());
    let loudou = Loudou {
        bytes: trace.as_bytes(),
        ..Loudou::default()
    };
    let config = file.path().display();
    let ran = loudou.run(&format!(
        "replay --config {config} --suggest --rates 1/s,10/s"
    ));
    assert_snapshot!("suggest_rules", ran.seen());
}

#[test]
fn tables_and_csv() {
    assert_snapshot!("suggest_table", suggest("").seen());
    assert_snapshot!(suggest("--rates 1/s,5/s --output csv").seen(), @r"
    rule,keys,rate,p50,p90,p99,p99.9,most,capacity,keys_refused,knee
    all,1000,1/s,1,1,17,17,500,17,1,true
    all,1000,5/s,1,1,5,5,500,5,1,false
    --- standard error
    warning: 48.3 % (1634) of the lines were out of order, by at most 2759 s: all were sorted by time
    --- exit code 0
    ");
}

#[test]
fn mistakes_are_named() {
    let wrong = [
        "--at-most 1%",
        "--rates 1",
        "--rates 1/s,2/s,3/s,4/s,5/s,6/s,7/s,8/s,9/s,10/s,11/s",
        "--capacities 0",
        r#"--match {"pth":1}"#,
        "--match {",
        "--match ]",
        "--key [",
        "--config rules.yaml",
        "--compare rules.yaml",
    ];
    let seen = wrong.map(|options| format!("{options}\n{}", suggest(options).seen()));
    assert_snapshot!("suggest_mistakes", seen.join("\n"));
}

/// The message names options that belong together, and no option is ignored.
#[test]
fn options_that_belong_together() {
    for (options, expected) in [
        (
            "--key source --trace access.log",
            "--key needs --suggest; write --config FILE to replay rules",
        ),
        (
            "--config rules.yaml --match {} --suggest",
            "--match belongs to --key; with --config, write the match into the rules",
        ),
        (
            "--config rules.yaml --match {}",
            "--match belongs to --key; with --config, write the match into the rules",
        ),
        (
            "--match {} --suggest",
            "--match needs --key PART: the key of the requests that it matches",
        ),
        (
            "--suggest",
            "--suggest needs --config FILE, or --key PART without a rule file",
        ),
    ] {
        let ran = Loudou::default().run(&format!("replay {options}"));
        let expected = format!("loudou: {expected}\n");
        assert_eq!((ran.code, ran.err), (2, expected), "{options}");
    }
}
