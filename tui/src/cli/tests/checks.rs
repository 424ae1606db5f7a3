//! `loudou check` on valid and invalid files.

use std::path::PathBuf;

use loudou_rules::config;
use serde_json::{Value, json};

use super::*;

const THREE_YAML: &str = "\
version: 1
rules:
  - name: per-user
    key: [ { header: x-user-id } ]
    limits:
      - { name: burst, algorithm: funel, capacity: 15, rate: 30/60s }
      - { name: steady, algorithm: funnel, capacty: 1000, rate: 0/d }
  - name: per-path
    mode: off
    key: [ path ]
    limits: []
";

const THREE_JSON: &str = r#"{
  "version": 1,
  "rules": [
    {
      "name": "per-user",
      "key": [{"header": "x-user-id"}],
      "limits": [
        {"name": "burst", "algorithm": "funel", "capacity": 15, "rate": "30/60s"},
        {"name": "steady", "algorithm": "funnel", "capacty": 1000, "rate": "0/d"}
      ]
    },
    {"name": "per-path", "mode": "off", "key": ["path"], "limits": []}
  ]
}
"#;

const GOOD: &str = "\
version: 1
store: { buckets: 4096 }
rules:
  - name: per-user
    match: { methods: [POST], path: { prefix: /reply } }
    key: [ { header: x-user-id }, path ]
    limits:
      - { name: burst, algorithm: funnel, capacity: 15, rate: 30/60s }
      - { algorithm: token_bucket, capacity: 1000, rate: 500/d, refill: interval }
  - name: everything
    mode: shadow
    cost: 2
    key: []
    limits: [ { algorithm: funnel, capacity: 100, rate: 7/s } ]
";

pub(super) fn check(text: &str, options: &str) -> Ran {
    let loudou = Loudou {
        input: text,
        ..Loudou::default()
    };
    loudou.run(&format!("check - {options}"))
}

