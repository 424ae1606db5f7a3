//! Examples of lease calls and their answers.

use loudou_api::{
    Change, ChangeName, KeyAnswer, Lease, LeaseAnswer, LeaseError, LeaseKey, LeaseLimit,
    LeaseRequest, MAX_LEASE_BODY, MAX_LEASE_KEYS, RejectedChange,
};
use serde_json::{Value, json};

use super::{INSTANCE, holds};

fn ban(generation: u64) -> Change {
    Change {
        name: "ban/daily-quota/mallory".to_owned(),
        value: json!({ "by": "ops" }),
        age_ms: 1_500,
        ends_in_ms: 298_500,
        generation,
        instance: INSTANCE.to_owned(),
    }
}

fn request() -> LeaseRequest {
    let limits = vec![
        LeaseLimit::Leak {
            capacity: 15,
            amount: 30,
            period_ns: 60_000_000_000,
        },
        LeaseLimit::Interval {
            capacity: 100,
            amount: 10,
            interval_ns: 1_000_000_000,
        },
        LeaseLimit::Window {
            capacity: 5_000,
            window_ns: 86_400_000_000_000,
        },
    ];
    LeaseRequest {
        epoch: "9c8b7a69".to_owned(),
        generation: 12,
        keys: vec![LeaseKey {
            want: 7,
            need: 2,
            debt: 1,
            ..LeaseKey::new("daily-quota", "nina", limits)
        }],
        changes: vec![ban(0)],
        ..LeaseRequest::new("loudou", INSTANCE)
    }
}

#[test]
fn a_call() -> serde_json::Result<()> {
    let example = include_str!("../../examples/lease-request.json");
    holds(&request(), example)?;
    assert_eq!(LeaseRequest::read(example.as_bytes()), Ok(request()));
    Ok(())
}

#[test]
fn an_answer() -> serde_json::Result<()> {
    let answer = LeaseAnswer {
        envoys: 4,
        epoch: "9c8b7a69".to_owned(),
        generation: 14,
        keys: vec![
            KeyAnswer::Lease(Lease {
                granted: 5,
                charged: 1,
                wait_us: 2_000_000,
                left: vec![0, 63, 2_100],
                ends_us: 36_000_000_000,
            }),
            KeyAnswer::Failed(LeaseError::Timeout),
        ],
        changes: vec![
            Change {
                name: "edit/daily-quota".to_owned(),
                value: Value::Null,
                age_ms: 40_000,
                ends_in_ms: 0,
                generation: 13,
                instance: "1122334455667788".to_owned(),
            },
            ban(14),
        ],
        more: true,
        rejected: vec![RejectedChange {
            name: "override/daily-quota/al%2A".to_owned(),
            why: "4096 changes are kept; allowed: 4096".to_owned(),
        }],
    };
    holds(&answer, include_str!("../../examples/lease-answer.json"))?;
    let beat = r#"{"envoys":0,"epoch":"","generation":0,"keys":[]}"#;
    holds(&LeaseAnswer::default(), beat)
}

/// Replaces one value of the example. Returns the error message, or `read` if the call is valid.
fn refused(pointer: &str, value: Value) -> serde_json::Result<String> {
    let mut call = serde_json::to_value(request())?;
    if let Some(place) = call.pointer_mut(pointer) {
        *place = value;
    }
    let read = LeaseRequest::read(call.to_string().as_bytes());
    Ok(read.map_or_else(|bad| bad.to_string(), |_| "read".to_owned()))
}

