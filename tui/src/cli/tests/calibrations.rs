//! `loudou replay` beside the answers of its log.

use serde_json::{Value, json};

use super::*;

/// A log of answers by a bucket outside of the code, which holds 6 and leaks two a second; the replayed rule holds 10
/// and leaks one.
#[test]
fn a_replay_is_compared_with_the_answers_of_the_log() {
    let mut trace = String::new();
    let (mut theirs, mut ours) = (Leak::of(6, 2), Leak::of(10, 1));
    // By what the rule says, then by what the log says.
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
    // Without a status: in no number.
    let ran = run(&format!("{trace}{{\"at_ns\":500000000000}}\n"), "-o json");
    let document: Value = serde_json::from_str(&ran.out).expect("JSON");
    let [[neither, only_log], [only_replay, both]] = expected;
    assert!(only_log > 0 && only_replay > 0 && both > 0, "{expected:?}");
    assert_eq!(
        document["beside_log"],
        json!({
            "statuses": [420], "has_details": false, "both_refused": both, "only_log_refused": only_log,
            "only_replay_refused": only_replay, "neither_refused": neither,
        })
    );
    let table = run(&trace, "").out;
    let start = table.find("beside the log").expect("the table");
    assert_snapshot!(
        "replay_beside_log",
        table.get(start..).expect("a character")
    );
    let free = run(&trace.replace("420", "429"), "-o json").out;
    assert!(!free.contains("beside_log"), "no rule refuses with 429");
}

/// In a JSON log, the cause of an answer says whether it was Loudou's refusal, whatever the status.
#[test]
fn causes_in_the_log_go_before_statuses() {
    let line = |second: u32, status: u16, details: &str| {
        let time = format!("2026-11-23T10:00:{second:02}.000Z");
        let line = json!({
            "start_time": time, "method": "GET", "path": "/", "response_code": status,
            "response_code_details": details,
        });
        format!("{line}\n")
    };
    // Two pass at once; the rule refuses the third and the fourth.
    let log = [
        line(0, 200, "via_upstream"),
        line(0, 429, "via_upstream"),
        line(0, 503, "loudou_over_limit{r.l}"),
        line(0, 429, "via_upstream"),
        line(9, 403, "loudou_banned{r}"),
        line(9, 200, "loudou_admin"),
    ]
    .concat();
    let limits = r#"[{ "name": "l", "algorithm": "funnel", "capacity": 2, "rate": "1/s" }]"#;
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    let config = format!(
        r#"{{ "version": 1, "rules": [{{ "name": "r", "key": [], "limits": {limits} }}] }}"#
    );
    std::io::Write::write_all(&mut file, config.as_bytes()).expect("room");
    let run = |options: &str| {
        let loudou = Loudou {
            bytes: log.as_bytes(),
            ..Loudou::default()
        };
        let config = file.path().display();
        loudou
            .run(&format!("replay --config {config} {options}"))
            .out
    };
    let document: Value = serde_json::from_str(&run("-o json")).expect("JSON");
    assert_eq!(
        document["beside_log"],
        json!({
            "statuses": [429], "has_details": true, "both_refused": 1, "only_log_refused": 1,
            "only_replay_refused": 1, "neither_refused": 3,
        })
    );
    let table = run("");
    let wanted =
        "where response_code_details of Loudou are a refusal: 66.7 % of the requests agree";
    assert!(table.contains(wanted), "{table}");
}

/// A leaking bucket in whole units and seconds.
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
