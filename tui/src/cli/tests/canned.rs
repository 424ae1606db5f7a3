//! Answers of a filter with two rules, a few users and one edit.

use loudou_api::{
    Access, BanBy, BanView, BucketState, BucketView, BucketsPage, EditAnswer, EditView, Event,
    EventKind, Events, KeyOverrideView, LimitView, OverrideKind, OverrideView, ProblemAnswer,
    RuleTotals, RuleView, Rules, Status, StoreStatus, Top, TopBy, TopEntry,
};
use serde_json::{Value, json};

use loudou_client::fake::Answer;

/// Server's clock in all answers.
pub(super) const NOW: u64 = 7_500_000_000_000;
pub(super) const S: u64 = 1_000_000_000;
/// Instance ID of the process.
pub(super) const INSTANCE: &str = "0f1e2d3c4b5a6978";
/// 2026-11-21 14:03:07 UTC.
pub(super) const UNIX_MS: u64 = 1_795_269_787_000;

pub(super) fn ok(body: &impl serde::Serialize) -> Answer {
    Answer::json("200 OK", body)
}

fn totals(name: &str, mode: &str, edited: bool) -> RuleTotals {
    RuleTotals {
        name: name.to_owned(),
        mode: mode.to_owned(),
        admitted: 10_234,
        refused: 811,
        shadow_refused: 0,
        skipped: 12,
        errors: 0,
        held: 0,
        edited,
        upstreams: None,
    }
}

pub(super) fn status() -> Status {
    Status {
        version: "0.1.0".to_owned(),
        git: "abc1234".to_owned(),
        instance: INSTANCE.to_owned(),
        started_unix_ms: UNIX_MS - NOW / 1_000_000,
        generation: 7,
        now_ns: NOW,
        unix_ms: UNIX_MS,
        uptime_ns: NOW,
        access: Access::Edit,
        store: StoreStatus {
            buckets: 65_536,
            used: 812,
            sampled_idle: 80,
            sampled: 200,
            evicted_lossless: 12,
            evicted_lossy: 0,
            cas_retries: 3,
            cas_give_ups: 0,
            lost_counts: 0,
            lost_returns: 0,
            lost_responses: 0,
            reloads: 0,
        },
        rules: vec![
            totals("per-user", "enforce", true),
            totals("per-path", "shadow", false),
        ],
        waiting: 0,
        not_held_deadline: 2,
        not_held_full: 1,
        fleet: None,
        warnings: vec!["no tokens are configured: any loopback peer may edit".to_owned()],
    }
}

fn base() -> Value {
    json!({
        "name": "per-user",
        "match": {"path": {"prefix": "/reply"}},
        "key": [{"header": "x-user-id"}, "path"],
        "limits": [
            {"name": "burst", "algorithm": "funnel", "capacity": 15, "rate": "30/m"},
            {"name": "steady", "algorithm": "token_bucket", "capacity": 1000, "rate": "1000/d",
             "refill": "interval"},
        ],
        "mode": "enforce",
    })
}

pub(super) fn with_burst(capacity: u32) -> Value {
    let mut rule = base();
    rule["limits"][0]["capacity"] = json!(capacity);
    rule
}

pub(super) fn rule() -> RuleView {
    RuleView {
        name: "per-user".to_owned(),
        instance: INSTANCE.to_owned(),
        generation: 7,
        rule: with_burst(30),
        base: base(),
        edit: Some(EditView {
            by: "ops".to_owned(),
            reason: "launch day".to_owned(),
            at_ns: NOW - 720 * S,
            at_unix_ms: UNIX_MS,
            expires_at_ns: Some(NOW + 1080 * S),
        }),
        edit_body: Some(json!({"limits": with_burst(30)["limits"]})),
        overrides: Vec::new(),
        totals: totals("per-user", "enforce", true),
    }
}

pub(super) fn one_limit_rule() -> RuleView {
    let rule = json!({
        "name": "per-path",
        "key": [],
        "limits": [{"name": "all", "algorithm": "funnel", "capacity": 5, "rate": "10/s"}],
        "mode": "shadow",
    });
    RuleView {
        name: "per-path".to_owned(),
        instance: INSTANCE.to_owned(),
        generation: 7,
        rule: rule.clone(),
        base: rule,
        edit: None,
        edit_body: None,
        overrides: Vec::new(),
        totals: totals("per-path", "shadow", false),
    }
}

pub(super) fn rules() -> Rules {
    Rules {
        instance: INSTANCE.to_owned(),
        now_ns: NOW,
        generation: 7,
        rules: vec![rule(), one_limit_rule()],
        next_cursor: None,
    }
}

/// A rule with overrides.
pub(super) fn rule_with_overrides() -> RuleView {
    let mut view = rule();
    view.rule["overrides"] = json!({
        "alice": { "scale": 10 },
        "bob": { "limits": [
            {"name": "burst", "algorithm": "funnel", "capacity": 99, "rate": "1/s"},
        ]},
        "team-*": "unlimited",
    });
    view.rule["penalty"] =
        json!({ "after": 20, "within": "1m", "ban": "5m", "factor": 2, "max": "1h" });
    view.rule["shadows"] = json!("per-path");
    view.overrides = vec![OverrideView {
        key: "alice".to_owned(),
        edit: EditView {
            reason: "ticket 7".to_owned(),
            ..view.edit.clone().expect("edited")
        },
    }];
    view
}

