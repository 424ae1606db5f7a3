//! The identity of a rule's buckets, in a separate form.
//!
//! The form never changes, even if fields of rule files are renamed: it determines the tag of a bucket,
//! and with another tag every live bucket would start anew.

use alloc::string::ToString as _;
use alloc::vec::Vec;

use serde_json::Value;

use super::part::KeyPart;
use super::text::object;

/// The identity of a key, from the identities of its parts.
pub(super) fn of_key(parts: &[KeyPart]) -> Vec<u8> {
    let parts = parts.iter().map(KeyPart::identity).collect();
    serde_json::to_vec(&Value::Array(parts)).unwrap_or_default()
}

impl KeyPart {
    fn identity(&self) -> Value {
        if let Some(word) = self.word() {
            // The word that this part had when its buckets got their tags.
            return text(if *self == Self::ClientCert {
                "peer"
            } else {
                word
            });
        }
        let (kind, value) = match self {
            Self::Header(name) => ("header", text(name)),
            Self::Query(name) => ("query", text(name)),
            Self::Cookie(name) => ("cookie", text(name)),
            Self::Literal(literal) => ("literal", text(literal)),
            Self::Metadata(path) => {
                let path = path.iter().map(|step| text(step)).collect();
                ("metadata", Value::Array(path))
            }
            Self::Source(prefix) => {
                let v4 = ("v4_prefix", prefix.v4.into());
                ("source", object(Some(v4), ("v6_prefix", prefix.v6.into())))
            }
            Self::Path {
                segments,
                normalize,
            } => {
                let segments = segments.map(|count| ("segments", count.into()));
                // As before there were two forms of paths, unless the path is the raw one.
                let path = match (normalize, segments) {
                    (true, Some(segments)) => object(None, segments),
                    (_, segments) => object(segments, ("normalize", (*normalize).into())),
                };
                ("path", path)
            }
            _ => return Value::Null,
        };
        object(None, (kind, value))
    }
}

fn text(text: &str) -> Value {
    Value::String(text.to_string())
}
