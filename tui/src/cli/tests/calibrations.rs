//! Compares `loudou replay` with the responses in its log.

use serde_json::{Value, json};

use super::*;

/// The log's responses come from an independent bucket, which holds 6 and leaks two per second. The
/// replayed rule holds 10 and leaks one.
#[test]
fn a_replay_is_compared_with_the_answers_of_the_log() {
    let mut trace = String::new();
    let (mut theirs, mut ours) = (Leak::of(6, 2), Leak::of(10, 1));
    // Indexed by the rule's decision, then by the log's response.
    let mut expected = [[0_u64; 2]; 2];
    for second in 0..400_u64 {
        let requests = match second % 40 {
            0 => 8,
            1..=10 => 3,
            _ => 0,
        };
        for _ in 0..requests {
            let (theirs, ours) = (theirs.refuses(second), ours.refuses(second));
            expected[usize::from(ours)][usize::from(theirs)] += 1;
            let status = if theirs { 420 } else { 200 };
            let at_ns = second * 1_000_000_000;
            trace.push_str(&json!({ "at_ns": at_ns, "status": status }).to_string());
            trace.push('\n');
        }
    }
    let limits = r#"[{ "name": "l", "algorithm": "funnel", "capacity": 10, "rate": "1/s" }]"#;
    let config = format!(
        r#"{{ "version": 1, "rules": [
            {{ "name": "r", "key": [], "refuse": {{ "status": 420 }}, "limits": {limits} }},
            {{ "name": "tried", "key": [], "mode": "shadow", "refuse": {{ "status": 500 }}, "limits": {limits} }}
        ] }}"#
    );
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    std::io::Write::write_all(&mut file, config.as_bytes()).expect("room");
    let run = |trace: &str, options: &str| {
        let loudou = Loudou {
            bytes: trace.as_bytes(),
            ..Loudou::default()
        };
        let config = file.path().display();
        loudou.run(&format!("replay --config {config} {options}"))
    };
    // A line without a status is not counted.
    let ran = run(&format!("{trace}{{\"at_ns\":500000000000}}\n"), "-o json");
    let document: Value = serde_json::from_str(&ran.out).expect("JSON");
    let [[neither, only_log], [only_replay, both]] = expected;
    assert!(only_log > 0 && only_replay > 0 && both > 0, "{expected:?}");
    assert_eq!(
        document["beside_log"],
        json!({
            "statuses": [420], "has_verdicts": false, "both_refused": both, "only_log_refused": only_log,
            "only_replay_refused": only_replay, "neither_refused": neither,
        })
    );
    let table = run(&trace, "").out;
    let start = table.find("beside the log").expect("the table");
    assert_snapshot!(table.get(start..).expect("a character"), @r"
    beside the log, where status 420 is a refusal: 68.4 % of the requests agree,
    75.0 % of the log's refusals
                    LOG PASSED  LOG REFUSED
    replay passes          170           30
    replay refuses          90           90
    They differ where other rules were in force, where several Envoys had a bucket
    each or kept older ones from before this log, where requests are not in it,
    and where such a status has another cause.
    ");
    let free = run(&trace.replace("420", "429"), "-o json").out;
    assert!(!free.contains("beside_log"), "no rule refuses with 429");
}

/// A line of a log, with the cause of the response and the filter's decisions.
struct Answered {
    second: u32,
    status: u16,
    cause: &'static str,
    decisions: &'static str,
}

/// Two requests pass at once. The rule refuses the third and the fourth.
const ANSWERED: [Answered; 6] = [
    answered(0, 200, "via_upstream", "-"),
    answered(
        0,
        429,
        "via_upstream",
        "a;l;admit;0;0123456789abcdef, r;l;hold;20;-",
    ),
    answered(
        0,
        503,
        "loudou_over_limit{r.l}",
        "r;l;refuse;1000;0123456789abcdef",
    ),
    answered(
        0,
        429,
        "via_upstream",
        "a;-;skip;-;-, b;l;shadow_refuse;-;-",
    ),
    answered(9, 403, "loudou_banned{r}", "r;-;ban;60000;0123456789abcdef"),
    answered(9, 429, "loudou_admin", "-"),
];

const fn answered(
    second: u32,
    status: u16,
    cause: &'static str,
    decisions: &'static str,
) -> Answered {
    Answered {
        second,
        status,
        cause,
        decisions,
    }
}

/// Returns a log of [`ANSWERED`]. `line` formats a time and a response.
fn log(line: impl Fn(&str, &Answered) -> String) -> String {
    let lines = ANSWERED.iter().map(|answered| {
        let time = format!("2026-11-23T10:00:{:02}.000Z", answered.second);
        line(&time, answered) + "\n"
    });
    lines.collect()
}

/// Replays a log with a rule that holds two requests and leaks one per second.
fn replayed(log: &str, options: &str) -> String {
    let limits = r#"[{ "name": "l", "algorithm": "funnel", "capacity": 2, "rate": "1/s" }]"#;
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    let config = format!(
        r#"{{ "version": 1, "rules": [{{ "name": "r", "key": [], "limits": {limits} }}] }}"#
    );
    std::io::Write::write_all(&mut file, config.as_bytes()).expect("room");
    let loudou = Loudou {
        bytes: log.as_bytes(),
        ..Loudou::default()
    };
    let config = file.path().display();
    let ran = loudou.run(&format!("replay --config {config} {options}"));
    assert_eq!(ran.code, 0, "{}", ran.seen());
    ran.out
}

