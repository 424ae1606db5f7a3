//! Parts of configurations of Envoy, its relatives and Spring that must not be lost in silence.
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

/// Rows of a table whose outcome is wrong.
#[derive(Default)]
struct Wrong(Vec<String>);

impl Wrong {
    /// Adds a row unless an output has all of the texts, and none of the others.
    fn has(&mut self, output: &str, all: &[&str], none: &[&str]) {
        let lacked = all.iter().filter(|text| !output.contains(**text));
        self.0
            .extend(lacked.map(|text| format!("no {text:?} in:\n{output}")));
        let present = none.iter().filter(|text| output.contains(**text));
        self.0
            .extend(present.map(|text| format!("{text:?} in:\n{output}")));
    }

    /// Fails with all rows.
    fn none(self) {
        assert!(self.0.is_empty(), "{}", self.0.join("\n\n"));
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
    let mut wrong = Wrong::default();
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
            "rate_limit: { unit: minute, requests_per_unit: 2000000000 }",
            false,
        ),
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
        wrong.has(&output, &["exact: mallory", "capacity: 3"], &["overrides"]);
        assert_eq!(output.contains("mode: shadow"), has_plain, "{output}");
    }
    wrong.none();
}

/// Parts of a virtual host or route with a configuration of `local_ratelimit`.
fn local(name: &str, tokens: u64) -> String {
    format!(
        "typed_per_filter_config: {{ envoy.filters.http.local_ratelimit: {} }}",
        bucket(name, tokens)
    )
}

fn bucket(name: &str, tokens: u64) -> String {
    let all = "{ default_value: { numerator: 100 } }";
    format!(
        "{{ '@type': t/envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit, stat_prefix: {name}, token_bucket: \
         {{ max_tokens: {tokens}, fill_interval: 1s }}, filter_enabled: {all}, filter_enforced: {all} }}"
    )
}

const EMPTY: &str = "typed_per_filter_config: { envoy.filters.http.local_ratelimit: { '@type': \
                     t/envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit, stat_prefix: none } }";

const DISABLED: &str = "typed_per_filter_config: { envoy.filters.http.local_ratelimit: { '@type': \
                        t/envoy.config.route.v3.FilterConfig, disabled: true } }";

/// A route's limit replaces the limit of its virtual host, so its rule comes first and stops.
#[test]
fn the_most_specific_local_limit_applies() {
    let mut wrong = Wrong::default();
    for own in [&local("up", 1000), EMPTY, DISABLED] {
        let envoy = format!(
            "http_filters: []\nvirtual_hosts:\n- name: api\n  domains: [a.com]\n  {}\n  routes:\n  - name: up\n    match: {{ prefix: /up }}\n    \
             {own}\n",
            local("vh", 10)
        );
        let output = converted(&[("e", &envoy)]);
        let upload = "stop: true\n    match: { route: { exact: up } }";
        wrong.has(&output, &[upload, "capacity: 10,"], &["Differs"]);
        assert!(
            output.find(upload) < output.find("capacity: 10,"),
            "{output}"
        );
    }
    wrong.none();
}

/// The limit of the whole list of routes comes last.
#[test]
fn a_virtual_host_replaces_the_limit_of_its_list() {
    let mut wrong = Wrong::default();
    let envoy = format!(
        "http_filters: []\nroute_config:\n  {}\n  virtual_hosts:\n  - domains: [a.com]\n    {}\n",
        local("all", 10),
        local("vh", 70)
    );
    let output = converted(&[("e", &envoy)]);
    let first = "stop: true\n    match: { host: { exact: a.com } }";
    wrong.has(&output, &[first, "capacity: 10,"], &["Differs"]);
    assert!(
        output.find(first) < output.find("capacity: 10,"),
        "{output}"
    );
    wrong.none();
}

#[test]
fn a_route_without_limits_is_exempt_from_the_filter() {
    let mut wrong = Wrong::default();
    for own in [EMPTY, DISABLED] {
        let envoy = format!(
            "http_filters:\n- typed_config: {}\nvirtual_hosts:\n- domains: ['*']\n  routes:\n  - name: health\n    {own}\n  \
             - name: login\n    {}\n",
            bucket("all", 50),
            local("login", 3)
        );
        wrong.has(
            &converted(&[("e", &envoy)]),
            &[
                "stop: true\n    match: { route: { exact: health } }",
                "\"*\": unlimited",
            ],
            &["Differs"],
        );
    }
    wrong.none();
}

