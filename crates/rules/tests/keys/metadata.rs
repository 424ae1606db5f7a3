//! Values of Envoy's dynamic metadata, whose types only the protobuf form contains.

use loudou_rules::metadata::{each_text, number_text};
use loudou_rules::request::Sample;
use loudou_rules::rule::Price;
use loudou_rules::rule::key::Key;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::rule;

/// A field of a protobuf message with a length.
fn field(number: u8, content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![number << 3 | 2];
    let mut len = content.len();
    while len > 0x7f {
        bytes.push(u8::try_from(len & 0x7f).expect("7 bits") | 0x80);
        len >>= 7;
    }
    bytes.push(u8::try_from(len).expect("7 bits"));
    bytes.extend_from_slice(content);
    bytes
}

/// A `google.protobuf.Value`, as Envoy serialises it.
fn encoded(value: &Value) -> Vec<u8> {
    match value {
        Value::Null => vec![1 << 3, 0],
        Value::Bool(value) => vec![4 << 3, u8::from(*value)],
        Value::Number(number) => {
            let number = number.as_f64().expect("a double").to_le_bytes();
            [&[2 << 3 | 1][..], &number].concat()
        }
        Value::String(text) => field(3, text.as_bytes()),
        Value::Object(object) => field(5, &fields(object)),
        Value::Array(list) => {
            let elements = list.iter().map(|element| field(1, &encoded(element)));
            field(6, &elements.collect::<Vec<_>>().concat())
        }
    }
}

/// A `google.protobuf.Struct`.
fn fields(object: &Map<String, Value>) -> Vec<u8> {
    let entry = |(key, value): (&String, &Value)| {
        field(
            1,
            &[field(1, key.as_bytes()), field(2, &encoded(value))].concat(),
        )
    };
    object.iter().map(entry).collect::<Vec<_>>().concat()
}

/// An `envoy.config.core.v3.Metadata` with a typed namespace before the others.
fn metadata(namespaces: &Value) -> Vec<u8> {
    let mut bytes = field(2, &[field(1, b"typed"), field(2, b"\x0a\x03any")].concat());
    for (name, object) in namespaces.as_object().expect("namespaces") {
        let object = fields(object.as_object().expect("a struct"));
        bytes.extend(field(
            1,
            &[field(1, name.as_bytes()), field(2, &object)].concat(),
        ));
    }
    bytes
}

fn texts(metadata: &[u8], path: &[&str]) -> Vec<String> {
    let path: Vec<String> = path.iter().map(|step| (*step).to_owned()).collect();
    let mut texts = Vec::new();
    each_text(metadata, &path, &mut |text| {
        texts.push(String::from_utf8_lossy(text).into_owned());
    });
    texts
}

/// Each of these texts has the bytes of a value of another type, which a reader without types takes for it.
#[test]
fn a_text_is_never_taken_for_a_number() {
    let number = f64::from_le_bytes(*b"pro-plan");
    let claims = json!({ "jwt": { "claims": {
        "eight": "pro-plan", "number": number, "zero": "\0\0\0\0\0\0\0\0", "true": "\u{1}", "false": "\0",
        "list": "\u{1}\0\0\0\u{1}\0\0\0\0\0\0\0a\0\0", "id": 42, "staff": true, "roles": ["a", "b"],
    } } });
    let bytes = metadata(&claims);
    let of = |claim| texts(&bytes, &["jwt", "claims", claim]);
    for text in ["eight", "zero", "true", "false", "list"] {
        assert_eq!(
            of(text),
            [claims["jwt"]["claims"][text].as_str().expect("a text")],
            "{text}"
        );
    }
    assert_eq!(of("number"), [number_text(number).expect("finite")]);
    assert_eq!(of("id"), ["42"]);
    assert_eq!(of("staff"), ["true"]);
    assert_eq!(of("roles"), ["a", "b"]);
}

