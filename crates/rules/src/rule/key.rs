//! Computes the key of a request under a rule. The key identifies the request's bucket.
//!
//! The parts of a key are joined with `:`. Bytes other than printable ASCII, as well as `%`, `:`
//! and `~`, are written as `%XX`. A key is therefore safe to show anywhere, and two different lists
//! of parts never produce the same key. A key longer than [`MAX_KEY`] bytes is truncated and ends
//! with a `~` and a hash of the whole key. Escaped parts never contain a `~`, so a truncated key
//! never equals a complete key.
//!
//! A request has the same key in every process, so that the key's overrides and bans apply
//! everywhere. The hash therefore cannot involve a secret. Two long keys with the same hash and the
//! same first 95 bytes would share a bucket, overrides and bans. An attacker who found a key that
//! collides with another client's key could exhaust that client's limit or benefit from its
//! override, even without control over the other key parts. To prevent this, the hash is SHA-256;
//! see [`StableHasher`].

use alloc::borrow::Cow;
use alloc::string::String;

use loudou_limiter::hash::StableHasher;
use loudou_store::names::MAX_KEY;

use super::{KeyPart, OnAmbiguousKey, OnMissingKey, Rule, parts, paths};
use crate::request::{Request, without_query};

/// Initial capacity of the string for a key, in bytes. Most keys fit without reallocation.
const USUAL_KEY: usize = 40;
/// Key of a rule without key parts.
pub const KEY_OF_ALL: &str = "~all";
/// Key for requests that lack a part, if such requests share a bucket.
pub const KEY_OF_MISSING: &str = "~missing";
/// Size of the `~` and 32 hexadecimal digits at the end of a truncated key.
const HASH_LEN: usize = 33;

/// Result of computing a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Key {
    /// The key, which identifies the request's bucket.
    Bucket(String),
    /// A part is missing, so the rule does not apply.
    Skip,
    /// A part is missing, so the request is refused.
    Refuse,
    /// A part has several values, so the request is refused.
    Ambiguous,
}

/// Reason why a request has no key, with the index of the key part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoKey {
    /// The part is absent or empty.
    Missing(usize),
    /// The part has several values, and the rule refuses such requests.
    Ambiguous(usize),
}

impl Rule {
    /// Returns the key of `request`, which may depend on the rule's `on_missing_key` and
    /// `on_ambiguous_key`.
    pub fn key_of(&self, request: &mut dyn Request) -> Key {
        match (self.find_key(request), self.on_missing_key) {
            (Ok(key), _) => Key::Bucket(key),
            (Err(NoKey::Ambiguous(_)), _) => Key::Ambiguous,
            (Err(NoKey::Missing(_)), OnMissingKey::Skip) => Key::Skip,
            (Err(NoKey::Missing(_)), OnMissingKey::Refuse) => Key::Refuse,
            (Err(NoKey::Missing(_)), OnMissingKey::Share) => {
                Key::Bucket(String::from(KEY_OF_MISSING))
            }
        }
    }

    /// Returns the key of `request`, or the reason why it has none.
    pub fn find_key(&self, request: &mut dyn Request) -> Result<String, NoKey> {
        if self.key.is_empty() {
            return Ok(String::from(KEY_OF_ALL));
        }
        // This check is done first, because it reads all headers at once. The key parts then need
        // no further host calls.
        if self.on_ambiguous_key == OnAmbiguousKey::Refuse
            && let Some(ambiguous) = self.first_ambiguous(request)
        {
            return Err(NoKey::Ambiguous(ambiguous));
        }
        // Fast path: most rules have one part, and most values need no escapes.
        if let [KeyPart::Header(name)] = &*self.key
            && let Some(value) = request.header(name)
            && let Some(key) = plain_text(&value)
        {
            return Ok(String::from(key));
        }
        let mut key = KeyText::new();
        let mut parts = self.key.iter();
        match parts.position(|part| !add(&mut key, part, request)) {
            Some(missing) => Err(NoKey::Missing(missing)),
            None => Ok(key.finish()),
        }
    }
}

/// Appends a part to the key. Returns false if the request lacks the part.
fn add(key: &mut KeyText, part: &KeyPart, request: &mut dyn Request) -> bool {
    let value = match part {
        KeyPart::Literal(text) => Some(Cow::Borrowed(text.as_bytes())),
        KeyPart::Header(name) => request.header(name),
        KeyPart::Query(name) => parts::query(request, name),
        KeyPart::Cookie(name) => parts::cookie(request, name),
        KeyPart::Metadata(path) => request.metadata(path),
        KeyPart::Method => request.method(),
        KeyPart::Route => request.route(),
        KeyPart::ClientCert => request.client_cert(),
        KeyPart::Host => parts::host(request).map(Cow::Owned),
        KeyPart::Source(prefix) => request.source().map(|source| {
            let network = prefix.apply(&source);
            network.map_or(source, |network| Cow::Owned(network.into_bytes()))
        }),
        KeyPart::Path {
            segments,
            normalize,
        } => {
            let Some(path) = request.path() else {
                return false;
            };
            let path = without_query(&path);
            let path = if *normalize {
                paths::normal(path)
            } else {
                Cow::Borrowed(path)
            };
            let path = first_segments(&path, *segments);
            key.push(path);
            return !path.is_empty();
        }
    };
    let Some(value) = value.filter(|value| !value.is_empty()) else {
        return false;
    };
    key.push(&value);
    true
}

