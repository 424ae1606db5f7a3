//! A worker with a rule file that uses every part of a request, and requests written as text.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use loudou_filter::fuzzing::{LeftState, World};
use loudou_filter::plugin::{self, Plugin};
use loudou_rules::config::AdminSettings;
use loudou_rules::rule::RuleFile;

use super::{metadata, split};

const RULES: &[u8] = include_bytes!("../rules.json");
/// The tokens are `edit` and `view`.
const ADMIN: &[u8] = br#"{ "version": 1, "admin": { "role": "admin", "tokens": [
    { "name": "ops", "may": "edit", "sha256": "262121c5372be8af3ae6ff0d3d138d9e6e1249335222c7f0e02535e35073bb0b" },
    { "name": "wall", "may": "view", "sha256": "2bcb43cbc8f6b7ef66331532881143fcbae60a879db3a8fb853f645bb24c2b3c" }
] } }"#;

static SETTINGS: LazyLock<Option<(RuleFile, AdminSettings)>> = LazyLock::new(|| {
    let (Plugin::Data(file, _), _) = plugin::read(RULES).ok()? else {
        return None;
    };
    let (Plugin::Admin(admin), _) = plugin::read(ADMIN).ok()? else {
        return None;
    };
    Some((file, admin))
});

/// A new worker.
pub(super) fn new() -> World {
    over(&LeftState::nothing())
}

/// A new worker over the shared data of an earlier one.
pub(super) fn over(left: &LeftState) -> World {
    let settings = SETTINGS.as_ref();
    assert!(settings.is_some(), "the rules of the fuzzer are invalid");
    let (file, admin) = settings.cloned().unwrap_or_default();
    World::new(file, admin, left)
}

/// Sets a request: `METHOD PATH`, then a line for each header, and after an empty line the body. A name
/// that begins with `@` is an Envoy property, whose steps are separated by dots. `@metadata.NAMESPACE.KEY` is a
/// text in the dynamic metadata.
pub(super) fn set(world: &World, text: &[u8]) -> bool {
    let (first, rest) = split(text, b'\n');
    let (method, path) = split(first, b' ');
    let mut headers = vec![
        (":method".to_owned(), method.to_vec()),
        (":path".to_owned(), path.to_vec()),
    ];
    let mut properties = BTreeMap::new();
    let mut rest = rest;
    while !rest.is_empty() {
        let (line, more) = split(rest, b'\n');
        rest = more;
        if line.is_empty() {
            break;
        }
        let (name, value) = split(line, b'=');
        let name = String::from_utf8_lossy(name).to_ascii_lowercase();
        match name.strip_prefix('@') {
            Some(name) => match name
                .strip_prefix("metadata.")
                .and_then(|path| path.split_once('.'))
            {
                Some((namespace, key)) => {
                    let all: &mut Vec<u8> = properties.entry("metadata".to_owned()).or_default();
                    all.extend(metadata::of_text(namespace, key, value));
                }
                None => drop(properties.insert(name.replace('.', "\0"), value.to_vec())),
            },
            None => headers.push((name, value.to_vec())),
        }
    }
    world.request(headers, properties, rest);
    !rest.is_empty()
}

/// The requests of an input.
pub(super) fn requests(input: &[u8]) -> impl Iterator<Item = &[u8]> {
    input.split(|byte| *byte == 0x1e).take(32)
}

/// Panics if a text for a header or a log line has control characters.
pub(super) fn check_texts<'a>(texts: impl IntoIterator<Item = &'a str>) {
    for text in texts {
        let bad = text.chars().find(|c| c.is_control());
        assert!(bad.is_none(), "a control character in {text:?}");
    }
}
