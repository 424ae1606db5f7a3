//! `record` and `top --play`: what is wrong is said before a file is made or the screen is taken.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use super::canned::{self, ok};
use super::*;
use crate::tape::tests::{demo, first_line};

/// A file of this test, which is removed with it.
struct Temporary(PathBuf);

impl Temporary {
    fn new(name: &str, bytes: &[u8]) -> Self {
        let path = std::env::temp_dir().join(format!("loudou-{}-{name}", std::process::id()));
        fs::write(&path, bytes).expect("writes");
        Self(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().expect("UTF-8")
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        drop(fs::remove_file(&self.0));
    }
}

/// The standard error of `top --play` of this file.
fn played(bytes: &[u8], terminal: bool) -> (u8, String) {
    let file = Temporary::new("played", bytes);
    let loudou = Loudou {
        terminal: terminal.then_some(100),
        ..Loudou::default()
    };
    let ran = loudou.run(&format!("top --play {}", file.path()));
    assert_eq!(ran.out, "");
    (ran.code, ran.err.replace(file.path(), "FILE"))
}

#[test]
fn what_cannot_be_played_is_said() {
    let demo = demo();
    let cut = &demo[..demo.len() / 2];
    let newer = first_line(2);
    let mut seen = String::new();
    for (name, bytes) in [
        ("empty", &b""[..]),
        ("a rule file", b"rules: []\n"),
        ("newer", newer.as_bytes()),
        ("without an answer", first_line(1).as_bytes()),
        (
            "damaged",
            &[first_line(1).as_bytes(), b"{\"at_ns\": 5,\x1b[2J}\n"].concat(),
        ),
        ("in a pipe", cut),
    ] {
        let (code, err) = played(bytes, false);
        write!(seen, "{name}: {code}: {err}").expect("a string");
    }
    let ran = Loudou::default().run("top --play no/such/file");
    write!(seen, "missing: {}: {}", ran.code, ran.err).expect("a string");
    for line in ["top --play -", "top --play /"] {
        let ran = Loudou::default().run(line);
        write!(seen, "{line}: {}: {}", ran.code, ran.err).expect("a string");
    }
    assert_snapshot!(seen);
}

#[test]
fn wrong_uses() {
    let missing = std::env::temp_dir().join("loudou-never-written.jsonl");
    let missing = missing.to_str().expect("UTF-8");
    for (line, words) in [
        ("record", "<FILE>"),
        ("record FILE --for soon", "--for"),
        ("record FILE --interval 50ms", "at least 100ms"),
        ("record FILE --max-size 3", "KiB, MiB or GiB"),
        ("record FILE --max-size 1KiB", "at least 64KiB"),
        ("record FILE --max-size 99999999999GiB", "KiB, MiB or GiB"),
        ("top --play FILE --by refused", "cannot be used with"),
        ("top --play FILE --targets FILE", "cannot be used with"),
        ("top --play FILE --watch", "cannot be used with"),
    ] {
        let ran = Loudou::default().run(&line.replace("FILE", missing));
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{line}: {}", ran.err);
        assert!(ran.err.contains(words), "{line}: {}", ran.err);
    }
    assert!(!Path::new(missing).exists());
}

/// A wrong address or token shows as that, and there is no file; a file that exists stays as it is.
#[test]
fn a_file_is_made_only_for_an_envoy_that_answers() {
    let path = std::env::temp_dir().join(format!("loudou-{}-none.jsonl", std::process::id()));
    let line = format!("record {}", path.display());
    let ran = Loudou::answers(vec![]).run(&line);
    assert_eq!(ran.code, 3, "{}", ran.err);
    let forbidden: loudou_api::ProblemAnswer = loudou_api::ProblemAnswer {
        status: 401,
        title: "No token".to_owned(),
        ..loudou_api::ProblemAnswer::default()
    };
    let answer = Answer::json("401 Unauthorized", &forbidden);
    let ran = Loudou::answers(vec![answer]).run(&line);
    assert_eq!(ran.code, 4, "{}", ran.err);
    assert!(!path.exists());
    let file = Temporary::new("kept", b"precious");
    let ran = Loudou::answers(vec![ok(&canned::status())]).run(&format!("record {}", file.path()));
    assert_eq!(ran.code, 2, "{}", ran.err);
    assert!(
        ran.err.contains("exists; remove it or choose another name"),
        "{}",
        ran.err
    );
    assert_eq!(fs::read(&file.0).expect("reads"), b"precious");
}

/// A poll may take as long as the option says, also more than the second that it may take without.
#[test]
fn the_time_limit_is_that_of_the_option() {
    for (option, told) in [
        ("--timeout 50ms", "within 50ms"),
        ("--timeout 1100ms --interval 100ms", "within 1.1s"),
        ("", "within 1s"),
    ] {
        let loudou = Loudou::answers(vec![Answer::Hang(Vec::new())]);
        let ran = loudou.run(&format!("record - --for 1s {option}"));
        assert_eq!(ran.code, 3, "{option}: {}", ran.seen());
        assert!(ran.err.contains(told), "{option}: {}", ran.err);
    }
}