#[test]
fn texts_are_bounded() -> serde_json::Result<()> {
    let long = |bytes: usize| Value::String("k".repeat(bytes));
    let cases = [
        (
            "/namespace",
            long(0),
            "namespace: 0 bytes; allowed: 1 to 256",
        ),
        ("/epoch", long(257), "epoch: 257 bytes; allowed: 0 to 256"),
        (
            "/keys/0/rule",
            long(0),
            "keys[0].rule: 0 bytes; allowed: 1 to 256",
        ),
        (
            "/keys/0/key",
            long(8_193),
            "keys[0].key: 8193 bytes; allowed: 0 to 8192",
        ),
        ("/keys/0/key", long(8_192), "read"),
    ];
    for (pointer, value, message) in cases {
        assert_eq!(refused(pointer, value)?, message, "{pointer}");
    }
    for (value, bytes) in [("12", 2), ("0f1e2d3c4b5a697g", 16)] {
        let message = format!("instance: {bytes} bytes; allowed: 16 hexadecimal digits, or none");
        assert_eq!(refused("/instance", json!(value))?, message);
    }
    Ok(())
}

#[test]
fn numbers_are_bounded() -> serde_json::Result<()> {
    const ODD: u64 = 3_600_000_000_001;
    const YEARS: u64 = 31_622_400_000_000_001;
    let cases = [
        ("want", 1_000_000_001, "0 to 1000000000"),
        ("need", 8, "0 to 7"),
        ("debt", 1_000_000_001, "0 to 1000000000"),
        ("limits[0].capacity", 0, "1 to 1000000000"),
        ("limits[0].amount", 1_000_000_001, "1 to 1000000000"),
        (
            "limits[0].period_ns",
            ODD,
            "a multiple of 1000 above 3600000000000",
        ),
        ("limits[1].interval_ns", 999, "1000 to 31622400000000000"),
        ("limits[2].window_ns", YEARS, "1000 to 31622400000000000"),
    ];
    for (field, value, allowed) in cases {
        let pointer = field.replace('[', "/").replace("].", "/");
        let message = refused(&format!("/keys/0/{pointer}"), json!(value))?;
        assert_eq!(
            message,
            format!("keys[0].{field}: {value}; allowed: {allowed}")
        );
    }
    let none = refused("/keys/0/limits", json!([]))?;
    assert_eq!(none, "keys[0].limits: 0; allowed: 1 to 8");
    let form = "its value has another form";
    for value in [json!(-1), json!(1.5), json!("1"), json!(1e300), json!(null)] {
        let message = refused("/keys/0/want", value.clone())?;
        assert!(message.ends_with(form), "{value}: {message}");
    }
    let both = json!({ "capacity": 1, "amount": 1, "period_ns": 1, "window_ns": 1 });
    let message = refused("/keys/0/limits/0", both)?;
    assert!(message.ends_with(form), "{message}");
    Ok(())
}

#[test]
fn calls_are_bounded() {
    let of_keys = |keys: usize| LeaseRequest {
        keys: vec![
            LeaseKey::new(
                "r",
                "k",
                vec![LeaseLimit::Window {
                    capacity: 1,
                    window_ns: 1_000
                }]
            );
            keys
        ],
        ..LeaseRequest::new("loudou", INSTANCE)
    };
    let read = |keys| {
        let body = serde_json::to_vec(&of_keys(keys)).unwrap_or_default();
        LeaseRequest::read(&body)
            .map(drop)
            .map_err(|bad| bad.to_string())
    };
    assert_eq!(read(MAX_LEASE_KEYS), Ok(()));
    assert_eq!(
        read(MAX_LEASE_KEYS + 1),
        Err("keys: 513; allowed: 0 to 512".to_owned())
    );
    let body = vec![b' '; MAX_LEASE_BODY + 1];
    let bad = LeaseRequest::read(&body).map_err(|bad| bad.to_string());
    assert_eq!(
        bad,
        Err("body bytes: 524289; allowed: 0 to 524288".to_owned())
    );
}

/// An error message does not contain any part of a key, because it may be logged.
#[test]
fn a_message_quotes_no_text() -> serde_json::Result<()> {
    for (pointer, value) in [
        ("/keys/0/want", json!("nina-secret")),
        ("/keys/0/limits", json!("nina-secret")),
        ("/instance", json!("nina-secret")),
    ] {
        let message = refused(pointer, value)?;
        assert!(!message.contains("nina") && message != "read", "{message}");
    }
    Ok(())
}