#[test]
fn values_without_a_text() {
    let bytes = metadata(&json!({ "a": {
        "object": { "b": 1 }, "nothing": null, "empty": [], "nulls": [null, {}, [1]], "mixed": [null, "x", {}, 2],
    } }));
    assert_eq!(texts(&bytes, &["a", "object"]), [""], "it is present");
    assert_eq!(texts(&bytes, &["a", "nothing"]), [""; 0]);
    assert_eq!(texts(&bytes, &["a", "empty"]), [""]);
    assert_eq!(texts(&bytes, &["a", "nulls"]), [""]);
    assert_eq!(texts(&bytes, &["a", "mixed"]), ["x", "2"]);
    for path in [
        &["a"][..],
        &["b", "c"],
        &["a", "object", "c"],
        &["a", "mixed", "x"],
        &["typed", "b"],
        &[],
    ] {
        assert_eq!(texts(&bytes, path), [""; 0], "{path:?}");
    }
}

/// As `JSON.stringify` writes them.
#[test]
fn numbers_as_json_writes_them() {
    for (number, text) in [
        (0.0, "0"),
        (-0.0, "0"),
        (42.0, "42"),
        (-42.0, "-42"),
        (0.1, "0.1"),
        (2.5, "2.5"),
        (-1e-7, "-1e-7"),
        (1e15, "1000000000000000"),
        (1e16, "10000000000000000"),
        (123_456_789_012_345_680.0, "123456789012345680"),
        (9_007_199_254_740_993.0, "9007199254740992"),
        (1e20, "100000000000000000000"),
        (-123_456_789_012_345_680_000.0, "-123456789012345680000"),
    ] {
        assert_eq!(number_text(number).as_deref(), Some(text));
    }
    for number in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        assert_eq!(number_text(number), None);
    }
}

fn claim(value: &Value) -> Sample<'static> {
    let mut sample = Sample::default();
    let bytes = metadata(&json!({ "jwt": { "claim": value } }));
    for text in texts(&bytes, &["jwt", "claim"]) {
        sample
            .metadata
            .push(("jwt.claim".to_owned(), text.into_bytes().into()));
    }
    sample
}

#[test]
fn tests_of_any_type() {
    let holds = |test: Value, value: Value| {
        let mut test = test;
        test["path"] = json!(["jwt", "claim"]);
        let rule = rule(&json!({ "match": { "metadata": [test] }, "limits": [
            { "algorithm": "funnel", "capacity": 1, "rate": "1/s" },
        ] }));
        rule.matches.fit(&mut claim(&value)) == loudou_rules::rule::Fit::Yes
    };
    for (test, value, expected) in [
        (json!({ "exact": 42 }), json!(42), true),
        (json!({ "exact": "42" }), json!(42), true),
        (json!({ "exact": 42 }), json!("42"), true),
        (json!({ "exact": 42 }), json!(42.5), false),
        (json!({ "exact": true }), json!(true), true),
        (json!({ "exact": true }), json!(false), false),
        (json!({ "exact": "admin" }), json!(["dev", "admin"]), true),
        (
            json!({ "exact": "admin" }),
            json!(["dev", "administrator"]),
            false,
        ),
        (json!({ "prefix": "ad" }), json!(["dev", "admin"]), true),
        (json!({ "suffix": "2" }), json!([1, 42]), true),
        (json!({ "regex": "d.v" }), json!(["admin", "dev"]), true),
        (json!({ "present": true }), json!([]), true),
        (json!({ "present": true }), json!({ "a": 1 }), true),
        (json!({ "present": false }), json!(null), true),
        (json!({ "present": true }), json!(false), true),
    ] {
        assert_eq!(
            holds(test.clone(), value.clone()),
            expected,
            "{test} of {value}"
        );
    }
}

