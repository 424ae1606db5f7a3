//! Arguments and variables in unusual or wrong forms: which ones are accepted, and the text of the
//! errors.

use loudou_api::BanAnswer;

use super::canned::{self, ok};
use super::*;
use crate::cli::{command_line, parsed_by};

/// Returns the exit code of a wrong argument, and the error.
fn wrong(line: &str) -> (u8, String) {
    let ran = Loudou::answers(vec![ok(&canned::rule())]).run(line);
    assert_eq!(ran.out, "", "{line}");
    (ran.code, ran.err)
}

#[test]
fn a_time_that_is_none_says_what_was_meant() {
    for (typed, says) in [
        ("--for -5m", "negative; did you mean `5m`?"),
        ("--for=-5m", "negative; did you mean `5m`?"),
        ("--for 30", "has no unit; did you mean `30s` or `30m`?"),
        ("--for 0s", "must be longer than 0"),
        ("--for 0", "must be longer than 0"),
        ("--for 999999999d", "too long; at most 213503d"),
        ("--for 1.5h", "write a whole number and a unit: "),
        ("--timeout -1s", "negative; did you mean `1s`?"),
    ] {
        let (code, err) = wrong(&format!("ban r k {typed}"));
        assert!(code == 2 && err.contains(says), "{typed}: {err}");
        assert!(!err.contains("use '-- "), "{typed}: {err}");
    }
}

/// The messages of Rust's standard library are not meant for users.
#[test]
fn a_number_that_is_none_says_what_is_allowed() {
    for (line, says) in [
        (
            "set per-user --capacity -1",
            "a number cannot be negative here",
        ),
        ("set per-user --capacity 6x", "not a whole number"),
        (
            "set per-user --limit burst --capacity 99999999999 --yes",
            "a whole number from 1 to",
        ),
        (
            "set per-user --limit burst capacity=-1 --yes",
            "a whole number from 1 to",
        ),
        ("buckets --limit x", "not a whole number"),
        ("buckets --limit -3", "a number cannot be negative here"),
        ("buckets --limit 99999999999999999999999", "too large"),
        ("explain --cost x", "not a whole number"),
        ("replay --config a --keys x", "not a whole number"),
        ("replay --config a --keys 0", "at least 1"),
        (
            "replay --config a --keys -1",
            "a number cannot be negative here",
        ),
        ("explain --cost -1", "a number cannot be negative here"),
        (
            "replay --config a --suggest --capacities x",
            "not a whole number",
        ),
        (
            "replay --config a --suggest --capacities 5,0",
            "write a number from 1 to 1000000000",
        ),
    ] {
        let (code, err) = wrong(line);
        assert!(code == 2 && err.contains(says), "{line}: {err}");
        for rust in ["invalid digit", "too large to fit", "use '-- "] {
            assert!(!err.contains(rust), "{line}: {err}");
        }
    }
}

#[test]
fn an_override_that_is_none_is_wrong_usage() {
    for (typed, says) in [
        ("scale=x", "\"x\": not a number"),
        ("scale=0", "0: out of range"),
        ("scale=-1", "-1: out of range"),
    ] {
        let (code, err) = wrong(&format!("override per-user alice {typed}"));
        assert!(code == 2 && err.contains(says), "{typed}: {code}: {err}");
    }
}

/// The usage line must not list an option that only the environment sets, because the user did not
/// type it.
#[test]
fn usage_shows_no_option_that_only_the_environment_gives() {
    // Cargo sets this variable whenever it runs a test.
    let from_env = |arg: clap::Arg| arg.env("CARGO_MANIFEST_DIR");
    let command = command_line().mut_arg("url", from_env);
    for line in ["ban R", "check", "replay --format squid", "set"] {
        let args = std::iter::once("loudou").chain(line.split(' '));
        let args: Vec<OsString> = args.map(OsString::from).collect();
        let error = parsed_by(&command, &args).expect_err(line).to_string();
        assert!(!error.contains("--url"), "{line}: {error}");
    }
}

/// The filter escapes keys to ASCII, but users type them unescaped.
#[test]
fn a_key_in_another_script_is_sent_as_the_filter_writes_it() {
    let answer = || ok(&BanAnswer::default());
    for (line, answers, request) in [
        (
            "get r 漢字",
            vec![canned::not_found()],
            "GET /v1/buckets/r/%25E6%25BC%25A2%25E5%25AD%2597",
        ),
        (
            "ban r José:x",
            vec![answer()],
            "POST /v1/buckets/r/Jos%25C3%25A9%3Ax/ban",
        ),
        (
            "unban r José",
            vec![answer()],
            "POST /v1/buckets/r/Jos%25C3%25A9/unban",
        ),
        (
            "reset r José",
            vec![canned::not_found()],
            "POST /v1/buckets/r/Jos%25C3%25A9/reset",
        ),
        (
            "get r Jos%C3%A9",
            vec![canned::not_found()],
            "GET /v1/buckets/r/Jos%25C3%25A9",
        ),
        (
            "buckets --key 字",
            vec![ok(&canned::buckets())],
            "GET /v1/buckets?key=%25E5%25AD%2597",
        ),
    ] {
        let ran = Loudou::answers(answers).run(line);
        assert!(
            ran.lines()[0].starts_with(request),
            "{line}: {:?}",
            ran.lines()
        );
    }
    let answers = vec![ok(&canned::rule()), ok(&canned::edit_answer(false))];
    let ran = Loudou::answers(answers).run("override per-user José* unlimited");
    let request = "PUT /v1/overrides/per-user/Jos%25C3%25A9%2A ";
    assert!(ran.lines()[1].starts_with(request), "{:?}", ran.lines());
}

