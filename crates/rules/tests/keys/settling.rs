//! Costs that are reserved at first, and settled when a request has ended.

use std::borrow::Cow;
use std::collections::BTreeMap;

use loudou_limiter::Nanos;
use loudou_rules::config::parse_rule;
use loudou_rules::rule::{Cost, End, Ended, Price, Rule, Settled, SettledBy};
use serde_json::{Value, json};

use super::Fake;

fn rule(cost: &Value) -> Rule {
    let limits = json!([{ "algorithm": "funnel", "capacity": 10_000, "rate": "1/s" }]);
    parse_rule(&json!({ "name": "r", "key": [], "limits": limits, "cost": cost })).expect("valid")
}

/// Returns the reservation of a request, and true if the request carried an invalid number.
fn reserved(reserve: &Value, request: &Fake) -> (u64, bool) {
    let cost = json!({ "reserve": reserve, "settle": "token_usage", "max": 4_096 });
    let Price { cost, is_invalid } = rule(&cost).cost.price(&mut request.clone());
    (cost, is_invalid)
}

#[test]
fn the_first_source_that_is_there_is_reserved() {
    let sources = json!([{ "header": "x-max" }, { "request_bytes": 3 }, 50]);
    let request = |headers: &[(&str, &str)]| {
        headers
            .iter()
            .fold(Fake::default(), |request, (name, value)| {
                request.with(name, value.as_bytes())
            })
    };
    for (headers, expected) in [
        (
            &[("x-max", "7"), ("content-length", "3000")][..],
            (7, false),
        ),
        (&[("content-length", "3001")][..], (1_001, false)),
        (&[][..], (50, false)),
        // An invalid number is skipped as a source, and is counted.
        (&[("x-max", "-7"), ("content-length", "30")][..], (10, true)),
        (&[("x-max", "many")][..], (50, true)),
        // No request reserves nothing, or more than the maximum.
        (&[("x-max", "0")][..], (1, false)),
        (&[("x-max", "4097")][..], (4_096, false)),
        (&[("x-max", "99999999999999999999999")][..], (4_096, false)),
        (&[("x-max", "1.5")][..], (2, false)),
        (&[("content-length", "0")][..], (1, false)),
    ] {
        assert_eq!(
            reserved(&sources, &request(headers)),
            expected,
            "{headers:?}"
        );
    }
    let unknown = json!({ "header": "x-max" });
    assert_eq!(
        reserved(&unknown, &Fake::default()),
        (4_096, false),
        "without any source"
    );
    assert_eq!(reserved(&json!(9), &Fake::default()), (9, false));
    assert_eq!(reserved(&json!(0), &Fake::default()), (0, false));
}

/// The end of a request.
#[derive(Clone)]
struct Over {
    end: End,
    status: Option<u16>,
    usage: Option<Vec<u8>>,
    metadata: Option<&'static str>,
    headers: BTreeMap<&'static str, &'static str>,
    bytes: u64,
    duration: Nanos,
}

impl Over {
    fn whole(status: u16) -> Self {
        Self {
            end: End::Whole,
            status: Some(status),
            usage: None,
            metadata: None,
            headers: BTreeMap::new(),
            bytes: 0,
            duration: Nanos::ZERO,
        }
    }

    fn cut(status: Option<u16>) -> Self {
        Self {
            end: End::Cut,
            status,
            ..Self::whole(200)
        }
    }

    fn with(mut self, header: &'static str, value: &'static str) -> Self {
        self.headers.insert(header, value);
        self
    }
}

impl Ended for Over {
    fn end(&mut self) -> End {
        self.end
    }

    fn status(&mut self) -> Option<u16> {
        self.status
    }

    fn token_usage(&mut self) -> Option<Cow<'_, [u8]>> {
        self.usage.as_deref().map(Cow::Borrowed)
    }

    fn metadata(&mut self, _path: &[String]) -> Option<Cow<'_, [u8]>> {
        self.metadata.map(|value| Cow::Borrowed(value.as_bytes()))
    }

    fn response_header(&mut self, name: &str) -> Option<Cow<'_, [u8]>> {
        self.headers
            .get(name)
            .map(|value| Cow::Borrowed(value.as_bytes()))
    }

    fn response_bytes(&mut self) -> Option<u64> {
        Some(self.bytes)
    }

    fn duration(&mut self) -> Option<Nanos> {
        Some(self.duration)
    }
}

/// Settles a request that reserved 100 units.
fn settle(cost: &Value, over: &Over) -> (u64, SettledBy) {
    let mut cost = cost.clone();
    cost["reserve"] = json!(100);
    cost["max"] = json!(4_096);
    let rule = rule(&cost);
    let settlement = rule.cost.settlement().expect("it is settled");
    let Settled { actual, by, .. } = settlement.settle(100, &mut over.clone());
    (actual, by)
}

