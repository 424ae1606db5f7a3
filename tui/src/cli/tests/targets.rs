//! Reads the addresses of several Envoys from a file or a command.

use std::fs;

use super::canned::{self, ok};
use super::configured::Folder;
use super::*;

/// Returns a folder with one file for this test, and the path of the file.
fn file(name: &str, text: &str) -> (Folder, String) {
    let folder = Folder::new(&format!("targets-{name}"), &[("envoys", 0o600, text)]);
    let path = path(&folder, "envoys");
    (folder, path)
}

fn path(folder: &Folder, name: &str) -> String {
    folder.0.join(name).to_str().expect("UTF-8").to_owned()
}

fn rules() -> Fake {
    Fake::new(vec![ok(&canned::rules())])
}

/// Runs a line that names its Envoys. In the result, their addresses are replaced by A and B.
fn run(line: &str, a: &Fake, b: &Fake) -> Ran {
    let mut ran = Loudou::default().run(line);
    ran.out = ran.out.replace(&a.url, "A").replace(&b.url, "B");
    ran.err = ran.err.replace(&a.url, "A").replace(&b.url, "B");
    ran
}

/// Comments, empty lines and Windows line ends do not matter, and duplicate addresses count once.
/// The default address is not called.
#[test]
fn a_file_names_envoys() {
    let (a, b) = (rules(), rules());
    let text = format!(
        "# edge\r\n\r\n  {} # the first\r\n{}\r\n{}",
        a.url, b.url, a.url
    );
    let (_folder, file) = file("file", &text);
    let ran = run(&format!("rules --targets {file}"), &a, &b);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{}", ran.seen());
    let (first, second) = ran.out.split_once("\nB\n").expect("two blocks");
    assert_eq!(first, format!("A\n{second}"));
}

/// The options may come before or after the command, and are added to `--url`.
#[test]
fn a_command_prints_envoys_and_runs_once() {
    let (a, b) = (rules(), rules());
    let (folder, file) = file("command", &b.url);
    let runs = path(&folder, "runs");
    let line = format!(
        "--targets-from echo>>{runs};cat<{file} --url {} rules",
        a.url
    );
    let ran = run(&line, &a, &b);
    assert_eq!(ran.code, 0, "{}", ran.seen());
    assert!(
        ran.out.starts_with("A\n") && ran.out.contains("\nB\n"),
        "{}",
        ran.out
    );
    assert_eq!(fs::read_to_string(runs).expect("it ran"), "\n");
}

#[test]
fn a_change_is_made_at_all() {
    let banned = || ok(&loudou_api::BanAnswer::default());
    let (a, b) = (Fake::new(vec![banned()]), Fake::new(vec![banned()]));
    let (_folder, file) = file("change", &format!("{}\n{}\n", a.url, b.url));
    let ran = run(&format!("unban per-user mallory --targets {file}"), &a, &b);
    assert_eq!(ran.code, 0, "{}", ran.seen());
    for fake in [&a, &b] {
        let request = fake.request();
        let line = "POST /v1/buckets/per-user/mallory/unban HTTP/1.1";
        assert_eq!(request.lines().next(), Some(line));
    }
}

#[test]
fn a_command_for_one_envoy_refuses_several() {
    let (_folder, two) = file("two", "http://127.0.0.1:1\nhttp://127.0.0.1:2\n");
    for line in [
        "export",
        "events --follow",
        "rules --watch",
        "rules -o json",
    ] {
        let ran = Loudou::default().run(&format!("{line} --targets {two}"));
        assert_eq!(
            (ran.code, ran.out.as_str()),
            (2, ""),
            "{line}: {}",
            ran.seen()
        );
    }
    let ran = Loudou::default().run(&format!("export --targets {two}"));
    assert_eq!(
        ran.err,
        "loudou: this command takes one Envoy, and 2 are named\n"
    );
    // A file with one address is equivalent to `--url`.
    let fake = rules();
    let (_folder, one) = file("one", &fake.url);
    let ran = Loudou::default().run(&format!("rules -o json --targets {one}"));
    assert_eq!(ran.code, 0, "{}", ran.seen());
}

