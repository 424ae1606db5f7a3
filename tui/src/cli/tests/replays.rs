//! `loudou replay`, from rule files and traces to decisions and summaries.

use std::fs;
use std::path::PathBuf;

use super::*;

/// Folder of the rule files, the traces, and their expected decisions. After an intended change,
/// run `loudou replay --config X.rules.json --trace X.trace.jsonl -o jsonl > X.expected.jsonl`.
fn traces() -> PathBuf {
    // Tests run in the directory of their package. The path is relative, because lines are cut at a
    // maximum length.
    PathBuf::from("../tests/traces")
}

fn path(name: &str) -> String {
    traces().join(name).display().to_string()
}

/// Replays the trace `input` under the rules of the trace `rules`.
fn replay(rules: &str, input: &[u8], options: &str) -> Ran {
    let loudou = Loudou {
        bytes: input,
        ..Loudou::default()
    };
    let rules = path(&format!("{rules}.rules.json"));
    loudou.run(&format!("replay --config {rules} {options}"))
}

fn read(name: &str) -> Vec<u8> {
    fs::read(traces().join(name)).expect(name)
}

/// Returns true if standard error has nothing but warnings.
fn only_warnings(ran: &Ran) -> bool {
    ran.err.lines().all(|line| line.starts_with("warning: "))
}

#[test]
fn decisions_are_those_that_were_reviewed() {
    let entries = fs::read_dir(traces()).expect("traces");
    let names = entries.map(|entry| entry.expect("an entry").file_name());
    let mut names: Vec<String> = names
        .filter_map(|name| {
            name.to_str()?
                .strip_suffix(".rules.json")
                .map(str::to_owned)
        })
        .collect();
    names.sort();
    assert!(names.len() >= 7, "{names:?}");
    for name in names {
        let expected = String::from_utf8(read(&format!("{name}.expected.jsonl"))).expect("UTF-8");
        let file = path(&format!("{name}.trace.jsonl"));
        let by_name = replay(&name, b"", &format!("--trace {file} -o jsonl"));
        let input = read(&format!("{name}.trace.jsonl"));
        let piped = replay(&name, &input, "-o jsonl --format trace");
        for ran in [by_name, piped] {
            assert_eq!(ran.code, 0, "{name}");
            assert!(only_warnings(&ran), "{name}: {}", ran.err);
            assert!(ran.out == expected, "{name}:\n{}", ran.out);
        }
    }
}

const ENVOY: &str = r#"[2016-04-15T20:17:00.310Z] "POST /api/v1/locations HTTP/2" 204 - 154 0 226 100 "10.0.35.28" "nsq2http" "cc21d9b0-cf5c-432b-8c7e-98aeb7988cd2" "locations" "tcp://10.0.2.1:80"
[2016-04-15T20:17:00.100Z] "POST /api/v1/locations HTTP/2" 204 - 154 0 500 100 "10.0.35.28" "nsq2http" "-" "locations" "tcp://10.0.2.1:80"
"#;
const ENVOY_JSON: &str = r#"{"start_time":"2016-04-15T20:17:00.310Z","method":"GET","path":"/","x_user_id":"alice","duration":5,"downstream_remote_address":"10.0.0.1:5"}
{"start_time":"2016-04-15T20:17:01.310Z","method":"GET","path":"/","x_user_id":"alice","duration":5,"downstream_remote_address":"10.0.0.1:5"}
"#;
const NGINX: &str = r#"203.0.113.7 - - [10/Oct/2000:13:55:36 -0700] "GET /reply HTTP/1.1" 200 2326 "-" "Mozilla/5.0"
203.0.113.7 - - [10/Oct/2000:13:55:37 -0700] "GET /reply HTTP/1.1" 200 2326 "-" "Mozilla/5.0"
"#;
const VHOST: &str = r#"a.example:443 203.0.113.7 - - [10/Oct/2000:13:55:36 -0700] "GET /reply HTTP/1.1" 200 2326 "-" "x"
b.example:443 203.0.113.8 - - [10/Oct/2000:13:55:37 -0700] "GET /reply HTTP/1.1" 429 2326 "-" "x"
b.example:443 203.0.113.8 - - [10/Oct/2000:13:55:37 -0700] "-" 408 0 "-" "-"
"#;
const CADDY: &str = r#"{"level":"info","ts":1646861400.1,"logger":"admin","msg":"started"}
{"level":"info","ts":1646861401.5,"logger":"http.log.access","request":{"client_ip":"203.0.113.7","method":"GET","host":"h","uri":"/reply","headers":{"X-User-Id":["alice"]}},"duration":0.5,"status":200}
"#;