const REPORT: SettledBy = SettledBy::Report;
const ESTIMATE: SettledBy = SettledBy::Estimate;
const NOTHING: SettledBy = SettledBy::Nothing;

#[test]
fn the_first_number_at_the_end_counts() {
    let cost = json!({ "settle": [{ "response_header": "X-Cost" }, { "metadata": ["l", "cost"] }, { "status": { "200": 3 } }] });
    for (over, expected) in [
        (
            Over {
                metadata: Some("8"),
                ..Over::whole(200).with("x-cost", "7")
            },
            (7, REPORT),
        ),
        (
            Over {
                metadata: Some("8"),
                ..Over::whole(200)
            },
            (8, REPORT),
        ),
        (Over::whole(200), (3, REPORT)),
        // Invalid numbers.
        (
            Over {
                metadata: Some("8"),
                ..Over::whole(200).with("x-cost", "-7")
            },
            (8, REPORT),
        ),
        (
            Over {
                metadata: Some("NaN"),
                ..Over::whole(200).with("x-cost", "")
            },
            (3, REPORT),
        ),
        // Numbers are rounded up, and bounded.
        (Over::whole(200).with("x-cost", "0"), (0, REPORT)),
        (Over::whole(200).with("x-cost", "7.01"), (8, REPORT)),
        (Over::whole(200).with("x-cost", "7.00"), (7, REPORT)),
        (
            Over::whole(200).with("x-cost", "1e300"),
            (1_000_000_000, REPORT),
        ),
        (
            Over::whole(200).with("x-cost", "99999999999999999999999"),
            (1_000_000_000, REPORT),
        ),
        // A whole response without a number costs what was reserved, and an error costs nothing.
        (Over::whole(201), (100, ESTIMATE)),
        (Over::whole(399), (100, ESTIMATE)),
        (Over::whole(400), (0, NOTHING)),
        (Over::whole(503), (0, NOTHING)),
        (
            Over {
                end: End::Unsent,
                ..Over::whole(200).with("x-cost", "7")
            },
            (0, NOTHING),
        ),
    ] {
        assert_eq!(
            settle(&cost, &over),
            expected,
            "{:?} {:?}",
            over.end,
            over.headers
        );
    }
}

/// A response that was cut off costs what was reserved, unless Envoy has measured what there was of it.
#[test]
fn an_end_without_a_number_is_not_free() {
    let reported =
        json!({ "settle": [{ "response_header": "x-cost" }, { "metadata": ["l", "cost"] }] });
    let measured = json!({ "settle": [{ "metadata": ["l", "cost"] }, { "response_bytes": 10 }] });
    for (status, header, metadata, expected) in [
        (None, None, None, 100),
        (Some(200), None, None, 100),
        (Some(500), None, None, 100),
        (Some(200), Some("7"), None, 100),
        (Some(200), Some("700"), None, 100),
        (Some(200), None, Some("30"), 100),
    ] {
        let over = Over {
            metadata,
            ..Over::cut(status)
        };
        let over = header.map_or_else(|| over.clone(), |value| over.clone().with("x-cost", value));
        assert_eq!(
            settle(&reported, &over),
            (expected, ESTIMATE),
            "{status:?} {header:?} {metadata:?}"
        );
    }
    for (bytes, metadata, expected) in [
        (0, None, 0),
        (101, None, 11),
        (5_000, None, 100),
        (101, Some("40"), 40),
        (101, Some("400"), 100),
    ] {
        let over = Over {
            metadata,
            bytes,
            ..Over::cut(Some(200))
        };
        assert_eq!(
            settle(&measured, &over),
            (expected, ESTIMATE),
            "{bytes} {metadata:?}"
        );
    }
    let mut beyond = measured;
    beyond["beyond_reservation"] = json!(true);
    let over = Over {
        bytes: 5_000,
        ..Over::cut(Some(200))
    };
    assert_eq!(settle(&beyond, &over), (500, ESTIMATE));
    let mut beyond = reported;
    beyond["beyond_reservation"] = json!(true);
    assert_eq!(
        settle(&beyond, &Over::cut(Some(200)).with("x-cost", "700")),
        (700, ESTIMATE)
    );
    assert_eq!(
        settle(&beyond, &Over::cut(Some(200)).with("x-cost", "7")),
        (100, ESTIMATE)
    );
}