/// Other virtual hosts have their own hosts, also below a wildcard.
#[test]
fn a_virtual_host_leaves_the_hosts_of_others() {
    let mut wrong = Wrong::default();
    for (own, other, all) in [
        (
            "*",
            "a.com",
            vec!["match: { not: { host: { exact: a.com } } }"],
        ),
        (
            "*.b.com",
            "*.a.b.com",
            vec!["not: { host: { suffix: \".a.b.com\" } }"],
        ),
        (
            "*.b.com",
            "x.c.com",
            vec!["match: { host: { suffix: \".b.com\" } }"],
        ),
        (
            "www.b.com, '*'",
            "*.b.com",
            vec!["their names overlap in both directions"],
        ),
        ("a.com", "*", vec!["match: { host: { exact: a.com } }"]),
    ] {
        let envoy = format!(
            "http_filters: []\nvirtual_hosts:\n- domains: ['{own}']\n  {}\n- domains: ['{other}']\n",
            local("vh", 10)
        );
        let envoy = envoy.replace("['www.b.com, '*'']", "[www.b.com, '*']");
        wrong.has(&converted(&[("e", &envoy)]), &all, &[]);
    }
    wrong.none();
}

#[test]
fn settings_of_envoy_are_not_lost() {
    let mut wrong = Wrong::default();
    let all = bucket("all", 50);
    let cluster = local("c", 3);
    let rates = "rate_limits: [ { actions: [ { request_headers: { header_name: x-user, descriptor_key: user } } ] } ]";
    let user = all.replace(
        "stat_prefix",
        "descriptors: [ { entries: [ { key: user } ], token_bucket: { max_tokens: 5, fill_interval: 1s } } ], stat_prefix",
    );
    let network = "{ '@type': t/envoy.extensions.filters.network.local_ratelimit.v3.LocalRateLimit, stat_prefix: n }";
    let route = local("r", 3);
    let filter = format!("http_filters:\n- typed_config: {all}\n");
    for (envoy, text) in [
        (
            format!(
                "{filter}- disabled: true\n  typed_config: {}\n",
                bucket("other", 70)
            ),
            "a filter that is `disabled`",
        ),
        (
            format!(
                "{filter}virtual_hosts:\n- domains: ['*']\n  routes:\n  - name: r\n    route: {{ weighted_clusters: \
                 {{ clusters: [ {{ name: a, {cluster} }} ] }} }}\n"
            ),
            "the limits of a weighted cluster",
        ),
        (
            format!("{filter}- typed_config: {network}\n"),
            "a `local_ratelimit` of connections",
        ),
        (
            format!("{filter}- typed_config: {}\n", bucket("other", 70)),
            "check the rules that stop if one list has several such filters",
        ),
        (
            format!(
                "http_filters:\n- typed_config: {user}\nvirtual_hosts:\n- domains: [a.com]\n  {rates}\n"
            ),
            "match: { host: { exact: a.com } }\n    key: [ { header: x-user } ]",
        ),
        (
            format!(
                "http_filters: []\nvirtual_hosts:\n- domains: ['*']\n  routes:\n  - match: {{ prefix: /Api, case_sensitive: false }}\n    {route}\n"
            ),
            "path: { regex: \"(?i:/Api.*)\" }",
        ),
        (
            filter.replace("stat_prefix", "status: { code: BadGateway }, stat_prefix"),
            "refuse: { status: 502 }",
        ),
        (
            filter.replace("stat_prefix", "vh_rate_limits: IGNORE, stat_prefix"),
            "`vh_rate_limits` is ignored",
        ),
    ] {
        wrong.has(&converted(&[("e", &envoy)]), &[text], &[]);
    }
    wrong.none();
}

