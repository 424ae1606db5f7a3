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

/// Writes a file and a log into a folder, and compares them.
fn prove(conf: &str, log: &str, options: &str) -> Ran {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("nginx.conf");
    std::fs::write(&path, conf).expect("writes");
    let loudou = Loudou {
        input: log,
        ..Loudou::default()
    };
    let line = format!("convert {} --prove - {options}", path.display());
    let mut ran = loudou.run(&line);
    ran.err = ran.err.replace(&folder.path().display().to_string(), "");
    ran
}

const ZONE: &str = "limit_req_zone $binary_remote_addr zone=one:1m rate=1r/s;\n";
/// Three requests of one client in the same second.
const LOG: &str = "{\"at_ns\":0,\"source\":\"10.0.0.1\",\"path\":\"/a\"}\n\
    {\"at_ns\":1000000,\"source\":\"10.0.0.1\",\"path\":\"/b\"}\n\
    {\"at_ns\":2000000,\"source\":\"10.0.0.1\",\"path\":\"/a\"}\n";

#[test]
fn a_proof_names_lines_that_are_no_requests() {
    let conf = format!("{ZONE}server {{ limit_req zone=one burst=9 nodelay; }}\n");
    let ran = prove(&conf, &format!("{LOG}no request\n"), "--format trace");
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(
        ran.err.contains("1 invalid line was skipped:"),
        "{}",
        ran.err
    );
}

#[test]
fn a_proof_without_differences() {
    let ran = prove(
        &format!("{ZONE}server {{ limit_req zone=one; }}\n"),
        LOG,
        "",
    );
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert_snapshot!(ran.out, @r"
    (standard input): 3 requests, 3 equal, 0 more allowed, 0 less allowed, 0 delayed differently

    RULE  REQUESTS  EQUAL  MORE  LESS  DELAY  NO KEY
    one          3      3     0     0      0       0

    note: which limits a request meets, its key and its cost are read from the
          rules. Only the counting is compared.
    ");
    assert_eq!(ran.err, "");
}

#[test]
fn a_proof_with_differences() {
    let conf = "server { location /a { limit_req zone=one; } location /b { limit_req zone=one burst=5; } }\n";
    let ran = prove(&format!("{ZONE}{conf}"), LOG, "--format trace");
    assert_eq!(ran.code, 1, "{}", ran.err);
    assert_snapshot!(ran.out, @r"
    (standard input): 3 requests, 2 equal, 0 more allowed, 0 less allowed, 1 delayed differently

    RULE   REQUESTS  EQUAL  MORE  LESS  DELAY  NO KEY
    one           2      2     0     0      0       0
    one-2         1      0     0     0      1       0

    why they differ
    REQUESTS  CAUSE
           1  the source counts the requests of these rules together, and each rule counts its own: one, one-2

    differences
    LINE  TIME  RULE   KEY       SOURCE       RULES
       2  1ms   one-2  10.0.0.1  waits 999ms  passes

    note: which limits a request meets, its key and its cost are read from the
          rules. Only the counting is compared.
    ");
}

#[test]
fn a_proof_of_kong() {
    let plugin = |policy: &str| {
        format!(
            "_format_version: '3.0'\nplugins:\n- name: rate-limiting\n  \
             config: {{ second: 1, minute: 2, limit_by: ip, policy: {policy} }}\n"
        )
    };
    let later = "{\"at_ns\":1000000000,\"source\":\"10.0.0.1\",\"path\":\"/a\"}\n";
    let log = format!("{LOG}{later}");
    let ran = prove(&plugin("local"), &log, "--format trace");
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    assert!(ran.out.contains("4 requests, 4 equal"), "{}", ran.out);
    let ran = prove(&plugin("redis"), &log, "--format trace");
    assert_eq!(ran.code, 1, "{}{}", ran.out, ran.err);
    assert!(
        ran.err.contains("Kong counts it in all of them"),
        "{}",
        ran.err
    );
    assert!(ran.out.contains("3 equal, 1 more allowed"), "{}", ran.out);
}

#[test]
fn a_proof_without_durations() {
    let zone = "limit_conn_zone $binary_remote_addr zone=one:1m;\n";
    let conf = format!("{zone}server {{ limit_conn one 1; }}\n");
    let ran = prove(&conf, LOG, "--format trace");
    assert_eq!(ran.code, 1, "{}", ran.err);
    assert_snapshot!(ran.out, @r"
    (standard input): 1 request, 1 equal, 0 more allowed, 0 less allowed, 0 delayed differently

    RULE  REQUESTS  EQUAL  MORE  LESS  DELAY  NO KEY
    one          1      1     0     0      0       0

    note: which limits a request meets, its key and its cost are read from the
          rules. Only the counting is compared.
    warning: 2 requests not compared, because the log lacks durations, and
             `limit_conn` counts running requests; log them, such as nginx's
             `$request_time`
    warning: 3 requests had no duration: `concurrency` counted each as ended once
             it passed
    ");
}

#[test]
fn a_proof_of_nothing() {
    let conf =
        "limit_req_zone $http_x_user zone=one:1m rate=1r/s;\nserver { limit_req zone=one; }\n";
    let ran = prove(conf, LOG, "");
    assert_eq!(ran.code, 1, "{}", ran.err);
    assert!(
        ran.out.contains("no request of the log meets a limit"),
        "{}",
        ran.out
    );
}

#[test]
fn options_of_logs_need_a_log() {
    let loudou = Loudou::default();
    let ran = loudou.run("convert nginx.conf --format combined");
    assert_eq!(ran.code, 2);
    assert!(ran.err.contains("are options of --prove"), "{}", ran.err);
    let ran = Loudou::default().run("convert - --prove -");
    assert_eq!(ran.code, 2);
    assert!(
        ran.err.contains("only one of FILE and --prove"),
        "{}",
        ran.err
    );
}

/// Each form of the rules passes `loudou check`, and a file is only replaced by request.
#[test]
fn rules_in_other_forms() {
    let folder = tempfile::tempdir().expect("a folder");
    let conf = folder.path().join("nginx.conf");
    let text = format!("{ZONE}server {{ limit_req zone=one; }}\n");
    std::fs::write(&conf, text).expect("writes");
    let convert = |options: &str| {
        let line = format!("convert {} {options}", conf.display());
        Loudou::default().run(&line)
    };
    let mut wrong = Vec::new();
    for form in [
        "rules",
        "wasmplugin",
        "trafficextension",
        "envoyextensionpolicy",
    ] {
        let file = folder.path().join(form);
        let ran = convert(&format!("--as {form} --write {}", file.display()));
        let written = std::fs::read_to_string(&file).expect("a file");
        let checked = Loudou::default().run(&format!("check {}", file.display()));
        if (ran.code, ran.out.as_str(), checked.code) != (0, "", 0)
            || !written.contains("name: one")
        {
            wrong.push(format!("{form}: {} {written}\n{}", ran.err, checked.out));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let filter = convert("--as envoy").out;
    assert!(filter.starts_with("- name: loudou\n"), "{filter}");
    let rules = folder.path().join("rules");
    let again = convert(&format!("--write {}", rules.display()));
    assert_eq!(again.code, 1);
    assert!(
        again.err.contains("exists; --force replaces it"),
        "{}",
        again.err
    );
    let forced = convert(&format!("--as envoy --write {} --force", rules.display()));
    assert_eq!(forced.code, 0, "{}", forced.err);
    assert_eq!(std::fs::read_to_string(&rules).expect("a file"), filter);
    let proof = convert("--as envoy --prove a.log");
    assert_eq!(proof.code, 2, "{}", proof.err);
}