#[test]
fn a_status_has_its_cost() {
    let cost = json!({ "settle": { "status": { "401": 1, "2xx": 0, "4xx": 5, "503": 9 } } });
    for (status, expected) in [
        (200, (0, REPORT)),
        (204, (0, REPORT)),
        (401, (1, REPORT)),
        (404, (5, REPORT)),
        (503, (9, REPORT)),
        (500, (0, NOTHING)),
        (302, (100, ESTIMATE)),
    ] {
        assert_eq!(settle(&cost, &Over::whole(status)), expected, "{status}");
    }
    // A client that leaves after it has seen that a password is wrong has still made a try.
    assert_eq!(settle(&cost, &Over::cut(Some(401))), (1, ESTIMATE));
    assert_eq!(settle(&cost, &Over::cut(None)), (100, ESTIMATE));
}

#[test]
fn time_and_bytes_are_counted_in_parts() {
    let time = json!({ "settle": { "duration": "100ms" } });
    for (millis, expected) in [(0, 0), (1, 1), (100, 1), (101, 2), (60_000, 600)] {
        let over = Over {
            duration: Nanos::from_millis(millis),
            ..Over::whole(200)
        };
        assert_eq!(settle(&time, &over), (expected, REPORT), "{millis}");
    }
    let bytes = json!({ "settle": { "response_bytes": 1_000 } });
    for (bytes_sent, expected) in [
        (0, 0),
        (1, 1),
        (1_000, 1),
        (1_001, 2),
        (u64::MAX, 1_000_000_000),
    ] {
        let over = Over {
            bytes: bytes_sent,
            ..Over::whole(200)
        };
        assert_eq!(settle(&bytes, &over), (expected, REPORT), "{bytes_sent}");
    }
}

/// Writes the message `envoy.ai.token_usage` as Envoy does: `None` for a number that is not known.
fn usage(input: Option<u64>, output: Option<u64>, cached: Option<u64>, status: u64) -> Vec<u8> {
    usage_of(b"a model", [input, output, cached], status)
}

/// Like [`usage`], but of this model. The last numbers are the tokens of the request, of the response, and from a cache.
fn usage_of(model: &[u8], [input, output, cached]: [Option<u64>; 3], status: u64) -> Vec<u8> {
    let varint = |mut number: u64| {
        let mut bytes = Vec::new();
        while number >= 0x80 {
            bytes.push(u8::try_from(number & 0x7f).expect("seven bits") | 0x80);
            number >>= 7;
        }
        bytes.push(u8::try_from(number).expect("seven bits"));
        bytes
    };
    let field = |number: u64, bytes: Vec<u8>| {
        let length = u64::try_from(bytes.len()).expect("short");
        [varint(number << 3 | 2), varint(length), bytes].concat()
    };
    // A wrapped 0 is an empty message.
    let wrapped = |number: u64| match number {
        0 => Vec::new(),
        number => [varint(1 << 3), varint(number)].concat(),
    };
    let mut message = field(2, model.to_vec());
    message.extend(
        input
            .into_iter()
            .flat_map(|number| field(3, wrapped(number))),
    );
    message.extend(
        output
            .into_iter()
            .flat_map(|number| field(4, wrapped(number))),
    );
    message.extend(
        cached
            .into_iter()
            .flat_map(|number| field(6, field(1, wrapped(number)))),
    );
    message.extend([varint(9 << 3), varint(status)].concat());
    message
}

#[test]
fn tokens_have_weights() {
    let plain = json!({ "settle": "token_usage" });
    let weighted = json!({ "settle": "token_usage", "weights": { "output": 4, "cached": 0.1 } });
    for (input, output, cached, expected, with_weights) in [
        (Some(30), Some(12), None, (42, REPORT), (78, REPORT)),
        (Some(30), Some(12), Some(25), (42, REPORT), (56, REPORT)),
        (Some(30), None, None, (30, REPORT), (30, REPORT)),
        (Some(0), Some(0), None, (0, REPORT), (0, REPORT)),
        (None, Some(2), Some(9), (2, REPORT), (8, REPORT)),
        (
            Some(u64::MAX),
            Some(u64::MAX),
            None,
            (1_000_000_000, REPORT),
            (1_000_000_000, REPORT),
        ),
        (None, None, None, (100, ESTIMATE), (100, ESTIMATE)),
    ] {
        let over = Over {
            usage: Some(usage(input, output, cached, 1)),
            ..Over::whole(200)
        };
        assert_eq!(settle(&plain, &over), expected, "{input:?} {output:?}");
        assert_eq!(
            settle(&weighted, &over),
            with_weights,
            "{input:?} {output:?} {cached:?}"
        );
    }
    // An incomplete record has only a part of the usage.
    for status in [0, 2, 3] {
        let over = Over {
            usage: Some(usage(Some(30), Some(12), None, status)),
            ..Over::whole(200)
        };
        assert_eq!(settle(&plain, &over), (100, ESTIMATE), "{status}");
    }
    for damaged in [
        &b""[..],
        b"\x1a",
        b"\x1a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        b"\xff\xff\xff",
    ] {
        let over = Over {
            usage: Some(damaged.to_vec()),
            ..Over::whole(200)
        };
        assert_eq!(settle(&plain, &over), (100, ESTIMATE), "{damaged:?}");
    }
}

