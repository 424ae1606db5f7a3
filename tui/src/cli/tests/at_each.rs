//! Commands that run at several Envoys.

use loudou_api::EditAnswer;

use super::canned::{self, ok};
use super::*;

/// Runs a command at two servers with these answers. In the result, their addresses are replaced by
/// A and B.
fn at_two(first: Vec<Answer>, second: Vec<Answer>, line: &str) -> String {
    let (a, b) = (Fake::new(first), Fake::new(second));
    let urls = format!("--url {},{} --timeout 2s", a.url, b.url);
    let seen = Loudou::default().run(&format!("{urls} {line}")).seen();
    seen.replace(&a.url, "http://A").replace(&b.url, "http://B")
}

#[test]
fn each_answers_below_its_address() {
    let rules = || vec![ok(&canned::rules())];
    let one = Loudou::answers(rules()).run("rules").out;
    assert_eq!(
        at_two(rules(), rules(), "rules"),
        format!("http://A\n{one}\nhttp://B\n{one}--- exit code 0\n")
    );
}

/// One Envoy is unreachable. The other is called nevertheless, and the last line names the failed
/// one.
#[test]
fn one_that_is_away_is_named() {
    let one = Loudou::answers(vec![ok(&canned::rules())]).run("rules").out;
    for (first, second, away) in [
        (vec![ok(&canned::rules())], vec![], "http://B"),
        (vec![], vec![ok(&canned::rules())], "http://A"),
    ] {
        let seen = at_two(first, second, "rules");
        assert!(seen.contains(&one), "{seen}");
        let last = format!("done at 1 of 2 Envoys; failed at {away}\n--- exit code 3\n");
        assert!(seen.ends_with(&last), "{seen}");
    }
}

/// Standard error names the Envoys, even if standard output is redirected.
#[test]
fn an_error_names_its_envoy() {
    let refused = || vec![canned::not_found()];
    let seen = at_two(refused(), refused(), "get per-user mallory");
    let (_, errors) = seen.split_once("--- standard error\n").expect("errors");
    for (line, url) in errors.lines().zip(["http://A", "http://B"]) {
        assert!(line.starts_with(&format!("loudou: {url}: ")), "{line}");
    }
}

/// If the answer is lost, the change may have been made.
#[test]
fn a_change_without_an_answer_is_in_doubt() {
    let hanging = Fake::new(vec![Answer::Hang(Vec::new())]);
    let url = &hanging.url;
    let line = format!("--url {url} --timeout 50ms ban per-user mallory --yes");
    let seen = Loudou::default().run(&line).seen();
    let told = "loudou: it is not known whether the change was made: no complete answer from ";
    assert!(seen.contains(told), "{seen}");
    assert!(seen.ends_with("--- exit code 3\n"), "{seen}");
    // A list changes nothing.
    let hanging = Fake::new(vec![Answer::Hang(Vec::new())]);
    let line = format!("--url {} --timeout 50ms rules", hanging.url);
    let seen = Loudou::default().run(&line).seen();
    assert!(!seen.contains("the change"), "{seen}");
}