#[test]
fn without_an_envoy_nothing_is_asked() {
    let (folder, file) = file("none", "# nothing\n\n");
    for (options, code, words) in [
        (format!("--targets {file}"), 1, "names none"),
        (
            format!("--targets {}", path(&folder, "missing")),
            2,
            "cannot read",
        ),
        (
            "--targets-from false".to_owned(),
            1,
            "--targets-from \"false\" failed (exit status: 1)",
        ),
    ] {
        let ran = Loudou::default().run(&format!("{options} status"));
        assert_eq!((ran.code, ran.out.as_str()), (code, ""), "{}", ran.seen());
        assert!(ran.err.contains(words), "{}", ran.err);
    }
}

/// The command does not run if no Envoy is called.
#[test]
fn commands_without_envoys_are_unaffected() {
    let (folder, rules) = file("apart", "version: 1\nrules: []\n");
    let runs = path(&folder, "runs");
    let targets = format!("--targets-from echo>>{runs}");
    for line in [
        format!("check {rules}"),
        format!("explain --config {rules}"),
        "schema".to_owned(),
        "man".to_owned(),
    ] {
        let ran = Loudou::default().run(&format!("{targets} {line}"));
        assert_eq!(ran.code, 0, "{line}: {}", ran.seen());
    }
    assert!(!fs::exists(runs).expect("a folder"));
}

/// No Envoy is called, not even the valid addresses before the invalid one.
#[test]
fn a_bad_address_has_its_place() {
    let fake = rules();
    let long = "\0".repeat(10_000);
    for (bad, told) in [
        ("127.0.0.1:9911", "does not begin with"),
        (
            "http://127.0.0.1:99999",
            "a port is a number from 1 to 65535",
        ),
        ("dns:http://a:0", "a port is a number from 1 to 65535"),
        ("@edge", "no target @edge; the config file has none"),
        ("unix:run", "has no absolute path"),
        (long.as_str(), "…"),
    ] {
        let (_folder, file) = file("bad", &format!("# edge\n\n{}\n{bad} # x\n", fake.url));
        for (options, place) in [
            (
                format!("--targets {file}"),
                format!("loudou: {file}, line 4: "),
            ),
            (
                format!("--targets-from cat<{file}"),
                format!("loudou: --targets-from \"cat<{file}\", line 4: "),
            ),
        ] {
            let ran = Loudou::default().run(&format!("{options} status"));
            assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{}", ran.seen());
            assert!(ran.err.starts_with(&place), "{}", ran.err);
            assert!(
                ran.err.contains(told) && ran.err.len() < 2_000,
                "{}",
                ran.err
            );
        }
    }
    assert!(fake.try_request().is_none());
}

/// Windows editors begin a file with a byte order mark.
#[test]
fn a_byte_order_mark_is_no_address() {
    let fake = rules();
    let (_folder, file) = file("bom", &format!("\u{feff}{}\n", fake.url));
    let ran = Loudou::default().run(&format!("rules --targets {file}"));
    assert_eq!(ran.code, 0, "{}", ran.seen());
}

/// Standard error of a command is passed on, even if it succeeds.
#[test]
fn the_errors_of_a_command_are_shown() {
    let fake = rules();
    let (_folder, file) = file(
        "errors",
        &format!("echo old \u{1b}api >&2; echo {}", fake.url),
    );
    let ran = Loudou::default().run(&format!("rules --targets-from sh<{file}"));
    assert_eq!(
        (ran.code, ran.err.as_str()),
        (0, "old \\u{1b}api\n"),
        "{}",
        ran.seen()
    );
}

#[test]
fn a_list_has_an_end() {
    let (_folder, file) = file("many", &"http://127.0.0.1:1\n".repeat(4097));
    let ran = Loudou::default().run(&format!("rules --targets {file}"));
    assert_eq!(
        ran.err,
        format!("loudou: {file} names more than 4096 Envoys\n")
    );
}