fn beside(log: &str, options: &str) -> Value {
    let document: Value =
        serde_json::from_str(&replayed(log, &format!("-o json {options}"))).expect("JSON");
    document["beside_log"].clone()
}

/// If a log has causes or decisions, these determine if Loudou refused a request, with any status.
#[test]
fn causes_and_decisions_in_the_log_go_before_statuses() {
    let json = |member: &'static str, value: fn(&Answered) -> &'static str| {
        log(|time, answered| {
            let mut line = json!({
                "start_time": time, "method": "GET", "path": "/", "response_code": answered.status,
            });
            line[member] = value(answered).into();
            line.to_string()
        })
    };
    let istio = log(|time, Answered { status, cause, .. }| {
        format!(
            r#"[{time}] "GET / HTTP/1.1" {status} - {cause} - "-" 0 12 1 1 "-" "a" "id" "host" "10.0.0.1:80" inbound|80|| 127.0.0.6:1 10.8.8.8:80 10.0.0.2:4711 - default"#
        )
    });
    let causes = log(|time, Answered { status, cause, .. }| format!("{time}|/|{status}|{cause}"));
    let decisions = log(|time, answered| format!("{time}|/|{}|x", answered.decisions));
    let start = "--log-format %START_TIME%|%REQ(:PATH)%|";
    for (log, options) in [
        (
            json("response_code_details", |line| line.cause),
            String::new(),
        ),
        (json("loudou", |line| line.decisions), String::new()),
        (json("wasm.loudou", |line| line.decisions), String::new()),
        (istio, String::new()),
        (
            causes,
            format!("{start}%RESPONSE_CODE%|%RESPONSE_CODE_DETAILS%"),
        ),
        (
            decisions,
            format!("{start}%FILTER_STATE(wasm.loudou:PLAIN)%|%REQ(USER-AGENT)%"),
        ),
    ] {
        assert_eq!(
            beside(&log, &options),
            json!({
                "statuses": [429], "has_verdicts": true, "both_refused": 1, "only_log_refused": 1,
                "only_replay_refused": 1, "neither_refused": 3,
            }),
            "{options} {log}"
        );
    }
    let table = replayed(&json("response_code_details", |line| line.cause), "");
    let wanted = "beside the log, by the verdicts of Loudou in it: 66.7 % of the requests agree";
    assert!(table.contains(wanted), "{table}");
}

/// Once the log has a refusal by Loudou, statuses are ignored, even in lines without the column.
#[test]
fn a_status_is_no_refusal_beside_verdicts_of_loudou() {
    let line = |second: u32, status: u16, cause: &str| {
        let mut line = json!({
            "start_time": format!("2026-11-23T10:00:{second:02}.000Z"), "method": "GET", "path": "/",
            "response_code": status,
        });
        if !cause.is_empty() {
            line["response_code_details"] = cause.into();
        }
        line.to_string() + "\n"
    };
    let log = [
        line(0, 200, ""),
        line(0, 200, ""),
        line(0, 429, "loudou_over_limit{r.l}"),
        line(0, 429, ""),
    ];
    assert_eq!(
        beside(&log.concat(), ""),
        json!({
            "statuses": [429], "has_verdicts": true, "both_refused": 1, "only_log_refused": 0,
            "only_replay_refused": 1, "neither_refused": 2,
        })
    );
}

/// A log of another limiter has causes, but none of Loudou. Its statuses are the refusals, except
/// those from upstreams.
#[test]
fn without_a_verdict_of_loudou_statuses_are_refusals() {
    let line =
        |second: u32, cause: &str| format!("2026-11-23T10:00:{second:02}.000Z|/|429|{cause}\n");
    let log = [
        line(0, "request_rate_limited"),
        line(0, "via_upstream"),
        line(0, "request_rate_limited"),
        line(0, "-"),
    ];
    let options = "--log-format %START_TIME%|%REQ(:PATH)%|%RESPONSE_CODE%|%RESPONSE_CODE_DETAILS%";
    assert_eq!(
        beside(&log.concat(), options),
        json!({
            "statuses": [429], "has_verdicts": false, "both_refused": 2, "only_log_refused": 1,
            "only_replay_refused": 0, "neither_refused": 1,
        })
    );
}

/// A leaky bucket in whole units and seconds.
struct Leak {
    holds: u64,
    per_second: u64,
    level: u64,
    second: u64,
}

impl Leak {
    const fn of(holds: u64, per_second: u64) -> Self {
        Self {
            holds,
            per_second,
            level: 0,
            second: 0,
        }
    }

    fn refuses(&mut self, second: u64) -> bool {
        self.level = self
            .level
            .saturating_sub((second - self.second) * self.per_second);
        self.second = second;
        let is_full = self.level == self.holds;
        self.level += u64::from(!is_full);
        is_full
    }
}
