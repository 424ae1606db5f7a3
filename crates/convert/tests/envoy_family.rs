//! Parts of Envoy and its relatives that a rule must not lose in silence.
#![cfg(test)]

use loudou_check::{Content, check};
use loudou_convert::{Source, convert};
use loudou_rules::config;

/// Converts texts, and returns the rule file and the warnings.
fn converted(sources: &[(&str, &str)]) -> String {
    let sources: Vec<Source<'_>> = sources
        .iter()
        .map(|(name, text)| Source {
            name,
            bytes: text.as_bytes(),
        })
        .collect();
    let (text, warnings) = match convert(&sources) {
        Ok(converted) => (converted.text, converted.warnings),
        Err(problems) => (String::new(), problems),
    };
    if !text.is_empty() {
        for (report, content) in check("rules.yaml", text.as_bytes(), config::preflight_advice) {
            let lines = report.lines(&|_, text| text.to_owned());
            assert!(
                matches!(content, Some(Content::Rules(..))),
                "{text}\n{lines}"
            );
        }
    }
    let warnings: Vec<String> = warnings
        .iter()
        .map(|warning| format!("{}: {}", warning.place, warning.message))
        .collect();
    format!("{text}\n# Warnings\n{}", warnings.join("\n"))
}

/// Fails unless an output has all of the texts, and none of the others.
fn has(output: &str, all: &[&str], none: &[&str]) {
    for text in all {
        assert!(output.contains(text), "no {text:?} in:\n{output}");
    }
    for text in none {
        assert!(!output.contains(text), "{text:?} in:\n{output}");
    }
}

/// An Envoy configuration with a filter for the domain `d`, and with virtual hosts.
fn with_service(filter: &str, hosts: &str) -> String {
    format!(
        "http_filters:\n- name: r\n  typed_config: {{ '@type': t/envoy.extensions.filters.http.ratelimit.v3.RateLimit, \
         domain: d{filter} }}\nvirtual_hosts:\n{hosts}"
    )
}

#[test]
fn a_value_of_the_service_keeps_its_limit_without_a_plain_rule() {
    let envoy = with_service(
        "",
        "- domains: ['*']\n  routes:\n  - name: r\n    match: { prefix: / }\n    route:\n      rate_limits:\n      \
         - actions: [ { request_headers: { header_name: x-user, descriptor_key: user } } ]\n",
    );
    for (plain, has_plain) in [
        ("rate_limit: { unlimited: true }", false),
        ("x: 1", false),
        ("rate_limit: { unit: era, requests_per_unit: 10 }", false),
        ("rate_limit: { unit: minute, requests_per_unit: 0 }", false),
        (
            "shadow_mode: true, rate_limit: { unit: minute, requests_per_unit: 10 }",
            true,
        ),
    ] {
        let service = format!(
            "domain: d\ndescriptors:\n- {{ key: user, {plain} }}\n- {{ key: user, value: mallory, rate_limit: \
             {{ unit: minute, requests_per_unit: 3 }} }}\n"
        );
        let output = converted(&[("e", &envoy), ("s", &service)]);
        has(&output, &["exact: mallory", "capacity: 3"], &["overrides"]);
        assert_eq!(output.contains("mode: shadow"), has_plain, "{output}");
    }
}
