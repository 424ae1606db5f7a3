//! Regular expressions against the usual crate for them.

use loudou_rules::rule::Pattern;
use proptest::prelude::*;

use super::Fake;

fn holds(pattern: &str, value: &[u8]) -> bool {
    Pattern::new(pattern).expect(pattern).holds(value)
}

#[test]
fn a_value_matches_as_a_whole() {
    for (pattern, yes, no) in [
        ("/v[0-9]+/.*", "/v12/", "/v/x"),
        ("/v1", "/v1", "/v12"),
        ("a|bc", "bc", "abc"),
        ("^(?:a|b)*$", "abba", "abc"),
        ("(?i)/Api/x-[a-f]{2}", "/aPI/X-Bf", "/api/x-bg"),
        ("a{2,3}", "aaa", "aaaa"),
        ("a{2,}?", "aaaa", "a"),
        (r"\d+\.\w\s?", "12.x", "12xx"),
        (r"[\]\-a-c]+", "]-b", "]d"),
        ("[]a]+", "a]", "b"),
        ("[^/]+", "a\u{e9}b", "a/b"),
        ("\u{e9}+", "\u{e9}\u{e9}", "\u{e8}"),
        ("(a*)*", "aaa", "ab"),
        ("(|a)+b", "aab", "aa"),
        ("", "", "a"),
        ("x*", "", "y"),
    ] {
        assert!(holds(pattern, yes.as_bytes()), "{pattern} {yes}");
        assert!(!holds(pattern, no.as_bytes()), "{pattern} {no}");
    }
    assert!(holds("a.b", b"a\xffb") && !holds("a.b", b"a\nb"));
}

#[test]
fn what_is_wrong_is_told() {
    for text in [
        "a(b", "ab)", "*a", "a{3,2}", "[a", "[z-a]", "(?=a)", r"\1", r"a\", "a)|(b",
    ] {
        let wrong = Pattern::new(text).map(|_| ()).expect_err(text);
        assert!(!wrong.is_empty(), "{text}");
    }
}

#[test]
fn patterns_have_a_budget() {
    for long in [
        "((a{99}){99}){99}",
        "(((){255}){255}){255}",
        &"(".repeat(200),
        &"a".repeat(257),
    ] {
        assert!(Pattern::new(long).is_err(), "{long}");
    }
    assert!(Pattern::new(&"[a-z]{1,9}/".repeat(4)).is_ok());
}

/// Patterns that make a backtracking engine run for ever.
#[test]
fn no_value_takes_for_ever() {
    let value = [vec![b'a'; 60 * 1024], vec![b'!']].concat();
    for pattern in ["(a+)+", "(a|a)*", "(a?){20}", "(.*a){20}", "(a|aa)+b"] {
        assert!(!holds(pattern, &value), "{pattern}");
    }
}

#[test]
fn rules_ask_for_them() {
    let matches = |matches: serde_json::Value, request: &Fake| {
        let rule = super::rule(&serde_json::json!({ "match": matches }));
        rule.matches.holds(&mut request.clone())
    };
    let path = serde_json::json!({ "path": { "regex": "/v[0-9]+/.*" } });
    assert!(matches(path.clone(), &Fake::to("/v1/a?b#c")) && !matches(path, &Fake::to("/x?/v1/a")));
    let header = serde_json::json!({ "headers": [{ "name": "x", "regex": "a+" }] });
    assert!(matches(header.clone(), &Fake::default().with("x", "aa")));
    assert!(!matches(header, &Fake::default()));
}

/// Patterns that both engines read alike.
fn pattern() -> impl Strategy<Value = String> {
    const ATOMS: &[&str] = &[
        "a", "b", ".", "[ab]", "[^a]", r"\d", r"\W", r"\.", "[a-c-]", "^", "$", "(?:)",
    ];
    let atom = prop::sample::select(ATOMS).prop_map(str::to_string);
    atom.prop_recursive(5, 24, 4, |inner| {
        let repeat = prop::sample::select(&["*", "+", "?", "{2}", "{0,2}", "{1,}", "*?"][..]);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(|parts| parts.concat()),
            prop::collection::vec(inner.clone(), 1..4)
                .prop_map(|parts| format!("({})", parts.join("|"))),
            (inner, repeat).prop_map(|(inner, repeat)| format!("(?:{inner}){repeat}")),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2048) })]

    #[test]
    fn as_the_usual_crate(
        pattern in pattern(),
        values in prop::collection::vec(
            prop::collection::vec(prop::sample::select(&b"aabbc.1-\n\xff"[..]), 0..8), 8),
    ) {
        if let Ok(own) = Pattern::new(&pattern) {
            let usual = regex::Regex::new(&format!(r"\A(?:{pattern})\z")).expect("both read it");
            for value in values {
                let text = String::from_utf8_lossy(&value);
                prop_assert_eq!(own.holds(&value), usual.is_match(&text), "{} {:?}", pattern, text);
            }
        }
    }

    #[test]
    fn any_text_is_a_pattern_or_not(text in "[ab()|*+?{}0-9,^$.\\\\\\[\\]\\-]{0,24}|\\PC{0,12}", value in any::<Vec<u8>>()) {
        if let Ok(pattern) = Pattern::new(&text) {
            pattern.holds(&value);
        }
    }
}
