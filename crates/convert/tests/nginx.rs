//! Parts of nginx and ingress-nginx whose meaning is easily changed: each source with a text that
//! its rules or warnings contain, and a text that they do not.
#![cfg(test)]

use loudou_check::{Content, check};
use loudou_convert::{Source, convert};
use loudou_rules::config;

/// Returns the rules and warnings of files, without line breaks.
fn converted(files: &[(&str, &str)]) -> String {
    let sources: Vec<Source<'_>> = files
        .iter()
        .map(|(name, text)| Source {
            name,
            bytes: text.as_bytes(),
        })
        .collect();
    let lines = |text: String| {
        let words: Vec<&str> = text
            .split_whitespace()
            .filter(|word| *word != "#")
            .collect();
        words.join(" ")
    };
    match convert(&sources) {
        Ok(converted) => {
            for (report, content) in check(
                "rules.yaml",
                converted.text.as_bytes(),
                config::preflight_advice,
            ) {
                let report = report.lines(&|_, text| text.to_owned());
                assert!(matches!(content, Some(Content::Rules(..))), "{report}");
            }
            lines(converted.text)
        }
        Err(errors) => {
            let errors: Vec<String> = errors.into_iter().map(|error| error.message).collect();
            lines(errors.join(" "))
        }
    }
}

/// Rows of a table whose outcome is wrong.
#[derive(Default)]
struct Wrong(Vec<String>);

impl Wrong {
    /// Adds a row unless the outcome of files contains a text and lacks another one.
    fn expect(&mut self, files: &[(&str, &str)], contained: &str, lacked: &str) {
        let all = converted(files);
        if !all.contains(contained) {
            self.0.push(format!("{files:?}\nlacks {contained}\n{all}"));
        }
        if !lacked.is_empty() && all.contains(lacked) {
            self.0.push(format!("{files:?}\ncontains {lacked}\n{all}"));
        }
    }

    /// Fails with all rows.
    fn none(self) {
        assert!(self.0.is_empty(), "{}", self.0.join("\n\n"));
    }
}

const ZONE: &str = "limit_req_zone $binary_remote_addr zone=g:1m rate=1r/s;";

#[test]
fn servers() {
    let mut wrong = Wrong::default();
    for (text, contained, lacked) in [
        (
            "server { listen 80; server_name a.com; limit_req zone=g; }
             server { listen *:80 default_server; server_name _; return 444; }",
            "host: { exact: a.com }",
            "",
        ),
        (
            r"server { listen 80; } server { server_name ~^(?P<s>\S+)\.foo; limit_req zone=g; }",
            r"(?P<s>\S+)",
            "",
        ),
        (
            "server { listen 80 default_server; server_name www.b.com; limit_req zone=g; } server { server_name *.b.com; }",
            "not: { host: { suffix: \".b.com\" }, not: { headers: [ { name: \":authority\", regex: '(?i:www\\.b\\.com)",
            "",
        ),
        (
            "server { server_name x; } server { server_name *.b.com; limit_req zone=g; } server { server_name *.c.b.com; }",
            "host: { suffix: \".b.com\" }, not: { host: { suffix: \".c.b.com\" } }",
            "",
        ),
        (
            r"server { server_name x; } server { server_name ~\.b$; limit_req zone=g; } server { server_name w.b ~c; }",
            r#"not: { headers: [ { name: ":authority", regex: '(?i:x|w\.b)"#,
            "",
        ),
        (
            "server { server_name x; } server { server_name _; limit_req zone=g; }",
            "no request reaches it",
            "",
        ),
        (
            "limit_req zone=g; server { listen 80; server_name a.com; return 301 https://$host; }
             server { listen 443; server_name a.com; location / { } location /a/ { limit_req zone=g burst=7; } }",
            "serve the same hosts, or hosts without a server, on different ports",
            "- name: g key:",
        ),
        (
            "server { server_name a.com; return 301 /; limit_req zone=g; }",
            "no limit",
            "rate: 1/s",
        ),
        (
            "server { server_name a.com; } server { server_name a.com b.com; limit_req zone=g; }",
            "ignores the names a\\.com of this server",
            "a\\.com|",
        ),
    ] {
        wrong.expect(&[("a.conf", &format!("{ZONE}{text}"))], contained, lacked);
    }
    wrong.none();
}

