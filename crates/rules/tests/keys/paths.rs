//! Paths as parts of keys. Different spellings of a path have the same key.

use std::borrow::Cow;

use loudou_rules::rule::paths::normal;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Fake, rule};

fn key(part: &Value, path: &str) -> Option<String> {
    let rule = rule(&json!({ "key": [part] }));
    rule.find_key(&mut Fake::to(path)).ok()
}

#[test]
fn spellings_of_one_path_share_a_key() {
    for path in [
        "/reply",
        "/reply/",
        "//reply",
        "/reply//",
        "/./reply/.",
        "/x/../reply",
        "/x/..;y/reply",
        "/%2e%2E/reply",
        "/../../reply",
        "/reply;a=b",
        "/;x/reply;jsessionid=1/",
        "/%72epl%79",
        "/reply?x",
        "/reply/#x",
    ] {
        assert_eq!(
            key(&json!("path"), path).as_deref(),
            Some("/reply"),
            "{path}"
        );
    }
}

#[test]
fn what_upstreams_may_tell_apart_stays() {
    for (path, kept) in [
        ("/REPLY", "/REPLY"),
        ("/reply%20", "/reply%2520"),
        ("/a%2fb", "/a%252Fb"),
        ("/a%3Bb", "/a%253Bb"),
        ("/a%252Fb", "/a%25252Fb"),
        ("/a+b", "/a+b"),
        ("/a%", "/a%25"),
        ("/a%4", "/a%254"),
        ("/a%zz", "/a%25zz"),
        ("/a\\b", "/a\\b"),
        ("/reply.", "/reply."),
        ("/...", "/..."),
        ("/", "/"),
        ("/..", "/"),
        ("///", "/"),
        ("*", "*"),
    ] {
        assert_eq!(key(&json!("path"), path).as_deref(), Some(kept), "{path}");
    }
}

#[test]
fn a_path_can_be_the_key_as_it_is() {
    let raw = json!({ "path": { "normalize": false } });
    assert_eq!(key(&raw, "//a/./b;c/").as_deref(), Some("//a/./b;c/"));
    let two = json!({ "path": { "segments": 2, "normalize": false } });
    assert_eq!(key(&two, "//a/b").as_deref(), Some("//a"));
    let two = json!({ "path": { "segments": 2 } });
    assert_eq!(key(&two, "//a/x/../b/c").as_deref(), Some("/a/b"));
    assert_eq!(key(&two, "/a/").as_deref(), Some("/a"));
}

/// A piece of a text, which is an escape, a `%` without digits, or another byte.
enum Piece {
    Escape(u8),
    Stray,
    Plain(u8),
}

fn pieces(mut text: &[u8]) -> Vec<Piece> {
    let mut pieces = Vec::new();
    while let [first, rest @ ..] = text {
        let digits = rest.get(..2).and_then(|two| std::str::from_utf8(two).ok());
        let digits = digits.filter(|two| two.bytes().all(|b| b.is_ascii_hexdigit()));
        text = rest;
        pieces.push(match (first, digits) {
            (b'%', Some(two)) => {
                text = &rest[2..];
                Piece::Escape(u8::from_str_radix(two, 16).expect("digits"))
            }
            (b'%', None) => Piece::Stray,
            (byte, _) => Piece::Plain(*byte),
        });
    }
    pieces
}

fn decoded(segment: &[u8]) -> Vec<u8> {
    let pieces = pieces(segment);
    let mut out = Vec::new();
    for (at, piece) in pieces.iter().enumerate() {
        // A digit must not complete an escape that the client did not write.
        let completes = match &pieces[..at] {
            [.., Piece::Stray] => true,
            [.., Piece::Stray, Piece::Plain(byte)] => byte.is_ascii_hexdigit(),
            _ => false,
        };
        match piece {
            Piece::Stray => out.push(b'%'),
            Piece::Plain(byte) => out.push(*byte),
            Piece::Escape(byte) => {
                let unreserved = byte.is_ascii_alphanumeric() || b"-._~".contains(byte);
                if unreserved && !(completes && byte.is_ascii_hexdigit()) {
                    out.push(*byte);
                } else {
                    out.extend(format!("%{byte:02X}").bytes());
                }
            }
        }
    }
    out
}

/// The normal form, written for clarity.
fn model(path: &[u8]) -> Vec<u8> {
    let [b'/', inner @ ..] = path else {
        return path.to_vec();
    };
    let mut kept: Vec<Vec<u8>> = Vec::new();
    for segment in inner.split(|b| *b == b'/') {
        let end = segment.iter().position(|b| *b == b';');
        let segment = decoded(&segment[..end.unwrap_or(segment.len())]);
        match segment.as_slice() {
            b"" | b"." => {}
            b".." => drop(kept.pop()),
            _ => kept.push(segment),
        }
    }
    [&b"/"[..], &kept.join(&b'/')].concat()
}

fn hostile() -> impl Strategy<Value = Vec<u8>> {
    const PIECES: [&str; 24] = [
        "/", "/", "//", ".", "..", ";", "%", "%2", "%2e", "%2E", "%2F", "%3b", "%25", "%34", "%41",
        "%ff", "%zz", "a", "4", "F", "~", "\\", " ", "é",
    ];
    let text = prop::collection::vec(prop::sample::select(&PIECES[..]), 0..14);
    prop_oneof![
        text.prop_map(|pieces| format!("/{}", pieces.concat()).into_bytes()),
        prop::collection::vec(any::<u8>(), 0..40),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(8_192) })]

    #[test]
    fn normal_paths(path in hostile()) {
        let once = normal(&path);
        prop_assert_eq!(&*once, &model(&path)[..]);
        prop_assert!(once.len() <= path.len());
        let twice = normal(&once);
        prop_assert_eq!(&*twice, &*once);
        let has_strays = pieces(&path).iter().any(|piece| matches!(piece, Piece::Stray));
        if once == path && !has_strays {
            prop_assert!(matches!(once, Cow::Borrowed(_)), "allocates");
        }
    }
}

#[test]
fn huge_paths_take_linear_time() {
    // Seconds, if each `..` looked at all segments before it.
    let path = ["/", &"a/".repeat(500_000), &"../".repeat(400_000)].concat();
    assert_eq!(normal(path.as_bytes()).len(), 200_000);
    let strays = ["/", &"%".repeat(1_000_000)].concat();
    assert_eq!(normal(strays.as_bytes()).len(), 1_000_001);
}
