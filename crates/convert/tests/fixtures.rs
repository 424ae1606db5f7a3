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

/// Converts texts of Kong's files. Returns the rule file and the warnings.
fn of_kong(texts: &[&str]) -> (String, String) {
    let sources = texts.iter().map(|text| Source {
        name: "kong.yaml",
        bytes: text.as_bytes(),
    });
    let sources: Vec<Source<'_>> = sources.collect();
    let found = convert(&sources).unwrap_or_else(|errors| panic!("{errors:#?}"));
    accepted(&found.text);
    let warnings = found.warnings.into_iter().map(|warning| warning.message);
    (found.text, warnings.collect::<Vec<_>>().join("\n"))
}

/// A file of Kong in compact JSON, with a service that has these routes and plugins.
fn kong_file(routes: &str, plugins: &str) -> String {
    format!(
        r#"{{"_format_version":"3.0","services":[{{"url":"http://a","routes":[{routes}],"plugins":[{plugins}]}},{{"url":"http://b","routes":[{{"paths":["/b/"]}}]}}]}}"#
    )
}

fn per_minute(limit: &str) -> String {
    format!(r#"{{"name":"rate-limiting","config":{{"limit_by":"ip",{limit}}}}}"#)
}

#[test]
fn an_entity_of_kong_without_a_name_is_itself() {
    let plugin = per_minute(r#""minute":5"#);
    let routes = format!(r#"{{"paths":["/open/"]}},{{"paths":["/login/"],"plugins":[{plugin}]}}"#);
    let (text, _) = of_kong(&[&kong_file(&routes, "")]);
    assert!(
        text.contains("prefix: /login/") && !text.contains("/open/"),
        "{text}"
    );
    let (text, _) = of_kong(&[&kong_file(r#"{"paths":["/a/"]}"#, &plugin)]);
    assert!(text.contains("prefix: /a/"), "{text}");
}

/// The global plugin is in the first file, and its rule must come last.
#[test]
fn files_of_kong_are_merged() {
    let global = format!(
        r#"{{"_format_version":"3.0","plugins":[{}]}}"#,
        per_minute(r#""minute":100"#)
    );
    let service = kong_file(r#"{"paths":["/a/"]}"#, &per_minute(r#""minute":5"#));
    let (text, _) = of_kong(&[&global, &service]);
    let places = ["capacity: 5,", "capacity: 100,"].map(|part| text.find(part));
    assert!(places[0].is_some() && places[0] < places[1], "{text}");
}

/// A client must not escape a limit with a path that is too long for the regular expression.
#[test]
fn a_rule_of_kong_that_stops_also_limits_long_paths() {
    let (text, _) = of_kong(&[&kong_file(
        r#"{"paths":["/a"]}"#,
        &per_minute(r#""minute":5"#),
    )]);
    assert!(
        text.contains("regex:") && text.contains("on_long_value: apply"),
        "{text}"
    );
}

#[test]
fn settings_of_kong_that_are_not_converted_are_named() {
    let file = |limit: &str| kong_file(r#"{"name":"true","paths":["/a/"]}"#, &per_minute(limit));
    let (_, warnings) = of_kong(&[&file(r#""hour":5,"minute":"${{ env }}","day":0"#)]);
    for part in ["`minute: ", "`day: 0`"] {
        assert!(warnings.contains(part), "{part}: {warnings}");
    }
    let old = file(r#""hour":5"#).replace("3.0", "2.1");
    let (_, warnings) = of_kong(&[&old]);
    assert!(warnings.contains("deck convert"), "{warnings}");
    let (text, _) =
        of_kong(&[&file(r#""hour":5"#).replace(r#""url":"http://b","#, r#""enabled":false,"#)]);
    assert!(!text.contains("/b/"), "{text}");
}

/// A name that YAML would read as another type is quoted.
#[test]
fn names_of_rules_are_strings() {
    for name in ["true", "null", "123", "1e3", "0x10"] {
        let routes = format!(
            r#"{{"name":"{name}","paths":["/a/"],"plugins":[{}]}}"#,
            per_minute(r#""minute":5"#)
        );
        let (text, _) = of_kong(&[&kong_file(&routes, "")]);
        assert!(text.contains(&format!("name: \"{name}\"")), "{text}");
    }
}
