//! Every field of the supported part of the rule file, and the way back.

use loudou_limiter::algorithm::{Algorithm, Funnel, Refill, TokenBucket};
use loudou_limiter::{Decimal, Limit, Limits, Nanos, Penalty, Rate};
use loudou_rules::config::{parse_limits, parse_rule, parse_store};
use loudou_rules::rule::{
    Cost, GrpcStatus, KeyPart, Match, Mode, NamedTest, OnAmbiguousKey, OnError, OnLongValue,
    OnMissingKey, Override, Overrides, PathMatch, RateLimitHeaders, Refuse, RefuseBody, Respond,
    Rule, RuleFile, Scope, SourcePrefix, StoreSettings, Test, WaitingSettings,
};
use serde_json::{Value, json};

use super::{file, read, rule};

fn rate(amount: u32, seconds: u64) -> Rate {
    Rate::new(amount, Nanos::from_secs(seconds)).expect("positive")
}

fn everything() -> Value {
    json!({
        "version": 1,
        "store": {
            "buckets": 4096,
            "namespace": "team_a-1",
            "file": "/var/lib/loudou/buckets",
            "waiting": { "requests": 500, "memory_mib": 16, "body_kib": 64 },
        },
        "defaults": { "mode": "shadow", "on_error": "refuse" },
        "rules": [
            {
                "name": "reply-per-user",
                "match": {
                    "methods": ["POST", "M-SEARCH"],
                    "path": { "prefix": "/reply" },
                    "headers": [
                        { "name": "X-Plan", "exact": "free" },
                        { "name": "x-internal", "present": false },
                        { "name": ":authority", "present": true }
                    ]
                },
                "key": [{ "header": "X-User-Id" }, { "literal": "v2" }, "source", "path", "route"],
                "on_missing_key": "share",
                "limits": [
                    { "name": "burst", "algorithm": "funnel", "capacity": 15, "rate": "30/60s" },
                    {
                        "name": "steady_one", "algorithm": "token_bucket", "capacity": 1000,
                        "rate": "1000/d", "refill": "interval", "initial": 10
                    },
                    { "algorithm": "token_bucket", "capacity": 7, "rate": "7/h" }
                ],
                "cost": 3,
                "mode": "enforce",
                "shadows": "all",
                "stop": true,
                "overrides": {
                    "alice": { "scale": 2.5 },
                    "team-*": { "limits": [{ "algorithm": "funnel", "capacity": 1, "rate": "1/s" }] },
                    "*": "unlimited",
                    "10.0.0.1:/a*": "banned"
                },
                "penalty": { "after": 20, "within": "60s", "ban": "5m", "factor": 1.5, "max": "1h" },
                "refuse": {
                    "status": 503, "status_without_key": 400,
                    "body": { "text": "<b>no</b>", "content_type": "text/html" },
                    "headers": { "X-Refused-By": "loudou 1" },
                    "grpc": "unavailable"
                },
                "respond": { "ratelimit_headers": "draft11", "retry_after_jitter": 0.125, "explain_header": true }
            },
            {
                "name": "all",
                "match": { "path": { "exact": "/" } },
                "key": [],
                "on_missing_key": "refuse",
                "limits": [{ "algorithm": "funnel", "capacity": 1, "rate": "1/366d" }],
                "mode": "off"
            }
        ]
    })
}

fn overrides() -> Overrides {
    let funnel = Funnel::new(1, rate(1, 1)).expect("valid");
    let limits = Limits::new(vec![Limit::new("funnel", funnel)]).expect("one");
    let mut overrides = Overrides::default();
    for (key, own) in [
        ("alice", Override::Scale(Decimal::from_thousandths(2_500))),
        ("team-*", Override::Limits(limits)),
        ("*", Override::Unlimited),
        ("10.0.0.1:/a*", Override::Banned),
    ] {
        overrides.set(key, Some(own));
    }
    overrides
}

fn refuse() -> Refuse {
    Refuse {
        status: 503,
        status_without_key: Some(400),
        body: RefuseBody::Text {
            text: "<b>no</b>".to_string(),
            content_type: "text/html".to_string(),
        },
        headers: [("x-refused-by".to_string(), "loudou 1".to_string())].into(),
        grpc: GrpcStatus::Unavailable,
    }
}

