//! `--watch`: rounds, failures between them, and the bytes that a terminal receives.

use loudou_api::{ProblemAnswer, Top};

use super::canned::{self, ok};
use super::*;

/// Returns the refusal of an Envoy that is still starting.
fn not_ready() -> Answer {
    let problem: ProblemAnswer = ProblemAnswer {
        status: 503,
        title: "Not ready".to_owned(),
        ..ProblemAnswer::default()
    };
    Answer::json("503 Service Unavailable", &problem)
}

fn patient(answers: Vec<Answer>) -> Loudou<'static> {
    Loudou {
        patience: Nanos::from_secs(5),
        ..Loudou::answers(answers)
    }
}

#[test]
fn without_a_terminal_block_follows_block() {
    let rules = || ok(&canned::rules());
    let once = Loudou::answers(vec![rules()]).run("rules").out;
    for line in ["rules --watch", "rules --watch 500ms", "rules --watch=3m"] {
        let ran = Loudou::answers(vec![rules(), rules()]).run(line);
        assert_eq!(ran.out, format!("{once}\n{once}"), "{line}");
        // The server is gone, and the command does not wait for it.
        assert_eq!(ran.code, 3, "{}", ran.err);
    }
    let line = "rules --output jsonl";
    let once = Loudou::answers(vec![rules()]).run(line).out;
    let ran = Loudou::answers(vec![rules(), rules()]).run(&format!("{line} --watch"));
    assert_eq!(ran.out, format!("{once}{once}"));
}

#[test]
fn every_list_repeats() {
    let top = || ok(&Top::default());
    let lists: [(&str, &dyn Fn() -> Answer); 4] = [
        ("status", &|| ok(&canned::status())),
        ("buckets", &|| ok(&canned::buckets())),
        ("top", &top),
        ("rules per-user -o json", &|| ok(&canned::rule())),
    ];
    for (line, answer) in lists {
        let ran = Loudou::answers(vec![answer(), answer()]).run(&format!("{line} --watch 1s"));
        assert_eq!(ran.requests.len(), 2, "{line}: {}", ran.seen());
        assert_eq!(ran.code, 3, "{line}: {}", ran.seen());
    }
}

#[test]
fn a_round_that_fails_is_reported_and_the_next_is_tried() {
    let rules = || ok(&canned::rules());
    let answers = vec![rules(), not_ready(), not_ready(), rules()];
    let ran = patient(answers).run("rules --watch 1s");
    assert_eq!(ran.out.matches("RULE").count(), 2, "{}", ran.seen());
    // Consecutive equal failures are printed once.
    assert_eq!(ran.err.matches("503 Not ready").count(), 1, "{}", ran.err);
    // The last message is the reason why the command ended. A server that shuts down may itself end
    // the first connection, which gives another message. Equal messages are not repeated.
    let told = ran
        .err
        .lines()
        .filter_map(|line| Some(line.split_once("cannot reach")?.1));
    let mut told: Vec<&str> = told.collect();
    assert_eq!(told.pop(), told.last().copied(), "{}", ran.err);
    assert!(
        told.windows(2).all(|pair| pair[0] != pair[1]),
        "{}",
        ran.err
    );
    assert_eq!(ran.code, 3);
}

#[test]
fn the_first_round_has_to_succeed() {
    let ran = patient(vec![not_ready(), ok(&canned::rules())]).run("rules --watch");
    assert_eq!((ran.code, ran.out.as_str()), (5, ""), "{}", ran.err);
}

#[test]
fn a_terminal_is_redrawn_in_place() {
    let round = || [ok(&canned::status()), ok(&canned::rules())];
    let failing = vec![not_ready()];
    let answers = round().into_iter().chain(failing).chain(round());
    let loudou = Loudou {
        terminal: Some(100),
        ..patient(answers.collect())
    };
    let ran = loudou.run("rules --watch 2s");
    let pictures: Vec<&str> = ran.out.split("\u{1b}[H").skip(1).collect();
    // Two rounds, the failure between them, and the failures until the end.
    assert_eq!(pictures.len(), 6, "{}", ran.out.replace('\u{1b}', "^"));
    let (first, failed) = (pictures[0], pictures[1]);
    assert!(first.contains("\u{1b}[2J") && !failed.contains("\u{1b}[2J"));
    for picture in &pictures {
        assert!(picture.contains("every 2s: loudou "), "{picture:?}");
        assert!(picture.contains("rules --watch 2s"), "{picture:?}");
        assert!(picture.contains("    2026-11-21 14:03:07Z"), "{picture:?}");
        assert!(picture.contains("per-user"), "the last rules: {picture:?}");
        assert!(picture.ends_with("\u{1b}[J\u{1b}[?7h"), "{picture:?}");
        assert!(picture.lines().count() <= 24);
    }
    assert!(failed.contains("503 Not ready") && !pictures[2].contains("503"));
    // The error is printed as after any other command.
    assert!(ran.err.starts_with("loudou: cannot reach"), "{}", ran.err);
}

#[test]
fn intervals_that_serve_nobody_are_refused() {
    for (line, words) in [
        ("rules --watch 50ms", "at least 100ms"),
        ("rules --watch per-user", "a rule comes before --watch"),
        ("get per-user alice --watch", "--watch"),
    ] {
        let ran = Loudou::default().run(line);
        assert_eq!(ran.code, 2, "{line}");
        assert!(ran.err.contains(words), "{line}: {}", ran.err);
    }
}