/// Programs read one list, in which each line names its Envoy. An unreachable Envoy has no lines.
#[test]
fn lines_name_their_envoys() {
    let rules = || vec![ok(&canned::rules())];
    assert_snapshot!(at_two(rules(), rules(), "rules -o csv"), @r#"
    envoy,name,mode,generation,key,limits,admitted,refused,shadow_refused,skipped,errors,held,edited,edited_by,edit_expires_at_ns
    http://A,per-user,enforce,7,header x-user-id : path,"burst 30 at 30/m, steady: token_bucket 1000 at 1000/d, refill interval",10234,811,0,12,0,0,true,ops,8580000000000
    http://A,per-path,shadow,7,,all 5 at 10/s,10234,811,0,12,0,0,false,,
    http://B,per-user,enforce,7,header x-user-id : path,"burst 30 at 30/m, steady: token_bucket 1000 at 1000/d, refill interval",10234,811,0,12,0,0,true,ops,8580000000000
    http://B,per-path,shadow,7,,all 5 at 10/s,10234,811,0,12,0,0,false,,
    --- exit code 0
    "#);
    let seen = at_two(vec![], rules(), "rules -o csv");
    assert!(seen.starts_with("envoy,name,"), "{seen}");
    assert!(seen.contains("\r\nhttp://B,per-user,"), "{seen}");
    assert!(
        seen.ends_with("failed at http://A\n--- exit code 3\n"),
        "{seen}"
    );
    let seen = at_two(rules(), rules(), "rules -o jsonl");
    let (out, _) = seen.split_once("--- ").expect("an end");
    let envoys = out.lines().map(|line| {
        let rule: serde_json::Value = serde_json::from_str(line).expect("JSON");
        (rule["envoy"].clone(), rule["name"].clone())
    });
    let envoys: Vec<_> = envoys.collect();
    let of = |envoy: &str, rule: &str| (envoy.into(), rule.into());
    assert_eq!(
        envoys,
        [
            of("http://A", "per-user"),
            of("http://A", "per-path"),
            of("http://B", "per-user"),
            of("http://B", "per-path"),
        ]
    );
    // A change prints one object for each Envoy.
    let done = || vec![ok(&loudou_api::BanAnswer::default())];
    let seen = at_two(done(), done(), "unban per-user mallory -o jsonl");
    assert!(seen.starts_with("{\"envoy\":\"http://A\",\""), "{seen}");
    assert!(seen.contains("\n{\"envoy\":\"http://B\",\""), "{seen}");
}

/// After a change at several Envoys, one list answers who changed what.
#[test]
fn events_of_several_are_one_list_by_time() {
    let of = |at_s: &[u64], by: &str| {
        let events = canned::events();
        let first = events.events.first().expect("an event").clone();
        let events = (1..).zip(at_s).map(|(seq, at_s)| loudou_api::Event {
            seq,
            at_unix_ms: 1_700_000_000_000 + at_s * 1_000,
            by: format!("{by}-{seq}"),
            ..first.clone()
        });
        vec![ok(&loudou_api::Events {
            events: events.collect(),
            lost: 0,
            ..canned::events()
        })]
    };
    // The clock of the second Envoy was set back between its first two events. Their order is
    // known.
    let (first, second) = (&[10, 30, 50][..], &[40, 20, 60][..]);
    let order = |seen: &str| -> Vec<String> {
        let words = seen.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
        let authors = words.filter(|word| word.starts_with("ann-") || word.starts_with("bob-"));
        authors.map(ToOwned::to_owned).collect()
    };
    let by_time = ["ann-1", "ann-2", "bob-1", "bob-2", "ann-3", "bob-3"];
    for line in ["events", "events -o csv", "events --of operators -o jsonl"] {
        let seen = at_two(of(first, "ann"), of(second, "bob"), line);
        assert_eq!(order(&seen), by_time, "{line}: {seen}");
        assert!(seen.ends_with("--- exit code 0\n"), "{line}: {seen}");
    }
    let seen = at_two(of(first, "ann"), of(second, "bob"), "events -o csv");
    assert!(seen.starts_with("envoy,seq,"), "{seen}");
    assert_eq!(seen.matches("envoy,seq,").count(), 1, "{seen}");
    assert_eq!(seen.matches("\r\nhttp://B,").count(), 3, "{seen}");
    let seen = at_two(of(first, "ann"), of(second, "bob"), "events -o jsonl");
    assert!(
        seen.starts_with("{\"envoy\":\"http://A\",\"seq\":1,"),
        "{seen}"
    );
    let seen = at_two(of(first, "ann"), of(second, "bob"), "events");
    assert!(seen.trim_start().starts_with("ENVOY  SEQ"), "{seen}");
    // The limit applies to the list, not to each Envoy.
    let seen = at_two(of(first, "ann"), of(second, "bob"), "events --limit 2");
    assert_eq!(order(&seen), ["ann-3", "bob-3"], "{seen}");
    // An unreachable Envoy is reported, and the events of the others are listed.
    let seen = at_two(of(first, "ann"), vec![], "events");
    assert_eq!(order(&seen), ["ann-1", "ann-2", "ann-3"], "{seen}");
    assert!(
        seen.contains("done at 1 of 2 Envoys; failed at http://B"),
        "{seen}"
    );
}

/// No request is sent if the answers could not be distinguished.
#[test]
fn machines_and_followers_ask_one() {
    for (line, why) in [
        ("rules -o json", "2 Envoys give no single document"),
        ("rules --watch", "--watch takes one Envoy, and 2 are named"),
        ("export", "this command takes one Envoy, and 2 are named"),
        (
            "events --follow",
            "--follow takes one Envoy, and 2 are named",
        ),
    ] {
        let seen = at_two(vec![], vec![], line);
        assert!(seen.contains(why), "{line}: {seen}");
        assert!(seen.ends_with("--- exit code 2\n"), "{line}: {seen}");
    }
}

/// A usage error changes nothing, even if only one of the addresses is wrong.
#[test]
fn nothing_is_changed_if_an_address_is_wrong() {
    for wrong in ["", "htp://b", "http://127.0.0.1:99999", "unix:relative"] {
        let fake = Fake::new(vec![ok(&loudou_api::BanAnswer::default())]);
        let line = format!("--url {},{wrong} ban per-user mallory --yes", fake.url);
        let ran = Loudou::default().run(&line);
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{}", ran.seen());
        assert!(ran.err.contains(&format!("{wrong:?}")), "{}", ran.err);
        assert!(fake.try_request().is_none(), "{wrong:?}: it was asked");
    }
}

/// A change that fits the rule of one Envoy only is not a usage error, because it was made there.
#[test]
fn a_change_at_some_is_not_wrong_usage() {
    let other = canned::one_limit_rule();
    let changes = || vec![ok(&canned::rule()), ok(&<EditAnswer>::default())];
    let set = "set per-user --limit burst capacity=130 --yes";
    let seen = at_two(changes(), vec![ok(&other)], set);
    assert!(
        seen.contains("done at 1 of 2 Envoys; failed at http://B"),
        "{seen}"
    );
    assert!(seen.ends_with("--- exit code 1\n"), "{seen}");
    let seen = at_two(vec![ok(&other)], vec![ok(&other)], set);
    assert!(seen.ends_with("--- exit code 2\n"), "{seen}");
}

/// At each Envoy, the key is banned in the rules of that Envoy.
#[test]
fn a_ban_in_all_rules_is_made_at_each() {
    let mut rule = canned::rule();
    rule.rule["key"] = serde_json::json!([{ "header": "x-user-id" }]);
    let mut second = rule.clone();
    "logins".clone_into(&mut second.name);
    let of = |rules: &[&loudou_api::RuleView]| loudou_api::Rules {
        rules: rules.iter().map(|rule| (*rule).clone()).collect(),
        ..canned::rules()
    };
    let made = || {
        ok(&loudou_api::BanAnswer {
            changed: true,
            ..Default::default()
        })
    };
    let first = || vec![ok(&of(&[&rule, &second])), made(), canned::not_found()];
    let line = "ban --all-rules mallory --for 10m";
    let seen = at_two(first(), vec![ok(&of(&[&second])), made()], line);
    assert_snapshot!(seen, @r"
    http://A
    mallory of per-user is banned for 10m

    http://B
    mallory of logins is banned for 10m
    --- standard error
    loudou: http://A: logins: 404 Not Found: no bucket for this key
    http://A: done in 1 of 2 rules; failed in logins
    done at 1 of 2 Envoys; failed at http://A
    --- exit code 1
    ");
    let seen = at_two(
        first(),
        vec![ok(&of(&[&second])), made()],
        &format!("{line} -o jsonl"),
    );
    let (out, _) = seen.split_once("--- ").expect("an end");
    let lines: Vec<serde_json::Value> = out
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let of = |line: &serde_json::Value| ["envoy", "rule"].map(|field| line[field].clone());
    let lines: Vec<_> = lines.iter().map(of).collect();
    let (a, b) = ("http://A", "http://B");
    assert_eq!(lines, [[a, "per-user"], [a, "logins"], [b, "logins"]]);
}