/// Returns the first segments of a path. For example, the first two segments of `/a/b/c` are
/// `/a/b`.
fn first_segments(path: &[u8], count: Option<u8>) -> &[u8] {
    let Some(count) = count else { return path };
    let slashes = path.iter().enumerate().filter(|(_, b)| **b == b'/');
    let end = slashes.map(|(at, _)| at).nth(usize::from(count));
    end.and_then(|end| path.get(..end)).unwrap_or(path)
}

/// A key under construction. The size of its text stays bounded even if the parts are long.
struct KeyText {
    text: String,
    parts: usize,
    /// Hasher for the whole key, needed only once the key has exceeded the maximum size.
    overflow: Option<StableHasher>,
}

impl KeyText {
    fn new() -> Self {
        Self {
            text: String::with_capacity(USUAL_KEY),
            parts: 0,
            overflow: None,
        }
    }

    fn push(&mut self, part: &[u8]) {
        if self.parts > 0 && self.overflow.is_none() {
            self.text.push(':');
        }
        self.parts = self.parts.saturating_add(1);
        if let Some(hasher) = &mut self.overflow {
            hasher.write(part);
            return;
        }
        let fits = self.text.len().saturating_add(part.len()) <= MAX_KEY;
        if let (true, Some(part)) = (fits, plain_text(part)) {
            self.text.push_str(part);
            return;
        }
        for (i, byte) in part.iter().enumerate() {
            if self.text.len() > MAX_KEY {
                let mut hasher = StableHasher::default();
                hasher.write(self.text.as_bytes());
                hasher.write(part.get(i..).unwrap_or_default());
                self.overflow = Some(hasher);
                return;
            }
            push_escaped(&mut self.text, *byte);
        }
    }

    fn finish(mut self) -> String {
        if self.text.len() <= MAX_KEY {
            return self.text;
        }
        let mut hasher = self.overflow.take().unwrap_or_default();
        hasher.write(self.text.as_bytes());
        let hash = hasher.finish();
        self.text.truncate(MAX_KEY.saturating_sub(HASH_LEN));
        alloc::format!("{}~{hash:032x}", self.text)
    }
}

/// Returns a value as a string if it is non-empty, needs no escapes and fits into a key.
fn plain_text(value: &[u8]) -> Option<&str> {
    let is_plain = (1..=MAX_KEY).contains(&value.len()) && value.iter().all(|b| is_plain(*b));
    str::from_utf8(value).ok().filter(|_| is_plain)
}

/// Returns the bytes, escaped as in keys.
pub(super) fn escaped(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in bytes {
        push_escaped(&mut text, *byte);
    }
    text
}

/// Returns true if a key contains this byte unescaped. This function is called for each byte of
/// each key, so it uses a lookup table.
fn is_plain(byte: u8) -> bool {
    const BELOW_64: u64 = plain_from(0);
    const FROM_64: u64 = plain_from(64);
    let plain = match byte >> 6 {
        0 => BELOW_64,
        1 => FROM_64,
        _ => 0,
    };
    plain.wrapping_shr(u32::from(byte & 63)) & 1 == 1
}

/// Returns a bit mask for the 64 bytes starting at `first`, with a bit set for each byte that needs
/// no escape.
const fn plain_from(first: u8) -> u64 {
    let mut plain = 0;
    let mut bit = 0;
    while bit < 64 {
        let byte = first.saturating_add(bit);
        if byte.is_ascii_graphic() && !matches!(byte, b'%' | b':' | b'~') {
            plain |= 1 << bit;
        }
        bit = bit.saturating_add(1);
    }
    plain
}

fn push_escaped(text: &mut String, byte: u8) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    if is_plain(byte) {
        text.push(char::from(byte));
        return;
    }
    text.push('%');
    for digit in [byte >> 4, byte & 15] {
        let digit = HEX.get(usize::from(digit)).copied().unwrap_or(b'0');
        text.push(char::from(digit));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_bytes_are_the_printable_ones_but_three() {
        for byte in 0..=u8::MAX {
            let expected = byte.is_ascii_graphic() && !b"%:~".contains(&byte);
            assert_eq!(is_plain(byte), expected, "{byte:#x}");
        }
    }
}
