//! Read-only commands, in every output format.

use loudou_api::{BucketState, BucketView, BucketsPage, Events, Top, TopBy};
use serde_json::Value;

use super::canned::{self, HOSTILE, ok};
use super::*;

#[test]
fn status() {
    let answer = || Loudou::answers(vec![ok(&canned::status())]);
    assert_snapshot!("status", answer().run("status").seen());
    assert_snapshot!("status_csv", answer().run("status -o csv").seen());
    let json = answer().run("status --output json").out;
    assert_eq!(
        serde_json::from_str::<loudou_api::Status>(&json).expect("the contract"),
        canned::status()
    );
}

#[test]
fn rules() {
    let answer = || Loudou::answers(vec![ok(&canned::rules())]);
    assert_snapshot!("rules", answer().run("rules").seen());
    assert_snapshot!(answer().run("rules -o csv").seen(), @r#"
    name,mode,generation,key,limits,admitted,refused,shadow_refused,skipped,errors,held,edited,edited_by,edit_expires_at_ns
    per-user,enforce,7,header x-user-id : path,"burst 30 at 30/m, steady: token_bucket 1000 at 1000/d, refill interval",10234,811,0,12,0,0,true,ops,8580000000000
    per-path,shadow,7,,all 5 at 10/s,10234,811,0,12,0,0,false,,
    --- exit code 0
    "#);
    assert_snapshot!(answer().run("rules -o jsonl").seen(), @r#"
    {"name":"per-user","instance":"0f1e2d3c4b5a6978","generation":7,"rule":{"name":"per-user","match":{"path":{"prefix":"/reply"}},"key":[{"header":"x-user-id"},"path"],"limits":[{"name":"burst","algorithm":"funnel","capacity":30,"rate":"30/m"},{"name":"steady","algorithm":"token_bucket","capacity":1000,"rate":"1000/d","refill":"interval"}],"mode":"enforce"},"base":{"name":"per-user","match":{"path":{"prefix":"/reply"}},"key":[{"header":"x-user-id"},"path"],"limits":[{"name":"burst","algorithm":"funnel","capacity":15,"rate":"30/m"},{"name":"steady","algorithm":"token_bucket","capacity":1000,"rate":"1000/d","refill":"interval"}],"mode":"enforce"},"edit":{"by":"ops","reason":"launch day","at_ns":6780000000000,"at_unix_ms":1795269787000,"expires_at_ns":8580000000000},"edit_body":{"limits":[{"name":"burst","algorithm":"funnel","capacity":30,"rate":"30/m"},{"name":"steady","algorithm":"token_bucket","capacity":1000,"rate":"1000/d","refill":"interval"}]},"totals":{"name":"per-user","mode":"enforce","admitted":10234,"refused":811,"shadow_refused":0,"skipped":12,"errors":0,"held":0,"edited":true}}
    {"name":"per-path","instance":"0f1e2d3c4b5a6978","generation":7,"rule":{"name":"per-path","key":[],"limits":[{"name":"all","algorithm":"funnel","capacity":5,"rate":"10/s"}],"mode":"shadow"},"base":{"name":"per-path","key":[],"limits":[{"name":"all","algorithm":"funnel","capacity":5,"rate":"10/s"}],"mode":"shadow"},"totals":{"name":"per-path","mode":"shadow","admitted":10234,"refused":811,"shadow_refused":0,"skipped":12,"errors":0,"held":0,"edited":false}}
    --- exit code 0
    "#);
}

/// The state of the upstreams of rules with `when`.
#[test]
fn upstreams() {
    let view = |cluster: &str, errors, applies| loudou_api::UpstreamView {
        cluster: cluster.to_owned(),
        responses: 40,
        errors,
        applies,
        since_ns: canned::NOW - 12_000_000_000,
    };
    let seen = vec![view("quiet", 1, false), view(HOSTILE, 12, true)];
    let mut status = canned::status();
    status.rules[0].upstreams = Some(seen.clone());
    status.rules[1].upstreams = Some(Vec::new());
    let state_lines = |text: &str| {
        let lines = text.lines().filter(|line| line.contains("appl"));
        lines.map(str::to_owned).collect::<Vec<_>>().join("\n")
    };
    let out = Loudou::answers(vec![ok(&status)]).run("status").out;
    assert_snapshot!(state_lines(&out), @r#"
    per-user does not apply to upstream quiet for 12s now; errors: 1 of 40 responses (2 %)
    per-user applies to upstream \u{1b}]0;x\u{7}\u{1b}[2J\r\n\u{9b}31m\u{202e}\u{200b},"=1 for 12s now; errors: 12 of 40 responses (30 %)
    per-path does not apply: no upstream has answered yet
    "#);
    let mut rules = canned::rules();
    rules.rules[0].totals.upstreams = Some(seen);
    let out = Loudou::answers(vec![ok(&rules)]).run("rules").out;
    assert_snapshot!(state_lines(&out), @r#"
    per-user does not apply to upstream quiet for 12s now; errors: 1 of 40 responses (2 %)
    per-user applies to upstream \u{1b}]0;x\u{7}\u{1b}[2J\r\n\u{9b}31m\u{202e}\u{200b},"=1 for 12s now; errors: 12 of 40 responses (30 %)
    "#);
    let answers = vec![ok(&rules.rules[0]), ok(&status)];
    let out = Loudou::answers(answers).run("rules per-user").out;
    assert_snapshot!(state_lines(&out), @r#"
    now         does not apply to upstream quiet for 12s now; errors: 1 of 40 responses (2 %)
    now         applies to upstream \u{1b}]0;x\u{7}\u{1b}[2J\r\n\u{9b}31m\u{202e}\u{200b},"=1 for 12s now; errors: 12 of 40 responses (30 %)
    "#);
}

#[test]
fn one_rule() {
    let answers = vec![ok(&canned::rule()), ok(&canned::status())];
    assert_snapshot!(Loudou::answers(answers).run("rules per-user").seen(), @r"
    rule        per-user
    generation  7
    mode        enforce
    match       requests to /reply and below
    key         header x-user-id : path
    so far      10234 admitted, 0 held, 811 refused, 0 refused in shadow, 12 skipped, 0 errors
    edit        by ops, 18m left, made 2026-11-21 14:03:07Z: launch day

    LIMIT   BASE                                          IN FORCE
    burst   15 at 30/m                                    30 at 30/m
    steady  token_bucket 1000 at 1000/d, refill interval  token_bucket 1000 at 1000/d, refill interval
    --- exit code 0
    ");
}

#[test]
fn buckets() {
    let answer = || Loudou::answers(vec![ok(&canned::buckets())]);
    assert_snapshot!("buckets", answer().run("buckets").seen());
    assert_snapshot!(answer().run("buckets --ascii --sort key").seen(), @r"
    RULE      KEY         LIMIT  LEVEL        LEFT  ADMITTED  REFUSED  RETRY  SEEN  STATE
    per-user  alice       burst  ..........  15/15       420        0      -    3s  idle
    per-user  bob:/reply  burst  ##########   0/15       420       17   1.2s    3s  refusing
    per-user  carol       burst  ####......   9/15       420        3      -    3s  busy
    --- exit code 0
    ");
    assert_snapshot!("buckets_json", answer().run("buckets -o json").seen());
    assert_snapshot!(answer().run("buckets -o csv").seen(), @r"
    rule,key,state,admitted,refused,last_seen_ns,limit,algorithm,capacity,rate,remaining,retry_after_ns,reset_after_ns,drain_ns,used,drains,ban_until_ns,ban_by,strikes,penalties,override,override_gives,lease_tokens,lease_left,lease_heard_ns,lease_debt,lease_denied_until_ns,outage,refused_at_ns,refused_since_ns,shadow
    per-user,bob:/reply,refusing,420,17,7497000000000,burst,funnel,15,30/m,0,1200000000,30000000000,30000000000,15,true,,,0,0,,,,,,,,,7497000000000,6746000000000,false
    per-user,bob:/reply,refusing,420,17,7497000000000,steady,funnel,15,30/m,3,,24000000000,30000000000,12,true,,,0,0,,,,,,,,,7497000000000,6746000000000,false
    per-user,carol,busy,420,3,7497000000000,burst,funnel,15,30/m,9,,11000000000,30000000000,6,true,,,0,0,,,,,,,,,,,false
    per-user,alice,idle,420,0,7497000000000,burst,funnel,15,30/m,15,,0,30000000000,0,true,,,0,0,,,,,,,,,,,false
    --- exit code 0
    ");
    assert_snapshot!(answer().run("buckets --limit 1").seen(), @r"
    RULE      KEY         LIMIT  LEVEL       LEFT  ADMITTED  REFUSED  RETRY  SEEN  STATE
    per-user  bob:/reply  burst  ██████████  0/15       420       17   1.2s    3s  refusing
    --- standard error
    1 of 3 buckets; raise --limit to see more
    --- exit code 0
    ");
    let colored = answer().run("buckets --color always").out;
    assert_snapshot!(colored.replace('\u{1b}', "ESC"), @r"
    ESC[1mRULEESC[0m      ESC[1mKEYESC[0m         ESC[1mLIMITESC[0m  ESC[1mLEVELESC[0m        ESC[1mLEFTESC[0m  ESC[1mADMITTEDESC[0m  ESC[1mREFUSEDESC[0m  ESC[1mRETRYESC[0m  ESC[1mSEENESC[0m  ESC[1mSTATEESC[0m
    per-user  bob:/reply  burst  ██████████   0/15       420       ESC[31m17ESC[0m   1.2s    3s  ESC[31mrefusingESC[0m
    per-user  carol       burst  ███▊······   9/15       420        ESC[31m3ESC[0m      -    3s  busy
    per-user  alice       burst  ··········  15/15       420        0      -    3s  ESC[2midleESC[0m
    ");
}

/// The start of a run of refusals is printed as an age if the server's clock is known.
#[test]
fn a_bucket_shows_since_when_it_refuses() {
    let bucket = canned::buckets().buckets.remove(1);
    let answers = vec![ok(&bucket), ok(&canned::status())];
    assert_snapshot!(Loudou::answers(answers).run("get per-user bob:/reply --ascii").seen(), @r"
    RULE      KEY         STATE     ADMITTED  REFUSED    SEEN
    per-user  bob:/reply  refusing       420       17  3s ago
    refused since 13m ago, last 3s ago

    LIMIT   ALGORITHM  RATE  LEVEL       LEFT  RETRY  RESET
    burst   funnel     30/m  ##########  0/15   1.2s    30s
    steady  funnel     30/m  ########..  3/15      -    24s
    --- exit code 0
    ");
    let answers = || vec![ok(&bucket)];
    let json = Loudou::answers(answers())
        .run("get per-user bob:/reply -o json")
        .out;
    assert!(
        json.contains(r#""refused_since_ns": 6746000000000,"#),
        "{json}"
    );
    let without_clock = vec![ok(&bucket), canned::not_found()];
    let ran = Loudou::answers(without_clock).run("get per-user bob:/reply");
    assert!(!ran.out.contains("refused since"), "{}", ran.out);
}

#[test]
fn top_prints_once_where_there_is_no_terminal() {
    for line in ["", "top"] {
        let ran = Loudou::answers(vec![ok(&canned::top(0))]).run(line);
        assert_eq!(ran.code, 0, "{}", ran.seen());
        assert_eq!(ran.lines(), ["GET /v1/top HTTP/1.1"]);
        let row = ran.out.lines().nth(2).expect("a row");
        assert!(row.contains("bob:/reply"), "{}", ran.out);
    }
}

#[test]
fn top_lists_in_every_form() {
    let answer = |missing| Loudou::answers(vec![ok(&canned::top(missing))]);
    assert_snapshot!("top", answer(0).run("top").seen());
    assert_snapshot!(answer(5).run("top").seen(), @r"
    most refused in the last 1m33s, of more than 213 keys
    RULE      KEY         REFUSED    RATE  SHARE  AT LEAST  REFUSED SINCE
    per-user  bob:/reply     1811    19/s    91%      1811        13m ago
    per-user  carol            64   0.7/s     3%        61              -
    per-user  alice             7  0.08/s    <1%         2              -
    --- standard error
    more keys than counters: a key without one was refused at most 5 times
    --- exit code 0
    ");
    assert_snapshot!("top_json", answer(5).run("top -o json").seen());
    assert_snapshot!(answer(5).run("top -o jsonl").seen(), @r#"
    {"rule":"per-user","key":"bob:/reply","count":1811,"error":0,"refused_since_ns":6746000000000,"per_second":19.4731,"share":0.9101}
    {"rule":"per-user","key":"carol","count":64,"error":3,"per_second":0.6882,"share":0.0322}
    {"rule":"per-user","key":"alice","count":7,"error":5,"per_second":0.0753,"share":0.0035}
    --- standard error
    more keys than counters: a key without one was refused at most 5 times
    --- exit code 0
    "#);
    assert_snapshot!(answer(5).run("top -o csv").seen(), @r"
    rule,key,count,error,shadow,per_second,share,state,refused_since_ns
    per-user,bob:/reply,1811,0,false,19.4731,0.9101,,6746000000000
    per-user,carol,64,3,false,0.6882,0.0322,,
    per-user,alice,7,5,false,0.0753,0.0035,,
    --- standard error
    more keys than counters: a key without one was refused at most 5 times
    --- exit code 0
    ");
    let none = Top {
        by: TopBy::Admitted,
        window_ns: 7_200_000_000,
        ..Top::default()
    };
    assert_snapshot!(Loudou::answers(vec![ok(&none)]).run("top").seen(), @r"
    most admitted in the last 7.2s, of 0 keys
    RULE  KEY  ADMITTED  RATE  SHARE
    --- exit code 0
    ");
}

/// The rows show the rate, the share, and the current state of the key.
#[test]
fn top_shows_rates_and_states() {
    let page = BucketsPage {
        // A key without a bucket has no state.
        buckets: canned::buckets().buckets.into_iter().skip(1).collect(),
        ..canned::buckets()
    };
    let run = |line: &str| Loudou::answers(vec![ok(&canned::top(0)), ok(&page)]).run(line);
    let table = run("top");
    assert_eq!(
        table.lines(),
        ["GET /v1/top HTTP/1.1", "POST /v1/buckets HTTP/1.1"]
    );
    assert!(table.requests[1].contains(r#"[["per-user","bob:/reply"],["per-user","carol"],"#));
    assert_snapshot!(table.seen(), @r"
    most refused in the last 1m33s, of 213 keys
    RULE      KEY         REFUSED    RATE  SHARE  STATE     REFUSED SINCE
    per-user  bob:/reply     1811    19/s    91%  refusing        13m ago
    per-user  carol            64   0.7/s     3%  busy                  -
    per-user  alice             7  0.08/s    <1%  -                     -
    --- exit code 0
    ");
    assert_snapshot!(run("top -o jsonl").seen(), @r#"
    {"rule":"per-user","key":"bob:/reply","count":1811,"error":0,"refused_since_ns":6746000000000,"per_second":19.4731,"share":0.9101,"state":"refusing"}
    {"rule":"per-user","key":"carol","count":64,"error":0,"per_second":0.6882,"share":0.0322,"state":"busy"}
    {"rule":"per-user","key":"alice","count":7,"error":0,"per_second":0.0753,"share":0.0035}
    --- exit code 0
    "#);
    assert_snapshot!(run("top -o csv").seen(), @r"
    rule,key,count,error,shadow,per_second,share,state,refused_since_ns
    per-user,bob:/reply,1811,0,false,19.4731,0.9101,refusing,6746000000000
    per-user,carol,64,0,false,0.6882,0.0322,busy,
    per-user,alice,7,0,false,0.0753,0.0035,,
    --- exit code 0
    ");
}

/// Options for a list print the list, even on a terminal.
#[test]
fn top_sends_its_options() {
    for (line, request) in [
        ("top --by refused", "/v1/top?by=refused"),
        (
            "top --by admitted --rule per-user",
            "/v1/top?rule=per-user&by=admitted",
        ),
        ("top --limit 10", "/v1/top?limit=10"),
        ("top --output table", "/v1/top"),
        ("--output csv", "/v1/top"),
    ] {
        let loudou = Loudou {
            terminal: Some(80),
            ..Loudou::answers(vec![ok(&canned::top(0))])
        };
        let ran = loudou.run(line);
        assert_eq!(ran.code, 0, "{line}: {}", ran.seen());
        assert_eq!(ran.lines(), [format!("GET {request} HTTP/1.1")]);
    }
}

#[test]
fn a_terminal_has_colours_unless_the_environment_forbids_them() {
    let run = |env: Env, line: &str| {
        let loudou = Loudou {
            answers: vec![ok(&canned::buckets())],
            terminal: Some(70),
            env,
            ..Loudou::default()
        };
        loudou.run(line).out
    };
    let color = run(Env::default(), "buckets");
    assert!(color.contains('\u{1b}'), "{color}");
    let no_color = Env {
        no_color: Some("1".into()),
        ..Env::default()
    };
    assert_snapshot!(run(no_color, "buckets"), @r"
    RULE      KEY       LIMIT  LEVEL        LEFT  ADMITTED  REFUSED  RETRY  SEEN  STATE
    per-user  bob:/re…  burst  ██████████   0/15       420       17   1.2s    3s  refusing
    per-user  carol     burst  ███▊······   9/15       420        3      -    3s  busy
    per-user  alice     burst  ··········  15/15       420        0      -    3s  idle
    ");
    let dumb = Env {
        term: Some("dumb".into()),
        ..Env::default()
    };
    assert!(!run(dumb, "buckets -o table").contains('\u{1b}'));
    assert!(!run(Env::default(), "buckets --color never").contains('\u{1b}'));
}

/// Refusals in shadow mode, whose requests passed, never look like real refusals.
#[test]
fn refusals_of_a_shadow_rule_are_in_parentheses() {
    let mut page = canned::buckets();
    let mut top = canned::top(0);
    for bucket in &mut page.buckets {
        bucket.shadow = bucket.key == "bob:/reply";
    }
    for entry in &mut top.top {
        entry.shadow = entry.key == "bob:/reply";
    }
    let ran = Loudou::answers(vec![ok(&page)]).run("buckets");
    assert_snapshot!(ran.seen(), @r"
    RULE      KEY         LIMIT  LEVEL        LEFT  ADMITTED  REFUSED  RETRY  SEEN  STATE
    per-user  bob:/reply  burst  ██████████   0/15       420     (17)   1.2s    3s  would refuse
    per-user  carol       burst  ███▊······   9/15       420        3      -    3s  busy
    per-user  alice       burst  ··········  15/15       420        0      -    3s  idle
    --- exit code 0
    ");
    let ran = Loudou::answers(vec![ok(&top)]).run("top");
    assert_snapshot!(ran.seen(), @r"
    most refused in the last 1m33s, of 213 keys
    RULE      KEY         REFUSED    RATE  SHARE  MODE    REFUSED SINCE
    per-user  bob:/reply   (1811)  (19/s)    91%  shadow        13m ago
    per-user  carol            64   0.7/s     3%  -                   -
    per-user  alice             7  0.08/s    <1%  -                   -
    --- exit code 0
    ");
    let bucket = page.buckets.remove(1);
    let ran = Loudou::answers(vec![ok(&bucket), ok(&canned::status())]).run("get r k");
    assert!(ran.out.contains("would refuse"), "{}", ran.out);
}

#[test]
fn cursors_are_followed_to_the_end() {
    let page = |key: &str, next: Option<&str>| {
        ok(&BucketsPage {
            buckets: vec![canned::bucket(key, 1, BucketState::Busy)],
            next_cursor: next.map(str::to_owned),
            ..canned::buckets()
        })
    };
    let ran = Loudou::answers(vec![
        page("a", Some("5")),
        page("b", Some("9")),
        page("c", None),
    ])
    .run("buckets --rule per-user --key a --state busy --sort key");
    let keys: Vec<&str> = ran
        .out
        .lines()
        .filter_map(|line| line.split_whitespace().nth(1))
        .collect();
    assert_eq!(keys, ["KEY", "a", "b", "c"]);
    assert_eq!(
        ran.lines(),
        [
            "GET /v1/buckets?rule=per-user&key=a&state=busy&limit=500 HTTP/1.1",
            "GET /v1/buckets?rule=per-user&key=a&state=busy&cursor=5&limit=500 HTTP/1.1",
            "GET /v1/buckets?rule=per-user&key=a&state=busy&cursor=9&limit=500 HTTP/1.1",
        ]
    );
    let ran = Loudou::answers(vec![page("a", Some("5")), page("b", Some("5"))]).run("buckets");
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("the same cursor twice"), "{}", ran.err);
}

/// `refusing` includes banned keys, and excludes rules in shadow mode, which refuse no requests.
#[test]
fn refusing_lists_keys_that_are_refused() {
    let page = |buckets: Vec<BucketView>| {
        ok(&BucketsPage {
            buckets,
            ..canned::buckets()
        })
    };
    let bucket = |key: &str, state, shadow| BucketView {
        shadow,
        ..canned::bucket(key, 1, state)
    };
    let (refusing, banned) = (BucketState::Refusing, BucketState::Banned);
    let ran = Loudou::answers(vec![
        page(vec![
            bucket("a", refusing, false),
            bucket("b", refusing, true),
            bucket("moved", refusing, false),
        ]),
        page(vec![
            bucket("c", banned, false),
            bucket("d", banned, true),
            bucket("moved", banned, false),
        ]),
    ])
    .run("buckets --rule per-user --state refusing --sort key");
    let keys: Vec<&str> = ran
        .out
        .lines()
        .filter_map(|line| line.split_whitespace().nth(1))
        .collect();
    assert_eq!(keys, ["KEY", "a", "c", "moved"], "{}", ran.seen());
    assert_eq!(
        ran.lines(),
        [
            "GET /v1/buckets?rule=per-user&state=refusing&limit=500 HTTP/1.1",
            "GET /v1/buckets?rule=per-user&state=banned&limit=500 HTTP/1.1",
        ]
    );
}

#[test]
fn one_bucket() {
    let bucket = canned::buckets().buckets.remove(1);
    let answers = vec![ok(&bucket), ok(&canned::status())];
    let ran = Loudou::answers(answers).run("get per-user bob:/reply");
    assert_snapshot!(ran.seen(), @r"
    RULE      KEY         STATE     ADMITTED  REFUSED    SEEN
    per-user  bob:/reply  refusing       420       17  3s ago
    refused since 13m ago, last 3s ago

    LIMIT   ALGORITHM  RATE  LEVEL       LEFT  RETRY  RESET
    burst   funnel     30/m  ██████████  0/15   1.2s    30s
    steady  funnel     30/m  ████████··  3/15      -    24s
    --- exit code 0
    ");
    assert_eq!(
        ran.lines()[0],
        "GET /v1/buckets/per-user/bob%3A%2Freply HTTP/1.1"
    );
    let ran = Loudou::answers(vec![canned::not_found()]).run("get per-user nobody");
    assert_snapshot!(ran.seen(), @r"
    --- standard error
    loudou: 404 Not Found: no bucket for this key
    --- exit code 5
    ");
}

#[test]
fn events() {
    let answer = || Loudou::answers(vec![ok(&canned::events())]);
    assert_snapshot!("events", answer().run("events").seen());
    assert!(answer().run("events --ascii").out.is_ascii());
    assert_snapshot!(answer().run("events -o csv").seen(), @r#"
    seq,at_ns,at_unix_ms,kind,rule,key,by,detail,reason,generation
    1,7500000000000,1795269788000,edit,per-user,,ops,burst: capacity 15 → 30,"launch day, ""big""",7
    2,7500000000000,1795269789000,reset,per-user,alice,ops,0 of 15 left,,8
    3,7500000000000,1795269790000,warning,,,loudou,12 buckets with something taken were evicted,,9
    --- exit code 0
    "#);
    assert_snapshot!(answer().run("events -o jsonl --after 0").seen(), @r#"
    {"seq":1,"at_ns":7500000000000,"at_unix_ms":1795269788000,"kind":"edit","rule":"per-user","by":"ops","reason":"launch day, \"big\"","detail":"burst: capacity 15 → 30","generation":7}
    {"seq":2,"at_ns":7500000000000,"at_unix_ms":1795269789000,"kind":"reset","rule":"per-user","key":"alice","by":"ops","detail":"0 of 15 left","generation":8}
    {"seq":3,"at_ns":7500000000000,"at_unix_ms":1795269790000,"kind":"warning","by":"loudou","detail":"12 buckets with something taken were evicted","generation":9}
    --- exit code 0
    "#);
    let mut aged = canned::events();
    for (event, age_s) in aged.events.iter_mut().zip([7200, 3600, 10]) {
        event.at_ns -= age_s * canned::S;
    }
    let kinds = |options: &str| {
        let ran = Loudou::answers(vec![ok(&aged)]).run(&format!("events -o csv {options}"));
        let lines = ran.out.lines().skip(1).map(|line| line.chars().take(1));
        lines.flatten().collect::<String>()
    };
    assert_eq!(kinds(""), "123");
    assert_eq!(kinds("--since 1h"), "23");
    assert_eq!(kinds("--since 3599s"), "3");
    assert_eq!(kinds("--limit 2"), "23");
    assert_eq!(kinds("--since 3h --limit 1"), "3");
    assert_eq!(kinds("--limit 0"), "");
    let lost = Events {
        lost: 9,
        ..Events::default()
    };
    assert_snapshot!(Loudou::answers(vec![ok(&lost)]).run("events").seen(), @r"
    SEQ  TIME  KIND  RULE  KEY  BY  DETAIL  REASON
    --- standard error
    9 older events are no longer kept
    --- exit code 0
    ");
}

#[test]
fn following_continues_until_the_server_stops() {
    let more = Events {
        events: canned::events().events.split_off(2),
        ..canned::events()
    };
    let ran = Loudou::answers(vec![ok(&canned::events()), ok(&more)]).run("events --follow");
    assert_eq!(ran.lines().len(), 2);
    assert!(ran.lines()[1].contains("after=3"), "{:?}", ran.lines());
    assert_eq!(ran.out.matches("SEQ").count(), 1, "{}", ran.out);
    assert_eq!(ran.out.lines().count(), 5, "{}", ran.out);
    assert_eq!(ran.code, 3);
}

#[test]
fn export_is_what_check_reads() {
    let file = serde_json::json!({"version": 1, "rules": []});
    let ran = Loudou::answers(vec![ok(&file)]).run("export");
    assert_eq!(serde_json::from_str::<Value>(&ran.out).expect("JSON"), file);
}

#[test]
fn answers_are_escaped_before_the_terminal() {
    let mut page = canned::buckets();
    let mut events = canned::events();
    let mut status = canned::status();
    let mut rules = canned::rules();
    let mut top = canned::top(5);
    page.buckets[1].key = HOSTILE.to_owned();
    page.buckets[1].limits[0].rate = HOSTILE.to_owned();
    events.events[0].reason = HOSTILE.to_owned();
    events.events[0].detail = HOSTILE.to_owned();
    status.warnings = vec![HOSTILE.to_owned()];
    status.git = HOSTILE.to_owned();
    rules.rules[0].rule["limits"][0]["name"] = HOSTILE.into();
    top.top[0].key = HOSTILE.to_owned();
    top.top[1].rule = HOSTILE.to_owned();
    for form in ["table", "json", "jsonl", "csv"] {
        for (line, answer) in [
            ("buckets", ok(&page)),
            ("events", ok(&events)),
            ("status", ok(&status)),
            ("rules", ok(&rules)),
            ("top", ok(&top)),
        ] {
            let ran = Loudou::answers(vec![answer]).run(&format!("{line} -o {form}"));
            assert_eq!(ran.code, 0, "{}", ran.seen());
            let bad = ran.out.replace("\r\n", "\n");
            let bad = bad.chars().find(|c| *c != '\n' && is_unsafe(*c));
            assert_eq!(bad, None, "{line} {form}: {:?}", ran.out);
        }
    }
    assert_snapshot!(Loudou::answers(vec![ok(&page)]).run("buckets").out, @r#"
    RULE      KEY                                                        LIMIT  LEVEL        LEFT  ADMITTED  REFUSED  RETRY  SEEN  STATE
    per-user  \u{1b}]0;x\u{7}\u{1b}[2J\r\n\u{9b}31m\u{202e}\u{200b},"=1  burst  ██████████   0/15       420       17   1.2s    3s  refusing
    per-user  carol                                                      burst  ███▊······   9/15       420        3      -    3s  busy
    per-user  alice                                                      burst  ··········  15/15       420        0      -    3s  idle
    "#);
}