#[test]
fn settings_of_the_service_filter_are_not_lost() {
    let mut wrong = Wrong::default();
    let service = "domain: d\ndescriptors:\n- { key: generic_key, value: vh, rate_limit: { unit: minute, requests_per_unit: 5 } }\n\
                   - { key: generic_key, value: r, rate_limit: { unit: minute, requests_per_unit: 7 } }\n";
    let hosts = |more: &str| {
        format!(
            "- name: api\n  domains: [a.com]\n  rate_limits: [ {{ actions: [ {{ generic_key: {{ descriptor_value: vh }} }} ] }} ]\n  \
             routes:\n  - name: r\n    match: {{ prefix: /r }}\n    route: {{ rate_limits: [ {{ actions: [ {{ generic_key: \
             {{ descriptor_value: r }} }} ] }} ] }}\n{more}"
        )
    };
    let excluded = "match: { host: { exact: a.com }, not: { route: { exact: r } } }";
    let per_route = |inner: &str| {
        format!("    typed_per_filter_config: {{ envoy.filters.http.ratelimit: {{ {inner} }} }}\n")
    };
    let include = per_route(
        "'@type': t/envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute, vh_rate_limits: INCLUDE",
    );
    let domain = include.replace("vh_rate_limits: INCLUDE", "domain: e");
    let off = per_route("'@type': t/envoy.config.route.v3.FilterConfig, disabled: true");
    let query = hosts("").replace(
        "name: r\n    match: { prefix: /r }",
        "match: { prefix: /r, query_parameters: [ { name: debug, string_match: { exact: full } } ] }",
    );
    for (filter, hosts, all, none) in [
        ("", hosts(""), vec![excluded, "capacity: 7"], vec![]),
        (
            "",
            hosts(&include),
            vec!["match: { host: { exact: a.com } }"],
            vec![],
        ),
        ("", hosts(&domain), vec!["`domain: e` of a route"], vec![]),
        ("", hosts(&off), vec![excluded], vec!["capacity: 7"]),
        (
            "",
            query,
            vec!["query: [ { name: debug, exact: full } ]"],
            vec![],
        ),
        (
            ", request_type: external",
            hosts(""),
            vec!["`request_type: external`"],
            vec![],
        ),
        (
            ", filter_enforced: { default_value: { numerator: 0 } }",
            hosts(""),
            vec!["mode: shadow"],
            vec![],
        ),
        (
            ", filter_enabled: { default_value: { numerator: 30 } }",
            hosts(""),
            vec!["chooses 30 of 100"],
            vec!["mode:"],
        ),
        (
            ", rate_limited_status: { code: ServiceUnavailable }",
            hosts(""),
            vec!["refuse: { status: 503 }"],
            vec![],
        ),
    ] {
        let envoy = with_service(filter, &hosts);
        wrong.has(&converted(&[("e", &envoy), ("s", service)]), &all, &none);
    }
    let envoy =
        with_service("", &hosts("")).replace("- name: r\n  typed", "- disabled: true\n  typed");
    wrong.has(
        &converted(&[("e", &envoy), ("s", service)]),
        &["mode: \"off\"", "the filter is `disabled`"],
        &[],
    );
    wrong.none();
}

/// A client with a long path must not escape the limit of this path and get the larger limit of a later rule.
#[test]
fn rules_that_stop_limit_long_values() {
    let mut wrong = Wrong::default();
    let envoy = format!(
        "http_filters:\n- typed_config: {}\nvirtual_hosts:\n- domains: [a.com]\n  routes:\n  - match: {{ prefix: /up }}\n    {}\n  \
         - name: x\n    {}\n",
        bucket("all", 50),
        local("up", 3),
        local("x", 3)
    );
    wrong.has(&converted(&[("e", &envoy)]), &["on_long_value: apply"], &[]);
    wrong.none();
}

#[test]
fn spring_routes_are_read_in_their_order() {
    let mut wrong = Wrong::default();
    let limiter =
        "filters: [ { name: RequestRateLimiter, args: { redis-rate-limiter.replenishRate: 7 } } ]";
    let yaml =
        |routes: &str| format!("spring: {{ cloud: {{ gateway: {{ routes: [ {routes} ] }} }} }}\n");
    let special = "id: special, predicates: [ Path=/api/special/** ]";
    let after = "id: special, predicates: [ Path=/api/special/**, 'After=2017' ]";
    let api = format!("id: api, predicates: [ Path=/api/** ], {limiter}");
    let excluded = "match: { path: { prefix: /api }, not: { path: { prefix: /api/special } } }";
    let all = "match: { path: { prefix: /api } }";
    let any = format!("{{ id: a, {limiter} }}");
    let defaults = "spring.cloud.gateway.default-filters[0].name=RequestRateLimiter\n\
                    spring.cloud.gateway.default-filters[0].args.redis-rate-limiter.replenishRate=7\n";
    let route = "spring.cloud.gateway.routes[0].predicates[0]=Path=/api/**\n";
    for (text, expected) in [
        (yaml(&format!("{{ {special} }}, {{ {api} }}")), excluded),
        (yaml(&format!("{{ {api} }}, {{ {special} }}")), all),
        (
            yaml(&format!("{{ {api} }}, {{ {special}, order: -1 }}")),
            excluded,
        ),
        (
            yaml(&format!("{{ {after} }}, {{ {api} }}")),
            "requests of the route `special`, which Spring tries first",
        ),
        (
            yaml(&format!(
                "{{ id: a, predicates: [ 'Path=/b/{{*rest}}' ], {limiter} }}"
            )),
            "match: { path: { prefix: /b } }",
        ),
        (
            format!("spring.cloud.gateway: {{ routes: [ {any} ] }}\n"),
            "name: a",
        ),
        (
            format!("spring: {{ cloud: {{ gateway: {{ server.webflux.routes: [ {any} ] }} }} }}\n"),
            "name: a",
        ),
        (
            format!(
                "spring: {{ config.activate.on-profile: prod, cloud.gateway.routes: [ {any} ] }}\n"
            ),
            "only in the profile",
        ),
        (format!("{defaults}{route}"), all),
        (
            format!("{defaults}{route}").replace("gateway.", "gateway.server.webflux."),
            all,
        ),
        (
            yaml(&any).replace("args: {", "args: { statusCode: TOO_EARLY,"),
            "`statusCode: TOO_EARLY` is ignored",
        ),
        (
            yaml(&any).replace("args: {", "args: { deny-empty-key: 'no',"),
            "name: a\n    scope: fleet\n    key: ",
        ),
        (
            defaults.to_owned(),
            "a default filter without a list of routes",
        ),
    ] {
        wrong.has(&converted(&[("s", &text)]), &[expected], &[]);
    }
    wrong.none();
}

