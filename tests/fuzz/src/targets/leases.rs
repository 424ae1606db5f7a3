//! Calls of the relay, its answers, and the names of changes.

use loudou_api::{ChangeName, LeaseAnswer, LeaseKey, LeaseLimit, LeaseRequest};

use super::{Bounds, Target};

pub(super) const LEASE: Target = Target {
    name: "lease",
    about: "a call of the relay, an answer, and the name of a change",
    run,
    seeds,
    words: &[
        b"\"namespace\":",
        b"\"instance\":\"0123456789abcdef\"",
        b"\"keys\":[",
        b"\"limits\":[",
        b"\"capacity\":",
        b"\"amount\":",
        b"\"period_ns\":",
        b"\"interval_ns\":",
        b"\"window_ns\":",
        b"\"want\":",
        b"\"changes\":[",
        b"\"granted\":",
        b"\"left\":[",
        b"\"error\":\"timeout\"",
        b"1000000000",
        b"18446744073709551615",
        b"1e300",
        b"null",
        b"{}",
        b"[[[[[[[[",
        b"ban/",
        b"override/",
        b"%2F",
        b"%FF",
    ],
    longest: 128 * 1024,
    bounds: Bounds {
        us: 40_000,
        ns_per_byte: 300,
        kib: 1024,
        bytes_per_byte: 256,
    },
};

const WINDOW: LeaseLimit = LeaseLimit::Window {
    capacity: 9,
    window_ns: 1_000,
};

fn run(input: &[u8]) {
    if let Ok(call) = LeaseRequest::read(input) {
        let written = serde_json::to_vec(&call).unwrap_or_default();
        assert_eq!(LeaseRequest::read(&written), Ok(call), "read as written");
    }
    let asked = [LeaseKey {
        want: 7,
        debt: 1,
        ..LeaseKey::new("r", "k", vec![WINDOW; 2])
    }];
    if let Ok(answer) = LeaseAnswer::read(input, &asked) {
        let written = serde_json::to_vec(&answer).unwrap_or_default();
        assert_eq!(
            LeaseAnswer::read(&written, &asked),
            Ok(answer),
            "read as written"
        );
    }
    let name = String::from_utf8_lossy(input);
    if let Some(name) = ChangeName::parse(&name) {
        assert_eq!(
            ChangeName::parse(&name.to_string()),
            Some(name),
            "read as written"
        );
    }
}

fn seeds() -> Vec<Vec<u8>> {
    vec![
        include_bytes!("../../../../crates/api/examples/lease-request.json").to_vec(),
        br#"{"envoys":4,"epoch":"9c8b7a69","generation":14,"keys":[{"granted":5,"charged":1,"left":[0,970]}]}"#
            .to_vec(),
        br#"{"keys":[{"error":"timeout"}],"changes":[{"name":"edit/r","value":null}],"more":true}"#.to_vec(),
        b"override/daily-quota/al%2A".to_vec(),
    ]
}
