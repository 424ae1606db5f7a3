use super::*;
use crate::app::history::Rates;
use crate::app::rows::BucketName;
use loudou_api::{BucketState, BucketView, LimitView};

fn row() -> Row {
    let limit = LimitView {
        capacity: 15,
        remaining: 3,
        retry_after_ns: Some(2_500_000_000),
        reset_after_ns: 24,
        drain_ns: 30,
        drains: true,
        ..LimitView::default()
    };
    Row {
        id: BucketName::new("replies", "Alice:/reply"),
        view: BucketView {
            limits: vec![limit],
            state: BucketState::Refusing,
            ..BucketView::default()
        },
        as_of_ns: 10_000_000_000,
        rates: Some(Rates {
            admitted: 1.0,
            refused: 7.5,
            shadow: 0.0,
        }),
    }
}

#[test]
fn rows_pass_or_not() {
    for (text, shown) in [
        ("", true),
        ("alice", true),
        ("REPL", true),
        ("bob", false),
        ("!bob", true),
        ("!alice", false),
        ("refused > 5", true),
        ("refused>7.5", false),
        ("refused >= 7.5", true),
        ("level >= 80%", true),
        ("level < 80", false),
        ("rule = replies", true),
        ("rule = repl", false),
        ("rule != replies", false),
        ("key = alice:/reply", true),
        ("state = refusing and retry > 2s", true),
        ("state = refusing and retry > 3", false),
        ("!state = refusing", false),
        ("remaining = 3 and capacity = 15", true),
        ("seen > 5s", true),
        ("admitted != 1", false),
        ("a and b", false),
        ("replies alice", true),
        ("plies ali", true),
        ("alice replies", false),
        ("refusing", true),
        ("banned", false),
        ("override", false),
        ("would > 0", false),
        ("would = 0", true),
    ] {
        let filter = Filter::parse(text).expect(text);
        assert_eq!(filter.shows(&row()), shown, "{text}");
    }
}

#[test]
fn the_server_searches_for_what_it_can() {
    let rules = ["Replies", "by-source", "alias"];
    for (text, searches) in [
        ("", &[][..]),
        (" Xa yz ", &["key Xa yz"]),
        ("ali", &["key ali", "rule alias"]),
        ("!alice", &[]),
        ("refused > 5", &[]),
        ("alice and bob", &["key bob"]),
        ("key = Alice and level > 5", &["key Alice"]),
        ("rule = replies and !bob", &["rule Replies"]),
        ("rule = none", &[]),
        ("rule != replies", &[]),
        ("rule == replies and x", &["rule Replies, key x"]),
        ("state = banned", &["state banned"]),
        ("state = would refuse", &["state refusing"]),
        ("state = ban off", &["state banned"]),
        ("banned", &["key banned", "state banned"]),
        ("idle", &["key idle"]),
    ] {
        let filter = Filter::parse(text).expect(text);
        let found: Vec<String> = filter
            .searches(rules.into_iter())
            .iter()
            .map(|wanted| {
                let rule = wanted.rule.as_ref().map(|rule| format!("rule {rule}"));
                let key = wanted.key.as_ref().map(|key| format!("key {key}"));
                let state = wanted.state.map(|state| format!("state {}", state.name()));
                let all = rule.into_iter().chain(key).chain(state);
                all.collect::<Vec<_>>().join(", ")
            })
            .collect();
        assert_eq!(found, searches, "{text}");
    }
}

#[test]
fn mistakes_are_named() {
    for (text, wrong) in [
        ("refsed > 5", "unknown field `refsed`"),
        ("refused > many", "needs a number"),
        ("rule > x", "use = or !="),
        ("level = ", "needs a number"),
        ("level > NaN", "needs a number"),
    ] {
        let error = Filter::parse(text).expect_err(text);
        assert!(error.contains(wrong), "{text}: {error}");
    }
}
