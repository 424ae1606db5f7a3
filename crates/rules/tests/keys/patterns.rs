//! Compares regular expressions with the crates that are usually used for them.

use loudou_rules::rule::pattern::{BUDGET, MAX_VALUE, MIN_VALUE};
use loudou_rules::rule::{Pattern, Truth};
use proptest::prelude::*;

use super::Fake;

fn holds(pattern: &str, value: &[u8]) -> bool {
    match Pattern::new(pattern).expect(pattern).holds(value) {
        Truth::Yes => true,
        Truth::No => false,
        Truth::TooLong => panic!("{pattern}: {} bytes are too long", value.len()),
    }
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
        "(?:a?){400}",
        "(?:[ab]*c?){250}",
        "a{513}",
        &"(".repeat(200),
        &"a".repeat(257),
    ] {
        assert!(Pattern::new(long).is_err(), "{long}");
    }
    assert!(Pattern::new(&"[a-z]{1,9}/".repeat(4)).is_ok());
    // A repetition of an empty pattern takes no time, for any number of repetitions.
    assert!(holds("(((){255}){255}){255}", b""));
    assert!(holds(
        &format!("(?:{}a){{100}}", "()".repeat(60)),
        &[b'a'; 100]
    ));
    let why = Pattern::new("(?:a?){400}").expect_err("too expensive");
    assert!(
        why.contains("400 characters") && why.contains("of at least 128"),
        "{why}"
    );
}

/// Every pattern that is accepted tests values of a useful length, within the budget.
#[test]
fn costlier_patterns_test_shorter_values() {
    let mut before = usize::MAX;
    for pattern in [
        "a",
        "/v[0-9]+/.*",
        "(?:.*a){30}x",
        "(?:.*a){60}x",
        "(?:.*a){90}x",
        "(?:a?){250}",
    ] {
        let pattern = Pattern::new(pattern).expect(pattern);
        let longest = pattern.longest();
        assert!(
            (MIN_VALUE..=MAX_VALUE).contains(&longest),
            "{} {longest}",
            pattern.text()
        );
        assert!(longest <= before, "{} {longest}", pattern.text());
        assert!(pattern.worst_ns() <= BUDGET && pattern.bytes() < 30_000);
        before = longest;
    }
}

/// One byte more than is tested leaves the match open, unless the beginning decides.
#[test]
fn longer_values_stay_open_unless_their_beginning_decides() {
    let of = |pattern: &str, byte: &str, more: usize| {
        let pattern = Pattern::new(pattern).expect(pattern);
        let value = byte.repeat((pattern.longest() + more).div_ceil(byte.len()));
        pattern.holds(value.as_bytes())
    };
    assert_eq!(of("a*", "a", 0), Truth::Yes);
    assert_eq!(of("a*", "a", 1), Truth::TooLong);
    assert_eq!(of("a*", "a", 60_000), Truth::TooLong);
    assert_eq!(of("(?:.*a){60}x", "a", 60_000), Truth::TooLong);
    // No continuation of these beginnings can match.
    assert_eq!(of("/v1/.*", "a", 60_000), Truth::No);
    assert_eq!(of("a{3,5}", "a", 60_000), Truth::No);
    // A character that is split by the end of the tested part is not invalid.
    for before in ["", "a", "aa"] {
        let pattern = Pattern::new("a*\u{2603}*").expect("valid");
        let value = format!("{before}{}", "\u{2603}".repeat(9_000));
        assert_eq!(pattern.holds(value.as_bytes()), Truth::TooLong, "{before}");
    }
}