#[test]
fn locations() {
    let mut wrong = Wrong::default();
    for (text, contained, lacked) in [
        ("location =/a { limit_req zone=g; }", "exact: /a", ""),
        (r"location ~\.php$ { limit_req zone=g; }", r"'.*\.php'", ""),
        (
            r"location ~*\.php$ { limit_req zone=g; }",
            r"(?i:.*\.php)",
            "",
        ),
        ("location ^~/a/ { limit_req zone=g; }", "prefix: /a/", ""),
        (
            "location /a/ { } location / { location /a/b { limit_req zone=g; } }",
            "location /a/b: no request reaches it",
            "rate: 1/s",
        ),
        (
            "location = /a { } location / { location = /a { limit_req zone=g; } }",
            "location = /a: no request reaches it",
            "rate: 1/s",
        ),
        (
            r"location /a/ { location ~ \.php$ { limit_req zone=g; } }",
            r"match: { path: { regex: '/a/(?:.*\.php)' } }",
            "",
        ),
        (
            r"location /a/ { location ~ ^/a/b { limit_req zone=g; } }",
            r#"regex: "/a/b.*""#,
            "",
        ),
        (
            r"location ^~ /a/ { location ~ \.js$ { limit_req zone=g; } }",
            r"not converted: location ~ \.js$ in location ^~ /a/",
            r"\.js'",
        ),
        (
            r"location ^~ /a/ { limit_req zone=g; location ~ \.js$ { } }",
            "prefix: /a/",
            "not converted",
        ),
        (
            r"location /a/ { location ~ x { limit_req zone=g; } } location /a/b/ { }",
            "not converted: location ~ x in location /a/",
            "regex:",
        ),
        (
            "location / { return 301 /; limit_req zone=g; } location /b/ { limit_req zone=g; }",
            "prefix: /b/",
            "not:",
        ),
        (
            "location /b/ { limit_req zone=g; } location ~ ^/(?!c) { }",
            "location ~ ^/(?!c): look-around",
            "",
        ),
        (
            r#"location /b/ { content_by_lua_block { local s = "}" -- don't }
               s = [[ } ]] } limit_req zone=g; }"#,
            "prefix: /b/",
            "",
        ),
    ] {
        let text = format!("{ZONE} server {{ {text} }}");
        wrong.expect(&[("a.conf", &text)], contained, lacked);
    }
    wrong.none();
}

#[test]
fn included_files() {
    let mut wrong = Wrong::default();
    let http = format!(
        "http {{ {ZONE} limit_req_status 429; limit_req zone=g burst=5 nodelay; include conf.d/*.conf; }}"
    );
    let site = "server { server_name a.com; location /b/ { limit_req zone=g; } }";
    // The site has the limits and the status of its `http`.
    let files = [("nginx.conf", http.as_str()), ("conf.d/site.conf", site)];
    wrong.expect(&files, "capacity: 6", "refuse");
    let files = [("nginx.conf", http.as_str()), ("site.txt", site)];
    wrong.expect(&files, "no given file includes this one", "");
    let server = format!(
        "{ZONE} server {{ server_name a.com; }} server {{ server_name b.com; include l; }}"
    );
    let locations = "location /c/ { limit_req zone=g; }";
    wrong.expect(
        &[("a.conf", server.as_str()), ("l", locations)],
        "match: { path: { prefix: /c/ }, host: { exact: b.com } }",
        "",
    );
    wrong.expect(
        &[("a.conf", server.as_str()), ("m", locations)],
        "m:1: a location outside of a server",
        "different ports",
    );
    wrong.expect(&[("d", "limit_req zone=g burst=9;")], "no limit", "");
    let itself = [("a.conf", "include b.conf;"), ("b.conf", "include a.conf;")];
    wrong.expect(&itself, "`include a.conf` is not read", "");
    let settings = format!("http {{ {ZONE} limit_req zone=g; }}");
    wrong.expect(&[("a.conf", &settings)], "not converted", "");
    wrong.none();
}