#[test]
fn merged_fields_are_read() {
    let mut wrong = Wrong::default();
    let service = "domain: d\nx: &base { unit: minute, requests_per_unit: 9 }\nz: &more { unit: hour, x: 1 }\ndescriptors:\n\
                   - { key: generic_key, value: a, rate_limit: { <<: *base } }\n\
                   - { key: generic_key, value: b, rate_limit: { <<: *base, requests_per_unit: 5 } }\n\
                   - { key: generic_key, value: c, rate_limit: { <<: [ *more, *base ] } }\n";
    wrong.has(
        &converted(&[("s", service)]),
        &[
            "capacity: 9, window: 1m",
            "capacity: 5, window: 1m",
            "capacity: 9, window: 1h",
        ],
        &["not converted"],
    );
    wrong.none();
}

#[test]
fn policies_of_envoy_gateway_are_not_changed() {
    let mut wrong = Wrong::default();
    let policy = |more: &str, rules: &str| {
        format!(
            "apiVersion: gateway.envoyproxy.io/v1alpha1\nkind: BackendTrafficPolicy\nmetadata: {{ name: p }}\nspec: {{ {more} \
             targetRef: {{ kind: HTTPRoute, name: r }}, rateLimit: {{ {rules} }} }}\n"
        )
    };
    let limit = "limit: { requests: 5, unit: Second }";
    let global = format!("global: {{ rules: [ {{ {limit} }} ] }}");
    let methods = format!(
        "global: {{ rules: [ {{ clientSelectors: [ {{ methods: [ {{ value: GET }} ] }}, {{ methods: [ {{ value: POST }} ] }} ], \
         {limit} }} ] }}"
    );
    let shadow = format!(
        "local: {{ rules: [ {{ clientSelectors: [ {{ headers: [ {{ name: x, value: y1 }} ] }} ], {limit}, shadowMode: true }}, \
         {{ {limit} }} ] }}"
    );
    let network = |more: &str| {
        format!(
            "global: {{ rules: [ {{ clientSelectors: [ {{ sourceCIDR: {{ value: 10.0.0.0/8 }}{more} }} ], {limit} }} ] }}"
        )
    };
    let inverted = network("").replace("0/8", "0/8, invert: true");
    let distinct = network(", headers: [ { name: x, type: Distinct, invert: true } ]");
    for (text, expected) in [
        (policy("", &inverted), "not: { source: [ \"10.0.0.0/8\" ] }"),
        (
            policy("", &distinct),
            "type Distinct of a header with `invert`",
        ),
        (
            policy("mergeType: StrategicMerge,", &global),
            "`mergeType: StrategicMerge` is ignored",
        ),
        (policy("", &methods), "two selectors with different methods"),
        (policy("", &shadow), "a rule in shadow mode does not stop"),
    ] {
        wrong.has(&converted(&[("p", &text)]), &[expected], &[]);
    }
    wrong.none();
}

#[test]
fn octal_numbers_are_named() {
    let mut wrong = Wrong::default();
    for (number, text) in [
        (
            "010",
            "`010` is read as a decimal number, and readers of YAML 1.1 such as Envoy's rate limit service read 8",
        ),
        ("010 # ten", "read 8"),
        ("0", "not converted"),
        ("08", "capacity: 8"),
        ("'010'", "capacity: 10"),
    ] {
        let text_of = |requests: &str| {
            format!(
                "domain: d\ndescriptors:\n- {{ key: remote_address, rate_limit: {{ unit: day, requests_per_unit: {requests}\n  }} }}\n"
            )
        };
        let output = converted(&[("s", &text_of(number))]);
        let is_octal = number.starts_with("01");
        let none: &[&str] = if is_octal { &[] } else { &["YAML 1.1"] };
        wrong.has(&output, &[text], none);
    }
    wrong.none();
}
