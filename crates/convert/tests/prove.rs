//! Proofs: the source and the converted rules over the same requests, and the causes of their
//! differences.
#![cfg(test)]

use std::borrow::Cow;

use loudou_check::{Content, check};
use loudou_convert::prove::{Effect, Logged, Ours, Proof, Prover};
use loudou_convert::{Source, convert};
use loudou_limiter::{Nanos, Verdict};
use loudou_rules::request::Sample;

use Verdict::{Admit, Hold, Refuse};

const SECOND: u64 = 1_000_000_000;

/// A request: its path, its time in milliseconds, and the answer of the rules.
type Asked<'a> = (&'a str, u64, Verdict);

/// Converts a text, and compares it with these answers to requests that run for a second.
fn proof(name: &str, text: &str, requests: &[Asked<'_>]) -> Proof {
    proof_of(&[(name, text)], requests, Some(1_000))
}

/// Converts texts, and compares them with these answers to requests that run for some milliseconds.
fn proof_of(sources: &[(&str, &str)], requests: &[Asked<'_>], runs_ms: Option<u64>) -> Proof {
    let sources: Vec<Source<'_>> = sources
        .iter()
        .map(|(name, text)| Source {
            name,
            bytes: text.as_bytes(),
        })
        .collect();
    let converted = convert(&sources).expect("a rule file");
    let mut checked = check("rules.yaml", converted.text.as_bytes(), |_| Vec::new());
    let Some(Content::Rules(file, _)) = checked.remove(0).1 else {
        panic!("{}", converted.text);
    };
    let mut prover = Prover::new(&file, &converted.counted);
    for ((path, ms, verdict), line) in requests.iter().zip(1..) {
        let at = Nanos::new(1_000_000 * SECOND + ms * 1_000_000);
        let logged = Logged {
            file: None,
            line,
            at,
            end: runs_ms.map(|ms| at.saturating_add(Nanos::from_millis(ms))),
        };
        let mut request = Sample {
            path: Some(Cow::Borrowed(path.as_bytes())),
            source: Some(Cow::Borrowed(b"10.0.0.1")),
            ..Sample::default()
        };
        let wait = match verdict {
            Hold => Nanos::from_secs(1),
            _ => Nanos::ZERO,
        };
        let ours = Ours {
            verdict: *verdict,
            wait,
            rule: (*verdict != Admit).then_some(0),
        };
        prover.request(&logged, &mut request, ours);
    }
    prover.finish()
}

/// Returns the lines that differ, with the effects, and the causes.
fn found(proof: &Proof) -> (Vec<(u64, Effect)>, Vec<&str>) {
    let lines = proof.differences.iter();
    let lines = lines.map(|one| (one.line, one.effect)).collect();
    let causes = proof.causes.iter();
    (lines, causes.map(|cause| cause.why.as_str()).collect())
}

/// Two rules have separate buckets, and nginx counts both in one zone.
#[test]
fn a_shared_zone_is_named_as_the_cause() {
    let text = "limit_req_zone $binary_remote_addr zone=one:1m rate=1r/s;\n\
        server { location /a { limit_req zone=one burst=1 nodelay; }\n\
        location /b { limit_req zone=one; } }\n";
    let all = [("/a", 0, Admit), ("/b", 0, Admit), ("/c", 0, Admit)];
    let proof = proof("nginx.conf", text, &all);
    let cause = "the source counts the requests of these rules together, and each rule counts its own: one, one-2";
    assert_eq!(found(&proof), (vec![(2, Effect::More)], vec![cause]));
    assert_eq!((proof.counts.requests, proof.counts.equal()), (3, 2));
    assert_eq!(proof.rules[1].counts.more, 1);
    assert!(!proof.agrees());
}

/// nginx drops parts of a thousandth of a request.
#[test]
fn rounding_is_named_as_the_cause() {
    let text = "limit_req_zone $binary_remote_addr zone=one:1m rate=2r/s;\n\
        server { limit_req zone=one burst=1; }\n";
    let all = [
        ("/", 0, Admit),
        ("/", 500, Admit),
        ("/", 600, Hold),
        ("/", 600, Hold),
        ("/", 600, Refuse),
    ];
    let proof = proof("nginx.conf", text, &all);
    let (lines, causes) = found(&proof);
    assert_eq!(lines, [(4, Effect::More)]);
    assert!(causes[0].contains("whole milliseconds"), "{causes:?}");
    assert_eq!(proof.differences[0].theirs, "refused");
    assert_eq!(proof.differences[0].ours, "waits 1s");
}

/// A request that the connections refuse still counts in the zone of `limit_req`, which the source
/// keeps.
#[test]
fn what_a_refused_request_keeps_is_named_as_the_cause() {
    let text = "limit_req_zone $binary_remote_addr zone=r:1m rate=30r/m;\n\
        limit_conn_zone $binary_remote_addr zone=c:1m;\n\
        server { limit_req zone=r burst=1 nodelay; limit_conn c 1; }\n";
    let all = [("/", 0, Admit), ("/", 100, Refuse), ("/", 1_000, Admit)];
    let proof = proof("nginx.conf", text, &all);
    let (lines, causes) = found(&proof);
    assert_eq!(lines, [(3, Effect::More)], "{causes:?}");
    assert!(causes[0].contains("keeps what it took"), "{causes:?}");
}

/// nginx asks `limit_conn` after the delay of `limit_req`, when the first request has ended.
#[test]
fn a_delayed_request_counts_as_running_after_its_delay() {
    let text = "limit_req_zone $binary_remote_addr zone=r:1m rate=1r/s;\n\
        limit_conn_zone $binary_remote_addr zone=c:1m;\n\
        server { limit_req zone=r burst=2; limit_conn c 1; }\n";
    let all = [("/", 0, Admit), ("/", 100, Refuse)];
    let proof = proof("nginx.conf", text, &all);
    let (lines, causes) = found(&proof);
    assert_eq!(lines, [(2, Effect::Less)], "{causes:?}");
    assert!(causes[0].contains("one after another"), "{causes:?}");
    assert_eq!(proof.differences[0].theirs, "waits 900ms");
}

/// `limit_conn` cannot be compared without the ends of the requests. Only a request of a key without
/// running requests certainly passes.
#[test]
fn requests_without_a_duration_are_not_equal() {
    let text = "limit_conn_zone $binary_remote_addr zone=c:1m;\nserver { limit_conn c 2; }\n";
    let all = [
        ("/", 0, Admit),
        ("/", 0, Admit),
        ("/", 0, Admit),
        ("/", 5_000, Admit),
    ];
    let proof = proof_of(&[("nginx.conf", text)], &all, None);
    assert_eq!((proof.counts.requests, proof.without_duration), (2, 2));
    assert!(!proof.agrees());
}

/// As many requests as this run at once, so each of them must not look at all others.
#[test]
fn many_requests_run_at_once() {
    let text = "limit_conn_zone $binary_remote_addr zone=c:1m;\nserver { limit_conn c 200000; }\n";
    let all = vec![("/", 0, Admit); 200_001];
    let proof = proof_of(&[("nginx.conf", text)], &all, Some(10));
    assert_eq!(proof.counts.more, 1);
}

fn filters(filters: &[&str]) -> String {
    let all: Vec<String> = filters.iter().map(|one| format!("- {one}\n")).collect();
    format!("http_filters:\n{}", all.concat())
}

fn local(bucket: &str) -> String {
    let on = "{ default_value: { numerator: 100 } }";
    format!(
        "{{ name: l, typed_config: {{ \"@type\": type.googleapis.com/envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit, \
         stat_prefix: l, token_bucket: {bucket}, filter_enabled: {on}, filter_enforced: {on} }} }}"
    )
}

/// The first filter takes a token of a request that the second refuses.
#[test]
fn filters_of_envoy_are_asked_in_their_order() {
    let fast = local("{ max_tokens: 1, fill_interval: 1s }");
    let slow = local("{ max_tokens: 1, fill_interval: 2s }");
    let all = [("/", 0, Admit), ("/", 1_500, Refuse), ("/", 2_000, Admit)];
    let proof = proof("envoy.yaml", &filters(&[&fast, &slow]), &all);
    let (lines, causes) = found(&proof);
    assert_eq!(lines, [(3, Effect::More)], "{causes:?}");
    assert!(causes[0].contains("one after another"), "{causes:?}");
    let proof = proof_of(&[("envoy.yaml", &filters(&[&slow, &fast]))], &all, None);
    assert!(proof.agrees(), "{proof:?}");
}

/// A rate limit service does not count a request that a filter before it refuses.
#[test]
fn a_filter_is_asked_before_or_after_the_service() {
    let local = local("{ max_tokens: 1, fill_interval: 1s }");
    let global = "{ name: g, typed_config: { \"@type\": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit, \
                  domain: d } }";
    let service = "domain: d\ndescriptors:\n- { key: generic_key, value: all, rate_limit: { unit: minute, requests_per_unit: 2 } }\n";
    let routes = "virtual_hosts:\n- { name: v, domains: ['*'], rate_limits: [ { actions: [ { generic_key: { descriptor_value: all } } ] } ] }\n";
    let all = [
        ("/", 0, Admit),
        ("/", 0, Refuse),
        ("/", 1_000, Admit),
        ("/", 2_000, Refuse),
    ];
    for (order, expected) in [
        ([local.as_str(), global], vec![]),
        ([global, &local], vec![(3, Effect::More)]),
    ] {
        let envoy = filters(&order) + routes;
        let sources = [("service.yaml", service), ("envoy.yaml", envoy.as_str())];
        let proof = proof_of(&sources, &all, None);
        assert_eq!(found(&proof).0, expected, "{proof:#?}");
    }
}

/// Both filters run, with the numbers of the route. The first takes a token of a request that the
/// second refuses.
#[test]
fn a_default_filter_uses_the_numbers_of_the_route() {
    let text = "spring:\n cloud:\n  gateway:\n   default-filters:\n   - RequestRateLimiter=9, 9, #{@ip}\n   routes:\n   - id: r\n     \
                filters:\n     - RequestRateLimiter=1, 3, #{@ip}\n";
    let bytes = text.as_bytes();
    let converted = convert(&[Source {
        name: "a.yaml",
        bytes,
    }])
    .expect("a rule file");
    assert!(
        converted.text.contains("capacity: 3, rate: 1/s") && converted.text.contains("cost: 2"),
        "{}",
        converted.text
    );
    assert_eq!(converted.counted.len(), 1);
    let warned = |warning: &loudou_convert::Problem| warning.message.contains("2 filters");
    assert!(converted.warnings.iter().any(warned));
    let all = [("/", 0, Admit), ("/", 0, Refuse), ("/", 1_000, Admit)];
    let proof = proof("a.yaml", text, &all);
    let (lines, causes) = found(&proof);
    assert_eq!(lines, [(3, Effect::More)], "{proof:?}");
    assert!(causes[0].contains("one after another"), "{causes:?}");
}

/// Spring forgets a bucket that fills in less than half a second.
#[test]
fn a_limit_that_never_limits_is_named() {
    let text = "spring.cloud.gateway.routes[0].id=r\n\
        spring.cloud.gateway.routes[0].predicates[0]=Path=/**\n\
        spring.cloud.gateway.routes[0].filters[0]=RequestRateLimiter=10, 4, #{@ip}\n";
    let proof = proof(
        "a.properties",
        text,
        &[
            ("/", 0, Admit),
            ("/", 0, Admit),
            ("/", 0, Admit),
            ("/", 0, Admit),
            ("/", 0, Refuse),
        ],
    );
    let (lines, causes) = found(&proof);
    assert_eq!(lines, [(5, Effect::Less)], "{proof:?}");
    assert!(causes[0].contains("keeps nothing"), "{causes:?}");
}

#[test]
fn a_log_without_the_keys_proves_nothing() {
    let text =
        "limit_req_zone $http_x_user zone=one:1m rate=1r/s;\nserver { limit_req zone=one; }\n";
    let proof = proof("nginx.conf", text, &[("/", 0, Admit), ("/", 0, Admit)]);
    assert_eq!((proof.rules[0].without_key, proof.counts.equal()), (2, 2));
    assert!(!proof.agrees());
}

/// A value of the rate limit service has its own limit, and a list of descriptors counts all that it
/// refuses.
#[test]
fn values_of_the_service_have_their_limits() {
    let text = "domain: d\ndescriptors:\n- key: remote_address\n  rate_limit: { unit: minute, requests_per_unit: 9 }\n\
        - { key: remote_address, value: 10.0.0.1, rate_limit: { unit: minute, requests_per_unit: 1 } }\n";
    let all = [("/", 0, Admit), ("/", 0, Refuse), ("/", 60_000, Admit)];
    let proof = proof("ratelimit.yaml", text, &all);
    assert!(proof.agrees(), "{proof:?}");
    assert_eq!(proof.rules[0].counts.requests, 3);
}

/// With `policy: redis`, Kong also counts refused requests, in all periods.
#[test]
fn kong_counts_refused_requests_in_redis() {
    let text = |policy: &str| {
        format!(
            "_format_version: '3.0'\nplugins:\n- name: rate-limiting\n  \
             config: {{ second: 1, minute: 2, limit_by: ip, policy: {policy} }}\n"
        )
    };
    let all = [("/", 0, Admit), ("/", 0, Refuse), ("/", 1_000, Admit)];
    let shared = proof("kong.yaml", &text("redis"), &all);
    let (lines, causes) = found(&shared);
    assert_eq!(lines, [(3, Effect::More)], "{causes:?}");
    assert!(causes[0].contains("keeps what it took"), "{causes:?}");
    let own = proof("kong.yaml", &text("local"), &all);
    assert!(own.agrees(), "{own:?}");
}