#[test]
fn a_list_is_an_ambiguous_key() {
    let key = |on_ambiguous: &str, value: Value| {
        let rule = rule(&json!({
            "key": [{ "metadata": ["jwt", "claim"] }], "on_ambiguous_key": on_ambiguous, "on_missing_key": "refuse",
            "limits": [{ "algorithm": "funnel", "capacity": 1, "rate": "1/s" }],
        }));
        rule.key_of(&mut claim(&value))
    };
    let bucket = |key: &str| Key::Bucket(key.to_owned());
    for on_ambiguous in ["first", "refuse"] {
        assert_eq!(key(on_ambiguous, json!(42)), bucket("42"));
        assert_eq!(key(on_ambiguous, json!(["a"])), bucket("a"));
        assert_eq!(key(on_ambiguous, json!(["a", "", "a"])), bucket("a"));
        assert_eq!(key(on_ambiguous, json!([])), Key::Refuse);
        assert_eq!(key(on_ambiguous, json!({ "a": "b" })), Key::Refuse);
    }
    assert_eq!(key("first", json!(["", "a", "b"])), bucket("a"));
    assert_eq!(key("refuse", json!(["a", "b"])), Key::Ambiguous);
}

#[test]
fn costs_in_metadata() {
    let cost = json!({ "metadata": ["jwt", "claim"], "default": 3, "max": 100 });
    let rule = rule(&json!({ "cost": cost, "limits": [
        { "algorithm": "funnel", "capacity": 1_000, "rate": "1/s" },
    ] }));
    for (value, cost, is_invalid) in [
        (json!(7), 7, false),
        (json!("7"), 7, false),
        (json!([7, 8]), 7, false),
        (json!(100.0), 100, false),
        (json!(101), 100, false),
        (json!(1e18), 100, false),
        (json!(null), 3, false),
        (json!(0), 3, true),
        (json!(-1), 3, true),
        (json!(1.5), 3, true),
        (json!(1e300), 3, true),
        (json!(true), 3, true),
        (json!("seven"), 3, true),
        (json!({}), 3, true),
        (json!([]), 3, true),
    ] {
        let price = rule.cost.price(&mut claim(&value));
        assert_eq!(price, Price { cost, is_invalid }, "{value}");
    }
}

fn values() -> impl Strategy<Value = Value> {
    let scalar = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<f64>().prop_map(|number| json!(number)),
        (-100_000_i64..100_000).prop_map(|number| json!(number)),
        "\\PC{0,9}".prop_map(Value::from),
        "[\0-\x7f]{8}".prop_map(Value::from),
    ];
    scalar.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[ab]", inner, 0..3).prop_map(|object| json!(object)),
        ]
    })
}

/// The texts at a path, from JSON.
fn expected(value: &Value) -> Vec<String> {
    let scalar = |value: &Value| match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(value) => Some(value.to_string()),
        Value::Number(number) => number_text(number.as_f64().expect("a double")),
        _ => None,
    };
    match value {
        Value::Object(_) => vec![String::new()],
        Value::Array(list) => {
            let texts: Vec<_> = list.iter().filter_map(scalar).collect();
            if texts.is_empty() {
                vec![String::new()]
            } else {
                texts
            }
        }
        _ => scalar(value).into_iter().collect(),
    }
}

proptest! {
    #[test]
    fn what_envoy_writes_is_read_back(value in values(), steps in prop::collection::vec("[ab]", 1..4)) {
        let bytes = metadata(&json!({ "ns": { "a": value }, "other": { "a": "x" } }));
        let mut found = &json!({ "a": value });
        for step in &steps {
            found = &found[step];
        }
        let mut path = vec!["ns"];
        path.extend(steps.iter().map(String::as_str));
        prop_assert_eq!(texts(&bytes, &path), expected(found));
    }

    #[test]
    fn noise_is_read_to_an_end(value in values(), cut in any::<usize>(), at in any::<usize>(), byte in any::<u8>()) {
        let mut bytes = metadata(&json!({ "ns": { "a": value } }));
        let at = at % bytes.len();
        bytes[at] = byte;
        bytes.truncate(cut % (bytes.len() + 1));
        let longest = texts(&bytes, &["ns", "a"]).iter().map(String::len).max().unwrap_or(0);
        prop_assert!(longest <= 3 * bytes.len() + 24, "no text is longer than the metadata");
    }
}
