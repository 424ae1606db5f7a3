//! `loudou replay` warns about everything that a log cannot show, above its numbers.

use std::fmt::Write as _;

use super::*;

/// Runs one rule over `log`. `rule` has its fields as YAML.
fn replay(rule: &str, log: &str, options: &str) -> Ran {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("rules.yaml");
    let text = format!("version: 1\nrules:\n- {{ name: r, {rule} }}\n");
    std::fs::write(&file, text).expect("room");
    let loudou = Loudou {
        bytes: log.as_bytes(),
        ..Loudou::default()
    };
    loudou.run(&format!("replay --config {} {options}", file.display()))
}

/// Returns the warnings of a run of one rule over `log`. `rule` has its fields as YAML.
fn warnings(rule: &str, log: &str, options: &str) -> Vec<String> {
    let ran = replay(rule, log, &format!("-o json {options}"));
    assert_eq!(ran.code, 0, "{}", ran.seen());
    let document: serde_json::Value = serde_json::from_str(&ran.out).expect("JSON");
    let warnings = document["warnings"].as_array().expect("a list").iter();
    warnings
        .map(|warning| warning.as_str().expect("text").to_owned())
        .collect()
}

/// Returns the warnings of a run over `log`, with one limit for all requests, which causes no
/// warning itself.
fn of_log(log: &str, options: &str) -> Vec<String> {
    warnings(&format!("key: [], {FUNNEL}"), log, options)
}

/// Returns a log with one request per second of one client, from `start` on. Each has `members`.
fn json_log(start: u32, count: u32, members: &str) -> String {
    let mut log = String::new();
    for second in start..start + count {
        let (minute, second) = (second / 60, second % 60);
        let line = format!(
            r#"{{"start_time":"2024-05-01T10:{minute:02}:{second:02}.5Z","method":"POST","path":"/","downstream_remote_address":"10.0.0.1:5"{members}}}"#
        );
        writeln!(log, "{line}").expect("room");
    }
    log
}

const FUNNEL: &str = "limits: [{ algorithm: funnel, capacity: 100, rate: 1/s }]";

/// A trace may have what a request cost. A log has its status and its duration. Otherwise, a request costs what it
/// reserves, and a warning says so.
#[test]
fn costs_are_settled_as_far_as_the_log_knows_them() {
    let limit = "limits: [{ algorithm: funnel, capacity: 10, rate: 1/365d }]";
    let rule = |settle: &str| {
        format!("key: [], {limit}, cost: {{ reserve: 4, settle: {settle}, max: 4 }}")
    };
    let line =
        |at_s: u64, fields: &str| format!("{{\"at_ns\":{}{fields}}}\n", at_s * 1_000_000_000);
    let admitted = |settle: &str, lines: &[String]| {
        let ran = replay(&rule(settle), &lines.concat(), "-o jsonl");
        assert_eq!(ran.code, 0, "{}", ran.seen());
        ran.out.matches("\"verdict\":\"admit\"").count()
    };
    // Four are reserved and one is needed: seven requests pass, and the eighth would be the first above ten.
    let cheap: Vec<String> = (0..20).map(|at| line(at, ",\"settled\":1")).collect();
    assert_eq!(admitted("token_usage", &cheap), 7);
    // Nothing comes back before the end.
    let slow: Vec<String> = (0..20)
        .map(|at| line(at, ",\"settled\":1,\"duration_ns\":90000000000"))
        .collect();
    assert_eq!(admitted("token_usage", &slow), 2);
    // A debt keeps all others out.
    let one: Vec<String> = (0..20).map(|at| line(at, ",\"settled\":11")).collect();
    assert_eq!(admitted("token_usage", &one), 1);
    let unknown: Vec<String> = (0..20).map(|at| line(at, "")).collect();
    assert_eq!(admitted("token_usage", &unknown), 2);
    let wrong: Vec<String> = (0..20)
        .map(|at| {
            line(
                at,
                &format!(",\"status\":{}", if at < 9 { 200 } else { 401 }),
            )
        })
        .collect();
    assert_eq!(admitted("{ status: { 401: 3, 2xx: 0 } }", &wrong), 9 + 3);
    // What a request that was refused would have cost is unknown.
    let refused: Vec<String> = (0..20).map(|at| line(at, ",\"status\":429")).collect();
    assert_eq!(admitted("{ status: { 4xx: 0 } }", &refused), 2);
    let warns = |settle: &str, lines: &[String]| warnings(&rule(settle), &lines.concat(), "");
    assert_eq!(warns("token_usage", &cheap), [""; 0]);
    assert_eq!(warns("{ status: { 401: 3 } }", &wrong), [""; 0]);
}

