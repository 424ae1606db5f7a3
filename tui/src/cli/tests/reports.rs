//! `loudou replay --output html`, and the tables of `--output csv`.

use std::fmt::Write as _;

use serde_json::json;

use super::*;

const RULES: &str = "../tests/traces/summaries/summary.rules.json";
const OTHER: &str = "../tests/traces/summaries/other.rules.yaml";

fn replay(input: &str, options: &str) -> Ran {
    let loudou = Loudou {
        input,
        ..Loudou::default()
    };
    loudou.run(&format!("replay {options}"))
}

/// Returns two minutes of some users, one of whom sends a burst, and a line that is not a request.
fn log() -> String {
    let mut log = String::new();
    for second in 0..120_u64 {
        for user in 0..6 {
            let times = if user == 0 && second == 60 { 200 } else { 1 };
            let line = json!({
                "at_ns": 1_714_550_402_000_000_000 + second * 1_000_000_000 + user,
                "path": if user == 1 { "/shaped" } else { "/" },
                "headers": { "x-user-id": format!("user-{user}") },
                "source": "10.0.0.1",
            });
            log.push_str(&format!("{line}\n").repeat(times));
        }
    }
    log + "no request\n"
}

#[test]
fn a_page() {
    let log = log();
    let page = |options: &str| {
        let seen = replay(&log, options).seen();
        let (head, rest) = seen.split_once("<style>\n").expect("a style");
        let (_, body) = rest.split_once("</style>").expect("its end");
        format!("{head}<style></style>{body}")
    };
    let one = format!("--config {RULES} -o html");
    assert_snapshot!("replay_html", page(&one));
    let both = format!("--config {RULES} --compare {OTHER} -o html");
    assert_snapshot!("replay_html_compare", page(&both));
    let suggest = "--key {\"header\":\"x-user-id\"} --suggest --rates 1/s,10/s,5/m -o html";
    assert_snapshot!("replay_html_suggest", page(suggest));
}

/// Keys that would be interpreted as markup, and keys that would reorder or hide the text around
/// them.
const HOSTILE: [&str; 12] = [
    "<script>alert(1)</script>",
    "\"><img src=x onerror=alert(1)>",
    "' onmouseover='alert(1)",
    "</style><style>*{display:none}",
    "</title></pre></table>",
    "]]>",
    "--><!--",
    "&lt;b&gt;&#x3c;b>",
    "a\u{202e}b\u{2066}c\u{200b}",
    "\u{0}\u{1b}[31m\u{7}\r\n",
    "{{constructor.constructor('alert(1)')()}}",
    "javascript:alert(1)",
];

#[test]
fn a_hostile_log_is_text() {
    let mut log = String::new();
    for key in HOSTILE.iter().cycle().take(20 * HOSTILE.len()) {
        let line = json!({
            "at_ns": 1, "path": key, "host": key, "source": key,
            "headers": { "x-user-id": key, "referer": key, "x-forwarded-for": key },
        });
        writeln!(log, "{line}\n{key}").expect("a string");
    }
    let rules = "../tests/traces/funnel.rules.json";
    for options in [
        format!("--config {rules} -o html"),
        format!("--config {rules} --compare {OTHER} -o html"),
        "--key {\"header\":\"x-user-id\"} --suggest -o html".to_owned(),
        "--key path --suggest -o html".to_owned(),
    ] {
        let ran = replay(&log, &options);
        assert_eq!(ran.code, 0, "{}", ran.err);
        let page = ran.out;
        let is_bad = |c: char| c != '\n' && is_unsafe(c);
        assert!(!page.contains(is_bad), "{page}");
        for name in tags(&page) {
            assert!(TAGS.contains(&name.as_str()), "<{name}> in {page}");
        }
        for once in [
            "<html ", "<head>", "<body>", "<main>", "<style>", "</style>", "</html>",
        ] {
            assert_eq!(page.matches(once).count(), 1, "{once} in {page}");
        }
        let inside = page.split('<').filter_map(|part| part.split_once('>'));
        for (tag, _) in inside {
            let is_active = [" onerror=", " onmouseover=", " href=", " src="]
                .iter()
                .any(|name| tag.contains(name));
            assert!(!is_active, "<{tag}> in {page}");
        }
    }
    let page = replay(&log, &format!("--config {rules} -o html")).out;
    assert!(
        page.contains("&lt;script&gt;alert(1)&lt;/script&gt;"),
        "{page}"
    );
    assert!(page.contains("default-src 'none'; style-src 'unsafe-inline'"));
}

/// Elements of a page.
const TAGS: [&str; 44] = [
    "!doctype",
    "html",
    "head",
    "meta",
    "title",
    "style",
    "body",
    "header",
    "main",
    "footer",
    "section",
    "h1",
    "h2",
    "h3",
    "p",
    "b",
    "i",
    "ul",
    "li",
    "dl",
    "dt",
    "dd",
    "div",
    "span",
    "code",
    "pre",
    "table",
    "thead",
    "tbody",
    "tr",
    "th",
    "td",
    "details",
    "summary",
    "figure",
    "figcaption",
    "svg",
    "g",
    "defs",
    "pattern",
    "rect",
    "line",
    "text",
    "circle",
];

