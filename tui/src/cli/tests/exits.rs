//! The exit code of each kind of failure.

use std::fs;
use std::net::TcpListener;
use std::process::Command;

use loudou_api::{ProblemAnswer, RuleView};

use super::canned::{self, INSTANCE, ok};
use super::configured::Folder;
use super::*;
use crate::cli::outcome::exit_codes;

/// Returns a refusal by the filter.
fn refusal(status: u16) -> Answer {
    let problem: ProblemAnswer = ProblemAnswer {
        status,
        ..ProblemAnswer::default()
    };
    Answer::json(&format!("{status} Some Reason"), &problem)
}

fn code_of(answers: Vec<Answer>, line: &str) -> u8 {
    let ran = Loudou::answers(answers).run(line);
    assert!(ran.code == 0 || !ran.err.is_empty(), "{}", ran.seen());
    ran.code
}

#[test]
fn without_a_connection_3() {
    // A port that was free just now, so nothing listens there.
    let free = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = free.local_addr().expect("an address");
    drop(free);
    let line = format!("status --url http://{address}");
    assert_eq!(code_of(Vec::new(), &line), 3);
    let line = "status --url dns:http://no.such.name.invalid:1";
    assert_eq!(code_of(Vec::new(), line), 3);
    let silent = || vec![Answer::Hang(Vec::new())];
    assert_eq!(code_of(silent(), "status --timeout 20ms"), 3);
    assert_eq!(code_of(silent(), "export --live --timeout 20ms"), 3);
    let other = || vec![Answer::text("200 OK", "<html>Welcome</html>")];
    assert_eq!(code_of(other(), "rules"), 3);
}

/// Errors in arguments, and in files that they name, are found before anything is changed.
#[test]
fn for_wrong_usage_2() {
    let rule = vec![ok(&canned::rule())];
    assert_eq!(
        code_of(rule, "set per-user --limit burst --capacity 0 --yes"),
        2
    );
    let large = " ".repeat((1 << 20) + 1);
    let folder = Folder::new(
        "exits",
        &[
            ("empty", 0o600, ""),
            ("shared", 0o666, "secret"),
            ("large", 0o600, large.as_str()),
        ],
    );
    let at = |name: &str| folder.0.join(name).display().to_string();
    for file in ["missing", "empty", "shared", "large"].map(at) {
        let line = format!("status --token-file {file}");
        assert_eq!(code_of(Vec::new(), &line), 2, "{line}");
    }
    let made = Command::new("mkfifo").arg(at("pipe")).status();
    assert!(made.expect("mkfifo runs").success());
    let line = format!("status --token-file {}", at("pipe"));
    assert_eq!(code_of(Vec::new(), &line), 2, "it would wait for a writer");
    let line = format!(
        "status --url https://127.0.0.1:1 --tls-ca {}",
        at("missing")
    );
    assert_eq!(code_of(Vec::new(), &line), 2, "{line}");
    let text = "url = \"http://127.0.0.1:1\"\n";
    let config = Folder::new("exits-config", &[("config", 0o666, text)]);
    let file = config.0.join("config").display().to_string();
    let line = format!("status --config-file {file}");
    assert_eq!(code_of(Vec::new(), &line), 2, "{line}");
}

/// For a mistyped argument, the error suggests the intended one. For a wrong token, it names the
/// source.
#[test]
fn wrong_usage_names_what_was_meant() {
    let folder = Folder::new(
        "meant",
        &[
            ("blank", 0o600, "a b"),
            ("config", 0o600, "[targets.edge]\nurl = \"http://h\"\n"),
        ],
    );
    let at = |name: &str| folder.0.join(name).display().to_string();
    let (blank, config) = (at("blank"), at("config"));
    for (line, told) in [
        (
            "set per-user --limit brust --capacity 5 --yes".to_owned(),
            "; did you mean `burst`?",
        ),
        (
            "set per-user --limit burst capcity=5 --yes".to_owned(),
            "; did you mean `capacity`?",
        ),
        (
            "status --url htps://h".to_owned(),
            "(did you mean `https://`?)",
        ),
        (
            format!("status --url @egde --config-file {config}"),
            "; did you mean `@edge`?",
        ),
        (
            format!("status --token-file {blank}"),
            &format!("{blank}: the token is empty or"),
        ),
        (
            "status --url https://h --tls-name=".to_owned(),
            "the server name \"\" is invalid",
        ),
    ] {
        let ran = Loudou::answers(vec![ok(&canned::rule())]).run(&line);
        assert_eq!(ran.code, 2, "{line}: {}", ran.seen());
        assert!(ran.err.contains(told), "{line}: {}", ran.err);
    }
}

