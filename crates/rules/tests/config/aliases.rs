//! Aliases of fields and words are read, and are written as their canonical names.

use loudou_rules::config::{parse, parse_limits, parse_rule, parse_sample};
use loudou_rules::rule::KeyPart;
use serde_json::{Value, json};

use super::schema::agrees;
use super::{file, rule};

fn with_store(store: &Value) -> Value {
    let mut document = file(&[rule(&json!({}))]);
    document["store"] = store.clone();
    document
}

#[test]
fn gcra_is_a_funnel() {
    let of = |algorithm: &str| json!({ "algorithm": algorithm, "capacity": 5, "rate": "1/s" });
    let [gcra, funnel] = ["gcra", "funnel"].map(|name| {
        agrees(&file(&[rule(&json!({ "limits": [of(name)] }))]));
        parse_limits(&json!([of(name)])).expect("valid")
    });
    assert_eq!(gcra, funnel);
    let written = serde_json::to_value(&gcra).expect("serialises");
    assert_eq!(
        [&written[0]["name"], &written[0]["algorithm"]],
        ["funnel"; 2]
    );
    // Both would be named funnel.
    let problems = parse_limits(&json!([of("gcra"), of("funnel")])).expect_err("one name twice");
    assert_eq!(
        problems[0].to_string(),
        "[1].name: \"funnel\": duplicate limit name in this rule"
    );
}

#[test]
fn peer_is_the_client_certificate() {
    let [old, new] = ["peer", "client_cert"].map(|word| {
        let rule = rule(&json!({ "key": [word] }));
        agrees(&file(std::slice::from_ref(&rule)));
        parse_rule(&rule).expect("valid")
    });
    assert_eq!(old, new);
    assert_eq!(old.key, [KeyPart::ClientCert]);
    let written = serde_json::to_value(&old).expect("serialises");
    assert_eq!(written["key"], json!(["client_cert"]));

    let sample = json!({ "peer": "spiffe://a" });
    let sample = parse_sample(&sample).expect("valid").client_cert;
    assert_eq!(sample.as_deref(), Some(&b"spiffe://a"[..]));
}

#[test]
fn share_is_the_namespace() {
    for name in ["share", "namespace"] {
        let document = with_store(&json!({ name: "team" }));
        agrees(&document);
        let file = parse(&document).file.expect("valid");
        assert_eq!(file.store.namespace, "team");
        let written = serde_json::to_value(&file).expect("serialises");
        assert_eq!(
            written["store"],
            json!({ "buckets": 65_536, "namespace": "team" })
        );
    }
}

#[test]
fn both_names_at_once_are_an_error() {
    let both = with_store(&json!({ "share": "a", "namespace": "a" }));
    let problems = parse(&both).problems;
    let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
    assert_eq!(
        lines,
        [
            "store.share: alias of `namespace`, which is also given; allowed: only one of the two names"
        ]
    );
    let sample = json!({ "peer": "a", "client_cert": "a" });
    assert_eq!(parse_sample(&sample).expect_err("both").len(), 1);
    // Null stands for an absent field.
    for store in [
        json!({ "share": "a", "namespace": null }),
        json!({ "share": null, "namespace": "a" }),
    ] {
        let document = with_store(&store);
        agrees(&document);
        assert_eq!(parse(&document).file.expect("valid").store.namespace, "a");
    }
}