/// Returns the names of all opened elements.
fn tags(page: &str) -> Vec<String> {
    let parts = page.split('<').skip(1);
    let parts = parts.filter(|part| !part.starts_with('/'));
    let end = |c: char| c.is_whitespace() || c == '>';
    let names = parts.filter_map(|part| part.split(end).next());
    names.map(str::to_owned).collect()
}

#[test]
fn only_replay_writes_pages() {
    for line in ["status -o html", "-o html", "check x.yaml --output html"] {
        let ran = Loudou::default().run(line);
        assert_eq!(ran.code, 2, "{}", ran.seen());
        let words = "--output html is only for replay; write table, json, jsonl or csv";
        assert!(ran.err.contains(words), "{}", ran.err);
    }
    // The option may also come before the command.
    let loudou = Loudou::default();
    let ran = loudou.run(&format!("-o html replay --config {RULES}"));
    assert!(ran.out.starts_with("<!doctype html>"), "{}", ran.seen());
    let wrong = replay("", &format!("--config {RULES} -o xml"));
    assert!(
        wrong.err.contains("table, json, jsonl, csv, html"),
        "{}",
        wrong.err
    );
}

#[test]
fn tables_of_csv() {
    let log = log();
    for table in ["keys", "timeline"] {
        let options = format!("--config {RULES} --compare {OTHER} -o csv --table {table}");
        let ran = replay(&log, &options);
        let mut lines = ran.out.lines();
        let columns = lines.next().map(|line| line.split(',').count());
        assert!(lines.all(|line| Some(line.split(',').count()) == columns));
        assert_snapshot!(format!("replay_csv_{table}"), ran.seen());
    }
    let rules = replay(&log, &format!("--config {RULES} -o csv --table rules"));
    let default = replay(&log, &format!("--config {RULES} -o csv"));
    assert_eq!(rules.seen(), default.seen());
    let wrong = replay(&log, &format!("--config {RULES} --table keys"));
    assert_eq!(wrong.code, 2, "{}", wrong.seen());
    assert!(
        wrong
            .err
            .contains("--table chooses a table of --output csv")
    );
}

/// The log has 12 keys. The first rule file refuses all of them, and the second none.
#[test]
fn the_number_of_keys_in_each_output() {
    let limits = |capacity: u32| {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        let limit = json!({ "algorithm": "funnel", "capacity": capacity, "rate": "1/d" });
        let rule = json!({ "name": "r", "key": [{ "header": "x-user-id" }], "limits": [limit] });
        let rules = json!({ "version": 1, "rules": [rule] }).to_string();
        std::io::Write::write_all(&mut file, rules.as_bytes()).expect("room");
        file
    };
    let (strict, loose) = (limits(1), limits(100));
    let mut log = String::new();
    for user in 0..12_usize {
        let line = json!({ "at_ns": user, "headers": { "x-user-id": format!("user-{user:02}") } });
        log.push_str(&format!("{line}\n").repeat(user + 2));
    }
    let run = |options: &str| {
        let (one, other) = (strict.path().display(), loose.path().display());
        let ran = replay(&log, &format!("--config {one} --compare {other} {options}"));
        assert_eq!(ran.code, 0, "{}", ran.seen());
        ran.out
    };
    // The first line has the names of the columns.
    let records = |options: &str| {
        run(&format!("-o csv --table keys {options}"))
            .lines()
            .count()
    };
    assert_eq!(records(""), 13, "all of them");
    assert_eq!(records("--keys 3"), 4);
    for (options, count) in [("", 10), ("--keys 3", 3), ("--keys 4294967295", 12)] {
        let document = run(&format!("-o json {options}"));
        let document: serde_json::Value = serde_json::from_str(&document).expect("JSON");
        let length = |pointer: &str| {
            let list = document.pointer(pointer).and_then(|list| list.as_array());
            list.map(Vec::len)
        };
        assert_eq!(length("/refused_keys/most"), Some(count), "{options}");
        assert_eq!(length("/compare/0/changes/keys"), Some(count), "{options}");
        let table = run(options);
        let rows = table.lines().filter(|line| line.contains("user-"));
        assert_eq!(rows.count(), count, "{options}: {table}");
    }
    let one = strict.path().display();
    for options in [
        "--keys 0",
        "--keys 5 -o jsonl",
        "--keys 5 -o csv",
        "--keys 5 -o csv --table timeline",
        "--keys 5 --suggest",
    ] {
        let ran = replay(&log, &format!("--config {one} {options}"));
        assert_eq!(ran.code, 2, "{options}: {}", ran.seen());
    }
}