/// A text is not a pattern, so a pattern finds nothing.
#[test]
fn an_empty_list_says_how_keys_are_searched() {
    let none = || {
        let page = loudou_api::BucketsPage {
            buckets: Vec::new(),
            ..canned::buckets()
        };
        Loudou::answers(vec![ok(&page)])
    };
    let ran = none().run("buckets --key bob|dave");
    let says = "no key contains `bob|dave`: --key takes a part of a key, not a pattern";
    assert!(ran.code == 0 && ran.err.contains(says), "{}", ran.seen());
    assert_eq!(
        none().run("buckets --key bob").err,
        "no key contains `bob`\n"
    );
    assert_eq!(none().run("buckets").err, "");
}

fn at(term: &str, locale: &str, line: &str) -> Ran {
    let some = |text: &str| {
        Some(text)
            .filter(|text| !text.is_empty())
            .map(OsString::from)
    };
    let answers = if line.is_empty() || line.starts_with("buckets") {
        vec![ok(&canned::buckets())]
    } else {
        vec![ok(&canned::top(0))]
    };
    let loudou = Loudou {
        answers,
        terminal: Some(70),
        env: Env {
            no_color: Some("1".into()),
            term: some(term),
            locale: some(locale),
            ..Env::default()
        },
        ..Loudou::default()
    };
    loudou.run(line)
}

#[test]
fn ascii_where_the_terminal_or_the_locale_has_no_more() {
    for (term, locale, is_ascii) in [
        ("xterm-256color", "", false),
        ("xterm-256color", "en_US.UTF-8", false),
        ("screen", "C.utf8", false),
        ("linux", "en_US.UTF-8", true),
        ("xterm", "C", true),
        ("xterm", "POSIX", true),
        ("xterm", "de_DE.ISO-8859-1", true),
    ] {
        let ran = at(term, locale, "buckets");
        assert_eq!(
            ran.out.is_ascii(),
            is_ascii,
            "{term} {locale}: {}",
            ran.seen()
        );
    }
}

/// `TERM=dumb` is a terminal that cannot move its cursor.
#[test]
fn a_dumb_terminal_gets_the_table() {
    let why = "TERM=dumb: this terminal cannot show the screen; this is a table instead\n";
    for (line, has_reason) in [
        ("", true),
        ("top", true),
        ("top --interval 1s", true),
        ("top --limit 3", false),
        ("buckets", false),
    ] {
        let ran = at("dumb", "", line);
        assert!(
            ran.out.contains("RULE") && !ran.out.contains('\u{1b}'),
            "{line}: {}",
            ran.seen()
        );
        assert_eq!(ran.err == why, has_reason, "{line}: {}", ran.err);
        assert_eq!(ran.code, 0, "{line}");
    }
    assert!(at("dumb", "", "top --watch").out.contains("RULE"));
    // The list printed instead of the screen is the list of buckets.
    assert_eq!(at("dumb", "", "").out, at("dumb", "", "buckets").out);
}

/// The terminal may have more characters than its name suggests.
#[test]
fn the_flag_and_the_config_file_decide_about_ascii() {
    let file = std::env::temp_dir().join(format!("loudou-{}-ascii.toml", std::process::id()));
    let at = |config: &str, locale: &str, options: &str| {
        std::fs::write(&file, config).expect("writes");
        let line = format!("buckets {options} --config-file {}", file.display());
        at("xterm", locale, &line).out.is_ascii()
    };
    let (yes, no) = ("[screen]\nascii = true\n", "[screen]\nascii = false\n");
    assert!(at("", "C", ""));
    assert!(!at(no, "C", ""));
    assert!(!at("", "C", "--ascii=false"));
    assert!(!at(yes, "", "--ascii=false"));
    assert!(at(yes, "", ""));
    assert!(at(no, "", "--ascii"));
    std::fs::remove_file(&file).expect("removes");
}

#[test]
fn the_address_without_the_version() {
    let fake = Fake::new(vec![canned::not_found()]);
    let ran = Loudou::default().run(&format!("--url {}/v1 status", fake.url));
    assert!(
        ran.code == 2 && ran.err.contains("ends with /v1; leave it out"),
        "{}",
        ran.seen()
    );
    let fake = Fake::new(vec![canned::not_found()]);
    let ran = Loudou::default().run(&format!("--url {}/v1/ status", fake.url));
    assert!(ran.err.contains("leave it out"), "{}", ran.seen());
}
