//! The costs of requests.

use loudou_rules::rule::Price;
use serde_json::{Value, json};

use super::{Fake, rule};

fn price(cost: &Value, request: &Fake) -> (u64, bool) {
    let cost = rule(&json!({ "cost": cost, "limits": [
        { "algorithm": "funnel", "capacity": 1_000, "rate": "1/s" },
    ] }));
    let Price { cost, is_invalid } = cost.cost.price(&mut request.clone());
    (cost, is_invalid)
}

#[test]
fn a_header_says_within_bounds() {
    let cost = json!({ "header": "X-Cost", "default": 3, "max": 100 });
    let of = |value: &[u8]| price(&cost, &Fake::default().with("x-cost", value));
    for (value, charged) in [
        (&b"1"[..], 1),
        (b" 7 ", 7),
        (b"007", 7),
        (b"100", 100),
        (b"101", 100),
        (b"99999999999999999999999999999999", 100),
    ] {
        assert_eq!(of(value), (charged, false), "{value:?}");
    }
    for odd in [
        &b"0"[..],
        b"",
        b"-1",
        b"+1",
        b"1.5",
        b"1e9",
        b"0x10",
        b"seven",
        b"\xff",
        b"1 2",
    ] {
        assert_eq!(of(odd), (3, true), "{odd:?}");
    }
    assert_eq!(price(&cost, &Fake::default()), (3, false));
    let short = json!({ "header": "x-cost", "max": 5 });
    assert_eq!(price(&short, &Fake::default()), (1, false));
}

#[test]
fn started_pieces_of_the_body() {
    let of = |length: &str| {
        price(
            &json!({ "request_bytes": 1024 }),
            &Fake::default().with("content-length", length),
        )
    };
    for (length, cost) in [
        ("0", 1),
        ("1", 1),
        ("1024", 1),
        ("1025", 2),
        ("1048576", 1024),
        ("99999999999999999999999", 1_000_000_000),
        ("", 1),
        ("many", 1),
    ] {
        assert_eq!(of(length), (cost, false), "{length}");
    }
    assert_eq!(
        price(&json!({ "request_bytes": 1 }), &Fake::default()),
        (1, false)
    );
}