#[test]
fn wrong_usage_names_the_variable() {
    let env = Env {
        token: Some("a b".into()),
        ..Env::default()
    };
    let loudou = Loudou {
        env,
        ..Loudou::default()
    };
    let ran = loudou.run("status");
    assert!(
        ran.code == 2 && ran.err.contains("LOUDOU_TOKEN: the token is"),
        "{}",
        ran.seen()
    );
}

#[test]
fn ctrl_c_ends_a_follower_with_success() {
    let line = "events --follow";
    SUCCEEDS_ON_INTERRUPT.set(false);
    Loudou::answers(vec![ok(&canned::events())]).run("events");
    assert!(!SUCCEEDS_ON_INTERRUPT.get());
    Loudou::answers(vec![ok(&canned::events())]).run(line);
    assert!(SUCCEEDS_ON_INTERRUPT.get());
}

#[test]
fn for_a_token_4() {
    for status in [401, 403] {
        assert_eq!(code_of(vec![refusal(status)], "status"), 4);
        assert_eq!(code_of(vec![refusal(status)], "export --live"), 4);
        assert_eq!(code_of(vec![refusal(status)], "ban per-user mallory"), 4);
    }
}

#[test]
fn for_other_refusals_5() {
    for status in [400, 404, 422, 429, 503] {
        let line = "ban per-user mallory";
        assert_eq!(code_of(vec![refusal(status)], line), 5, "{status}");
    }
    assert_eq!(
        code_of(vec![canned::not_found()], "get per-user nobody"),
        5,
        "an unknown key"
    );
}

#[test]
fn for_a_conflict_6() {
    for status in [409, 428] {
        let line = "ban per-user mallory";
        assert_eq!(code_of(vec![refusal(status)], line), 6, "{status}");
    }
    // Another operator was faster, so the rule differs from the rule that was read.
    let problem: ProblemAnswer = ProblemAnswer {
        status: 412,
        current: Some(RuleView {
            instance: INSTANCE.to_owned(),
            generation: 99,
            edit: None,
            rule: canned::rule().base,
            ..canned::rule()
        }),
        ..ProblemAnswer::default()
    };
    let stale = Answer::json("412 Precondition Failed", &problem);
    let answers = vec![ok(&canned::rule()), stale];
    assert_eq!(code_of(answers, "set per-user --mode off"), 6);
}

/// The help, the manual page and the documents name the same codes with the same meanings.
#[test]
fn every_code_is_documented() {
    let help = Loudou::default().run("--help").out;
    let page = Loudou::default().run("man").out;
    let text = exit_codes();
    let lines: Vec<&str> = text.lines().skip(1).collect();
    assert_eq!(lines.len(), 7);
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let document = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reference/cli.md");
    let document = fs::read_to_string(document).expect("the document");
    for line in lines {
        assert!(words(&help).contains(&words(line)), "help: {line}");
        assert!(page.contains(&line.replace('-', "\\-")), "page: {line}");
        let (code, meaning) = line.trim().split_once("  ").expect("a code");
        let row = format!("| {code} | {meaning} |");
        assert!(document.contains(&row), "cli.md: {row}");
    }
    assert!(page.contains(".SH EXIT STATUS\n"), "{page}");
    assert!(!page.contains(".SH EXTRA"), "{page}");
}
