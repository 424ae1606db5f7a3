//! `loudou explain`, with answers of Envoy and with a rule file.

use loudou_api::{
    ExplainAnswer, ExplainedBan, ExplainedLimit, ExplainedRule, LimitView, Says, UnmetPart,
};
use loudou_limiter::{Clock, Nanos};
use loudou_rules::config;
use loudou_rules::evaluate::evaluate;
use loudou_rules::explain::explain;
use loudou_rules::rule_set::ActiveRule;
use loudou_rules::rule_set::RuleSet;
use loudou_store::memory::MemoryStore;
use loudou_store::{StoreStats, Table};
use serde_json::{Value, json};

use super::canned::{HOSTILE, ok};
use super::*;
use crate::app::fixture::explained as every_outcome;
use loudou_client::fake::Answer;

const RULES: &str = "\
version: 1
rules:
  - name: reply-per-user
    match: { methods: [POST], path: { prefix: /reply } }
    key: [ { header: x-user-id } ]
    limits:
      - { name: burst, algorithm: funnel, capacity: 15, rate: 30/60s }
      - { name: daily, algorithm: token_bucket, capacity: 1000, rate: 1000/d, initial: 600 }
  - name: free-plan
    match:
      headers: [ { name: x-plan, exact: free } ]
      not: { path: { exact: /healthz } }
    key: [ source ]
    cost: { header: x-cost, default: 2, max: 9 }
    limits: [ { algorithm: leaky_queue, capacity: 4, rate: 1/s } ]
  - name: tenants
    match: { metadata: [ { path: [jwt, tenant], present: true } ] }
    key: [ { metadata: [jwt, tenant] }, client_cert ]
    on_missing_key: refuse
    limits: [ { algorithm: funnel, capacity: 3, rate: 1/s } ]
  - name: candidate
    mode: shadow
    key: [ host ]
    limits: [ { algorithm: concurrency, capacity: 3 } ]
";

fn by_file(options: &str) -> Ran {
    let loudou = Loudou {
        input: RULES,
        ..Loudou::default()
    };
    loudou.run(&format!("explain --config - {options}"))
}

