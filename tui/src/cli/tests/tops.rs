//! `loudou top` as a list over several Envoys.

use loudou_api::{Top, TopEntry};

use super::canned::{self, HOSTILE, ok};
use super::*;

/// Runs `top` at two servers. In the result, their addresses are replaced by A and B.
fn at_two(first: Vec<Answer>, second: Vec<Answer>, line: &str) -> (Ran, [Fake; 2]) {
    let fakes = [Fake::new(first), Fake::new(second)];
    let [a, b] = &fakes;
    let line = format!("--url {},{} --timeout 2s {line}", a.url, b.url);
    let mut ran = Loudou::default().run(&line);
    // Tables only contain the ports, which have the same length in every run.
    let port = |fake: &Fake| fake.url.trim_start_matches("http://127.0.0.1").to_owned();
    let named = |text: &str| {
        let text = text.replace(&a.url, "http://A").replace(&b.url, "http://B");
        let pad = |name: &str, width: usize| format!("{name:>width$}");
        let (of_a, of_b) = (port(a), port(b));
        text.replace(&of_a, &pad("A", of_a.len()))
            .replace(&of_b, &pad("B", of_b.len()))
    };
    (ran.out, ran.err) = (named(&ran.out), named(&ran.err));
    (ran, fakes)
}

/// Returns the answer of the second Envoy: another time window, keys that the first does not have,
/// and one in shadow mode.
fn second() -> Top {
    let entry = |rule: &str, key: &str, count: u64, shadow: bool| TopEntry {
        rule: rule.to_owned(),
        key: key.to_owned(),
        count,
        shadow,
        ..TopEntry::default()
    };
    Top {
        window_ns: 61 * canned::S,
        top: vec![
            entry("per-path", "/reply", 900, true),
            entry("per-user", "carol", 64, false),
            entry("per-user", "mallory", 9, false),
        ],
        total: 973,
        keys: 3,
        ..canned::top(0)
    }
}

fn answers(missing: u64) -> (Vec<Answer>, Vec<Answer>) {
    let first = Top {
        total: 1_882,
        keys: 3,
        ..canned::top(missing)
    };
    (vec![ok(&first)], vec![ok(&second())])
}

#[test]
fn one_list_has_the_sums() {
    for (name, missing, line) in [
        ("tops", 0, "top"),
        ("tops_inexact", 5, "top"),
        ("tops_json", 5, "top -o json"),
        ("tops_jsonl", 5, "top -o jsonl"),
        ("tops_csv", 5, "top -o csv"),
        ("tops_limit", 0, "top --limit 2"),
    ] {
        let (first, second) = answers(missing);
        let (ran, fakes) = at_two(first, second, line);
        assert_snapshot!(name, ran.seen());
        for fake in &fakes {
            let request = fake.request();
            // The limit applies to the merged list.
            assert!(request.starts_with("GET /v1/top?limit=256 "), "{request}");
        }
    }
}

/// The list has the other Envoys' counts and reports the missing one. Its column is shown as
/// unknown, not as empty.
#[test]
fn an_envoy_that_is_away_is_named() {
    let (first, _) = answers(0);
    let (ran, _) = at_two(first, vec![], "top");
    assert!(ran.out.contains(" at 1 of 2 Envoys, "), "{}", ran.out);
    let rows: Vec<&str> = ran.out.lines().skip(2).collect();
    assert!(rows.iter().all(|row| row.ends_with('?')), "{}", ran.out);
    assert!(
        ran.err.contains("loudou: cannot reach http://B: "),
        "{}",
        ran.err
    );
    let last = "done at 1 of 2 Envoys; failed at http://B\n--- exit code 3\n";
    assert!(ran.seen().ends_with(last), "{}", ran.seen());
    let (first, _) = answers(0);
    let (ran, _) = at_two(first, vec![canned::not_found()], "top -o json");
    assert!(
        ran.out.contains("\"failed\": [\n    \"http://B\"\n  ]"),
        "{}",
        ran.out
    );
    assert_eq!(ran.code, 5, "{}", ran.err);
}

#[test]
fn without_any_answer_there_is_no_list() {
    let (ran, _) = at_two(vec![canned::not_found()], vec![], "top");
    assert_eq!((ran.code, ran.out.as_str()), (5, ""), "{}", ran.seen());
    for url in ["loudou: cannot reach http://B", "loudou: http://A: 404"] {
        assert!(ran.err.contains(url), "{}", ran.err);
    }
}

#[test]
fn the_list_repeats() {
    let twice = |top: &Top| vec![ok(top), ok(top)];
    let (ran, _) = at_two(twice(&canned::top(0)), twice(&second()), "top --watch");
    assert_eq!(ran.out.matches("RULE").count(), 2, "{}", ran.seen());
    assert_eq!(ran.code, 3, "{}", ran.seen());
}

/// The heading has the time of the first Envoy that answers.
#[test]
fn a_terminal_is_redrawn_in_place() {
    let refusing = || vec![canned::not_found(), ok(&canned::top(0))];
    let (a, b) = (
        Fake::new(refusing()),
        Fake::new(vec![ok(&canned::status()), ok(&second())]),
    );
    let loudou = Loudou {
        terminal: Some(100),
        ..Loudou::default()
    };
    let ran = loudou.run(&format!("--url {},{} top --watch", a.url, b.url));
    for words in ["2026-11-21 14:03:07Z", " at 2 Envoys, of "] {
        assert!(ran.out.contains(words), "{}", ran.seen());
    }
}

#[test]
fn one_envoy_counts_once() {
    let line = "--url http://127.0.0.1:1,http://127.0.0.1:1/ top";
    let ran = Loudou::default().run(line);
    assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{}", ran.seen());
}

#[test]
fn hostile_keys_are_escaped() {
    let mut top = canned::top(0);
    top.top[0].key = HOSTILE.to_owned();
    top.top[1].rule = HOSTILE.to_owned();
    for form in ["table", "json", "jsonl", "csv"] {
        let (ran, _) = at_two(vec![ok(&top)], vec![ok(&top)], &format!("top -o {form}"));
        let harmless = |c: char| c == '\n' || form == "csv" && c == '\r' || !is_unsafe(c);
        assert!(ran.out.chars().all(harmless), "{form}: {:?}", ran.out);
    }
}
