//! Keys are unambiguous, printable, and bounded.

use loudou_rules::rule::key::{KEY_OF_ALL, KEY_OF_MISSING, Key};
use loudou_store::names::MAX_KEY;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Fake, rule};

fn key_of(fields: &Value, request: &mut Fake) -> Key {
    rule(fields).key_of(request)
}

fn bucket(key: &str) -> Key {
    Key::Bucket(key.to_string())
}

/// The key of a rule with one header part for each of `parts`.
fn key_of_parts(parts: &[Vec<u8>]) -> String {
    let mut request = Fake::default();
    let mut key = Vec::new();
    for (index, part) in parts.iter().enumerate() {
        let name = format!("x-{index}");
        request = request.with(&name, part.clone());
        key.push(json!({ "header": name }));
    }
    match key_of(&json!({ "key": key }), &mut request) {
        Key::Bucket(key) => key,
        other => panic!("{other:?} for {parts:?}"),
    }
}

#[test]
fn every_part_has_its_value() {
    let key = json!([{ "header": "X-User-Id" }, "source", "path", "route", { "literal": "v:2" }]);
    let mut request = Fake {
        source: Some(b"2001:db8::1".to_vec()),
        route: Some(b"replies".to_vec()),
        ..Fake::to("/reply/7?token=secret#x").with("x-user-id", "alice")
    };
    assert_eq!(
        key_of(&json!({ "key": key }), &mut request),
        bucket("alice:2001%3Adb8%3A%3A/64:/reply/7:replies:v%3A2")
    );
    assert_eq!(key_of(&json!({}), &mut request), bucket(KEY_OF_ALL));
    assert_eq!(
        key_of(
            &json!({ "key": [{ "literal": "x" }] }),
            &mut Fake::default()
        ),
        bucket("x")
    );
}

#[test]
fn what_is_not_plain_is_escaped() {
    for (part, key) in [
        (b"a:b".as_slice(), "a%3Ab"),
        (b"100%", "100%25"),
        (b"~all", "%7Eall"),
        (b"~missing", "%7Emissing"),
        (b"a b", "a%20b"),
        (b"\r\n\x1b[2J\0\x7f", "%0D%0A%1B[2J%00%7F"),
        (b"\xff\xfe", "%FF%FE"),
        ("é".as_bytes(), "%C3%A9"),
        (b"%3A", "%253A"),
        (b"AZaz09!$&'()*+,;=@/?", "AZaz09!$&'()*+,;=@/?"),
    ] {
        assert_eq!(key_of_parts(&[part.to_vec()]), key);
    }
    let colons = [b":".to_vec(), b":".to_vec()];
    assert_eq!(key_of_parts(&colons), "%3A:%3A");
}

/// A part that is absent or empty is missing, even if the other parts are present.
#[test]
fn a_missing_part_has_a_policy() {
    let key = json!([{ "header": "x-team" }, { "literal": "v1" }, { "header": "x-user" }]);
    let complete = || Fake::default().with("x-team", "t").with("x-user", "u");
    let absent = Fake::default().with("x-team", "t");
    let empty = complete().with("x-user", "");
    let first_empty = complete().with("x-team", "");
    for (policy, missing) in [
        ("skip", Key::Skip),
        ("refuse", Key::Refuse),
        ("share", bucket(KEY_OF_MISSING)),
    ] {
        let fields = json!({ "key": key, "on_missing_key": policy });
        assert_eq!(key_of(&fields, &mut complete()), bucket("t:v1:u"));
        for request in [&absent, &empty, &first_empty, &Fake::default()] {
            assert_eq!(key_of(&fields, &mut request.clone()), missing);
        }
    }
    for part in ["source", "route", "path"] {
        assert_eq!(
            key_of(&json!({ "key": [part] }), &mut Fake::default()),
            Key::Skip
        );
        let mut empty = Fake {
            source: Some(Vec::new()),
            route: Some(Vec::new()),
            ..Fake::to("?only=query")
        };
        assert_eq!(
            key_of(&json!({ "key": [part] }), &mut empty),
            Key::Skip,
            "{part}"
        );
    }
}

