//! Configurations of other limiters, as `loudou convert` reads them.

use loudou::cli::fuzzing::{loudou, unsafe_character};

use super::{Bounds, Target};

pub(super) const CONVERSION: Target = Target {
    name: "conversion",
    about: "configurations of other limiters, as `loudou convert` reads them",
    run: convert,
    seeds: texts,
    words: &[
        b"\n  ",
        b"- ",
        b"---\n",
        b"server {",
        b"location ~* ^/a$ {",
        b"}",
        b"limit_req zone=a burst=5 nodelay;",
        b"limit_req_zone $binary_remote_addr zone=a:1m rate=1r/m;",
        b"limit_conn a 5;",
        b"map $a $b { default \"\"; a b; }",
        b"geo $a { default 0; 10.0.0.0/8 1; }",
        b"nginx.ingress.kubernetes.io/limit-rps: \"5\"",
        b"kind: Ingress\n",
        b"pathType: Prefix",
        b"token_bucket: ",
        b"fill_interval: 1s",
        b"descriptors:",
        b"rate_limits:",
        b"actions:",
        b"remote_address: {}",
        b"requests_per_unit: 5",
        b"unlimited: true",
        b"clientSelectors:",
        b"CL.THROTTLE a 1 2 3",
        b"spring.cloud.gateway.routes[0].filters[0]=RequestRateLimiter=1, 2",
        b"18446744073709551615",
    ],
    longest: 64 * 1024,
    bounds: Bounds {
        us: 60_000,
        ns_per_byte: 16_000,
        kib: 16 * 1024,
        bytes_per_byte: 4_000,
    },
};

/// A rule file must be valid, and nothing that is printed may control a terminal.
fn convert(input: &[u8]) {
    let (code, printed) = loudou(&["convert", "-"], input);
    assert!(code <= 1, "exit code {code}");
    let bad = unsafe_character(&printed);
    assert!(bad.is_none(), "prints {bad:?}: {printed:?}");
}

fn texts() -> Vec<Vec<u8>> {
    const FIXTURES: [&[u8]; 7] = [
        include_bytes!("../../../../crates/convert/tests/fixtures/ingress.yaml"),
        include_bytes!("../../../../crates/convert/tests/fixtures/nginx.conf"),
        include_bytes!("../../../../crates/convert/tests/fixtures/envoy.yaml"),
        include_bytes!("../../../../crates/convert/tests/fixtures/ratelimit.yaml"),
        include_bytes!("../../../../crates/convert/tests/fixtures/gateway.yaml"),
        include_bytes!("../../../../crates/convert/tests/fixtures/spring.properties"),
        include_bytes!("../../../../crates/convert/tests/fixtures/throttle.txt"),
    ];
    FIXTURES.iter().map(|text| text.to_vec()).collect()
}
