//! Bans and overrides of keys: requests, output and confirmation.

use loudou_api::{BanAnswer, BanBy, BanView, BucketState, BucketsPage, EditAnswer, Rules};
use serde_json::json;

use super::canned::{self, HOSTILE, NOW, S, ok};
use super::edits::{asked, body};
use super::*;

fn answer(before: Option<BanView>, banned: bool) -> BanAnswer {
    let bucket = if banned {
        canned::banned(BanBy::Operator, Some(NOW + 600 * S))
    } else {
        canned::bucket("mallory", 40, BucketState::Busy)
    };
    BanAnswer {
        now_ns: NOW,
        before,
        bucket: Some(bucket),
        changed: true,
        fleet: Some(loudou_api::Spread::Sending),
    }
}

fn changed(dry_run: bool) -> EditAnswer {
    EditAnswer {
        change: "override of alice: scale 10".to_owned(),
        ..canned::edit_answer(dry_run)
    }
}

#[test]
fn a_ban_is_sent_and_printed() {
    let ran = Loudou::answers(vec![ok(&answer(None, true))])
        .run("ban per-user mal/lory --for 10m --reason spam");
    assert_snapshot!("ban", ran.seen());
    let line = "POST /v1/buckets/per-user/mal%2Flory/ban?for=10m&reason=spam HTTP/1.1";
    assert_eq!(ran.lines(), [line]);
    let ran = asked(vec![ok(&answer(None, true))], "y\n", "ban per-user mallory");
    assert_snapshot!(ran.seen(), @r"
    mallory of per-user is banned until unbanned

    RULE      KEY      STATE   ADMITTED  REFUSED    SEEN
    per-user  mallory  banned       420       40  3s ago
    banned by an operator for 10m more
    3 penalties still count: the next ban may be longer
    2 refusals count towards a ban
    override of mal*: limits

    LIMIT  ALGORITHM  RATE  LEVEL       LEFT  RETRY  RESET
    burst  funnel     30/m  ███▊······  9/15      -    11s
    on its way to the other Envoys of the fleet
    --- standard error
    Ban mallory of per-user until unbanned? [y/N] --- exit code 0
    ");
    assert_eq!(
        ran.lines(),
        ["POST /v1/buckets/per-user/mallory/ban HTTP/1.1"]
    );
    let ran = Loudou::answers(vec![ok(&answer(None, true))])
        .run("ban per-user mallory --for 10m --replace");
    assert_eq!(
        ran.lines(),
        ["POST /v1/buckets/per-user/mallory/ban?for=10m&replace=true HTTP/1.1"]
    );
    // An earlier ban that ends later stays, and the output reports it.
    let kept = BanAnswer {
        changed: false,
        ..answer(Some(BanView::default()), true)
    };
    let ran = Loudou::answers(vec![ok(&kept)]).run("ban per-user mallory --for 1m");
    assert_snapshot!(ran.seen(), @r"
    mallory of per-user is already banned by an operator for 10m more; nothing was changed (--replace shortens a ban)

    RULE      KEY      STATE   ADMITTED  REFUSED    SEEN
    per-user  mallory  banned       420       40  3s ago
    banned by an operator for 10m more
    3 penalties still count: the next ban may be longer
    2 refusals count towards a ban
    override of mal*: limits

    LIMIT  ALGORITHM  RATE  LEVEL       LEFT  RETRY  RESET
    burst  funnel     30/m  ███▊······  9/15      -    11s
    --- exit code 0
    ");
    let ran = asked(vec![], "n\n", "ban per-user mallory --for 10m");
    assert_eq!((ran.code, ran.out.as_str()), (1, ""), "{}", ran.seen());
    let ran = Loudou::answers(vec![ok(&answer(None, true))]).run("ban r k -o json");
    let printed: BanAnswer = serde_json::from_str(&ran.out).expect("the contract");
    assert_eq!(printed, answer(None, true));
}

#[test]
fn banned_and_other_keys_are_unbanned() {
    let was = Some(BanView::default());
    let ran =
        Loudou::answers(vec![ok(&answer(was, false))]).run("unban per-user mallory --reason x");
    assert_snapshot!(ran.seen(), @r"
    mallory of per-user is no longer banned

    RULE      KEY      STATE  ADMITTED  REFUSED    SEEN
    per-user  mallory  busy        420       40  3s ago

    LIMIT  ALGORITHM  RATE  LEVEL       LEFT  RETRY  RESET
    burst  funnel     30/m  ███▊······  9/15      -    11s
    on its way to the other Envoys of the fleet
    --- exit code 0
    ");
    assert_eq!(
        ran.lines(),
        ["POST /v1/buckets/per-user/mallory/unban?reason=x HTTP/1.1"]
    );
    let none = BanAnswer::default();
    let ran = Loudou::answers(vec![ok(&none)]).run("unban per-user nobody");
    assert_eq!(ran.out, "nobody of per-user was not banned\n");
    let still = BanAnswer {
        bucket: Some(canned::banned(BanBy::Override, None)),
        ..answer(was, true)
    };
    let ran = Loudou::answers(vec![ok(&still)]).run("unban per-user mallory");
    assert_snapshot!(ran.seen(), @r"
    the ban of mallory of per-user is lifted, but an override still bans it

    RULE      KEY      STATE   ADMITTED  REFUSED    SEEN
    per-user  mallory  banned       420       40  3s ago
    banned by its override
    3 penalties still count: the next ban may be longer
    2 refusals count towards a ban
    override of mal*: limits

    LIMIT  ALGORITHM  RATE  LEVEL       LEFT  RETRY  RESET
    burst  funnel     30/m  ███▊······  9/15      -    11s
    on its way to the other Envoys of the fleet
    --- exit code 0
    ");
    assert_eq!(asked(vec![], "no\n", "unban per-user mallory").code, 1);
}

/// Returns an Envoy with two rules that have the key, and three to which a ban is not sent: one is
/// off, one has keys of another form, and one has a single bucket for all requests.
fn three_rules() -> Rules {
    let of = |name: &str, key: serde_json::Value, mode: &str| {
        let mut rule = canned::rule();
        name.clone_into(&mut rule.name);
        (rule.rule["key"], rule.rule["mode"]) = (key, json!(mode));
        rule
    };
    let user = || json!([{ "header": "x-user-id" }]);
    Rules {
        rules: vec![
            of("per-user", user(), "enforce"),
            of("off", user(), "shadow"),
            of(
                "per-path",
                json!([{ "header": "x-user-id" }, "path"]),
                "enforce",
            ),
            of("by-address", json!(["source"]), "enforce"),
            of("all", json!([]), "enforce"),
            of("logins", user(), "enforce"),
        ],
        ..canned::rules()
    }
}

#[test]
fn a_key_is_banned_in_all_rules() {
    let answers = || {
        let made = || ok(&answer(None, true));
        vec![ok(&three_rules()), made(), made()]
    };
    let line = "ban --all-rules mallory --for 10m --reason spam";
    let ran = Loudou::answers(answers()).run(line);
    assert_snapshot!(ran.seen(), @r"
    mallory of per-user is banned for 10m
    mallory of logins is banned for 10m
    on its way to the other Envoys of the fleet
    --- standard error
    left out, not in mode enforce: off
    --- exit code 0
    ");
    let path =
        |rule: &str| format!("POST /v1/buckets/{rule}/mallory/ban?for=10m&reason=spam HTTP/1.1");
    let rules = "GET /v1/rules HTTP/1.1".to_owned();
    assert_eq!(ran.lines(), [rules, path("per-user"), path("logins")]);
    let ran = asked(answers(), "y\n", "ban --all-rules mallory --replace");
    assert_snapshot!(ran.err, @r"
    left out, not in mode enforce: off
    Ban mallory in all 2 rules (per-user, logins) until unbanned? [y/N]
    ");
    assert!(
        ran.lines()[2].contains("/logins/mallory/ban?replace=true "),
        "{:?}",
        ran.lines()
    );
    let ran = asked(vec![ok(&three_rules())], "n\n", "ban --all-rules mallory");
    assert_eq!((ran.code, ran.out.as_str()), (1, ""), "{}", ran.seen());
    // In a rule that is off, an earlier ban can be lifted.
    let free = || ok(&answer(Some(BanView::default()), false));
    let answers = vec![ok(&three_rules()), free(), free(), free()];
    let ran = Loudou::answers(answers).run("unban --all-rules mallory");
    assert_snapshot!(ran.seen(), @r"
    mallory of per-user is no longer banned
    mallory of off is no longer banned
    mallory of logins is no longer banned
    on its way to the other Envoys of the fleet
    --- exit code 0
    ");
    assert!(
        ran.lines()[2].contains("/off/mallory/unban "),
        "{:?}",
        ran.lines()
    );
}

#[test]
fn a_rule_that_fails_does_not_stop_a_ban_in_the_others() {
    let answers = || {
        vec![
            ok(&three_rules()),
            canned::not_found(),
            ok(&answer(None, true)),
        ]
    };
    let ran = Loudou::answers(answers()).run("ban --all-rules mallory --for 10m");
    assert_snapshot!(ran.seen(), @r"
    mallory of logins is banned for 10m
    on its way to the other Envoys of the fleet
    --- standard error
    left out, not in mode enforce: off
    loudou: per-user: 404 Not Found: no bucket for this key
    done in 1 of 2 rules; failed in per-user
    --- exit code 1
    ");
    let ran = Loudou::answers(answers()).run("ban --all-rules mallory --for 10m -o json");
    assert_eq!(ran.code, 1, "{}", ran.seen());
    let printed: serde_json::Value = serde_json::from_str(&ran.out).expect("a list");
    assert_eq!(
        printed[0],
        json!({
            "rule": "per-user", "key": "mallory",
            "error": "404 Not Found: no bucket for this key",
        })
    );
    assert_eq!(
        (&printed[1]["rule"], &printed[1]["changed"]),
        (&json!("logins"), &json!(true))
    );
    assert!(printed[1].get("error").is_none(), "{printed}");
    let ran = Loudou::answers(answers()).run("ban --all-rules mallory -o jsonl");
    assert_eq!(ran.out.lines().count(), 2, "{}", ran.out);
    // If the ban fails in all rules, the exit code belongs to the first failure.
    let answers = vec![ok(&three_rules()), canned::not_found(), canned::not_found()];
    let ran = Loudou::answers(answers).run("ban --all-rules mallory");
    assert_eq!((ran.code, ran.out.as_str()), (5, ""), "{}", ran.seen());
    // A ban without an answer may be in effect.
    let answers = vec![
        ok(&three_rules()),
        Answer::Hang(Vec::new()),
        ok(&answer(None, true)),
    ];
    let ran = Loudou::answers(answers).run("--timeout 200ms ban --all-rules mallory");
    let told = "loudou: per-user: it is not known whether the change was made: no complete answer";
    assert!(ran.err.contains(told), "{}", ran.err);
    assert!(
        ran.out.contains("mallory of logins is banned"),
        "{}",
        ran.out
    );
}

#[test]
fn a_ban_in_all_rules_needs_a_rule_that_has_the_key() {
    let run = |rules: &Rules, line: &str| Loudou::answers(vec![ok(rules)]).run(line);
    let ran = run(&three_rules(), "ban --all-rules ~x\u{1b}:y");
    assert_snapshot!(ran.seen(), @r"
    --- standard error
    loudou: no request has the key ~x%1B:y in any rule; in per-user: `~` within a part is written %7E; did you mean `%7Ex%1B:y`?
    --- exit code 1
    ");
    let one = |index: usize| Rules {
        rules: three_rules()
            .rules
            .get(index)
            .cloned()
            .into_iter()
            .collect(),
        ..three_rules()
    };
    for index in [1, 4] {
        let ran = run(&one(index), "ban --all-rules mallory");
        assert_eq!(ran.code, 1, "{}", ran.seen());
        let told = ["(off); set the mode", "no rule has keys"];
        assert!(
            told.iter().any(|told| ran.err.contains(told)),
            "{}",
            ran.err
        );
    }
    for line in [
        "ban --all-rules",
        "ban r --all-rules k",
        "ban r k --all-rules k",
        "unban --all-rules k --for 5m",
        "ban --all-rules k -o csv",
        "--read-only ban --all-rules k",
    ] {
        let ran = Loudou::default().run(line);
        assert_eq!(
            (ran.code, ran.requests.len()),
            (2, 0),
            "{line}: {}",
            ran.seen()
        );
    }
}

#[test]
fn an_override_is_sent_and_printed() {
    let line = "override per-user alice scale=10 --for 30m --reason launch";
    let answers = vec![ok(&canned::rule()), ok(&changed(false))];
    let ran = Loudou::answers(answers).run(line);
    assert_snapshot!(ran.seen(), @r"
    per-user: override of alice: scale 10
    in effect with generation 8, for 30m
    on its way to the other Envoys of the fleet
    --- exit code 0
    ");
    assert_eq!(
        ran.lines()[1],
        "PUT /v1/overrides/per-user/alice?for=30m&reason=launch HTTP/1.1"
    );
    assert!(
        ran.requests[1].contains("if-match: \"0f1e2d3c4b5a6978-7\"\r\n"),
        "{}",
        ran.requests[1]
    );
    assert_eq!(body(&ran.requests[1]), r#"{"scale":10}"#);

    let answers = vec![ok(&canned::rule()), ok(&changed(true)), ok(&changed(false))];
    let ran = asked(answers, "y\n", "override per-user alice scale=10");
    assert_snapshot!(ran.seen(), @r"
    per-user: override of alice: scale 10
    in effect with generation 8
    on its way to the other Envoys of the fleet
    --- standard error
    per-user: override of alice: scale 10
    Change the override of alice in per-user? [y/N] --- exit code 0
    ");
    assert!(ran.lines()[1].contains("dry_run=true"), "{:?}", ran.lines());
    let answers = vec![ok(&canned::rule()), ok(&changed(true))];
    let ran = asked(answers, "n\n", "override per-user alice scale=10");
    assert_eq!(ran.code, 1, "{}", ran.seen());
    let answers = vec![ok(&canned::rule()), ok(&changed(true))];
    let ran = Loudou::answers(answers).run("--read-only override per-user alice banned --dry-run");
    assert_eq!(ran.code, 0, "{}", ran.seen());
    let mut seen = canned::rule();
    seen.rule["limits"][0]["capacity"] = json!(1);
    let ran = Loudou::answers(vec![ok(&seen), canned::stale()]).run(line);
    assert_snapshot!(ran.seen(), @r"
    --- standard error
    loudou: another operator changed the rule in the meantime; nothing was changed. The rule is now:

    rule        per-user
    generation  9
    mode        enforce
    match       requests to /reply and below
    key         header x-user-id : path
    so far      10234 admitted, 0 held, 811 refused, 0 refused in shadow, 12 skipped, 0 errors
    edit        by ops, temporary, made 2026-11-21 14:03:07Z: launch day

    LIMIT   BASE                                          IN FORCE
    burst   15 at 30/m                                    30 at 30/m
    steady  token_bucket 1000 at 1000/d, refill interval  token_bucket 1000 at 1000/d, refill interval

    run the command again to change it
    --- exit code 6
    ");
}

#[test]
fn every_form_of_an_override() {
    let burst = |capacity: u32| json!({"name": "burst", "algorithm": "funnel", "capacity": capacity, "rate": "1/s"});
    let mut of_rule = canned::with_burst(30)["limits"].clone();
    of_rule[0]["capacity"] = json!(60);
    for (line, sent) in [
        ("alice unlimited", json!("unlimited")),
        ("alice* banned", json!("banned")),
        ("alice scale=0.5", json!({"scale": 0.5})),
        (
            "alice capacity=60 --limit burst",
            json!({ "limits": of_rule }),
        ),
        // An override with limits keeps the other limits.
        ("bob capacity=60", json!({ "limits": [burst(60)] })),
    ] {
        let answers = vec![ok(&canned::rule_with_overrides()), ok(&changed(false))];
        let ran = Loudou::answers(answers).run(&format!("override per-user {line}"));
        assert_eq!(ran.code, 0, "{line}: {}", ran.seen());
        assert_eq!(body(&ran.requests[1]), sent.to_string(), "{line}");
    }
    let file = "- { name: burst, algorithm: funnel, capacity: 60, rate: 1/s }\n";
    let loudou = Loudou {
        input: file,
        ..Loudou::answers(vec![ok(&canned::rule()), ok(&changed(false))])
    };
    let ran = loudou.run("override per-user alice --limits -");
    assert_eq!(
        body(&ran.requests[1]),
        json!({ "limits": [burst(60)] }).to_string()
    );

    let answers = vec![ok(&canned::rule()), ok(&changed(false))];
    let ran = Loudou::answers(answers).run("override per-user team-* --remove --reason over");
    assert_eq!(
        ran.lines()[1],
        "DELETE /v1/overrides/per-user/team-%2A?reason=over HTTP/1.1"
    );
}

#[test]
fn invalid_overrides_are_never_sent() {
    for (name, line, code) in [
        ("override_word", "alice unlimted", 2),
        ("override_scale", "alice scale=ten", 2),
        ("override_large", "alice scale=1000000", 2),
        ("override_which", "alice capacity=5", 2),
    ] {
        let ran =
            Loudou::answers(vec![ok(&canned::rule())]).run(&format!("override per-user {line}"));
        assert_eq!((ran.code, ran.requests.len()), (code, 1), "{}", ran.seen());
        assert_snapshot!(name, ran.seen());
    }
    for line in [
        "override r k",
        "override r k scale=1 --remove",
        "override r k --remove --for 5m",
        "override r k --limit x --remove",
        "ban r",
        "ban r k --for soon",
        "unban r k --for 5m",
    ] {
        assert_eq!(Loudou::default().run(line).code, 2, "{line}");
    }
    for line in ["ban r k", "unban r k", "override r k banned"] {
        let ran = Loudou::default().run(&format!("--read-only {line}"));
        assert_eq!(ran.err, "loudou: --read-only forbids changes\n");
    }
}

#[test]
fn lists_show_bans_and_overrides() {
    let page = BucketsPage {
        buckets: vec![
            canned::banned(BanBy::Penalty, Some(NOW + 250 * S)),
            canned::bucket("carol", 3, BucketState::Busy),
        ],
        ..canned::buckets()
    };
    let answer = || Loudou::answers(vec![ok(&page)]);
    assert_snapshot!(answer().run("buckets").seen(), @r"
    RULE      KEY      LEVEL       LEFT  ADMITTED  REFUSED  RETRY  SEEN  STATE   BAN                  OVERRIDE
    per-user  mallory  ███▊······  9/15       420       40  4m10s    3s  banned  4m10s left, penalty  limits (mal*)
    per-user  carol    ███▊······  9/15       420        3      -    3s  busy    -                    -
    --- exit code 0
    ");
    assert_snapshot!(answer().run("buckets -o csv").seen(), @r"
    rule,key,state,admitted,refused,last_seen_ns,limit,algorithm,capacity,rate,remaining,retry_after_ns,reset_after_ns,drain_ns,used,drains,ban_until_ns,ban_by,strikes,penalties,override,override_gives,lease_tokens,lease_left,lease_heard_ns,lease_debt,lease_denied_until_ns,outage,refused_at_ns,refused_since_ns,shadow
    per-user,mallory,banned,420,40,7497000000000,burst,funnel,15,30/m,9,,11000000000,30000000000,6,true,7750000000000,penalty,2,3,mal*,limits,,,,,,,,,false
    per-user,carol,busy,420,3,7497000000000,burst,funnel,15,30/m,9,,11000000000,30000000000,6,true,,,0,0,,,,,,,,,,,false
    --- exit code 0
    ");
    let answers = vec![
        ok(&canned::banned(BanBy::Operator, None)),
        ok(&canned::status()),
    ];
    assert_snapshot!(Loudou::answers(answers).run("get per-user mallory").seen(), @r"
    RULE      KEY      STATE   ADMITTED  REFUSED    SEEN
    per-user  mallory  banned       420       40  3s ago
    banned by an operator until unbanned
    3 penalties still count: the next ban may be longer
    2 refusals count towards a ban
    override of mal*: limits

    LIMIT  ALGORITHM  RATE  LEVEL       LEFT  RETRY  RESET
    burst  funnel     30/m  ███▊······  9/15      -    11s
    --- exit code 0
    ");
}

#[test]
fn rules_show_overrides() {
    let rule = canned::rule_with_overrides();
    let answers = vec![ok(&rule), ok(&canned::status())];
    assert_snapshot!(Loudou::answers(answers).run("rules per-user").seen(), @r"
    rule        per-user
    generation  7
    mode        enforce
    match       requests to /reply and below
    key         header x-user-id : path
    so far      10234 admitted, 0 held, 811 refused, 0 refused in shadow, 12 skipped, 0 errors
    shadows     per-path
    penalty     after 20, within 1m, ban 5m, factor 2, max 1h
    edit        by ops, 18m left, made 2026-11-21 14:03:07Z: launch day

    LIMIT      BASE                                          IN FORCE
    burst      15 at 30/m                                    30 at 30/m
    steady     token_bucket 1000 at 1000/d, refill interval  token_bucket 1000 at 1000/d, refill interval
    (penalty)  -                                             after 20, within 1m, ban 5m, factor 2, max 1h

    OVERRIDE OF  GIVES            EDIT
    alice        scale 10         by ops, 18m left, made 2026-11-21 14:03:07Z: ticket 7
    bob          burst 99 at 1/s  -
    team-*       unlimited        -
    --- exit code 0
    ");
    let rules = Rules {
        rules: vec![rule],
        ..canned::rules()
    };
    let ran = Loudou::answers(vec![ok(&rules)]).run("rules");
    assert!(ran.out.contains("; 1 override"), "{}", ran.out);
}

#[test]
fn a_penalty_is_set_from_a_file() {
    let file = "penalty: { after: 3, within: 1m, ban: 5m }\n";
    let mut after = canned::edit_answer(false);
    after.after.rule["penalty"] = json!({ "after": 3, "within": "1m", "ban": "5m" });
    let loudou = Loudou {
        input: file,
        ..Loudou::answers(vec![ok(&canned::rule()), ok(&after)])
    };
    let ran = loudou.run("set per-user --file -");
    assert_eq!(ran.code, 0, "{}", ran.seen());
    assert!(
        ran.out.contains("after 3, within 1m, ban 5m"),
        "{}",
        ran.out
    );
}

#[test]
fn harmful_keys_are_escaped() {
    let mut bucket = canned::banned(BanBy::Operator, None);
    bucket.own = Some(loudou_api::KeyOverrideView {
        pattern: HOSTILE.to_owned(),
        ..loudou_api::KeyOverrideView::default()
    });
    let page = BucketsPage {
        buckets: vec![bucket.clone()],
        ..canned::buckets()
    };
    let mut rule = canned::rule_with_overrides();
    rule.rule["overrides"] = json!({ HOSTILE: HOSTILE });
    rule.rule["penalty"] = json!({ HOSTILE: HOSTILE });
    rule.rule["shadows"] = json!(HOSTILE);
    for ran in [
        Loudou::answers(vec![ok(&page)]).run("buckets"),
        Loudou::answers(vec![ok(&bucket), ok(&canned::status())]).run("get r k"),
        Loudou::answers(vec![ok(&rule), ok(&canned::status())]).run("rules per-user"),
    ] {
        let strange = ran.out.chars().find(|c| is_unsafe(*c) && *c != '\n');
        assert_eq!(strange, None, "{}", ran.seen());
    }
}

#[test]
fn a_ban_of_a_rule_in_shadow_mode_is_not_enforced() {
    let mut bucket = canned::banned(BanBy::Operator, Some(NOW + 250 * S));
    bucket.shadow = true;
    let mut page = canned::buckets();
    page.buckets = vec![bucket.clone()];
    let listed = Loudou::answers(vec![ok(&page)]).run("buckets").out;
    let words = ["ban off", "4m10s left, operator, not enforced"];
    assert!(words.iter().all(|word| listed.contains(word)), "{listed}");
    let got = Loudou::answers(vec![ok(&bucket), ok(&canned::status())]);
    let got = got.run("get per-user mallory").out;
    let line =
        "banned by an operator for 4m10s more, not enforced: the rule is in shadow mode or off";
    assert!(got.contains("ban off") && got.contains(line), "{got}");
}
