//! The identity of a rule's buckets, in a separate form.
//!
//! The form never changes, even if fields of rule files are renamed: it determines the tag of a bucket,
//! and with another tag every live bucket would start anew.

use alloc::string::ToString as _;
use alloc::vec::Vec;

use serde::Serialize;

use super::cidr::SourcePrefix;
use super::part::KeyPart;

/// The identity of a key, from the identities of its parts.
pub(super) fn of_key(parts: &[KeyPart]) -> Vec<u8> {
    let mut out = Vec::from(*b"[");
    for (index, part) in parts.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        part.write_identity(&mut out);
    }
    out.push(b']');
    out
}

impl KeyPart {
    fn write_identity(&self, out: &mut Vec<u8>) {
        let (kind, value): (&str, Option<Vec<u8>>) = match self {
            Self::Header(name) => ("header", Some(quoted(name))),
            Self::Query(name) => ("query", Some(quoted(name))),
            Self::Cookie(name) => ("cookie", Some(quoted(name))),
            Self::Literal(text) => ("literal", Some(quoted(text))),
            Self::Metadata(path) => ("metadata", Some(quoted(path))),
            Self::Source(prefix) if *prefix == SourcePrefix::default() => ("source", None),
            Self::Source(prefix) => {
                let (v4, v6) = (prefix.v4.to_string(), prefix.v6.to_string());
                let text = ["{\"v4_prefix\":", &v4, ",\"v6_prefix\":", &v6, "}"].concat();
                ("source", Some(text.into_bytes()))
            }
            Self::Path { segments: None } => ("path", None),
            Self::Path {
                segments: Some(segments),
            } => {
                let text = ["{\"segments\":", &segments.to_string(), "}"].concat();
                ("path", Some(text.into_bytes()))
            }
            Self::Route => ("route", None),
            Self::Method => ("method", None),
            Self::Host => ("host", None),
            Self::ClientCert => ("peer", None),
        };
        let kind = ["\"", kind, "\""].concat();
        match value {
            None => out.extend_from_slice(kind.as_bytes()),
            Some(value) => {
                out.push(b'{');
                out.extend_from_slice(kind.as_bytes());
                out.push(b':');
                out.extend_from_slice(&value);
                out.push(b'}');
            }
        }
    }
}

/// A text, or a list of texts; different ones have different forms.
fn quoted(text: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(text).unwrap_or_default()
}