#[test]
fn an_answer_fits_its_call() {
    let mut asked = LeaseKey {
        want: 2,
        debt: 1,
        ..request().keys.remove(0)
    };
    asked.limits.truncate(2);
    let asked = [asked];
    let read = |keys: &str| {
        let answer = format!(r#"{{"new":1,"keys":{keys}}}"#);
        let read = LeaseAnswer::read(answer.as_bytes(), &asked);
        read.map(|answer| answer.keys)
            .map_err(|bad| bad.to_string())
    };
    let lease = Lease {
        granted: 2,
        charged: 1,
        left: vec![3, 970],
        ..Lease::default()
    };
    assert_eq!(
        read(r#"[{"granted":2,"charged":1,"left":[3,970],"new":3}]"#),
        Ok(vec![KeyAnswer::Lease(lease)])
    );
    let failed = |error| Ok(vec![KeyAnswer::Failed(error)]);
    assert_eq!(
        read(r#"[{"error":"refused"}]"#),
        failed(LeaseError::Refused)
    );
    assert_eq!(read(r#"[{"error":"newer"}]"#), failed(LeaseError::Unknown));
    let bad = |message: &str| Err(message.to_owned());
    assert_eq!(read("[]"), bad("keys: 0; allowed: 1 to 1"));
    assert_eq!(
        read(r#"[{"granted":3,"charged":0}]"#),
        bad("keys[0].granted: 3; allowed: 0 to 2")
    );
    assert_eq!(
        read(r#"[{"granted":0,"charged":2}]"#),
        bad("keys[0].charged: 2; allowed: 0 to 1")
    );
    for (left, count) in [("[]", 0), ("[3]", 1), ("[3,970,0]", 3)] {
        let key = format!(r#"[{{"granted":1,"charged":0,"left":{left}}}]"#);
        let message = format!("keys[0].left: {count}; allowed: 2 to 2");
        assert_eq!(read(&key), bad(&message));
    }
    let form = "a field is missing, or its value has another form";
    for wrong in [
        r#"[{"granted":1,"left":[3,970]}]"#,
        r#"[{"granted":1,"charged":0,"left":3}]"#,
        r#"[{"granted":1,"charged":0,"left":[3,-1]}]"#,
    ] {
        let message = read(wrong).expect_err(wrong);
        assert!(message.ends_with(form), "{wrong}: {message}");
    }
}

#[test]
fn names_of_changes() {
    let text = |text: &str| text.to_owned();
    let edit = |rule: &str, base: Option<&str>| ChangeName::Edit {
        rule: rule.to_owned(),
        base: base.map(str::to_owned),
    };
    let names = [
        (edit("a b", None), "edit/a%20b"),
        (edit("a@b", Some("0f")), "edit/a%40b@0f"),
        (
            ChangeName::Ban {
                rule: text("r"),
                key: text("ä/%\n"),
            },
            "ban/r/%C3%A4%2F%25%0A",
        ),
        (
            ChangeName::Override {
                rule: text("r"),
                base: None,
                pattern: text("al*"),
            },
            "override/r/al%2A",
        ),
        (
            ChangeName::Override {
                rule: text("r"),
                base: Some(text("0f")),
                pattern: text("a@b"),
            },
            "override/r@0f/a%40b",
        ),
    ];
    for (name, written) in names {
        assert_eq!(name.to_string(), written);
        assert_eq!(ChangeName::parse(written), Some(name));
    }
    for unknown in [
        "",
        "ban",
        "ban/r",
        "edit/r/k",
        "ban/r/k/more",
        "reset/r/k",
        "ban/r/%FF",
        "edit/r@%FF",
    ] {
        assert_eq!(ChangeName::parse(unknown), None, "{unknown}");
    }
}
