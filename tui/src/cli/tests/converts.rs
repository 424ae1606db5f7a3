//! `loudou convert`: the rule file on standard output, and the differences on standard error.

use super::*;

fn convert(text: &str) -> Ran {
    let loudou = Loudou {
        input: text,
        ..Loudou::default()
    };
    loudou.run("convert -")
}

#[test]
fn a_rule_file_with_its_differences() {
    let ran = convert(
        "limit_req_zone $binary_remote_addr zone=one:10m rate=10r/s;\n\
         server {\n    limit_req zone=one burst=20 nodelay;\n    limit_rate 1m;\n}\n",
    );
    assert_eq!(ran.code, 0);
    assert_snapshot!(ran.out, @r"
    # (standard input):4: not converted: limit_rate 1m: bandwidth is out of scope, Loudou limits
    # requests
    version: 1
    rules:
      # (standard input):3: limit_req zone=one burst=20 nodelay, with limit_req_zone $binary_remote_addr
      # zone=one:10m rate=10r/s
      - name: one
        key: [ { source: { v6_prefix: 128 } } ]
        limits:
          - { algorithm: funnel, capacity: 21, rate: 10/s }
        refuse: { status: 503 }
    ");
    assert_snapshot!(ran.err, @"(standard input):4:5: warning: not converted: limit_rate 1m: bandwidth is out of scope, Loudou limits requests");
}

#[test]
fn a_text_without_limits() {
    let ran = convert("server {\n    limit_req zone=\u{1b}one;\n}\n");
    assert_eq!((ran.code, ran.out.as_str()), (1, ""));
    assert_snapshot!(ran.err, @r"
    (standard input):2:5: warning: not converted: limit_req zone=\u{1b}one: no `limit_req_zone` for the zone `\u{1b}one`
    loudou convert: error: no limit was converted
    ");
}