/// Around the length at which a key is cut, keys of all lengths differ.
#[test]
fn long_keys_are_cut_and_still_differ() {
    assert_eq!(MAX_KEY, 128);
    let mut seen = Vec::new();
    for length in 90..400 {
        for key in [
            key_of_parts(&[vec![b'a'; length]]),
            key_of_parts(&[vec![b'a'; length], b"b".to_vec()]),
            key_of_parts(&[b"b".to_vec(), vec![b':'; length]]),
            key_of_parts(&[vec![b'a'; length], vec![b'a'; length]]),
        ] {
            assert!(key.len() <= MAX_KEY, "{key}");
            assert!(!seen.contains(&key), "{length}: {key}");
            seen.push(key);
        }
    }
    let short = key_of_parts(&[vec![b'a'; 128]]);
    assert_eq!(short, "a".repeat(128));
    let long = key_of_parts(&[vec![b'a'; 129]]);
    assert!(long.starts_with(&("a".repeat(95) + "~")), "{long}");
    assert_eq!(long.len(), 128);
}

/// An override or a ban of a long key applies in every process. The hash is from another implementation.
#[test]
fn the_hash_of_a_long_key_is_the_same_everywhere() {
    assert_eq!(
        key_of_parts(&[vec![b'a'; 500]]),
        format!("{}~6a9c8729e7fc01f5729e0b49282848ab", "a".repeat(95))
    );
}

#[test]
fn huge_values_are_bounded() {
    for byte in [b'a', b':', 0, 0xff] {
        let parts = vec![vec![byte; 60 * 1024]; 16];
        let key = key_of_parts(&parts);
        assert_eq!(key.len(), MAX_KEY);
        let mut other = parts.clone();
        other[15][60 * 1024 - 1] = b'x';
        assert_ne!(key_of_parts(&other), key, "the last byte counts");
        let mut other = parts;
        other[7][100] = b'x';
        assert_ne!(key_of_parts(&other), key);
    }
}

fn part() -> impl Strategy<Value = Vec<u8>> {
    let tricky = prop::sample::select(vec![b':', b'%', b'~', b'a', b'3', b'A', 0, 0xff, b' ']);
    prop_oneof![
        3 => prop::collection::vec(tricky.clone(), 1..6),
        1 => prop::collection::vec(any::<u8>(), 1..20),
        1 => prop::collection::vec(tricky, 20..200),
        1 => (any::<u8>(), 90..140_usize).prop_map(|(byte, length)| vec![byte; length]),
    ]
}

fn parts() -> impl Strategy<Value = Vec<Vec<u8>>> {
    prop::collection::vec(part(), 1..5)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1024) })]

    #[test]
    fn different_parts_give_different_keys(a in parts(), b in parts()) {
        prop_assert_eq!(key_of_parts(&a) == key_of_parts(&b), a == b);
    }

    /// Equal bytes that are split into parts at other places give another key.
    #[test]
    fn the_places_of_the_cuts_count(
        bytes in prop::collection::vec(prop::sample::select(vec![b':', b'%', b'3', b'A']), 4..160),
        (a, b) in (any::<prop::sample::Index>(), any::<prop::sample::Index>()),
    ) {
        let cut = |at: &prop::sample::Index| 1 + at.index(bytes.len() - 1);
        let split = |at: usize| [bytes[..at].to_vec(), bytes[at..].to_vec()];
        let (a, b) = (cut(&a), cut(&b));
        prop_assert_eq!(key_of_parts(&split(a)) == key_of_parts(&split(b)), a == b);
        prop_assert_ne!(key_of_parts(&split(a)), key_of_parts(std::slice::from_ref(&bytes)));
    }

    #[test]
    fn keys_can_be_shown_anywhere(parts in parts()) {
        let key = key_of_parts(&parts);
        prop_assert!(!key.is_empty() && key.len() <= MAX_KEY);
        prop_assert!(key.bytes().all(|b| b.is_ascii_graphic()), "{}", key);
        prop_assert!(key != KEY_OF_ALL && key != KEY_OF_MISSING);
    }
}
