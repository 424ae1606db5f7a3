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
        ("state:refusing", true),
        ("state:banned", false),
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

/// `refusing` finds banned keys, because their requests are refused. It does not find keys of rules
/// in shadow mode.
#[test]
fn refusing_is_about_keys_that_are_refused() {
    let shown = |state, shadow| {
        let mut row = row();
        (row.view.state, row.view.shadow) = (state, shadow);
        ["state = refusing", "refusing", "!refusing"]
            .map(|text| Filter::parse(text).expect(text).shows(&row))
    };
    assert_eq!(shown(BucketState::Refusing, false), [true, true, false]);
    assert_eq!(shown(BucketState::Banned, false), [true, true, false]);
    for in_shadow in [BucketState::Refusing, BucketState::Banned] {
        assert_eq!(shown(in_shadow, true), [false, false, true]);
    }
    assert_eq!(shown(BucketState::Busy, false), [false, false, true]);
}

#[test]
fn the_server_searches_for_what_it_can() {
    let rules = ["Replies", "by-source", "alias"];
    for (text, searches) in [
        ("", &[][..]),
        (" Xa yz ", &["key Xa%20yz"]),
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
        ("state = refused", &["state refusing"]),
        ("state = refusing", &["state refusing", "state banned"]),
        ("state != refusing", &[]),
        (
            "rule = replies and state = refusing",
            &["rule Replies, state refusing", "rule Replies, state banned"],
        ),
        (
            "refusing",
            &["key refusing", "state refusing", "state banned"],
        ),
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
        (
            "state = refusd",
            "unknown state `refusd`; states: idle, ok, busy",
        ),
        ("bob or dave", "there is no `or`"),
        ("bob | dave", "there is no `or`"),
        ("refused > 5 or bob", "there is no `or`"),
        ("key ~ b.*", "there is no `~`; write >= <="),
    ] {
        let error = Filter::parse(text).expect_err(text);
        assert!(error.contains(wrong), "{text}: {error}");
    }
}

/// The filter escapes keys to ASCII, but users type them unescaped.
#[test]
fn keys_in_another_script_are_found() {
    let mut row = row();
    row.id = BucketName::new("replies", "%E6%BC%A2%E5%AD%97:a%20b");
    for (text, part) in [
        ("字", "%E5%AD%97"),
        ("a b", "a%20b"),
        ("key = 漢字:a b", "%E6%BC%A2%E5%AD%97:a%20b"),
        ("%E6%BC", "%E6%BC"),
    ] {
        let filter = Filter::parse(text).expect(text);
        assert!(filter.shows(&row), "{text}");
        let searches = filter.searches(["replies"].into_iter());
        let keys: Vec<_> = searches
            .iter()
            .map(|wanted| wanted.key.as_deref())
            .collect();
        assert_eq!(keys, [Some(part)], "{text}");
    }
    assert!(!Filter::parse("!字").expect("a filter").shows(&row));
}

/// Keys may contain a bar, so a filter with a bar is reported as a mistake only if it finds
/// nothing.
#[test]
fn a_bar_is_a_mistake_only_where_nothing_is_found() {
    for text in ["auth0|17", "or", "order", "key~x"] {
        let filter = Filter::parse(text);
        assert_eq!(filter.is_ok(), text != "key~x", "{text}");
    }
    assert!(Filter::advice("bob|dave").is_some_and(|advice| advice.contains("`and`")));
    assert_eq!(Filter::advice("bob"), None);
}