/// A trace may have the metadata from which the numbers of limits come. Other logs have none.
#[test]
fn numbers_come_from_the_metadata_of_a_trace() {
    let quota = "{ metadata: [jwt, quota], default: 1, max: 3 }";
    let rule = format!(
        "key: [{{ metadata: [jwt, tenant] }}], limits: [{{ algorithm: funnel, capacity: {quota}, rate: 1/d }}]"
    );
    let line =
        |quota: &str| format!("{{\"at_ns\":0,\"metadata\":{{\"jwt\":{{\"tenant\":7{quota}}}}}}}\n");
    let trace = ["", ",\"quota\":2", "", ",\"quota\":99", ",\"quota\":99"]
        .map(line)
        .concat();
    let ran = replay(&rule, &trace, "-o jsonl");
    let seen = ran.out.lines().map(|line| {
        let decision: serde_json::Value = serde_json::from_str(line).expect("JSON");
        let capacity = decision["capacity"].as_u64().expect("a number");
        (decision["verdict"] == "admit", capacity)
    });
    let expected = [(true, 1), (true, 2), (false, 1), (true, 3), (false, 3)];
    assert!(seen.eq(expected), "{}", ran.seen());
    let rule = rule.replace("{ metadata: [jwt, tenant] }", "source");
    let found = warnings(&rule, &json_log(0, 5, ""), "");
    assert_eq!(
        found,
        [
            "rule r needs metadata, which no line has: the limits of 5 requests have their default numbers"
        ]
    );
}

