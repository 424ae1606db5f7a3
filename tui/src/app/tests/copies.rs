//! Copied texts, including the bytes that the terminal receives.

use base64::prelude::{BASE64_STANDARD, Engine as _};

use super::SIZE;
use crate::app::effects::Effect;
use crate::app::fixture::{banned, state, type_keys};
use crate::app::state::Mode;
use crate::term::clipboard;
use loudou_words::text::is_unsafe;

fn copied(effects: Vec<Effect>) -> Option<String> {
    effects.into_iter().find_map(|effect| match effect {
        Effect::Copy(text) => Some(text),
        _ => None,
    })
}

#[test]
fn keys_rules_and_command_lines_are_copied() {
    let mut state = state(SIZE, 3);
    let key = copied(type_keys(&mut state, "y"));
    assert_eq!(key.as_deref(), Some("mallory"));
    let line = copied(type_keys(&mut state, "b<C-y>"));
    let ban = "loudou ban reply-per-user mallory --for 10m";
    assert_eq!(line.as_deref(), Some(ban));
    let line = copied(type_keys(&mut state, "<ret><C-y>"));
    assert_eq!(line.as_deref(), Some(ban));
    assert!(matches!(state.mode, Mode::Confirm(_)), "it is still open");
    let rule = copied(type_keys(&mut state, "<esc>3y"));
    assert_eq!(rule.as_deref(), Some("reply-per-user"));
}

#[test]
fn rows_are_copied_as_lines() {
    let mut seen = Vec::new();
    for (keys, polls) in [
        ("Y", 3),
        ("Y", 1),
        ("<ret>Y", 3),
        ("/search<ret>Y", 3),
        ("3Y", 3),
        ("3Y", 1),
        ("3jY", 3),
        ("3jjY", 3),
        ("5Y", 3),
        ("Y", 0),
    ] {
        let mut state = if keys == "<ret>Y" {
            banned(SIZE, polls)
        } else {
            state(SIZE, polls)
        };
        let line = copied(type_keys(&mut state, keys));
        let toast = state.toasts.last().map(|toast| toast.text.clone());
        if let Some(line) = &line {
            assert_eq!(toast, Some(format!("copied: {line}")));
        }
        seen.push(format!("{keys} {polls}: {}", line.unwrap_or_default()));
    }
    insta::assert_snapshot!("copied_rows", seen.join("\n"));
}

/// A key with characters that a terminal or a shell would interpret is quoted, and the row is
/// copied as shown. The bytes for the terminal contain no such character.
#[test]
fn the_terminal_gets_base64() {
    let mut state = state(SIZE, 3);
    let key = copied(type_keys(&mut state, "/evil<ret>y")).expect("a key");
    assert_eq!(key, r"$'dave\x1b[31m\u202eevil'");
    let row = copied(type_keys(&mut state, "Y")).expect("a row");
    assert!(row.contains("dave\\u{1b}[31m\\u{202e}evil: "), "{row}");
    assert!(!row.chars().any(is_unsafe), "{row:?}");
    for text in [&key, &row] {
        let sent = clipboard(text);
        let body = sent.strip_prefix("\u{1b}]52;c;");
        let body = body
            .and_then(|body| body.strip_suffix('\u{7}'))
            .expect("OSC 52");
        assert!(
            body.chars()
                .all(|c| c.is_ascii_alphanumeric() || "+/=".contains(c)),
            "{body}"
        );
        assert_eq!(
            BASE64_STANDARD.decode(body).expect("base64"),
            text.as_bytes()
        );
    }
    assert_eq!(clipboard("mallory"), "\u{1b}]52;c;bWFsbG9yeQ==\u{7}");
}