#[test]
fn every_form_of_log() {
    for (name, log) in [
        ("envoy", ENVOY),
        ("envoy-json", ENVOY_JSON),
        ("nginx", NGINX),
        ("vhost-combined", VHOST),
        ("caddy", CADDY),
    ] {
        let named = replay(
            "summaries/logs",
            log.as_bytes(),
            &format!("--format {name} -o jsonl"),
        );
        let found = replay("summaries/logs", log.as_bytes(), "-o jsonl");
        assert_eq!(found.code, 0, "{name}");
        assert!(only_warnings(&found), "{name}: {}", found.err);
        assert_eq!(found.out, named.out);
        let table = replay("summaries/logs", log.as_bytes(), "").out;
        assert_snapshot!(format!("replay_{name}"), found.out + &table);
    }
}

/// Returns lines of an attacker: escapes, invalid text, zeros, and very long lines.
fn hostile() -> Vec<u8> {
    let mut input = b"\x1b[2J\x1b]0;x\x07\n".to_vec();
    input.extend_from_slice(b"{\"at_ns\":1,\"headers\":{\"x-user-id\":\"\\u001b[31m\"}}\n");
    input.extend_from_slice(b"{\"at_ns\":2,\"path\":\"\xff\xfe\"}\n\0\0\0\n");
    input.extend_from_slice(b"{\"at_ns\":3,\"\\u001b[7m\":1}\n{\"at_ns\":4,\"set\":{\"rule\":\"\\u009b\",\"mode\":\"off\"}}\n");
    input.extend(std::iter::repeat_n(b'x', 10 << 20));
    input.extend_from_slice(b"\n{\"at_ns\":5,\"headers\":{\"x-user-id\":\"\\u202e\"},\"cost\":99}");
    input
}

#[test]
fn hostile_input_stays_in_its_place() {
    let hostile = hostile();
    for options in [
        "",
        "-o json",
        "-o jsonl",
        "-o csv",
        "--ascii --color always",
    ] {
        let ran = replay("funnel", &hostile, options);
        assert_eq!(ran.code, 0, "{}", ran.err);
        let mut seen = ran.seen();
        if options.contains("--color always") {
            for ours in ["[0m", "[1m", "[2m", "[31m", "[33m"] {
                seen = seen.replace(&format!("\u{1b}{ours}"), "");
            }
        }
        assert!(
            seen.chars()
                .all(|c| c == '\n' || c == '\r' || !is_unsafe(c)),
            "{seen:?}"
        );
        assert!(seen.lines().all(|line| line.len() < 220), "{seen}");
    }
    assert_snapshot!("replay_hostile", replay("funnel", &hostile, "").seen());
}