#[test]
fn it_is_written_as_it_was_read() {
    for cost in [
        json!({ "reserve": [5], "settle": ["token_usage"], "max": 9 }),
        json!({
            "reserve": [{ "header": "x-max" }, { "metadata": ["a", "b"] }, { "request_bytes": 3 }, 5],
            "settle": [
                { "metadata": ["a", "b"] }, { "response_header": "x-cost" }, { "response_bytes": 3 },
                { "duration": "1s" }, { "status": { "401": 1, "2xx": 0 } }, "token_usage",
            ],
            "weights": { "input": 1, "output": 4, "cached": 0.1 },
            "max": 9,
            "beyond_reservation": true,
        }),
    ] {
        let read = rule(&cost);
        assert_eq!(serde_json::to_value(&read.cost).expect("written"), cost);
    }
    let short =
        json!({ "reserve": 5, "settle": "token_usage", "weights": { "input": 2 }, "max": 9 });
    let Cost::Settled(settlement) = rule(&short).cost else {
        panic!("it is settled")
    };
    assert_eq!(
        settlement.weights.cached.to_string(),
        "2",
        "cached tokens cost what the others do"
    );
}

/// A model has its own weights, by its name or by its longest prefix. All other models, with whatever names, have the
/// weights beside `models`, and are counted.
#[test]
fn a_model_has_its_weights() {
    let cost = json!({ "reserve": 1, "settle": "token_usage", "max": 1, "weights": {
        "output": 3,
        "models": {
            "gpt-4o": { "input": 2.5, "output": 10, "cached": 1.25 },
            "gpt-4o-mini*": { "input": 0.15, "output": 0.6 },
            "gpt-*": { "input": 0.333 },
        },
    } });
    let rule = rule(&cost);
    let settlement = rule.cost.settlement().expect("it is settled");
    let settle = |model: &[u8]| {
        let mut over = Over {
            usage: Some(usage_of(model, [Some(30), Some(12), Some(10)], 1)),
            ..Over::whole(200)
        };
        let settled = settlement.settle(1, &mut over);
        (settled.actual, settled.is_other_model)
    };
    let others = (30 + 36, true);
    for (model, expected) in [
        // 50 + 12.5 + 120, 4.5 + 7.2, and 9.99 + 12, rounded up.
        ("gpt-4o", (183, false)),
        ("gpt-4o-mini", (12, false)),
        ("gpt-4o-mini-2024-07-18", (12, false)),
        ("gpt-4o-2024-08-06", (22, false)),
        ("gpt-", (22, false)),
        ("gpt", others),
        ("GPT-4o", others),
        ("", others),
        ("*", others),
        ("gpt-4o-mini*", (12, false)),
        ("\u{1b}[31mgpt-4o", others),
    ] {
        assert_eq!(settle(model.as_bytes()), expected, "{model:?}");
    }
    assert_eq!(settle(&vec![0xff; 100_000]), others);
    let written = serde_json::to_value(&rule).expect("JSON");
    assert_eq!(parse_rule(&written).expect("valid"), rule);
}

/// Without a reservation, there is no estimate of a response that was cut off. Envoy's measure counts only if the rule
/// allows it to exceed the reservation.
#[test]
fn an_end_without_a_number_is_free_if_nothing_was_reserved() {
    let mut over = Over {
        bytes: 5_000,
        ..Over::cut(Some(200))
    };
    for (beyond, expected) in [(false, 0), (true, 500)] {
        let rule = rule(&json!({
            "reserve": 0, "settle": ["token_usage", { "response_bytes": 10 }], "max": 1, "beyond_reservation": beyond,
        }));
        let settlement = rule.cost.settlement().expect("it is settled");
        let settled = settlement.settle(0, &mut over);
        assert_eq!((settled.actual, settled.by), (expected, ESTIMATE));
    }
}

/// If a header and the record of the tokens differ, the first source in the list counts, and not their sum.
#[test]
fn a_usage_that_is_reported_twice_counts_once() {
    let (header, record) = (json!({ "response_header": "x-cost" }), json!("token_usage"));
    let over = Over {
        usage: Some(usage(Some(30), Some(12), None, 1)),
        ..Over::whole(200).with("x-cost", "9")
    };
    let settled = |sources: &[&Value]| settle(&json!({ "settle": sources }), &over);
    assert_eq!(settled(&[&header, &record]), (9, REPORT));
    assert_eq!(settled(&[&record, &header]), (42, REPORT));
}