#[test]
fn explanations_by_envoy() {
    let answer = || Loudou::answers(vec![ok(&every_outcome())]);
    let line = "explain -X POST --path /reply?x=1";
    assert_snapshot!("explain", answer().run(line).seen());
    let ascii = answer().run(&format!("{line} --ascii")).seen();
    assert!(ascii.is_ascii());
    assert_snapshot!("explain_ascii", ascii);
    assert_snapshot!(answer().run("explain -o csv").seen(), @r#"
    rule,mode,says,overruled,behind,error,place,asked,found,key,cost,unlimited,banned,ban_lasts_ns,limit,algorithm,capacity,rate,used,remaining,limit_says,remaining_after,wait_ns,retry_after_ns,reset_after_ns
    reply-per-user,enforce,admit,true,,,,,,alice,1,false,false,,burst,funnel,15,30/m,2,13,admit,12,0,,4000000000
    free-plan,enforce,no_match,false,,,match.headers[0],"{""exact"":""free"",""name"":""x-plan""}","paid, gold",,,false,false,,,,,,,,,,,,
    per-tenant,enforce,skip,false,,,key[0],"{""header"":""x-tenant""}",,,,false,false,,,,,,,,,,,,
    odd-cost,enforce,admit,true,,,,,,alice,2,false,false,,burst,funnel,50,30/m,4,46,admit,44,0,,8000000000
    old,off,off,false,,,,,,alice,1,false,true,,,,,,,,,,,,
    vip,enforce,admit,true,,,,,,alice,1,true,false,,,,,,,,,,,,
    strict,enforce,refuse,false,,,,,,alice,1,false,false,,burst,funnel,2,30/m,2,0,refuse,0,0,2000000000,4000000000
    candidate,shadow,refuse,false,,,,,,alice,1,false,true,300000000000,burst,funnel,1,30/m,1,0,refuse,0,0,2000000000,2000000000
    behind,enforce,not_asked,false,strict,,,,,alice,1,false,false,,burst,funnel,5,30/m,2,3,admit,2,0,,4000000000
    last,enforce,not_asked,false,strict,,,,,alice,1,false,false,,burst,funnel,5,30/m,2,3,admit,2,0,,4000000000
    never,enforce,stopped,false,last,,,,,alice,1,false,false,,burst,funnel,5,30/m,0,5,admit,4,0,,0
    --- exit code 0
    "#);
    assert_snapshot!(answer().run("explain -o jsonl").seen(), @r#"
    {"rule":"reply-per-user","mode":"enforce","says":"admit","overruled":true,"key":"alice","cost":1,"reported":0,"limits":[{"now":{"name":"burst","algorithm":"funnel","capacity":15,"rate":"30/m","used":2,"remaining":13,"retry_after_ns":null,"reset_after_ns":4000000000,"drain_ns":30000000000,"drains":true},"says":"admit","remaining":12,"wait_ns":0,"reset_after_ns":6000000000}]}
    {"rule":"free-plan","mode":"enforce","says":"no_match","failing":{"place":"match.headers[0]","asked":{"exact":"free","name":"x-plan"},"found":"paid, gold"},"reported":0}
    {"rule":"per-tenant","mode":"enforce","says":"skip","missing":{"place":"key[0]","asked":{"header":"x-tenant"}},"reported":0}
    {"rule":"odd-cost","mode":"enforce","says":"admit","overruled":true,"key":"alice","cost":2,"invalid_cost":true,"reported":0,"limits":[{"now":{"name":"burst","algorithm":"funnel","capacity":50,"rate":"30/m","used":4,"remaining":46,"retry_after_ns":null,"reset_after_ns":8000000000,"drain_ns":100000000000,"drains":true},"says":"admit","remaining":44,"wait_ns":0,"reset_after_ns":12000000000}]}
    {"rule":"old","mode":"off","says":"off","key":"alice","cost":1,"ban":{},"reported":0}
    {"rule":"vip","mode":"enforce","says":"admit","overruled":true,"key":"alice","cost":1,"unlimited":true,"reported":0}
    {"rule":"strict","mode":"enforce","says":"refuse","key":"alice","cost":1,"reported":0,"limits":[{"now":{"name":"burst","algorithm":"funnel","capacity":2,"rate":"30/m","used":2,"remaining":0,"retry_after_ns":2000000000,"reset_after_ns":4000000000,"drain_ns":4000000000,"drains":true},"says":"refuse","remaining":0,"wait_ns":0,"reset_after_ns":4000000000}]}
    {"rule":"candidate","mode":"shadow","says":"refuse","key":"alice","cost":1,"ban":{"lasts_ns":300000000000},"reported":0,"limits":[{"now":{"name":"burst","algorithm":"funnel","capacity":1,"rate":"30/m","used":1,"remaining":0,"retry_after_ns":2000000000,"reset_after_ns":2000000000,"drain_ns":2000000000,"drains":true},"says":"refuse","remaining":0,"wait_ns":0,"reset_after_ns":2000000000}]}
    {"rule":"behind","mode":"enforce","says":"not_asked","behind":"strict","key":"alice","cost":1,"reported":0,"limits":[{"now":{"name":"burst","algorithm":"funnel","capacity":5,"rate":"30/m","used":2,"remaining":3,"retry_after_ns":null,"reset_after_ns":4000000000,"drain_ns":10000000000,"drains":true},"says":"admit","remaining":2,"wait_ns":0,"reset_after_ns":6000000000}]}
    {"rule":"last","mode":"enforce","says":"not_asked","behind":"strict","key":"alice","cost":1,"reported":0,"limits":[{"now":{"name":"burst","algorithm":"funnel","capacity":5,"rate":"30/m","used":2,"remaining":3,"retry_after_ns":null,"reset_after_ns":4000000000,"drain_ns":10000000000,"drains":true},"says":"admit","remaining":2,"wait_ns":0,"reset_after_ns":6000000000}]}
    {"rule":"never","mode":"enforce","says":"stopped","behind":"last","key":"alice","cost":1,"reported":0,"limits":[{"now":{"name":"burst","algorithm":"funnel","capacity":5,"rate":"30/m","used":0,"remaining":5,"retry_after_ns":null,"reset_after_ns":0,"drain_ns":10000000000,"drains":true},"says":"admit","remaining":4,"wait_ns":0,"reset_after_ns":2000000000}]}
    --- exit code 0
    "#);
    let colored = answer().run("explain --color always").out;
    assert_snapshot!("explain_color", colored.replace('\u{1b}', "ESC"));
    let json = answer().run("explain -o json").out;
    let read: ExplainAnswer = serde_json::from_str(&json).expect("the contract");
    assert_eq!(read, every_outcome());
}

/// With a rule file there is no relay. Shared buckets are decided like others, and a note reports
/// it.
#[test]
fn a_rule_of_a_fleet_is_explained_by_a_file() {
    let shared = RULES.replace("version: 1", "version: 1\nfleet: { cluster: relay }");
    let shared = shared.replace(
        "name: free-plan",
        "name: shared\n    scope: fleet\n    key: []\n    \
        limits: [ { algorithm: funnel, capacity: 4, rate: 1/s } ]\n  - name: free-plan",
    );
    let explained = |input: &str| {
        let loudou = Loudou {
            input,
            ..Loudou::default()
        };
        loudou.run("explain --config -")
    };
    let note = "decided as one central bucket";
    let ran = explained(&shared);
    assert!(ran.code == 0 && ran.err.contains(note), "{}", ran.seen());
    assert!(ran.out.contains("shared"), "{}", ran.out);
    assert!(!explained(RULES).err.contains(note));
}

/// The state after alice has sent fifteen replies at once.
#[test]
fn the_documents_show_what_is_printed() {
    let limits = json!([
        { "name": "burst", "algorithm": "funnel", "capacity": 15, "rate": "30/60s" },
        { "name": "daily", "algorithm": "token_bucket", "capacity": 1000, "rate": "1000/d" },
    ]);
    let replies = json!({ "methods": ["POST"], "path": { "prefix": "/reply" } });
    let free = json!({ "headers": [{ "name": "x-plan", "exact": "free" }] });
    let rules = json!([
        { "name": "reply-per-user", "match": replies, "key": [{ "header": "x-user-id" }], "limits": limits },
        { "name": "free-plan", "match": free, "key": ["source"], "limits": limits },
    ]);
    let file = config::parse(&json!({ "version": 1, "rules": rules }))
        .file
        .expect("valid");
    let rules = file
        .rules
        .into_iter()
        .map(|rule| ActiveRule::new(rule, loudou_rules::versions::History::default()));
    let (rules, mut store): (RuleSet, _) = (rules.collect(), MemoryStore::new());
    let alice = json!({ "method": "POST", "path": "/reply", "headers": { "x-user-id": "alice" } });
    let mut sample = config::parse_sample(&alice).expect("a sample");
    let table = Table::open(&mut store, "s", 64, [1; 16], Nanos::ZERO).expect("opens");
    let clock = Clock::at(Nanos::ZERO);
    for _ in 0..15 {
        let stats = &mut StoreStats::default();
        evaluate(&rules, &table, &mut store, &mut sample, clock, stats);
    }
    let explained = explain(&rules, &table, &mut store, &mut sample, clock);
    let answer = ExplainAnswer::new(&explained, &rules, Nanos::ZERO, 1);
    let ran =
        Loudou::answers(vec![ok(&answer)]).run("explain -X POST --path /reply -H x-user-id:alice");
    let page = include_str!("../../../../docs/reference/cli.md");
    assert!(
        page.contains(&format!("```\n{}```", ran.out)),
        "{}",
        ran.out
    );
}

#[test]
fn sent_samples() {
    let sent = |options: &str| -> Value {
        let answer = ok(&ExplainAnswer::default());
        let ran = Loudou::answers(vec![answer]).run(&format!("explain {options}"));
        assert_eq!(ran.code, 0, "{}", ran.seen());
        let request = &ran.requests[0];
        assert!(
            request.starts_with("POST /v1/explain HTTP/1.1\r\n"),
            "{request}"
        );
        let (_, body) = request.split_once("\r\n\r\n").expect("a body");
        serde_json::from_str(body).expect("JSON")
    };
    assert_eq!(sent(""), json!({}));
    let all = "--method PUT --path /a?b --host h:80 --header X-A:1 -H x-a:2 -H b: --source ::1 \
               --route r --cluster c --metadata ns.a=1=2 --metadata ns.b= --client-cert p --cost 7";
    let expected = json!({
        "method": "PUT", "path": "/a?b", "host": "h:80", "source": "::1", "route": "r", "cluster": "c", "client_cert": "p",
        "headers": { "X-A": ["1"], "x-a": ["2"], "b": [""] },
        "metadata": { "ns.a": "1=2", "ns.b": "" }, "cost": 7,
    });
    assert_eq!(sent(all), expected);
    assert_eq!(sent("-H Host:a.test"), json!({ "host": "a.test" }));
}

#[test]
fn explanations_by_a_rule_file() {
    let admitted = "-X POST --path /reply/7?x -H x-user-id:al:ice --host Api.Test:80";
    assert_snapshot!(by_file(admitted).seen(), @r"
    ✓ POST /reply/7?x is admitted

    ✓ reply-per-user admits
        key  al%3Aice
        burst  ··········     15/15 left  then 14
        daily  ████······  600/1000 left  then 599

    - free-plan does not match
        match.headers[0]  requires requests with x-plan: free
        found             nothing

    - tenants does not match
        match.metadata[0]  requires requests with metadata jwt.tenant
        found              nothing

    ✓ candidate admits (shadow: not enforced)
        key  api.test
        concurrency  ··········  3/3 left  then 2
    --- standard error
    evaluated against the rule file only: every bucket is new, whatever Envoy has counted
    --- exit code 0
    ");
    let dear = "-H x-plan:free -H x-cost:many --source 203.0.113.7";
    assert_snapshot!(by_file(dear).seen(), @r"
    ✓ GET / is admitted

    - reply-per-user does not match
        match.methods  requires POST requests
        found          GET

    ✓ free-plan admits
        key   203.0.113.7
        cost  2, the default: the request has no cost that is a whole number from 1
        leaky_queue  ··········  4/4 left  then 3

    - tenants does not match
        match.metadata[0]  requires requests with metadata jwt.tenant
        found              nothing

    - candidate does not apply: the request has no key (shadow: not enforced)
        key[0]  requires host
    --- standard error
    evaluated against the rule file only: every bucket is new, whatever Envoy has counted
    --- exit code 0
    ");
    let refused = "--path /healthz -H x-plan:free --metadata jwt.tenant=t";
    assert_snapshot!(by_file(refused).seen(), @r"
    ✗ GET /healthz is refused by tenants: the request has no key

    - reply-per-user does not match
        match.methods  requires POST requests
        found          GET

    - free-plan does not match
        match.not  requires anything but requests to exactly /healthz
        found      a request that matches

    ✗ tenants refuses
        key[1]  requires client_cert

    - candidate does not apply: the request has no key (shadow: not enforced)
        key[0]  requires host
    --- standard error
    evaluated against the rule file only: every bucket is new, whatever Envoy has counted
    --- exit code 0
    ");
    assert_snapshot!(by_file("").seen(), @r"
    ✓ GET / is admitted: no rule applies

    - reply-per-user does not match
        match.methods  requires POST requests
        found          GET

    - free-plan does not match
        match.headers[0]  requires requests with x-plan: free
        found             nothing

    - tenants does not match
        match.metadata[0]  requires requests with metadata jwt.tenant
        found              nothing

    - candidate does not apply: the request has no key (shadow: not enforced)
        key[0]  requires host
    --- standard error
    evaluated against the rule file only: every bucket is new, whatever Envoy has counted
    --- exit code 0
    ");
    let ran = by_file("-o json");
    let answer: ExplainAnswer = serde_json::from_str(&ran.out).expect("the contract");
    assert_eq!((answer.verdict, answer.rules.len()), (Says::Admit, 4));
    assert!(ran.err.contains("every bucket is new"), "{}", ran.err);
}

#[test]
fn an_invalid_rule_file() {
    let wrong = Loudou {
        input: "version: 1\nrules: [ { name: r, key: [], limit: [] } ]\n",
        ..Loudou::default()
    };
    let ran = wrong.run("explain --config -");
    assert_eq!((ran.code, ran.out.as_str()), (1, ""));
    assert!(ran.err.contains("did you mean `limits`?"), "{}", ran.err);
}

#[test]
fn an_invalid_request() {
    let wrong = "-X post --path reply --host http://a.test -H x(y:1 -H a\u{7}:1 --source 1.2.3.4:80 \
                 --metadata a.b=\u{0} --cost 9999999999 -H :path:/";
    let ran = by_file(wrong);
    assert_eq!(ran.code, 2);
    assert_snapshot!(ran.seen(), @r#"
    --- standard error
    loudou: --method: "post": invalid method; allowed: upper-case names: GET, POST, …; did you mean `POST`?
      --path: "reply": invalid path; allowed: a path that starts with /, with its query: /reply?x=1; did you mean `/reply`?
      --host: "http://a.test": invalid host; allowed: a host without scheme and path: example.com, example.com:8443; did you mean `a.test`?
      --source: "1.2.3.4:80": invalid address; allowed: an address without a port: 203.0.113.7, 2001:db8::1; did you mean `1.2.3.4`?
      --header x(y: "x(y": invalid header name; allowed: letters, digits and !#$%&'*+-.^_`|~
      --header a\u{7}: "a\u0007": invalid header name; allowed: letters, digits and !#$%&'*+-.^_`|~
      --header :path: ["/"]: this header has a separate field; allowed: other headers; did you mean `path`?
      --metadata a.b: "\u0000": invalid value; allowed: a text of at most 8192 bytes on one line
      --cost: 9999999999: out of range; allowed: a whole number from 0 to 1000000000
    --- exit code 2
    "#);
    for line in [
        "-H x",
        "-H :",
        "-H ::x",
        "-H :x",
        "--metadata x",
        "--metadata =x",
        "--cost -1",
        "--cost x",
    ] {
        let ran = Loudou::default().run(&format!("explain {line}"));
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{line}: {}", ran.err);
    }
}

/// Returns outcomes that the examples lack: a failing store, waits, and a newer server.
fn rare() -> ExplainAnswer {
    let rule = |name: &str, says: Says| ExplainedRule {
        rule: name.to_owned(),
        mode: "enforce".to_owned(),
        says,
        ..ExplainedRule::default()
    };
    let limit = LimitView {
        name: "queue".to_owned(),
        algorithm: "leaky_queue".to_owned(),
        capacity: 4,
        used: 3,
        remaining: 1,
        ..LimitView::default()
    };
    let waits = ExplainedLimit {
        now: limit,
        says: Says::Hold,
        wait_ns: 2_500_000_000,
        ..ExplainedLimit::default()
    };
    let part = |place: &str, asked: Value, found: Option<&str>| UnmetPart {
        place: place.to_owned(),
        asked,
        found: found.map(str::to_owned),
        longest: None,
    };
    ExplainAnswer {
        verdict: Says::Hold,
        wait_ns: 2_500_000_000,
        rules: vec![
            ExplainedRule {
                key: Some("alice".to_owned()),
                cost: Some(1),
                limits: vec![waits],
                ..rule("queued", Says::Hold)
            },
            ExplainedRule {
                key: Some("alice".to_owned()),
                cost: Some(1),
                error: Some("the store failed".to_owned()),
                ..rule("broken", Says::Admit)
            },
            ExplainedRule {
                failing: Some(part("match.country", json!({ "any": ["CH"] }), Some(""))),
                ..rule("newer", Says::NoMatch)
            },
            rule("when-it-fails", Says::NotNow),
            rule("banned", Says::Unknown),
        ],
        ..ExplainAnswer::default()
    }
}

#[test]
fn rare_outcomes() {
    let ran = Loudou::answers(vec![ok(&rare())]).run("explain");
    assert_snapshot!(ran.seen(), @r#"
    ~ GET / is held for 2.5s, then admitted

    ~ queued holds for 2.5s
        key  alice
        queue  ··········  1/4 left  holds for 2.5s, then 0 left

    ✓ broken admits: the store failed
        key  alice

    - newer does not match
        match.country  requires {"any":["CH"]}
        found          an empty string

    - when-it-fails does not apply now: `when` requires a failing upstream (see --cluster)

    ? banned has an outcome that this loudou does not know; see --output json
    --- exit code 0
    "#);
    let banned = ExplainedRule {
        rule: "per-user".to_owned(),
        says: Says::Refuse,
        ban: Some(ExplainedBan {
            lasts_ns: Some(300_000_000_000),
        }),
        key: Some("mallory".to_owned()),
        ..ExplainedRule::default()
    };
    let banned = ExplainAnswer {
        verdict: Says::Refuse,
        refused_by: Some("per-user".to_owned()),
        rules: vec![banned],
        ..ExplainAnswer::default()
    };
    let ran = Loudou::answers(vec![ok(&banned)]).run("explain");
    assert_snapshot!(ran.seen(), @r"
    ✗ GET / is refused by per-user: its key is banned for 5m

    ✗ per-user refuses
        key     mallory
        banned  for 5m
    --- exit code 0
    ");
    let unknown = ExplainAnswer::default();
    let ran = Loudou::answers(vec![ok(&unknown)]).run("explain");
    assert_snapshot!(ran.seen(), @r"
    ? GET / has a verdict that this loudou does not know; see --output json
    --- exit code 0
    ");
    let refused = Answer::json(
        "404 Not Found",
        &json!({ "type": "about:blank", "title": "Not found", "status": 404 }),
    );
    let ran = Loudou::answers(vec![refused]).run("explain");
    assert_eq!(ran.code, 5, "{}", ran.seen());
}

#[test]
fn requests_are_escaped_before_the_terminal() {
    let hostile = || HOSTILE.to_owned();
    let mut answer = every_outcome();
    answer.refused_by = Some(hostile());
    for rule in &mut answer.rules {
        rule.rule = hostile();
        rule.mode = hostile();
        rule.behind = rule.behind.as_ref().map(|_| hostile());
        rule.error = Some(hostile());
        rule.key = rule.key.as_ref().map(|_| hostile());
        for part in rule.failing.iter_mut().chain(&mut rule.missing) {
            part.place.push_str(HOSTILE);
            part.asked = json!({ HOSTILE: HOSTILE });
            part.found = Some(hostile());
        }
        for limit in &mut rule.limits {
            limit.now.name = hostile();
        }
    }
    for form in ["table", "json", "jsonl", "csv"] {
        let answers = vec![ok(&answer)];
        let ran = Loudou::answers(answers).run(&format!("explain --path /\u{202e}x -o {form}"));
        assert_eq!(ran.code, 0, "{}", ran.seen());
        let out = ran.out.replace("\r\n", "\n");
        let bad = out.chars().find(|c| *c != '\n' && is_unsafe(*c));
        assert_eq!(bad, None, "{form}: {:?}", ran.out);
    }
}

/// A value is too long for a regular expression. The deciding rule is shown, by `check` as well.
#[test]
fn values_that_are_too_long() {
    let run = |policy: &str, command: &str| {
        let rule = format!(
            "name: r\n    match: {{ not: {{ headers: [ {{ name: x, regex: 'a*' }} ] }} }}\n    \
             on_long_value: {policy}\n    key: []\n    limits: [ {{ algorithm: funnel, capacity: 3, rate: 1/s }} ]"
        );
        let input = format!("version: 1\nrules:\n  - {rule}\n");
        let loudou = Loudou {
            input: &input,
            ..Loudou::default()
        };
        loudou.run(command).out
    };
    let long = format!("explain --config - -H x:{}", "a".repeat(4_000));
    for (policy, verdict, checked) in [
        ("apply", "is admitted\n", "the rule applies, unless"),
        ("skip", "no rule applies\n", "the rule does not apply"),
        (
            "refuse",
            "is refused by r: a value is too long\n",
            "requests are refused",
        ),
    ] {
        let out = run(policy, &long);
        for words in [
            verdict,
            "match.not.headers[0]  requires requests with",
            "longer than the 2941 bytes that it tests, so on_long_value applies",
        ] {
            assert!(out.contains(words), "{policy}: {words}: {out}");
        }
        let out = run(policy, "check -");
        for words in [
            checked,
            "values of more than 2941 bytes are too long for its regular expressions",
            "regular expressions: at most 100 µs of a worker for one request",
        ] {
            assert!(out.contains(words), "{policy}: {words}: {out}");
        }
    }
}
