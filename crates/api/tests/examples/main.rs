//! An example of every answer, as sent on the wire. If a field changes its name or its form, one of these tests fails,
//! because `/v1` must only grow.

use loudou_api::{
    Access, BanAnswer, BanBy, BanView, BucketState, BucketView, BucketsPage, EditAnswer, EditView,
    Event, EventKind, Events, ExplainedRule, KeyOverrideView, LimitView, OverrideKind,
    OverrideView, ProblemAnswer, ResetAnswer, RuleProblem, RuleTotals, RuleView, Rules, Says,
    Spread, Status, StoreStatus, Top, TopBy, TopEntry, UpstreamView,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

mod explanations;
mod leases;

/// Asserts that `answer` serializes to the example, and that the example deserializes to `answer`.
fn holds<T>(answer: &T, example: &str) -> serde_json::Result<()>
where
    T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug,
{
    let example: Value = serde_json::from_str(example)?;
    let written = serde_json::to_value(answer)?;
    assert_eq!(written, example, "write {written:#}");
    assert_eq!(serde_json::from_value::<T>(example)?, *answer);
    Ok(())
}

const INSTANCE: &str = "0f1e2d3c4b5a6978";
/// Start of the process.
const STARTED: u64 = 1_699_996_400_000;

fn totals() -> RuleTotals {
    RuleTotals {
        name: "reply-per-user".to_owned(),
        mode: "enforce".to_owned(),
        admitted: 1200,
        refused: 34,
        shadow_refused: 0,
        skipped: 5,
        errors: 0,
        held: 7,
        edited: true,
        upstreams: None,
    }
}

/// Returns the totals of a rule that applies while its upstream fails.
fn conditional() -> RuleTotals {
    RuleTotals {
        name: "brake".to_owned(),
        mode: "enforce".to_owned(),
        upstreams: Some(vec![UpstreamView {
            cluster: "replies".to_owned(),
            responses: 40,
            errors: 12,
            applies: true,
            since_ns: 86_390_000_000_000,
        }]),
        ..RuleTotals::default()
    }
}

fn bucket() -> BucketView {
    BucketView {
        lease: None,
        outage: None,
        rule: "reply-per-user".to_owned(),
        key: "alice%3A%2Freply".to_owned(),
        limits: vec![LimitView {
            name: "burst".to_owned(),
            algorithm: "funnel".to_owned(),
            capacity: 15,
            rate: "30/m".to_owned(),
            used: 15,
            remaining: 0,
            retry_after_ns: Some(1_500_000_000),
            reset_after_ns: 29_500_000_000,
            drain_ns: 30_000_000_000,
            drains: true,
        }],
        reported: 0,
        admitted: 120,
        refused: 7,
        refused_at_ns: Some(86_399_900_000_000),
        refused_since_ns: Some(85_680_000_000_000),
        shadow: false,
        last_seen_ns: 86_400_000_000_000,
        state: BucketState::Refusing,
        ban: None,
        hidden_ban: None,
        strikes: 0,
        penalties: 0,
        own: None,
        numbers: Vec::new(),
    }
}

fn banned() -> BucketView {
    BucketView {
        state: BucketState::Banned,
        ban: Some(BanView {
            until_ns: Some(86_700_000_000_000),
            by: BanBy::Penalty,
        }),
        strikes: 2,
        penalties: 1,
        own: Some(KeyOverrideView {
            pattern: "alice*".to_owned(),
            gives: OverrideKind::Scale,
        }),
        ..bucket()
    }
}

fn rule(capacity: u32) -> Value {
    json!({
        "name": "reply-per-user",
        "key": [{ "header": "x-user-id" }],
        "on_missing_key": "skip",
        "limits": [{ "name": "burst", "algorithm": "funnel", "capacity": capacity, "rate": "30/m" }],
        "cost": 1,
        "mode": "enforce",
        "on_error": "admit",
        "overrides": { "alice": { "scale": 10 } },
        "penalty": { "after": 20, "within": "1m", "ban": "5m", "factor": 2, "max": "1h" },
        "respond": { "ratelimit_headers": "refused" },
    })
}

fn view() -> RuleView {
    RuleView {
        name: "reply-per-user".to_owned(),
        instance: INSTANCE.to_owned(),
        generation: 8,
        rule: rule(30),
        base: rule(15),
        edit: Some(EditView {
            by: "ops".to_owned(),
            reason: "launch day".to_owned(),
            at_ns: 86_400_000_000_000,
            at_unix_ms: 1_700_000_000_000,
            expires_at_ns: Some(88_200_000_000_000),
        }),
        edit_body: Some(json!({ "limits": rule(30).get("limits") })),
        overrides: vec![OverrideView {
            key: "alice".to_owned(),
            edit: EditView {
                by: "ops".to_owned(),
                reason: "ticket 7".to_owned(),
                at_ns: 86_400_000_000_000,
                at_unix_ms: 1_700_000_000_000,
                expires_at_ns: None,
            },
        }],
        totals: totals(),
    }
}

#[test]
fn status() -> serde_json::Result<()> {
    let status = Status {
        fleet: None,
        version: "0.1.0".to_owned(),
        git: "0123456789ab".to_owned(),
        instance: INSTANCE.to_owned(),
        started_unix_ms: STARTED,
        generation: 8,
        now_ns: 86_400_000_000_000,
        unix_ms: 1_700_000_000_000,
        uptime_ns: 3_600_000_000_000,
        access: Access::Edit,
        store: StoreStatus {
            buckets: 65_536,
            used: 1000,
            sampled_idle: 20,
            sampled: 30,
            evicted_lossless: 4,
            evicted_lossy: 0,
            cas_retries: 12,
            cas_give_ups: 0,
            lost_counts: 0,
            lost_returns: 0,
            lost_responses: 0,
            reloads: 1,
        },
        rules: vec![totals(), conditional()],
        waiting: 3,
        not_held_deadline: 2,
        not_held_full: 1,
        warnings: vec!["there are no rules".to_owned()],
    };
    holds(&status, include_str!("../../examples/status.json"))
}

#[test]
fn rules() -> serde_json::Result<()> {
    let rules = Rules {
        instance: INSTANCE.to_owned(),
        now_ns: 86_400_000_000_000,
        generation: 8,
        rules: vec![view()],
        next_cursor: None,
    };
    holds(&rules, include_str!("../../examples/rules.json"))
}

#[test]
fn edit() -> serde_json::Result<()> {
    let answer = EditAnswer {
        dry_run: false,
        before: rule(15),
        after: view(),
        change: "burst: capacity 15 → 30".to_owned(),
        changed: true,
        fleet: Some(Spread::Sending),
    };
    holds(&answer, include_str!("../../examples/edit.json"))
}

#[test]
fn buckets() -> serde_json::Result<()> {
    let page = BucketsPage {
        instance: INSTANCE.to_owned(),
        now_ns: 86_400_000_000_000,
        generation: 8,
        buckets: vec![bucket()],
        next_cursor: Some("17.8f3a".to_owned()),
        pages: 4096,
        pages_done: 17,
        wait_ns: 6_500_000,
    };
    holds(&page, include_str!("../../examples/buckets.json"))
}

#[test]
fn reset() -> serde_json::Result<()> {
    let answer = ResetAnswer {
        existed: true,
        before: Some(bucket()),
    };
    holds(&answer, include_str!("../../examples/reset.json"))?;
    let nothing = ResetAnswer::default();
    holds(&nothing, r#"{"existed":false}"#)
}

#[test]
fn ban() -> serde_json::Result<()> {
    let answer = BanAnswer {
        now_ns: 86_400_000_000_000,
        before: Some(BanView {
            until_ns: None,
            by: BanBy::Operator,
        }),
        bucket: Some(banned()),
        changed: true,
        fleet: Some(Spread::HereOnly),
    };
    holds(&answer, include_str!("../../examples/ban.json"))?;
    let nothing = BanAnswer::default();
    holds(&nothing, r#"{"now_ns":0,"changed":false}"#)
}

/// Client and server compute the `ETag` of a ban from the ban.
#[test]
fn the_etag_of_a_ban() {
    let by = |by, until_ns| BanView::etag(Some(BanView { until_ns, by }));
    assert_eq!(BanView::etag(None), "\"ban-none\"");
    assert_eq!(by(BanBy::Operator, None), "\"ban-operator\"");
    assert_eq!(by(BanBy::Penalty, Some(7)), "\"ban-penalty-7\"");
    let hidden = BucketView {
        ban: Some(BanView {
            until_ns: None,
            by: BanBy::Override,
        }),
        hidden_ban: Some(BanView::default()),
        ..BucketView::default()
    };
    assert_eq!(hidden.imposed(), Some(BanView::default()));
}

#[test]
fn events() -> serde_json::Result<()> {
    let event = Event {
        seq: 3,
        at_ns: 86_400_000_000_000,
        at_unix_ms: 1_700_000_000_000,
        kind: EventKind::Edit,
        rule: Some("reply-per-user".to_owned()),
        key: None,
        by: "ops".to_owned(),
        reason: "launch day".to_owned(),
        detail: "burst: capacity 15 → 30, for 30m".to_owned(),
        generation: 8,
        until_ns: Some(88_200_000_000_000),
    };
    let events = Events {
        instance: INSTANCE.to_owned(),
        started_unix_ms: STARTED,
        restarted: true,
        now_ns: 86_400_000_000_000,
        events: vec![event],
        last_seq: 3,
        lost: 0,
        more: false,
    };
    holds(&events, include_str!("../../examples/events.json"))?;
    let followed = Events::default();
    let nothing =
        r#"{"instance":"","started_unix_ms":0,"now_ns":0,"events":[],"last_seq":0,"lost":0}"#;
    holds(&followed, nothing)
}

/// The answer of a newer server has an unknown verdict and an unknown field.
#[test]
fn a_verdict_of_a_newer_server_is_unknown() -> serde_json::Result<()> {
    let rule = r#"{"rule":"r","mode":"enforce","says":"banned","until_ns":7}"#;
    let rule: ExplainedRule = serde_json::from_str(rule)?;
    assert_eq!(rule.says, Says::Unknown);
    Ok(())
}

#[test]
fn top() -> serde_json::Result<()> {
    let top = Top {
        now_ns: 86_400_000_000_000,
        generation: 8,
        by: TopBy::Refused,
        window_ns: 93_000_000_000,
        top: vec![TopEntry {
            rule: "reply-per-user".to_owned(),
            key: "alice%3A%2Freply".to_owned(),
            count: 811,
            error: 4,
            shadow: false,
            refused_since_ns: Some(85_680_000_000_000),
        }],
        total: 1024,
        keys: 213,
        missing_at_most: 5,
    };
    holds(&top, include_str!("../../examples/top.json"))?;
    for (by, name) in TopBy::ALL.into_iter().zip(TopBy::NAMES) {
        assert_eq!(serde_json::to_value(by)?, json!(name));
        assert_eq!((by.name(), TopBy::parse(name)), (name, Some(by)));
    }
    Ok(())
}

#[test]
fn problem() -> serde_json::Result<()> {
    let problem: ProblemAnswer = ProblemAnswer {
        kind: "about:blank".to_owned(),
        title: "Bad request".to_owned(),
        status: 400,
        detail: "the body is not a valid edit; see `problems`".to_owned(),
        problems: vec![RuleProblem {
            path: "limits[0].rate".to_owned(),
            value: "\"0/s\"".to_owned(),
            message: "a rate of nothing never admits".to_owned(),
            allowed: Some("an amount per period".to_owned()),
            ..RuleProblem::default()
        }],
        ..ProblemAnswer::default()
    };
    holds(&problem, include_str!("../../examples/problem.json"))
}

#[test]
fn a_newer_server_is_understood() -> serde_json::Result<()> {
    let event = r#"{"seq":1,"at_ns":0,"at_unix_ms":0,"kind":"moved","by":"x","detail":"","generation":1,"new":1}"#;
    let event: Event = serde_json::from_str(event)?;
    assert_eq!(event.kind, EventKind::Warning);
    Ok(())
}

/// An older server does not send `drains`.
#[test]
fn the_level_of_an_older_server_drains() -> serde_json::Result<()> {
    let limit = r#"{"name":"l","algorithm":"funnel","capacity":4,"rate":"1/s","remaining":1,
        "retry_after_ns":null,"reset_after_ns":3,"drain_ns":4}"#;
    let limit: LimitView = serde_json::from_str(limit)?;
    assert_eq!(
        [limit.level(0), limit.level(1), limit.level(9)],
        [(3, 4), (2, 4), (0, 4)]
    );
    let steps = LimitView {
        used: 2,
        drains: false,
        ..limit
    };
    assert_eq!(
        [steps.level(0), steps.level(2), steps.level(3)],
        [(2, 4), (2, 4), (0, 4)]
    );
    Ok(())
}
