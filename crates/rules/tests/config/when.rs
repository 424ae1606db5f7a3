//! Reads `when`, with its values, defaults, and problems.

use loudou_limiter::{Decimal, Nanos};
use loudou_rules::config::{advice, parse};
use loudou_store::UpstreamCondition;
use serde_json::{Value, json};

use super::wrong::no_number;
use super::{file, problems, read, read_rule, rule};

fn when(fields: &Value) -> UpstreamCondition {
    let rule = read_rule(&json!({ "when": fields }));
    rule.when.expect("there is one")
}

fn of(fields: &Value) -> Vec<String> {
    let lines = problems(&file(&[rule(&json!({ "when": fields }))])).into_iter();
    lines
        .map(|line| line.replace("rules[0].when", "when"))
        .collect()
}

/// Envoy reads a number with a fraction in YAML as a text.
#[test]
fn shares_may_be_texts() {
    let texts = json!({ "upstream_error_rate_over": "0.2", "until_under": "0.125" });
    let numbers = json!({ "upstream_error_rate_over": 0.2, "until_under": 0.125 });
    assert_eq!(when(&texts), when(&numbers));
    for (value, message) in [
        (json!("1.5"), "\"1.5\": out of range"),
        (json!("0,2"), "\"0,2\": not a number"),
        (json!("0.1255"), "\"0.1255\": not a number"),
        (json!(""), "\"\": not a number"),
    ] {
        let allowed = "a number from 0.001 to 1 with at most 3 decimals";
        assert_eq!(
            of(&json!({ "upstream_error_rate_over": value })),
            [format!(
                "when.upstream_error_rate_over: {message}; allowed: {allowed}"
            )]
        );
    }
}

#[test]
fn fields_and_their_defaults() {
    let all = json!({ "upstream_error_rate_over": 0.2, "until_under": 0.125, "within": "1m", "least": 5.0 });
    let expected = UpstreamCondition {
        over: Decimal::from_thousandths(200),
        until_under: Decimal::from_thousandths(125),
        within: Nanos::from_secs(60),
        least: 5,
    };
    assert_eq!(when(&all), expected);
    let expected = UpstreamCondition {
        until_under: Decimal::from_thousandths(100),
        within: Nanos::from_secs(10),
        least: 20,
        ..expected
    };
    assert_eq!(when(&json!({ "upstream_error_rate_over": 0.2 })), expected);
    // Half of the smallest share is zero, and no share is below zero.
    let smallest = when(&json!({ "upstream_error_rate_over": 0.001 }));
    assert_eq!(smallest.until_under, smallest.over);
    let same = json!({ "upstream_error_rate_over": 1, "until_under": 1 });
    assert_eq!(when(&same).until_under, Decimal::from_thousandths(1_000));
    assert_eq!(read_rule(&json!({ "when": null })).when, None);
}

#[test]
fn it_is_written_as_it_is_read() {
    let said = json!({ "when": { "upstream_error_rate_over": 0.2 } });
    let written = serde_json::to_value(read_rule(&said)).expect("serialises");
    let all = json!({ "upstream_error_rate_over": 0.2, "until_under": 0.1, "within": "10s", "least": 20 });
    assert_eq!(written["when"], all);
    assert_eq!(read_rule(&written), read_rule(&said));
    let without = serde_json::to_value(read_rule(&json!({}))).expect("serialises");
    assert_eq!(without.get("when"), None);
}

#[test]
fn rules_without_one_have_that_of_the_defaults() {
    let file = json!({
        "version": 1,
        "defaults": { "when": { "upstream_error_rate_over": 0.5 } },
        "rules": [rule(&json!({})), rule(&json!({ "name": "own", "when": { "upstream_error_rate_over": 1 } }))],
    });
    let over = |index: usize| read(&file).rules[index].when.expect("one").over;
    assert_eq!(over(0), Decimal::from_thousandths(500));
    assert_eq!(over(1), Decimal::from_thousandths(1_000));
    let wrong = json!({ "version": 1, "rules": [], "defaults": { "when": {} } });
    assert_eq!(
        problems(&wrong),
        [
            "defaults.when: `upstream_error_rate_over` is missing; allowed: a number from 0.001 to 1 with at most \
          3 decimals"
        ]
    );
}

#[test]
fn what_is_wrong_is_said() {
    let decimal = |most: &str| format!("a number from 0.001 to {most} with at most 3 decimals");
    for over in [
        json!(0),
        json!(1.001),
        json!(-0.5),
        json!(0.0005),
        json!("20%"),
    ] {
        assert_eq!(
            of(&json!({ "upstream_error_rate_over": &over })),
            [format!(
                "when.upstream_error_rate_over: {over}: {}; allowed: {}",
                no_number(&over),
                decimal("1")
            )]
        );
    }
    let with =
        |field: &str, value: Value| of(&json!({ "upstream_error_rate_over": 0.2, field: value }));
    assert_eq!(
        with("until_under", json!(0.201)),
        [format!(
            "when.until_under: 0.201: out of range; allowed: {}",
            decimal("0.2")
        )]
    );
    for within in ["999ms", "61m", "0s"] {
        let said = with("within", json!(within)).join("\n");
        let range = "out of range; allowed: a whole number and a unit";
        assert!(
            said.contains(range) && said.ends_with("; from 1s to 1h"),
            "{said}"
        );
    }
    let said = with("least", json!(0)).join("\n");
    assert!(
        said.ends_with("out of range; allowed: a whole number from 1 to 1000000"),
        "{said}"
    );
    assert_eq!(
        with("untl_under", json!(0.1)),
        [
            "when.untl_under: unknown field; allowed: upstream_error_rate_over, until_under, within, least; did \
          you mean `until_under`?"
        ]
    );
    assert_eq!(of(&json!(0.2)).len(), 1);
}

#[test]
fn a_share_that_cannot_be_exceeded() {
    let said = |over: Value| {
        let when = json!({ "when": { "upstream_error_rate_over": over } });
        let advice = advice(&parse(&file(&[rule(&when)])).file.expect("valid"));
        advice.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(
        said(json!(1)),
        [
            "rules[0].when.upstream_error_rate_over: 1: this rule never applies: the share of errors cannot exceed 1"
        ]
    );
    assert_eq!(said(json!(0.999)), [""; 0]);
}