#[test]
fn maps() {
    let mut wrong = Wrong::default();
    for (blocks, contained, lacked) in [
        (
            r#"map $http_user_agent $k { default ""; "~*googlebot" ""; "~*bot" $host; }"#,
            r#"headers: [ { name: user-agent, regex: "(?i:.*bot.*)" } ] not: { headers: [ { name: user-agent, regex: "(?i:.*googlebot.*)" } ] }"#,
            "",
        ),
        (
            r#"map $http_a $k { default ""; ~b $host; ~c ""; ~d $host; }"#,
            "alternate between answers",
            "",
        ),
        (
            r#"map $http_a $k { default ""; "" $host; }"#,
            "{ name: a, present: false }",
            "",
        ),
        (
            r#"map $http_a $k { default $host; "" ""; }"#,
            "{ name: a, present: true }",
            "",
        ),
        (
            r#"map $http_a $k { default ""; "" $host; "b" $host; }"#,
            r#"not: { headers: [ { name: a, present: true } ], not: { headers: [ { name: a, regex: "(?i:b)" } ] } }"#,
            "",
        ),
        (
            r#"map $request_method $k { default $host; GET ""; "" ""; }"#,
            "not: { methods: [ GET ] }",
            "",
        ),
        (
            r#"map $http_a $k { default ""; \default $host; \~c $host; }"#,
            r#"regex: "(?i:default)|(?i:~c)""#,
            "",
        ),
        (
            r#"geo $l { default 0; } map $l $k { 0 ""; 1 $host; }"#,
            "nginx limits nobody",
            "",
        ),
        (
            r#"geo $l { default 0; } map $l $k { default $host; 0 ""; }"#,
            "nginx limits nobody",
            "",
        ),
        (
            r#"map $http_x_a$http_x_b $k { default ""; a $host; }"#,
            "has no counterpart",
            "",
        ),
    ] {
        let text = format!(
            "{blocks} limit_req_zone $k zone=k:1m rate=1r/s; server {{ limit_req zone=k; }}"
        );
        wrong.expect(&[("a.conf", &text)], contained, lacked);
    }
    wrong.none();
}

/// Returns an Ingress with annotations, and other fields of its metadata and its specification.
fn ingress(name: &str, metadata: &str, annotations: &str, spec: &str, path: &str) -> String {
    let annotations: Vec<String> = annotations
        .split_terminator(", ")
        .map(|one| format!("nginx.ingress.kubernetes.io/{one}"))
        .collect();
    let annotations = annotations.join(", ");
    format!(
        "kind: Ingress\napiVersion: networking.k8s.io/v1\n\
         metadata: {{ name: {name}, {metadata} annotations: {{ {annotations} }} }}\n\
         spec: {{ {spec} rules: [ {{ host: \"*.a.com\", http: {{ paths: [ {{ path: \"{path}\", pathType: Prefix }} ] }} }} ] }}\n---\n"
    )
}

#[test]
fn ingresses() {
    let mut wrong = Wrong::default();
    let limit = "limit-rps: \"1\"";
    let age = |year: u16| format!("creationTimestamp: \"{year}-01-01T00:00:00Z\",");
    let fast = |metadata: &str| ingress("fast", metadata, "limit-rps: \"100\"", "", "/a");
    let slow = |metadata: &str| ingress("slow", metadata, limit, "", "/a");
    for (text, contained, lacked) in [
        (
            ingress("b", "", "canary: \"true\", limit-rps: \"1\"", "", "/a") + &fast(""),
            "rate: 100/s",
            "rate: 1/s",
        ),
        (
            slow(&age(2025)) + &fast(&age(2024)),
            "rate: 100/s",
            "rate: 1/s",
        ),
        (
            slow(&age(2024)) + &fast(&age(2024)),
            "rate: 1/s",
            "rate: 100/s",
        ),
        (
            ingress("b", "", limit, "defaultBackend: { service: {} },", "/a"),
            ":authority",
            "path:",
        ),
        (
            ingress(
                "b",
                "",
                "limit-rps: \"1\", server-alias: \"b.com\"",
                "",
                "/a",
            ),
            "not converted: Ingress b, server-alias",
            "",
        ),
        (
            ingress("b", "", limit, "ingressClassName: traefik,", "/a"),
            "its class is `traefik`",
            "",
        ),
        (
            ingress(
                "b",
                "",
                "limit-rps: \"1\", use-regex: \"True\"",
                "",
                "/v[0-9]+",
            ),
            "(?i:/v[0-9]+.*)",
            "",
        ),
        (
            ingress("b", "", "rewrite-target: /", "", "/") + &fast(""),
            "path: { prefix: /a }",
            "",
        ),
        (slow(""), r"[0-9a-z_-]+\.a\.com", ""),
    ] {
        wrong.expect(&[("a.yaml", &text)], contained, lacked);
    }
    wrong.none();
}