fn matches() -> Match {
    let header = |name: &str, test| NamedTest {
        name: name.to_string(),
        test,
    };
    Match {
        methods: vec!["POST".to_string(), "M-SEARCH".to_string()],
        path: Some(PathMatch::Prefix("/reply".to_string())),
        headers: vec![
            header("x-plan", Test::Exact("free".to_string())),
            header("x-internal", Test::Present(false)),
            header(":authority", Test::Present(true)),
        ],
        ..Match::default()
    }
}

/// The rule of [`everything`].
fn the_rule() -> Rule {
    let burst = Algorithm::Funnel(Funnel::new(15, rate(30, 60)).expect("valid"));
    let steady = TokenBucket::new(1000, rate(1000, 86_400), Refill::Interval, 10).expect("valid");
    let third = TokenBucket::new(7, rate(7, 3600), Refill::Greedy, 7).expect("valid");
    let limits = vec![
        Limit::new("burst", burst),
        Limit::new("steady_one", Algorithm::TokenBucket(steady)),
        Limit::new("token_bucket", Algorithm::TokenBucket(third)),
    ];
    Rule {
        name: "reply-per-user".to_string(),
        matches: matches(),
        on_long_value: OnLongValue::Apply,
        when: None,
        key: vec![
            KeyPart::Header("x-user-id".to_string()),
            KeyPart::Literal("v2".to_string()),
            KeyPart::Source(SourcePrefix::default()),
            KeyPart::Path {
                segments: None,
                normalize: true,
            },
            KeyPart::Route,
        ],
        on_missing_key: OnMissingKey::Share,
        on_ambiguous_key: OnAmbiguousKey::First,
        limits: Limits::new(limits).expect("three"),
        scope: Scope::Envoy,
        cost: Cost::Fixed(3),
        mode: Mode::Enforce,
        shadows: Some("all".to_string()),
        stop: true,
        on_error: OnError::Refuse,
        overrides: overrides(),
        penalty: Some(Penalty {
            after: 20,
            within: Nanos::from_secs(60),
            ban: Nanos::from_secs(300),
            factor: Decimal::from_thousandths(1_500),
            max: Nanos::from_secs(3_600),
        }),
        refuse: refuse(),
        respond: Respond {
            ratelimit_headers: RateLimitHeaders::Draft11,
            retry_after_jitter: Decimal::from_thousandths(125),
            explain_header: true,
        },
    }
}

#[test]
fn every_field_is_read() {
    let read = read(&everything());
    let namespace = "team_a-1".to_string();
    let buckets = 4096;
    let waiting = WaitingSettings {
        requests: 500,
        memory_mib: 16,
        body_kib: 64,
    };
    let expected = StoreSettings {
        buckets,
        namespace,
        file: Some("/var/lib/loudou/buckets".to_string()),
        waiting,
    };
    assert_eq!(read.store, expected);
    assert_eq!(read.rules.first(), Some(&the_rule()));
}

#[test]
fn what_is_not_said_has_a_default() {
    let read = read(&file(&[rule(&json!({ "key": [] }))]));
    let settings = StoreSettings {
        buckets: 65_536,
        namespace: "loudou".to_string(),
        file: None,
        waiting: WaitingSettings {
            requests: 65_536,
            memory_mib: 64,
            body_kib: 1_024,
        },
    };
    assert_eq!(read.store, settings);
    let funnel = Funnel::new(5, rate(1, 1)).expect("valid");
    let limits = Limits::new(vec![Limit::new("funnel", Algorithm::Funnel(funnel))]);
    let expected = Rule {
        name: "r".to_string(),
        matches: Match::default(),
        on_long_value: OnLongValue::Apply,
        when: None,
        key: Vec::new(),
        on_missing_key: OnMissingKey::Skip,
        on_ambiguous_key: OnAmbiguousKey::First,
        limits: limits.expect("one"),
        scope: Scope::Envoy,
        cost: Cost::Fixed(1),
        mode: Mode::Enforce,
        shadows: None,
        stop: false,
        on_error: OnError::Admit,
        overrides: Overrides::default(),
        penalty: None,
        refuse: Refuse::default(),
        respond: Respond::default(),
    };
    assert_eq!(read.rules, [expected]);
    assert!(super::read(&file(&[])).rules.is_empty());
}