#[test]
fn all_problems_are_reported_at_once() {
    assert_snapshot!(check(THREE_YAML, "").seen(), @r#"
    (standard input):6:35: error: rules[0].limits[0].algorithm: "funel": unknown algorithm; allowed: funnel, token_bucket, fixed_window, sliding_window, sliding_log, sliding_counter, leaky_queue, smooth_bursty, smooth_warmup, concurrency; did you mean `funnel`?
      6 |       - { name: burst, algorithm: funel, capacity: 15, rate: 30/60s }
        |                                   ^
    (standard input):7:9: error: rules[0].limits[1]: `capacity` is missing; allowed: a whole number from 1 to 1000000000
      7 |       - { name: steady, algorithm: funnel, capacty: 1000, rate: 0/d }
        |         ^
    (standard input):7:44: error: rules[0].limits[1].capacty: unknown field; allowed: name, algorithm, capacity, rate, max_wait; did you mean `capacity`?
      7 |       - { name: steady, algorithm: funnel, capacty: 1000, rate: 0/d }
        |                                            ^
    (standard input):7:65: error: rules[0].limits[1].rate: "0/d": a rate of zero never admits; allowed: an amount per period: 30/60s, 10/s, 5/m, 1000/d, 1/250ms; at most 1000000000 per 366d
      7 |   - { name: steady, algorithm: funnel, capacty: 1000, rate: 0/d }
        |                                                             ^
    (standard input):9:11: warning: `off` without quotes is true or false to Envoy; write "off"
      9 |     mode: off
        |           ^
    (standard input):11:13: error: rules[1].limits: []: 0 limits; allowed: 1 to 8 limits
      11 |     limits: []
         |             ^
    (standard input): 5 errors, 1 warning
    --- exit code 1
    "#);
    assert_snapshot!(check(THREE_JSON, "").seen(), @r#"
    (standard input):8:40: error: rules[0].limits[0].algorithm: "funel": unknown algorithm; allowed: funnel, token_bucket, fixed_window, sliding_window, sliding_log, sliding_counter, leaky_queue, smooth_bursty, smooth_warmup, concurrency; did you mean `funnel`?
      8 |         {"name": "burst", "algorithm": "funel", "capacity": 15, "rate": "30/60s"},
        |                                        ^
    (standard input):9:9: error: rules[0].limits[1]: `capacity` is missing; allowed: a whole number from 1 to 1000000000
      9 |         {"name": "steady", "algorithm": "funnel", "capacty": 1000, "rate": "0/d"}
        |         ^
    (standard input):9:51: error: rules[0].limits[1].capacty: unknown field; allowed: name, algorithm, capacity, rate, max_wait; did you mean `capacity`?
      9 |         {"name": "steady", "algorithm": "funnel", "capacty": 1000, "rate": "0/d"}
        |                                                   ^
    (standard input):9:76: error: rules[0].limits[1].rate: "0/d": a rate of zero never admits; allowed: an amount per period: 30/60s, 10/s, 5/m, 1000/d, 1/250ms; at most 1000000000 per 366d
      9 | : "steady", "algorithm": "funnel", "capacty": 1000, "rate": "0/d"}
        |                                                             ^
    (standard input):12:68: error: rules[1].limits: []: 0 limits; allowed: 1 to 8 limits
      12 | ame": "per-path", "mode": "off", "key": ["path"], "limits": []}
         |                                                             ^
    (standard input): 5 errors
    --- exit code 1
    "#);
    assert_snapshot!(check(THREE_YAML, "-o csv").seen(), @r#"
    file,line,column,severity,path,value,message,allowed,suggestion,filter
    (standard input),6,35,error,rules[0].limits[0].algorithm,"""funel""",unknown algorithm,"funnel, token_bucket, fixed_window, sliding_window, sliding_log, sliding_counter, leaky_queue, smooth_bursty, smooth_warmup, concurrency",funnel,
    (standard input),7,9,error,rules[0].limits[1],,`capacity` is missing,a whole number from 1 to 1000000000,,
    (standard input),7,44,error,rules[0].limits[1].capacty,,unknown field,"name, algorithm, capacity, rate, max_wait",capacity,
    (standard input),7,65,error,rules[0].limits[1].rate,"""0/d""",a rate of zero never admits,"an amount per period: 30/60s, 10/s, 5/m, 1000/d, 1/250ms; at most 1000000000 per 366d",,
    (standard input),9,11,warning,,,"`off` without quotes is true or false to Envoy; write ""off""",,,
    (standard input),11,13,error,rules[1].limits,[],0 limits,1 to 8 limits,,
    --- exit code 1
    "#);
    assert_snapshot!(check(THREE_YAML, "-o jsonl").seen(), @r#"
    {"file":"(standard input)","valid":false,"problems":[{"severity":"error","path":"rules[0].limits[0].algorithm","value":"\"funel\"","message":"unknown algorithm","allowed":"funnel, token_bucket, fixed_window, sliding_window, sliding_log, sliding_counter, leaky_queue, smooth_bursty, smooth_warmup, concurrency","suggestion":"funnel","line":6,"column":35},{"severity":"error","path":"rules[0].limits[1]","message":"`capacity` is missing","allowed":"a whole number from 1 to 1000000000","line":7,"column":9},{"severity":"error","path":"rules[0].limits[1].capacty","message":"unknown field","allowed":"name, algorithm, capacity, rate, max_wait","suggestion":"capacity","line":7,"column":44},{"severity":"error","path":"rules[0].limits[1].rate","value":"\"0/d\"","message":"a rate of zero never admits","allowed":"an amount per period: 30/60s, 10/s, 5/m, 1000/d, 1/250ms; at most 1000000000 per 366d","line":7,"column":65},{"severity":"warning","path":"","message":"`off` without quotes is true or false to Envoy; write \"off\"","line":9,"column":11},{"severity":"error","path":"rules[1].limits","value":"[]","message":"0 limits","allowed":"1 to 8 limits","line":11,"column":13}]}
    --- exit code 1
    "#);
}

#[test]
fn the_text_of_a_problem_is_that_of_the_filter() {
    let document = loudou_check::document::read(THREE_JSON.as_bytes()).expect("readable");
    let out = check(THREE_JSON, "").out;
    let problems = config::parse(&document.value).problems;
    assert!(problems.len() >= 3);
    for problem in problems {
        assert!(
            out.contains(&format!(": error: {problem}\n")),
            "{problem} in {out}"
        );
    }
}

#[test]
fn a_valid_file_is_described_in_words() {
    assert_snapshot!(check(GOOD, "").seen(), @r"
    (standard input): valid: 2 rules, 3 limits
      store: up to 4096 buckets
      memory: about 762.4 KiB shared by all workers when full (at most 3.6 MiB), and 823.2 KiB per worker

      per-user: POST requests to /reply and below
        each combination of x-user-id and path may do 15 at once, then one every 2s (burst)
          and may do 1000 at once, and 500 come back every day, in one go (token_bucket)
          a request passes both or takes from neither
        requests without x-user-id are not limited by this rule
        a bucket takes up to 86 bytes

      everything: every request
        all requests together may take 100 units at once, then 7 units per second (one unit about every 143ms)
        in shadow mode: refusals are counted, not enforced
        a request takes 2 units
        a bucket takes up to 70 bytes
    --- exit code 0
    ");
    assert_snapshot!("check_good_json", check(GOOD, "-o json").seen());
    assert_snapshot!(check(GOOD, "-o jsonl").seen(), @r#"
    {"file":"(standard input)","valid":true,"problems":[],"store":{"buckets":4096,"memory_bytes":780720,"memory_bytes_at_most":3863024,"memory_bytes_per_worker":843014,"memory_bytes_held_per_worker":0},"rules":[{"name":"per-user","mode":"enforce","requests":"POST requests to /reply and below","meaning":"each combination of x-user-id and path may do 15 at once, then one every 2s (burst); and may do 1000 at once, and 500 come back every day, in one go (token_bucket); a request passes both or takes from neither","notes":["requests without x-user-id are not limited by this rule"],"bucket_bytes":86,"state_bytes":32},{"name":"everything","mode":"shadow","requests":"every request","meaning":"all requests together may take 100 units at once, then 7 units per second (one unit about every 143ms)","notes":["in shadow mode: refusals are counted, not enforced","a request takes 2 units"],"bucket_bytes":70,"state_bytes":16}]}
    --- exit code 0
    "#);
    assert_eq!(check(GOOD, "-o csv").out.lines().count(), 1);
}

/// Every algorithm with its options, and every warning.
#[test]
fn every_algorithm_is_described() {
    assert_snapshot!("check_every", check(include_str!("every.yaml"), "").seen());
}

/// The JSON output contains the scaled limits, too.
#[test]
fn scaled_numbers_are_printed() {
    let printed = check(include_str!("every.yaml"), "-o json").out;
    let printed: Value = serde_json::from_str(&printed).expect("JSON");
    let files = printed.as_array().cloned().unwrap_or_else(|| vec![printed]);
    let rules = files[0]["rules"].as_array().expect("rules");
    let scaled: Vec<_> = rules.iter().filter_map(|rule| rule.get("scaled")).collect();
    let alice =
        json!([{ "name": "funnel", "algorithm": "funnel", "capacity": 1000, "rate": "70/s" }]);
    assert_eq!(scaled, [&json!({ "alice": alice })]);
}

#[test]
fn admin_configurations_are_checked_too() {
    let hash = "0f".repeat(32);
    let tokens = format!(
        "version: 1\nadmin:\n  role: admin\n  tokens:\n    - {{ name: ops, sha256: {hash}, may: edit }}\n    \
         - {{ name: wall, sha256: {hash}, may: view }}\n"
    );
    assert_snapshot!(check(&tokens, "").seen(), @r"
    (standard input): valid: an admin listener for namespace loudou
      ops may view and edit
      wall may view
    --- exit code 0
    ");
    let none = "store: { namespace: team }\nadmin: { role: admin }\n";
    assert_snapshot!(check(none, "").seen(), @r"
    (standard input): valid: an admin listener for namespace team
      no tokens: clients on the loopback interface may view and edit, all others are refused
    --- exit code 0
    ");
    let wrong = "admin: { rol: admin, tokens: [ { name: a b, sha256: 12, may: all } ] }\n";
    assert_snapshot!(check(wrong, "").seen(), @r#"
    (standard input):1:8: error: admin: `role` is missing; allowed: admin
      1 | admin: { rol: admin, tokens: [ { name: a b, sha256: 12, may: all } ] }
        |        ^
    (standard input):1:10: error: admin.rol: unknown field; allowed: role, tokens, hosts; did you mean `role`?
      1 | admin: { rol: admin, tokens: [ { name: a b, sha256: 12, may: all } ] }
        |          ^
    (standard input):1:40: error: admin.tokens[0].name: "a b": invalid name; allowed: 1 to 63 printable characters of ASCII, without spaces
      1 | admin: { rol: admin, tokens: [ { name: a b, sha256: 12, may: all } ] }
        |                                        ^
    (standard input):1:53: error: admin.tokens[0].sha256: 12: invalid hash; allowed: 64 hexadecimal digits, as `printf %s TOKEN | sha256sum` prints
      1 | admin: { rol: admin, tokens: [ { name: a b, sha256: 12, may: all } ] }
        |                                                     ^
    (standard input):1:62: error: admin.tokens[0].may: "all": unknown value; allowed: view, edit
      1 | dmin: { rol: admin, tokens: [ { name: a b, sha256: 12, may: all } ] }
        |                                                             ^
    (standard input): 5 errors
    --- exit code 1
    "#);
}

#[test]
fn warnings_leave_a_file_valid() {
    let text = GOOD.replace("cost: 2", "cost: 200");
    assert_snapshot!(check(&text, "").seen(), @r"
    (standard input):12:11: warning: rules[1].cost: 200: no request is ever admitted: the cost is above the capacity of funnel
      12 |     cost: 200
         |           ^
    (standard input): valid: 2 rules, 3 limits
      store: up to 4096 buckets
      memory: about 762.4 KiB shared by all workers when full (at most 3.6 MiB), and 823.2 KiB per worker

      per-user: POST requests to /reply and below
        each combination of x-user-id and path may do 15 at once, then one every 2s (burst)
          and may do 1000 at once, and 500 come back every day, in one go (token_bucket)
          a request passes both or takes from neither
        requests without x-user-id are not limited by this rule
        a bucket takes up to 86 bytes

      everything: every request
        all requests together may take 100 units at once, then 7 units per second (one unit about every 143ms)
        in shadow mode: refusals are counted, not enforced
        a request takes 200 units
        a bucket takes up to 70 bytes
    --- exit code 0
    ");
}

#[test]
fn texts_that_cannot_be_read() {
    assert_snapshot!(check("{\"version\": 1,\n \"rules\": [}\n", "").seen(), @r#"
    (standard input):2:12: error: invalid syntax: while parsing a node, did not find expected node content
      2 |  "rules": [}
        |            ^
    (standard input): 1 error
    --- exit code 1
    "#);
    assert_snapshot!(check("", "").seen(), @r"
    (standard input): error: (the whole file): the file is empty; allowed: an object with version, store, fleet, admin, defaults, rules
    (standard input): 1 error
    --- exit code 1
    ");
    assert_snapshot!(check(&GOOD.replace("cost: 2", "mode: off"), "").seen(), @r#"
    (standard input):12:5: error: duplicate `mode`, first in line 11
      12 |     mode: off
         |     ^
    (standard input):12:11: warning: `off` without quotes is true or false to Envoy; write "off"
      12 |     mode: off
         |           ^
    (standard input): 1 error, 1 warning
    --- exit code 1
    "#);
    let large = "#".repeat(config::MAX_FILE_BYTES + 1);
    assert_snapshot!(check(&large, "").seen(), @r"
    (standard input): error: larger than 1 MiB
    (standard input): 1 error
    --- exit code 1
    ");
}

#[test]
fn long_lines_and_control_characters_stay_in_place() {
    let text = format!("{{{}\"rul\u{1b}s\":\t1}}", " ".repeat(300));
    let ran = check(&text, "");
    assert_snapshot!(ran.seen(), @r#"
    (standard input):1:311: error: invalid syntax: ':' must be followed by a valid YAML whitespace
      1 |                                                    "rul\u{1b}s": 1}
        |                                                                  ^
    (standard input): 1 error
    --- exit code 1
    "#);
    assert!(!ran.out.contains('\u{1b}'));
}

#[test]
fn files_are_named_and_all_are_checked() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/cli/tests");
    let (good, bad) = (folder.join("good.yaml"), folder.join("bad.json"));
    let line = format!("check {} {}", bad.display(), good.display());
    let ran = Loudou::default().run(&line);
    let seen = ran.seen().replace(&format!("{}/", folder.display()), "");
    assert_snapshot!(seen, @r#"
    bad.json:1:13: error: version: 2: unknown version; allowed: 1
      1 | {"version": 2, "rules": []}
        |             ^
    bad.json: 1 error
    good.yaml: valid: 1 rule, 1 limit
      store: up to 65536 buckets
      memory: about 9.8 MiB shared by all workers when full (at most 28.2 MiB), and 815.8 KiB per worker

      per-address: every request
        each client address may do 5 at once, then one every second
        a bucket takes up to 70 bytes
    --- exit code 1
    "#);
}

#[test]
fn a_missing_file() {
    assert_snapshot!(Loudou::default().run("check no/such/file.yaml").seen(), @r"
    --- standard error
    loudou: cannot read no/such/file.yaml: No such file or directory (os error 2)
    --- exit code 1
    ");
}

/// The published schema matches the code.
#[test]
fn the_published_schema_is_the_printed_one() {
    let ran = Loudou::default().run("schema");
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    let published = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../docs/schema/loudou.schema.json"
    );
    let published = std::fs::read_to_string(published).unwrap_or_default();
    assert!(
        published == ran.out,
        "docs/schema/loudou.schema.json is not what `loudou schema` prints; update it with \
         `cargo run --package loudou -- schema > docs/schema/loudou.schema.json`"
    );
}

/// The published tables of fields match the code.
#[test]
fn the_published_pages_are_the_printed_ones() {
    for (path, command) in [
        ("docs/reference/fields.md", "schema --markdown"),
        ("docs/reference/cli.md", "man --markdown"),
    ] {
        let ran = Loudou::default().run(command);
        assert_eq!((ran.code, ran.err.as_str()), (0, ""));
        let published = format!("{}/../{path}", env!("CARGO_MANIFEST_DIR"));
        let published = std::fs::read_to_string(published).unwrap_or_default();
        let begin = format!("<!-- begin: loudou {command} -->\n\n");
        let end = format!("\n<!-- end: loudou {command} -->\n");
        let printed = published.split_once(&begin).map(|(_, rest)| rest);
        let printed = printed.and_then(|rest| rest.split_once(&end));
        assert!(
            printed.is_some_and(|(printed, _)| printed == ran.out),
            "{path} does not have what `loudou {command}` prints between its marks; `cargo xtask update` writes it:\n{}",
            ran.out
        );
    }
}

/// Returns the file of each example in `envoy/` that is for Envoy itself. The others have
/// manifests.
fn in_envoy() -> Vec<PathBuf> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../envoy");
    let entries = std::fs::read_dir(folder).expect("examples");
    let files = entries.map(|entry| entry.expect("an example").path().join("envoy.yaml"));
    let files: Vec<PathBuf> = files.filter(|file| file.is_file()).collect();
    assert!(files.len() >= 8, "{files:?}");
    files
}

#[test]
fn the_examples_of_envoy_pass_without_a_warning() {
    for file in in_envoy() {
        let file = file.display();
        let ran = Loudou::default().run(&format!("check {file} -o json"));
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{file}: {}", ran.out);
        let printed: Value = serde_json::from_str(&ran.out).expect("JSON");
        let printed = printed.as_array().expect("a list");
        let filters: Vec<_> = printed.iter().map(|one| one["filter"].as_str()).collect();
        assert_eq!(
            filters,
            [
                Some("listener data, filter loudou, data role"),
                Some("listener admin, filter loudou-admin, admin role"),
            ],
            "{file}"
        );
        assert!(
            printed.iter().all(|one| one["problems"] == json!([])),
            "{file}: {}",
            ran.out
        );
        assert_ne!(printed[0]["rules"], Value::Null, "{file}");
    }
}

/// Two listeners with the same rules, one with others, and a filter other than Loudou.
const ENVOY: &str = include_str!("envoy.yaml");

#[test]
fn problems_in_an_envoy_file_have_positions() {
    assert_snapshot!(check(ENVOY, "").seen(), @r"
    (standard input): listener first, filter loudou-a, data role and listener second, filter loudou-b, data role: valid: 1 rule, 1 limit
      store: up to 65536 buckets
      memory: about 9.8 MiB shared by all workers when full (at most 28.2 MiB), and 815.8 KiB per worker

      per-address: every request
        each client address may do 5 at once, then one every 12s
        in shadow mode: refusals are counted, not enforced
        a bucket takes up to 70 bytes
    (standard input): listener third, filter loudou-c, data role: valid: 1 rule, 1 limit
      store: up to 65536 buckets
      memory: about 9.8 MiB shared by all workers when full (at most 28.2 MiB), and 815.8 KiB per worker

      all: every request
        all requests together may do 1 at once, then one every second
        a bucket takes up to 70 bytes
    --- exit code 0
    ");
    let wrong = ENVOY.replace("capacity: 5,", "capacty: 5,");
    let wrong = wrong
        .replace("\"rate\": \"1/s\"", "\"rate\": \"1/x\"")
        .replace("mode: shadow", "mode: on");
    assert_snapshot!(check(&wrong, "").seen(), @r#"
    (standard input):22:39: warning: `on` without quotes is true or false to Envoy; write "on"
      22 |                                 mode: on
         |                                       ^
    (standard input):22:39: error: rules[0].mode: true: unknown value; allowed: enforce, shadow, off
      22 |                                 mode: on
         |                                       ^
    (standard input):24:42: error: rules[0].limits[0]: `capacity` is missing; allowed: a whole number from 1 to 1000000000
      24 |                                 limits: [{ algorithm: funnel, capacty: 5, rate: 5/60s }]
         |                                          ^
    (standard input):24:63: error: rules[0].limits[0].capacty: unknown field; allowed: name, algorithm, capacity, rate, max_wait; did you mean `capacity`?
      24 |                               limits: [{ algorithm: funnel, capacty: 5, rate: 5/60s }]
         |                                                             ^
    (standard input): listener first, filter loudou-a, data role and listener second, filter loudou-b, data role: 3 errors, 1 warning
    (standard input):64:93: error: rules[0].limits[0].rate: "1/x": invalid rate; allowed: an amount per period: 30/60s, 10/s, 5/m, 1000/d, 1/250ms; at most 1000000000 per 366d
      64 |   "limits": [{"algorithm": "funnel", "capacity": 1, "rate": "1/x"}]
         |                                                             ^
    (standard input): listener third, filter loudou-c, data role: 1 error
    --- exit code 1
    "#);
    assert_snapshot!(check(&wrong, "-o csv").seen(), @r#"
    file,line,column,severity,path,value,message,allowed,suggestion,filter
    (standard input),22,39,warning,,,"`on` without quotes is true or false to Envoy; write ""on""",,,"listener first, filter loudou-a, data role and listener second, filter loudou-b, data role"
    (standard input),22,39,error,rules[0].mode,true,unknown value,"enforce, shadow, off",,"listener first, filter loudou-a, data role and listener second, filter loudou-b, data role"
    (standard input),24,42,error,rules[0].limits[0],,`capacity` is missing,a whole number from 1 to 1000000000,,"listener first, filter loudou-a, data role and listener second, filter loudou-b, data role"
    (standard input),24,63,error,rules[0].limits[0].capacty,,unknown field,"name, algorithm, capacity, rate, max_wait",capacity,"listener first, filter loudou-a, data role and listener second, filter loudou-b, data role"
    (standard input),64,93,error,rules[0].limits[0].rate,"""1/x""",invalid rate,"an amount per period: 30/60s, 10/s, 5/m, 1000/d, 1/250ms; at most 1000000000 per 366d",,"listener third, filter loudou-c, data role"
    --- exit code 1
    "#);
    assert_snapshot!(check("static_resources: {}\n", "").seen(), @r"
    (standard input): error: no Loudou filter in this Envoy file: expected `typed_config` of type envoy.extensions.filters.http.wasm.v3.Wasm or envoy.extensions.filters.http.dynamic_modules.v3.DynamicModuleFilter with `loudou` in its name, its vm_id or the path of its module, or with rules in its configuration
    (standard input): 1 error
    --- exit code 1
    ");
}

#[test]
fn other_commands_read_rules_from_an_envoy_file() {
    let explain = |text: &str| {
        let loudou = Loudou {
            input: text,
            ..Loudou::default()
        };
        loudou.run("explain --config - --path /a -o json")
    };
    let several = explain(ENVOY);
    assert_snapshot!(several.seen(), @r"
    --- standard error
    (standard input): 2 filters have different rules, but this command takes only one: listener first, filter loudou-a, data role and listener second, filter loudou-b, data role; listener third, filter loudou-c, data role
    --- exit code 1
    ");
    // Equal rules in two listeners count as one rule file.
    let (one, _) = ENVOY
        .split_once("    - name: third")
        .expect("a third listener");
    let one = explain(one);
    assert_eq!(one.code, 0, "{}", one.err);
    assert!(one.out.contains("\"per-address\""), "{}", one.out);
    let none = explain("node: { id: x }\n");
    assert_eq!(none.code, 1, "{}", none.out);
}

/// Collects every rule file inside a document.
fn configurations(value: &Value, found: &mut Vec<Value>) {
    let fields = value.as_object();
    if fields.is_some_and(|f| f.contains_key("version") && f.contains_key("rules")) {
        found.push(value.clone());
    }
    let inner = fields.into_iter().flat_map(|fields| fields.values());
    let inner = inner.chain(value.as_array().into_iter().flatten());
    inner.for_each(|value| configurations(value, found));
}

#[test]
fn examples_keep_to_the_schema() {
    let validator = jsonschema::draft202012::new(&config::schema()).expect("a schema");
    let documents = [
        include_str!("../../../../README.md"),
        include_str!("../../../../docs/reference/rules.md"),
    ];
    let blocks = documents.iter().flat_map(|text| {
        let blocks = text.split("```yaml\n").skip(1);
        blocks.filter_map(|rest| rest.split("```").next())
    });
    // The end-to-end tests check examples of single fields.
    let blocks = blocks.filter(|block| block.contains("rules:") || block.contains("- name: "));
    // Some examples show only a rule, or the place of the filter in Envoy.
    let written: Vec<String> = blocks
        .map(|block| {
            let rules = if block.starts_with("  - name: ") {
                "version: 1\nrules:\n"
            } else {
                ""
            };
            format!("{rules}{block}")
        })
        .collect();
    let own = [include_str!("good.yaml"), include_str!("every.yaml")];
    let texts = own.into_iter().chain(written.iter().map(String::as_str));
    let mut found = Vec::new();
    for text in texts {
        let document = loudou_check::document::read(text.as_bytes()).expect("readable");
        configurations(&document.value, &mut found);
    }
    assert!(found.len() >= 8, "{} examples", found.len());
    for file in in_envoy() {
        let text = std::fs::read(file).expect("an envoy.yaml");
        let document = loudou_check::document::read(&text).expect("readable");
        let filters = loudou_check::document::envoy::configurations(&document).expect("filters");
        let documents = filters.into_iter().map(|filter| filter.document);
        found.extend(documents.map(|document| document.expect("readable").value));
    }
    for document in &found {
        let errors = validator.iter_errors(document);
        let errors: Vec<String> = errors.map(|error| error.to_string()).collect();
        assert_eq!(errors, [""; 0], "{document:#}");
    }
    // Invalid files do not match the schema either.
    for text in [THREE_YAML, THREE_JSON, include_str!("bad.json")] {
        let document = loudou_check::document::read(text.as_bytes()).expect("readable");
        assert!(!validator.is_valid(&document.value), "{text}");
    }
}

/// A file of a time zone database: this offset in seconds until 2030, and `CET-1` from then on.
fn time_zone(offset: i32) -> Vec<u8> {
    const Y2030: i64 = 1_893_456_000;
    let header = |changes: u32| {
        let counts = [0, 0, 0, changes, 2, 4].map(u32::to_be_bytes).concat();
        [b"TZif2".as_slice(), &[0; 15], &counts].concat()
    };
    let kind = |offset: i32| [offset.to_be_bytes().as_slice(), &[0, 0]].concat();
    let kinds = [kind(offset), kind(3_600), b"CET\0".to_vec()].concat();
    let change = [Y2030.to_be_bytes().as_slice(), &[1]].concat();
    [
        header(0),
        kinds.clone(),
        header(1),
        change,
        kinds,
        b"\nCET-1\n".to_vec(),
    ]
    .concat()
}

fn check_in_zones(text: &str, zones: &[(&str, Vec<u8>)]) -> Ran {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, bytes) in zones {
        let file = folder.path().join(name);
        std::fs::create_dir_all(file.parent().expect("a parent")).expect("a folder");
        std::fs::write(file, bytes).expect("written");
    }
    let env = Env {
        time_zones: Some(folder.path().into()),
        ..Env::default()
    };
    let loudou = Loudou {
        input: text,
        env,
        ..Loudou::default()
    };
    loudou.run("check -")
}

fn in_zone(zone: &str) -> String {
    format!(
        "version: 1\nrules: [{{ name: r, key: [], limits: [{{ algorithm: fixed_window, capacity: 9, window: day, \
         zone: {zone} }}] }}]\n"
    )
}

/// The name of a zone is not in the sandbox, but on this machine.
#[test]
fn the_name_of_a_time_zone_becomes_its_rule() {
    let zones = [
        ("Europe/Berlin", time_zone(3_600)),
        // It does not follow the rule until 2030.
        ("Africa/Casablanca", time_zone(0)),
        ("Broken", b"TZif2".to_vec()),
    ];
    let meant = |zone: &str| {
        let ran = check_in_zones(&in_zone(zone), &zones);
        assert_eq!(ran.code, 1, "{zone}");
        let (_, meant) = ran.out.lines().next()?.split_once("; did you mean ")?;
        Some(meant.to_owned())
    };
    assert_eq!(meant("Europe/Berlin").as_deref(), Some("`CET-1`?"));
    for zone in [
        "Africa/Casablanca",
        "Broken",
        "Europe/Nowhere",
        "../zones",
        "Europe/../Europe/Berlin",
        "/etc/passwd",
    ] {
        assert_eq!(meant(zone), None, "{zone}");
    }
}

#[test]
fn the_next_windows_of_the_calendar() {
    let text = "\
version: 1
rules:
  - name: plan
    key: [ { header: x-tenant } ]
    limits:
      - { name: daily, algorithm: fixed_window, capacity: 9, window: 1d, align: clock }
      - name: billed
        algorithm: fixed_window
        capacity: 1000
        window: month
        zone: CET-1CEST,M3.5.0,M10.5.0/3
        starts: { day: 31 }
      - { name: weekly, algorithm: fixed_window, capacity: 99, window: week, zone: '+13:00' }
      - { name: yearly, algorithm: fixed_window, capacity: 999, window: year, starts: { month: 4, day: 6 } }
";
    let ran = check(text, "");
    let (_, end) = ran.out.rsplit_once("\n\n").expect("the next windows");
    assert_snapshot!(end, @"
      next windows, on the clocks of their zones:
        plan.billed: 2026-11-30 00:00, 2026-12-31 00:00, 2027-01-31 00:00
        plan.weekly: 2026-11-30 00:00, 2026-12-07 00:00, 2026-12-14 00:00
        plan.yearly: 2027-04-06 00:00, 2028-04-06 00:00, 2029-04-06 00:00
    ");
    let (_, meaning) = ran.out.split_once("key: ").unwrap_or(("", &ran.out));
    assert!(
        meaning.contains(
            "may do 1000 in each month, from the 31st, by the clocks of CET-1CEST,M3.5.0,M10.5.0/3"
        ),
        "{meaning}"
    );
    assert!(
        meaning.contains("may do 99 in each week, from Monday, in UTC+13:00"),
        "{meaning}"
    );
    assert!(
        meaning.contains("may do 999 in each year, from April 6, in UTC"),
        "{meaning}"
    );
}