#[test]
fn strict_ends_at_the_first_bad_line() {
    let input = b"{\"at_ns\":1}\n{\"at_ns\":2,\"sorce\":\"x\"}\n{\"at_ns\":3}\n";
    let ran = replay("funnel", input, "--strict -o jsonl");
    assert_snapshot!(ran.seen(), @r#"
    --- standard error
    loudou: line 2: unknown field `sorce`, expected one of `at_ns`, `method`, `path`, `host`, `headers`, `source`, `route`, `metadata`, `cost`, `max_wait_ns`, `duration_ns`, `status`, `settled`, `set` (column 18)
      {"at_ns":2,"sorce":"x"}
    --- exit code 1
    "#);
    let ran = replay("funnel", input, "-o jsonl");
    assert_snapshot!(ran.seen(), @r#"
    {"line":1,"at_ns":1,"method":"GET","path":"/","verdict":"admit","rule":null,"limit":null,"key":null,"capacity":null,"remaining":null,"wait_ns":null,"retry_after_ns":null,"reset_after_ns":null}
    {"line":3,"at_ns":3,"method":"GET","path":"/","verdict":"admit","rule":null,"limit":null,"key":null,"capacity":null,"remaining":null,"wait_ns":null,"retry_after_ns":null,"reset_after_ns":null}
    --- standard error
    1 invalid line was skipped:
    line 2: unknown field `sorce`, expected one of `at_ns`, `method`, `path`, `host`, `headers`, `source`, `route`, `metadata`, `cost`, `max_wait_ns`, `duration_ns`, `status`, `settled`, `set` (column 18)
      {"at_ns":2,"sorce":"x"}
    --- exit code 0
    "#);
}

#[test]
fn input_of_unknown_format() {
    let lines = "no log\n".repeat(1_200);
    assert_snapshot!(replay("funnel", lines.as_bytes(), "").seen(), @r"
    --- standard error
    loudou: the format of (standard input) is not recognised
    line 1: in no known format; nearest is vhost-combined: column 4: expected ` ` after `$client_address`
      no log
    write --format with one of trace, envoy, envoy-json, combined, vhost-combined, ingress-nginx, caddy, alb, or --log-format
    --- exit code 1
    ");
    let few = replay("funnel", b"\x1f\x8b\x08\x00\n", "");
    assert_snapshot!(few.seen(), @r"
    (standard input): 0 requests

    warning: the log has no request
    warning: (standard input) ends after 0 lines: the gzip data is cut off

      admitted ··········   0.0 %  0
      held     ··········   0.0 %  0
      refused  ··········   0.0 %  0

    RULE  MODE     MATCHED  ADMITTED  REFUSED  REFUSES
    r     enforce        0         0        0    0.0 %

    0 buckets created; capacity 65536
    --- exit code 0
    ");
    let wrong = replay("funnel", b"no log\n", "--format nginx");
    assert_eq!(wrong.code, 1, "{}", wrong.seen());
    // An empty trace, as after a quiet night, is not a failure.
    assert_snapshot!(replay("funnel", b"\n\n", "").seen(), @r"
    (standard input): 0 requests

    warning: the log has no request

      admitted ··········   0.0 %  0
      held     ··········   0.0 %  0
      refused  ··········   0.0 %  0

    RULE  MODE     MATCHED  ADMITTED  REFUSED  REFUSES
    r     enforce        0         0        0    0.0 %

    0 buckets created; capacity 65536
    --- exit code 0
    ");
}

#[test]
fn invalid_and_missing_files() {
    let ran = replay("funnel", b"", "--trace no/such/file");
    assert_snapshot!(ran.seen(), @r"
    --- standard error
    loudou: cannot read no/such/file: No such file or directory (os error 2)
    --- exit code 1
    ");
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/cli/tests");
    let ran = Loudou::default().run(&format!("replay --config {folder}/bad.json"));
    assert_eq!((ran.code, ran.out.as_str()), (1, ""));
    assert!(ran.err.contains("bad.json:1:"), "{}", ran.err);
}

#[test]
fn a_terminal_is_no_trace() {
    let loudou = Loudou {
        terminal: Some(80),
        ..Loudou::default()
    };
    let ran = loudou.run(&format!("replay --config {}", path("funnel.rules.json")));
    assert_eq!(ran.code, 2, "{}", ran.seen());
}

/// Returns a trace of five minutes. Every client sends one request per second, and `busy` sends ten
/// per second for one minute.
fn five_minutes() -> Vec<u8> {
    let mut lines = String::new();
    for second in 0..300_u64 {
        for user in 0..30 {
            let at_ns = second * 1_000_000_000 + user * 1_000;
            let times = if user == 0 && (100..160).contains(&second) {
                10
            } else {
                1
            };
            let user = if user == 0 {
                "busy".to_owned()
            } else {
                format!("user-{user}")
            };
            let line = format!(
                "{{\"at_ns\":{at_ns},\"path\":\"/shaped\",\"headers\":{{\"x-user-id\":\"{user}\"}},\"source\":\"10.0.0.1\"}}\n"
            );
            lines.push_str(&line.repeat(times));
        }
    }
    lines.into_bytes()
}

#[test]
fn summaries() {
    let input = five_minutes();
    let run = |options: &str, env: Env| {
        let loudou = Loudou {
            bytes: &input,
            env,
            ..Loudou::default()
        };
        let line = format!(
            "replay --config {} {options}",
            path("summaries/summary.rules.json")
        );
        loudou.run(&line).seen()
    };
    let table = run("", Env::default());
    assert!(
        table.lines().all(|line| line.chars().count() <= 80),
        "{table}"
    );
    assert_snapshot!("replay_table", table);
    assert_snapshot!("replay_ascii", run("--ascii", Env::default()));
    assert_snapshot!("replay_json", run("-o json", Env::default()));
    assert_snapshot!(run("-o csv", Env::default()), @r"
    config,rule,mode,matched,admitted,held,refused,overruled,shadow_refused,shadow_held,skipped,gave_up,keys,keys_refused
    ../tests/traces/summaries/summary.rules.json,per-user,enforce,9540,9060,18,462,0,0,0,0,0,30,1
    ../tests/traces/summaries/summary.rules.json,candidate,shadow,9540,8905,0,0,0,635,0,0,0,30,19
    ../tests/traces/summaries/summary.rules.json,per-plan,enforce,9078,0,0,0,0,0,0,9078,0,0,0
    --- standard error
    warning: rule per-plan needs header x-plan, which no line has: 9078 of 9078 requests skipped
    warning: 1199 buckets evicted while in use: `store.buckets` is too small for these keys
    --- exit code 0
    ");
    let colored = run("--color always", Env::default());
    assert_snapshot!("replay_color", colored.replace('\u{1b}', "ESC"));
    let no_color = Env {
        no_color: Some("1".into()),
        ..Env::default()
    };
    assert_eq!(run("", no_color), table);
    let other = path("summaries/other.rules.yaml");
    let compared = run(&format!("--compare {other}"), Env::default());
    assert!(
        compared.lines().all(|line| line.chars().count() <= 80),
        "{compared}"
    );
    assert_snapshot!("replay_compare", compared);
    let json = run(&format!("--compare {other} -o json"), Env::default());
    assert_snapshot!("replay_compare_json", json);
    let csv = run(&format!("--compare {other} -o csv"), Env::default());
    assert_snapshot!(csv, @r"
    config,rule,mode,matched,admitted,held,refused,overruled,shadow_refused,shadow_held,skipped,gave_up,keys,keys_refused
    ../tests/traces/summaries/summary.rules.json,per-user,enforce,9540,9060,18,462,0,0,0,0,0,30,1
    ../tests/traces/summaries/summary.rules.json,candidate,shadow,9540,8905,0,0,0,635,0,0,0,30,19
    ../tests/traces/summaries/summary.rules.json,per-plan,enforce,9078,0,0,0,0,0,0,9078,0,0,0
    ../tests/traces/summaries/other.rules.yaml,per-user,enforce,9540,9108,0,432,0,0,0,0,0,30,1
    ../tests/traces/summaries/other.rules.yaml,whole,enforce,9108,9108,0,0,0,0,0,0,0,1,0
    --- standard error
    warning: A: rule per-plan needs header x-plan, which no line has: 9078 of 9078 requests skipped
    warning: A: 1199 buckets evicted while in use: `store.buckets` is too small for these keys
    --- exit code 0
    ");
}

#[test]
fn a_narrow_terminal() {
    let input = five_minutes();
    let file = std::env::temp_dir().join(format!("loudou-replay-{}.jsonl", std::process::id()));
    fs::write(&file, &input).expect("writes");
    let loudou = Loudou {
        terminal: Some(60),
        ..Loudou::default()
    };
    let (rules, trace) = (path("summaries/summary.rules.json"), file.display());
    let ran = loudou.run(&format!(
        "replay --config {rules} --trace {trace} --color never"
    ));
    fs::remove_file(&file).expect("removes");
    let seen = ran.seen().replace(&trace.to_string(), "trace.jsonl");
    assert!(
        seen.lines().all(|line| line.chars().count() <= 60),
        "{seen}"
    );
    assert_snapshot!("replay_narrow", seen);
}

/// Logs may contain dates in the format that tables print.
#[test]
fn dates_read_and_written() {
    for seconds in (0..10_000_000_000_u64).step_by(86_399 * 7) {
        let printed = loudou_words::text::date(seconds * 1_000).replace(' ', "T");
        let read = loudou_replay::instant::rfc3339(printed.as_bytes());
        assert_eq!(read, Some(Nanos::from_secs(seconds)), "{printed}");
    }
}

/// Traces do not record the state of upstreams, so a rule with `when` does not apply, and a note
/// reports it.
#[test]
fn a_rule_that_waits_for_an_upstream_to_fail() {
    let ran = replay("when", &read("when.trace.jsonl"), "-o json");
    let note = "rule brake applies only while an upstream fails, which no trace records";
    assert!(ran.out.contains(note), "{}", ran.seen());
}

/// A trace contains the requests of all Envoys, so a fleet's bucket is the central one, and a note
/// reports it.
#[test]
fn a_rule_of_a_fleet_has_one_bucket() {
    let ran = replay("fleet", &read("fleet.trace.jsonl"), "-o json");
    let note = "is decided as one central bucket, without the waits and leases of a fleet";
    assert!(
        ran.out.contains(&format!("rule shared {note}")),
        "{}",
        ran.seen()
    );
    assert_eq!(ran.out.matches(note).count(), 1, "{}", ran.out);
}

/// A decision contains its line number, so that it can be looked up in the log.
#[test]
fn decisions_name_their_lines() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = |name: &str, lines: &[&str]| {
        let file = folder.path().join(name);
        fs::write(&file, lines.join("\n")).expect("room");
        file.display().to_string()
    };
    let first = log(
        "a.log",
        &[
            r#"{"at_ns":30,"method":"POST","path":"/late","headers":{"x-user-id":"u"}}"#,
            "not a request",
            r#"{"at_ns":10,"path":"/a?\u001b[2J\u202e","headers":{"x-user-id":"u"}}"#,
        ],
    );
    let second = log("b.log", &[r#"{"at_ns":20,"host":"h"}"#]);
    let lines = |options: &str| -> Vec<[serde_json::Value; 4]> {
        let ran = replay("funnel", b"", &format!("{options} -o jsonl"));
        assert_eq!(ran.code, 0, "{}", ran.err);
        assert!(
            !ran.out.replace('\n', "").contains(is_unsafe),
            "{}",
            ran.out
        );
        let line = |line: &str| {
            let decision: serde_json::Value = serde_json::from_str(line).expect("JSON");
            ["file", "line", "method", "path"].map(|name| decision[name].clone())
        };
        ran.out.lines().map(line).collect()
    };
    let row = |file: &str, line: u32, method: &str, path: &str| {
        let texts = [file, method, path].map(serde_json::Value::from);
        let [file, method, path] = texts;
        [file, line.into(), method, path]
    };
    let hostile = "/a?\u{1b}[2J\u{202e}";
    // The shell may have expanded a pattern to several names.
    for traces in ["--trace FIRST --trace SECOND", "--trace SECOND FIRST"] {
        let traces = traces.replace("FIRST", &first).replace("SECOND", &second);
        assert_eq!(
            lines(&traces),
            [
                row(&first, 3, "GET", hostile),
                row(&second, 1, "GET", "/"),
                row(&first, 1, "POST", "/late"),
            ]
        );
    }
    let alone = lines(&format!("--trace {second}"));
    let unnamed = [serde_json::Value::Null, 1.into(), "GET".into(), "/".into()];
    assert_eq!(alone, [unnamed]);
}