/// The written form is a rule file with the defaults applied.
#[test]
fn a_file_is_written_as_it_is_read() {
    let first = read(&everything());
    let written = serde_json::to_value(&first).expect("serialises");
    assert_eq!(written["defaults"], Value::Null);
    assert_eq!(written["rules"][1]["mode"], "off");
    assert_eq!(written["rules"][1]["on_error"], "refuse");
    assert_eq!(
        written["rules"][0]["limits"][0],
        json!({
            "name": "burst", "algorithm": "funnel", "capacity": 15, "rate": "30/m"
        })
    );
    let again = read(&written);
    assert_eq!(again, first);
    for rule in &first.rules {
        let written = serde_json::to_value(rule).expect("serialises");
        assert_eq!(parse_rule(&written).as_ref(), Ok(rule));
        let limits = serde_json::to_value(&rule.limits).expect("serialises");
        assert_eq!(parse_limits(&limits).as_ref(), Ok(&rule.limits));
    }
    assert_eq!(parse_store(&written["store"]), Ok(first.store));
    let empty = serde_json::to_value(RuleFile::default()).expect("serialises");
    assert_eq!(read(&empty), RuleFile::default());
}

/// A warning is not an error, so a rule in force can be read back.
#[test]
fn a_rule_with_a_warning_is_written_as_it_is_read() {
    let costly = rule(&json!({ "cost": 6 }));
    let parsed = loudou_rules::config::parse(&file(&[costly]));
    assert_eq!(parsed.problems.len(), 1);
    let rule = parsed.file.expect("in force").rules.remove(0);
    let written = serde_json::to_value(&rule).expect("serialises");
    assert_eq!(parse_rule(&written), Ok(rule));
}

/// Envoy passes the numbers of a Struct as doubles, and may drop nulls.
#[test]
fn whole_doubles_are_whole_numbers() {
    let read = read(&json!({
        "version": 1.0,
        "store": { "buckets": 16_777_216.0 },
        "defaults": null,
        "rules": [rule(&json!({
            "match": null,
            "cost": 15.0,
            "limits": [
                { "name": "a", "algorithm": "funnel", "capacity": 1_000_000_000.0, "rate": "1000000000/s" },
                { "name": "b", "algorithm": "token_bucket", "capacity": 20.0, "rate": "1/s", "initial": 0.0 },
            ],
        }))],
    }));
    assert_eq!(read.store.buckets, 16_777_216);
    let rule = read.rules.first().expect("one");
    assert_eq!(rule.cost, Cost::Fixed(15));
    let capacities: Vec<u64> = rule
        .limits
        .iter()
        .map(|l| l.algorithm().capacity())
        .collect();
    assert_eq!(capacities, [1_000_000_000, 20]);
}

/// The buckets of a rule outlive its limits, and end with its name or with what its key means.
#[test]
fn the_tag_of_a_rule_is_its_name_and_its_key() {
    let tag = |fields: Value| {
        let mut rule = json!({
            "name": "a", "key": ["source"],
            "limits": [{ "algorithm": "funnel", "capacity": 5, "rate": "1/s" }]
        });
        for (name, value) in fields.as_object().expect("fields") {
            rule[name] = value.clone();
        }
        parse_rule(&rule).expect("valid").tag()
    };
    let first = tag(json!({}));
    let limits =
        json!([{ "name": "b", "algorithm": "fixed_window", "capacity": 6, "window": "1h" }]);
    for same in [
        json!({ "limits": limits }),
        json!({ "mode": "shadow", "overrides": { "10.0.0.1": { "scale": 2 } } }),
        json!({ "match": { "path": { "prefix": "/x" } }, "cost": 2 }),
    ] {
        assert_eq!(tag(same.clone()), first, "{same}");
    }
    for other in [
        json!({ "name": "b" }),
        json!({ "key": [] }),
        json!({ "key": ["source", "path"] }),
        json!({ "key": [{ "header": "x-user" }] }),
    ] {
        assert_ne!(tag(other.clone()), first, "{other}");
    }
}
