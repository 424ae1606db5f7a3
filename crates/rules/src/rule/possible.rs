//! Checks whether any request can have the key of an override or a ban.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use loudou_store::names::MAX_KEY;

use super::key::{KEY_OF_ALL, KEY_OF_MISSING, escaped};
use super::{KeyPart, OnMissingKey, Rule, paths};
use crate::hex;
use crate::joined::joined;

/// Reason why no request can have a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Impossible {
    /// Description of the reason.
    pub why: String,
    /// A suggested correction.
    pub meant: Option<String>,
}

impl Rule {
    /// Returns an error if no request can have this key, or a key with this prefix.
    pub fn may_have(&self, key: &str, is_beginning: bool) -> Result<(), Impossible> {
        let no = |why: String, meant: Option<String>| Err(Impossible { why, meant });
        let parts = self.key.len();
        if parts == 0 {
            let is_it = KEY_OF_ALL == key || is_beginning && KEY_OF_ALL.starts_with(key);
            let why = "the rule has one bucket for all".to_string();
            return if is_it {
                Ok(())
            } else {
                no(why, Some(KEY_OF_ALL.to_string()))
            };
        }
        // A truncated key ends with a hash, and the shared key of requests that lack a key part has
        // a special name. These keys are not checked further.
        let is_cut = key.len() == MAX_KEY && key.contains('~');
        let is_missing = self.on_missing_key == OnMissingKey::Share && key == KEY_OF_MISSING;
        if is_cut || is_missing {
            return Ok(());
        }
        if let Some(at) = key.find('~') {
            let meant = escaped_at(key, at, '~');
            return no("`~` within a part is written %7E".to_string(), Some(meant));
        }
        if !escapes_are_needed(key, is_beginning) {
            let why = "a % stands before two digits of what cannot be written: %25 for itself";
            return no(why.to_string(), None);
        }
        self.paths_are_normal(key, is_beginning)?;
        let colons = key.matches(':').count();
        let has = colons.saturating_add(1);
        if has == parts && !is_beginning {
            return self.sources_fit(key);
        }
        if has == parts || (is_beginning && has < parts) {
            return Ok(());
        }
        let why = format!(
            "the rule's key has {parts} part{}, joined with `:`; within a part that is written %3A",
            if parts == 1 { "" } else { "s" }
        );
        no(why, (parts == 1).then(|| key.replace(':', "%3A")))
    }
}

impl Rule {
    /// Checks that each path in the key is in normal form. A prefix may end with an incomplete
    /// path.
    fn paths_are_normal(&self, key: &str, is_beginning: bool) -> Result<(), Impossible> {
        let written = key.split(':').count();
        let whole = written.saturating_sub(usize::from(is_beginning));
        let texts = key.split(':').take(whole);
        for (part, text) in self.key.iter().zip(texts) {
            if !matches!(
                part,
                KeyPart::Path {
                    normalize: true,
                    ..
                }
            ) {
                continue;
            }
            let path = hex::unescaped(text.as_bytes(), b"%", |byte| byte);
            let normal = paths::normal(&path);
            if *normal != *path {
                let why = "the path is not in its normal form, see `normalize`";
                return Err(Impossible {
                    why: why.to_string(),
                    meant: (written == 1).then(|| escaped(&normal)),
                });
            }
        }
        Ok(())
    }

    /// Checks that the client addresses in `key` are written in the rule's format.
    fn sources_fit(&self, key: &str) -> Result<(), Impossible> {
        for (index, (part, text)) in self.key.iter().zip(key.split(':')).enumerate() {
            let KeyPart::Source(prefix) = part else {
                continue;
            };
            let plain = hex::unescaped(text.as_bytes(), b"%", |byte| byte);
            let plain = String::from_utf8_lossy(&plain);
            let (address, length) = match plain.split_once('/') {
                Some((address, length)) => (address, Some(length)),
                None => (&*plain, None),
            };
            let (why, network) = match (prefix.apply(address.as_bytes()), length) {
                (Some(network), _) if network == plain => continue,
                (Some(network), None) => (
                    "the rule's key has the network of an address, not the address",
                    Some(network.replace(':', "%3A")),
                ),
                (Some(_), Some(_)) => ("the rule's key has networks of another length", None),
                // For clients on the same machine, Envoy reports socket names, which contain
                // slashes.
                (None, Some(_)) => continue,
                (None, None) => ("the rule's key has the address of a client here", None),
            };
            let meant = network.map(|network| {
                let parts = key.split(':').enumerate();
                let parts = parts.map(|(n, part)| if n == index { network.as_str() } else { part });
                joined(&parts.collect::<Vec<_>>(), ":")
            });
            let why = why.to_string();
            return Err(Impossible { why, meant });
        }
        Ok(())
    }
}

fn escaped_at(key: &str, at: usize, what: char) -> String {
    let (before, rest) = key.split_at_checked(at).unwrap_or((key, ""));
    let rest = rest.strip_prefix(what).unwrap_or(rest);
    format!("{before}%{:02X}{rest}", u32::from(what))
}

/// Returns true if each `%` is followed by the digits of a byte that is escaped in keys. Digits may
/// be missing at the end of a prefix.
fn escapes_are_needed(key: &str, is_beginning: bool) -> bool {
    let mut rest = key;
    while let Some((_, after)) = rest.split_once('%') {
        let Some((digits, behind)) = after.split_at_checked(2) else {
            return is_beginning;
        };
        let byte = u8::from_str_radix(digits, 16).ok();
        let is_upper = !digits.bytes().any(|b| b.is_ascii_lowercase());
        let is_needed = byte.is_some_and(|b| !b.is_ascii_graphic() || b"%:~".contains(&b));
        if !is_upper || !is_needed {
            return false;
        }
        rest = behind;
    }
    true
}
