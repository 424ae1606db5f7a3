//! Every source with its rule file and warnings, as snapshots. The product's own check accepts each
//! rule file.
#![cfg(test)]

use std::fs;
use std::path::Path;

use insta::assert_snapshot;
use loudou_check::{Content, check};
use loudou_convert::{Converted, Source, convert};
use loudou_rules::config;

/// Converts files of the folder together. Each is read from the folder `fixtures`.
fn converted(names: &[&str]) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let texts: Vec<Vec<u8>> = names
        .iter()
        .map(|name| fs::read(folder.join(name)).expect("a fixture"))
        .collect();
    let sources: Vec<Source<'_>> = names
        .iter()
        .zip(&texts)
        .map(|(name, bytes)| Source { name, bytes })
        .collect();
    let Converted { text, warnings, .. } =
        convert(&sources).unwrap_or_else(|errors| panic!("{errors:#?}"));
    accepted(&text);
    let warnings: Vec<String> = warnings
        .iter()
        .map(|warning| format!("{}: {}", warning.place, warning.message))
        .collect();
    format!("{text}\n# Warnings\n{}", warnings.join("\n"))
}

/// Fails unless `loudou check` accepts a rule file.
fn accepted(text: &str) {
    for (report, content) in check("rules.yaml", text.as_bytes(), config::preflight_advice) {
        let lines = report.lines(&|_, text| text.to_owned());
        assert!(
            matches!(content, Some(Content::Rules(..))),
            "{text}\n{lines}"
        );
    }
}

#[test]
fn ingress_nginx() {
    assert_snapshot!(converted(&["ingress.yaml"]));
}

#[test]
fn nginx() {
    assert_snapshot!(converted(&["nginx.conf"]));
}

#[test]
fn nginx_with_one_server() {
    assert_snapshot!(converted(&["small.conf"]));
}

/// The paths do not fit into one regular expression.
#[test]
fn nginx_with_long_paths() {
    assert_snapshot!(converted(&["paths.conf"]));
}

#[test]
fn envoy_local() {
    assert_snapshot!(converted(&["envoy.yaml"]));
}

#[test]
fn envoy_local_of_istio() {
    assert_snapshot!(converted(&["envoyfilter.yaml"]));
}

/// Several routes replace the limit of the filter, one of them without a name.
#[test]
fn envoy_local_with_several_routes() {
    assert_snapshot!(converted(&["routes.yaml"]));
}

#[test]
fn rate_limit_service() {
    assert_snapshot!(converted(&["ratelimit.yaml", "ratelimit-envoy.yaml"]));
}

#[test]
fn rate_limit_service_alone() {
    assert_snapshot!(converted(&["ratelimit.yaml"]));
}

#[test]
fn envoy_gateway() {
    assert_snapshot!(converted(&["gateway.yaml"]));
}

#[test]
fn redis_cell() {
    assert_snapshot!(converted(&["throttle.txt"]));
}

#[test]
fn spring() {
    assert_snapshot!(converted(&["spring.yaml", "spring.properties"]));
}

#[test]
fn kong() {
    assert_snapshot!(converted(&["kong.yaml"]));
}