/// A banned bucket.
pub(super) fn banned(by: BanBy, until_ns: Option<u64>) -> BucketView {
    BucketView {
        ban: Some(BanView { until_ns, by }),
        strikes: 2,
        penalties: 3,
        own: Some(KeyOverrideView {
            pattern: "mal*".to_owned(),
            gives: OverrideKind::Limits,
        }),
        ..bucket("mallory", 40, BucketState::Banned)
    }
}

pub(super) fn limit(name: &str, remaining: u64, used_s: u64, retry: Option<u64>) -> LimitView {
    LimitView {
        name: name.to_owned(),
        algorithm: "funnel".to_owned(),
        capacity: 15,
        rate: "30/m".to_owned(),
        used: 15_u64.saturating_sub(remaining),
        remaining,
        retry_after_ns: retry,
        reset_after_ns: used_s * S,
        drain_ns: 30 * S,
        drains: true,
    }
}

pub(super) fn bucket(key: &str, refused: u64, state: BucketState) -> BucketView {
    let (left, used, retry) = match state {
        BucketState::Refusing => (0, 30, Some(1_200_000_000)),
        BucketState::Idle => (15, 0, None),
        _ => (9, 11, None),
    };
    BucketView {
        rule: "per-user".to_owned(),
        key: key.to_owned(),
        limits: vec![limit("burst", left, used, retry)],
        reported: 0,
        admitted: 420,
        refused,
        last_seen_ns: NOW - 3 * S,
        state,
        ..BucketView::default()
    }
}

pub(super) fn buckets() -> BucketsPage {
    let mut two = bucket("bob:/reply", 17, BucketState::Refusing);
    two.limits.push(limit("steady", 3, 24, None));
    (two.refused_since_ns, two.refused_at_ns) = (Some(NOW - 754 * S), Some(NOW - 3 * S));
    BucketsPage {
        instance: INSTANCE.to_owned(),
        now_ns: NOW,
        generation: 7,
        buckets: vec![
            bucket("alice", 0, BucketState::Idle),
            two,
            bucket("carol", 3, BucketState::Busy),
        ],
        ..BucketsPage::default()
    }
}

pub(super) fn top(missing_at_most: u64) -> Top {
    let entry = |key: &str, count: u64, error: u64| TopEntry {
        rule: "per-user".to_owned(),
        key: key.to_owned(),
        count,
        error: error.min(missing_at_most),
        refused_since_ns: (key == "bob:/reply").then_some(NOW - 754 * S),
        ..TopEntry::default()
    };
    Top {
        now_ns: NOW,
        generation: 7,
        by: TopBy::Refused,
        window_ns: 93 * S,
        top: vec![
            entry("bob:/reply", 1_811, 0),
            entry("carol", 64, 3),
            entry("alice", 7, 5),
        ],
        total: 1_990,
        keys: 213,
        missing_at_most,
    }
}

/// A key with characters that attack the terminal.
pub(super) const HOSTILE: &str = "\u{1b}]0;x\u{7}\u{1b}[2J\r\n\u{9b}31m\u{202e}\u{200b},\"=1";

pub(super) fn events() -> Events {
    let event = |seq: u64, kind: EventKind| Event {
        seq,
        at_ns: NOW,
        at_unix_ms: UNIX_MS + seq * 1_000,
        kind,
        rule: Some("per-user".to_owned()),
        key: None,
        by: "ops".to_owned(),
        reason: String::new(),
        detail: "burst: capacity 15 → 30".to_owned(),
        generation: 6 + seq,
        until_ns: None,
    };
    Events {
        now_ns: NOW,
        events: vec![
            Event {
                reason: "launch day, \"big\"".to_owned(),
                ..event(1, EventKind::Edit)
            },
            Event {
                key: Some("alice".to_owned()),
                detail: "0 of 15 left".to_owned(),
                ..event(2, EventKind::Reset)
            },
            Event {
                rule: None,
                by: "loudou".to_owned(),
                detail: "12 buckets with something taken were evicted".to_owned(),
                ..event(3, EventKind::Warning)
            },
        ],
        last_seq: 3,
        lost: 0,
        ..Events::default()
    }
}

pub(super) fn edit_answer(dry_run: bool) -> EditAnswer {
    EditAnswer {
        dry_run,
        before: with_burst(30),
        after: RuleView {
            generation: 8,
            rule: with_burst(60),
            ..rule()
        },
        change: "burst: capacity 30 → 60".to_owned(),
        changed: true,
        fleet: Some(loudou_api::Spread::Sending),
    }
}

pub(super) fn stale() -> Answer {
    let problem: ProblemAnswer = ProblemAnswer {
        kind: "about:blank".to_owned(),
        title: "Precondition Failed".to_owned(),
        status: 412,
        detail: "the rule has changed".to_owned(),
        current: Some(RuleView {
            generation: 9,
            ..rule()
        }),
        ..ProblemAnswer::default()
    };
    Answer::json("412 Precondition Failed", &problem)
}

pub(super) fn not_found() -> Answer {
    let problem: ProblemAnswer = ProblemAnswer {
        kind: "about:blank".to_owned(),
        title: "Not Found".to_owned(),
        status: 404,
        detail: "no bucket for this key".to_owned(),
        ..ProblemAnswer::default()
    };
    Answer::json("404 Not Found", &problem)
}