#[test]
fn a_cost_that_the_log_does_not_have() {
    let log = json_log(0, 5, "");
    for options in ["", "--suggest"] {
        let found = |cost: &str| {
            let rule = format!("key: [source], cost: {cost}, {FUNNEL}");
            warnings(&rule, &log, options)
        };
        assert_eq!(
            found("{ request_bytes: 1024 }"),
            [
                "rule r needs header content-length, which no line has: each of 5 requests costs 1 unit, the default"
            ]
        );
        assert_eq!(
            found("{ header: x-cost, default: 3, max: 9 }"),
            [
                "rule r needs header x-cost, which no line has: each of 5 requests costs 3 units, the default"
            ]
        );
        assert_eq!(found("2"), [""; 0]);
    }
    // Without bodies there is no such header, so in production each request costs 1, too.
    let rule = format!("key: [source], cost: {{ request_bytes: 1024 }}, {FUNNEL}");
    let empty = json_log(0, 5, r#","bytes_received":0"#);
    assert_eq!(warnings(&rule, &empty, ""), [""; 0]);
}

/// A rule that is off decides nothing. A rule that matches nothing for another reason needs neither
/// key nor cost.
#[test]
fn no_caveats_about_what_decides_nothing() {
    let log = json_log(0, 5, "");
    for rule in [
        "mode: \"off\", key: [{ header: x-q }], cost: { header: x-cost, max: 9 }",
        "mode: \"off\", key: [source], when: { upstream_error_rate_over: 0.2 }",
        "match: { path: { prefix: /z } }, key: [{ header: x-q }], cost: { header: x-cost, max: 9 }",
    ] {
        let found = warnings(&format!("{rule}, {FUNNEL}"), &log, "");
        assert_eq!(found, [""; 0], "{rule}");
    }
    let needed = "match: { headers: [{ name: x-q, exact: a }] }, key: [source]";
    let found = warnings(&format!("{needed}, {FUNNEL}"), &log, "");
    assert_eq!(
        found,
        ["rule r needs header x-q, which no line has: it matched no request"]
    );
}

/// The body bytes in a log are the length that the filter would see.
#[test]
fn bytes_received_are_the_length_of_a_body() {
    let rules = "key: [source], cost: { request_bytes: 1024 }, limits: [{ algorithm: funnel, capacity: 10, rate: 1/h }]";
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("rules.yaml");
    std::fs::write(
        &file,
        format!("version: 1\nrules:\n- {{ name: r, {rules} }}\n"),
    )
    .expect("room");
    let text = r#"[2016-04-15T20:17:00.310Z] "POST / HTTP/2" 204 - 4000 0 226 100 "10.0.35.28" "u" "-" "h" "tcp://10.0.2.1:80""#;
    let tcp = "x\n".replace('x', text).repeat(4);
    for log in [json_log(0, 4, r#","bytes_received":4000"#), tcp] {
        let loudou = Loudou {
            bytes: log.as_bytes(),
            ..Loudou::default()
        };
        let ran = loudou.run(&format!("replay --config {} -o jsonl", file.display()));
        let remaining: Vec<&str> = ran
            .out
            .lines()
            .filter_map(|line| line.split_once("\"remaining\":"))
            .filter_map(|(_, rest)| rest.split(',').next())
            .collect();
        assert_eq!(remaining, ["6", "2", "2", "2"], "{}", ran.seen());
    }
}

/// A missing key has the effect that the rule defines, and a missing part of a match has the effect
/// that the test defines.
#[test]
fn the_effect_of_a_missing_part() {
    let log = json_log(0, 5, "");
    let needs = |what: &str, effect: &str| {
        vec![format!("rule r needs {what}, which no line has: {effect}")]
    };
    for (rule, what, effect) in [
        (
            "key: [{ header: x }]",
            "header x",
            "5 of 5 requests skipped",
        ),
        (
            "key: [{ header: x }], on_missing_key: refuse",
            "header x",
            "without a key it refuses all it matched, 5 requests",
        ),
        (
            "key: [{ header: x }], on_missing_key: share",
            "header x",
            "without a key all it matched, 5 requests, share one bucket",
        ),
        (
            "key: [], match: { headers: [{ name: x, exact: a }] }",
            "header x",
            "it matched no request",
        ),
        (
            "key: [], match: { headers: [{ name: x, present: false }] }",
            "header x",
            "its match takes all requests for such without it, and matched 5 requests",
        ),
        (
            "key: [], match: { not: { host: { exact: a } } }",
            "header :authority",
            "its match takes all requests for such without it, and matched 5 requests",
        ),
    ] {
        let found = warnings(&format!("{rule}, {FUNNEL}"), &log, "");
        assert_eq!(found, needs(what, effect), "{rule}");
    }
}

/// The phase of a limit's periods determines which requests it refuses. In production, the periods
/// begin when Envoy starts.
#[test]
fn limits_with_the_phase_of_the_process() {
    let log = json_log(0, 90, "");
    for (limit, has_phase) in [
        ("algorithm: sliding_window, capacity: 13, window: 60s", true),
        (
            "algorithm: sliding_counter, capacity: 13, window: 60s",
            true,
        ),
        (
            "algorithm: token_bucket, capacity: 13, rate: 13/m, refill: interval",
            true,
        ),
        ("algorithm: token_bucket, capacity: 13, rate: 13/m", false),
        ("algorithm: sliding_log, capacity: 13, window: 60s", false),
        ("algorithm: fixed_window, capacity: 13, window: 60s", false),
        (
            "algorithm: sliding_counter, capacity: 13, window: 60s, align: clock",
            false,
        ),
        // Nothing is refused, so the phase does not matter.
        (
            "algorithm: sliding_counter, capacity: 900, window: 60s",
            false,
        ),
    ] {
        let rule = format!("key: [source], limits: [{{ name: l, {limit} }}]");
        let found = warnings(&rule, &log, "");
        let is_warned = found.iter().any(|warning| {
            warning.contains("by limits (l) whose periods begin when Envoy starts")
                && warning.contains("`align: clock`")
        });
        assert_eq!(
            (is_warned, found.len()),
            (has_phase, usize::from(has_phase)),
            "{limit}: {found:?}"
        );
    }
    let trace = (0..90).map(|second| format!("{{\"at_ns\":{second}000000000}}\n"));
    let trace = trace.collect::<Vec<_>>().concat();
    let rule = "key: [], limits: [{ algorithm: sliding_window, capacity: 13, window: 60s }]";
    assert_eq!(
        warnings(rule, &trace, ""),
        [""; 0],
        "its clock is the process's"
    );
}

/// In every format, times without decimals are whole seconds.
#[test]
fn times_in_whole_seconds() {
    let coarse = "times are whole seconds: bursts look sharper, and a small capacity refuses more";
    let json = json_log(0, 5, "");
    let own = "1460751420 /a\n1460751421 /b\n";
    let options = "--log-format $msec:$request_uri";
    for (log, options, is_coarse) in [
        (json.replace(".5Z", "Z"), "", true),
        (json.replace(".5Z", ".000Z"), "", true),
        (json.replacen(".5Z", "Z", 4), "", false),
        // A machine whose clock was not set says nothing about the clocks of other machines.
        (
            json.replace(".5Z", "Z").replacen("2024", "1970", 1),
            "",
            true,
        ),
        (own.replace(' ', ":"), options, true),
        (own.replace(' ', ".250:"), options, false),
        ("{\"at_ns\":1000000000}\n".repeat(2), "", false),
        ("{\"at_ns\":1700000000000000000}\n".repeat(2), "", true),
    ] {
        let is_warned = of_log(&log, options)
            .iter()
            .any(|warning| warning == coarse);
        assert_eq!(is_warned, is_coarse, "{log}");
    }
}

/// A log without a request to replay is reported first, in every output format.
#[test]
fn nothing_to_replay() {
    let log = json_log(0, 5, "");
    let outside = "no request is in the part that --from and --to choose: 5 requests outside of it";
    for options in [
        "--from 2030-01-01T00:00:00Z",
        "--from +1h",
        "--to +0s",
        "--from +1h --suggest",
    ] {
        assert_eq!(of_log(&log, options), [outside], "{options}");
    }
    for options in ["", "--suggest"] {
        assert_eq!(
            of_log("\n", options),
            ["the log has no request"],
            "{options}"
        );
    }
    let ran = Loudou::default().run("replay --key source --suggest --from +2m --to +1m");
    assert_eq!(
        ran.seen(),
        "--- standard error\nloudou: --from has to be before --to\n--- exit code 2\n"
    );
}

/// Warnings only count the replayed part.
#[test]
fn warnings_are_of_the_chosen_part() {
    let log = json_log(0, 10, r#","response_code":429"#).replace("10.0.0.1:5", "-");
    let rule = format!("key: [source], {FUNNEL}");
    let part = "--from 2024-05-01T10:00:02Z --to 2024-05-01T10:00:06Z";
    for options in ["--from +2s --to -3s", part] {
        let found = warnings(&rule, &log, options);
        let has = |text: &str| found.iter().any(|warning| warning.starts_with(text));
        assert!(
            has("100.0 % (4) of the requests have no client"),
            "{found:?}"
        );
        assert!(has("4 requests of the log had status 429"), "{found:?}");
    }
}

/// A suggestion reports the requests that it leaves out.
#[test]
fn what_a_suggestion_leaves_out() {
    let log = json_log(0, 5, r#","x_user":"u""#) + &json_log(10, 3, "");
    let rule = format!("key: [{{ header: x-user }}], {FUNNEL}");
    let left_out = "rule r: 3 requests of 8 have no key, and are left out";
    assert_eq!(warnings(&rule, &log, "--suggest"), [left_out]);
    let edit = r#"{"at_ns":5,"set":{"rule":"r","mode":"off"}}"#;
    let trace = format!("{{\"at_ns\":1}}\n{edit}\n");
    assert_eq!(
        of_log(&trace, "--suggest"),
        ["1 edit of rules in the trace left out: each rule counts as it is in the file"]
    );
    for (options, expected) in [
        (
            r#"--match {"path":{"exact":"/none"}}"#,
            "It applies to no request of this log.",
        ),
        ("", "No request that it applies to has a key."),
    ] {
        let loudou = Loudou {
            bytes: log.as_bytes(),
            ..Loudou::default()
        };
        let ran = loudou.run(&format!(
            r#"replay --key {{"header":"x-no"}} {options} --suggest"#
        ));
        assert!(
            ran.out.contains(&format!("  {expected}\n")),
            "{}",
            ran.seen()
        );
    }
}