/// The cost of a pattern is determined by the characters that reach most of it, not by all its
/// characters.
#[test]
fn what_no_character_reaches_at_once_costs_nothing() {
    let words = Pattern::new("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")
        .expect("valid");
    let same = Pattern::new("a{62}").expect("valid");
    assert!(words.longest() > 2 * same.longest());
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

/// Patterns of everything that the syntax has.
fn pattern() -> impl Strategy<Value = String> {
    const ATOMS: &[&str] = &[
        "a",
        "b",
        "c",
        ".",
        "[ab]",
        "[^a]",
        r"\d",
        r"\W",
        r"\w",
        r"\s",
        r"\.",
        "[a-c-]",
        "[^[:alpha:]\u{e9}]",
        "^",
        "$",
        r"\A",
        r"\z",
        r"\b",
        r"\B",
        r"\<",
        r"\>",
        r"\b{start-half}",
        r"\b{end-half}",
        "(?:)",
        "(?i)",
        "(?m)",
        "(?s)",
        "(?R)",
        "(?-m)",
        "(?x) a b # c\n",
        "(?i:B)",
        "\u{e9}",
        "[\u{e0}-\u{ff}]",
        r"\x{2603}",
        r"\n",
        r"\r",
        "[[:^digit:]]",
        r"[\d_]",
        r"\xe9",
    ];
    const TIMES: &[&str] = &[
        "*", "+", "?", "{2}", "{0,2}", "{1,}", "*?", "{3,}", "{0}", "{2,4}?", "??", "{0,}+", "*{2}",
    ];
    let atom = prop::sample::select(ATOMS).prop_map(str::to_string);
    atom.prop_recursive(5, 24, 4, |inner| {
        let repeat = prop::sample::select(TIMES);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(|parts| parts.concat()),
            prop::collection::vec(inner.clone(), 1..4)
                .prop_map(|parts| format!("({})", parts.join("|"))),
            (inner, repeat).prop_map(|(inner, repeat)| format!("(?:{inner}){repeat}")),
        ]
    })
}

/// Values of pieces that the patterns distinguish, some of which are not UTF-8.
fn value() -> impl Strategy<Value = Vec<u8>> {
    const PIECES: &[&[u8]] = &[
        b"a",
        b"a",
        b"a",
        b"b",
        b"c",
        b"B",
        b"_",
        b".",
        b"1",
        b"-",
        b" ",
        b"\n",
        b"\r",
        b"\r\n",
        b"\xff",
        "\u{e9}".as_bytes(),
        b"\xc3",
        "\u{2603}".as_bytes(),
        b"\xe2\x98",
        "\u{10ffff}".as_bytes(),
    ];
    let pieces = prop::collection::vec(prop::sample::select(PIECES), 0..9);
    pieces.prop_map(|pieces| pieces.concat())
}

/// Returns the pattern in the regex-lite crate, for which rule files were first written.
fn usual(pattern: &str) -> Option<regex_lite::Regex> {
    let compile = |pattern: &str| regex_lite::RegexBuilder::new(pattern).build().ok();
    compile(pattern)?;
    compile(&format!(r"\A(?:{pattern})\z")).or_else(|| compile(&format!("\\A(?:{pattern}\n)\\z")))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(4096) })]

    #[test]
    fn as_the_usual_crate(pattern in pattern(), values in prop::collection::vec(value(), 12)) {
        let (own, usual) = (Pattern::new(&pattern), usual(&pattern));
        // Both read the same patterns, except large ones.
        let too_large = own.as_ref().err().is_some_and(|why| why.starts_with("too "));
        prop_assert!(own.is_ok() == usual.is_some() || too_large, "{} {:?}", pattern, own);
        // Patterns that regex-lite accepted are still accepted.
        let earlier = regex_lite::RegexBuilder::new(&pattern).size_limit(12 << 10).build();
        prop_assert!(own.is_ok() || earlier.is_err(), "{} {:?}", pattern, own);
        if let (Ok(own), Some(usual)) = (own, usual) {
            for value in values {
                let text = String::from_utf8_lossy(&value);
                let expected = Truth::from(usual.is_match(&text));
                prop_assert_eq!(own.holds(&value), expected, "{} {:?}", pattern, text);
            }
        }
    }

    #[test]
    fn any_text_is_a_pattern_or_not(
        text in "[ab()|*+?{}0-9,^$.\\\\\\[\\]\\-:bBdx<>]{0,24}|\\PC{0,12}",
        value in any::<Vec<u8>>(),
    ) {
        let (own, usual) = (Pattern::new(&text), usual(&text));
        if let Some(usual) = usual {
            let own = own.map(|own| own.holds(&value)).map_err(|why| why.starts_with("too "));
            let expected = Truth::from(usual.is_match(&String::from_utf8_lossy(&value)));
            prop_assert!(own == Ok(expected) || own == Err(true), "{}: {:?}", text, own);
        }
    }
}
