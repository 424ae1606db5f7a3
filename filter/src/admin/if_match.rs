//! The `If-Match` precondition (RFC 9110, section 13.1.1).

use super::answer::Failure;
use crate::host::Host;

/// A parsed `If-Match` precondition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum IfMatch {
    /// No precondition.
    Absent,
    /// The resource may be in any state (`*`).
    Any,
    /// The resource must have one of these entity tags. Weak tags are omitted, because `If-Match`
    /// never matches them.
    Tags(Vec<Vec<u8>>),
}

impl IfMatch {
    /// Parses the precondition of the current request. If the request has several `If-Match` lines,
    /// all of them are considered.
    pub(super) fn read(host: &dyn Host) -> Result<Self, Failure> {
        let Some(first) = host.request_header("if-match") else {
            return Ok(Self::Absent);
        };
        // `request_header` returns only the first line of the header, whereas this property
        // contains all lines, joined by commas.
        let all = host.property("request\0headers\0if-match");
        Self::parse(&all.unwrap_or(first)).ok_or_else(|| {
            let detail =
                "`If-Match` is neither * nor a list of tags in quotes, as an ETag has: \"…\"";
            Failure::bad(detail)
        })
    }

    fn parse(list: &[u8]) -> Option<Self> {
        if list.trim_ascii() == b"*" {
            return Some(Self::Any);
        }
        let mut tags = Vec::new();
        let mut is_empty = true;
        let mut rest = list;
        loop {
            rest = rest.trim_ascii_start();
            if let Some(after) = rest.strip_prefix(b",") {
                rest = after;
                continue;
            }
            if rest.is_empty() {
                return (!is_empty).then_some(Self::Tags(tags));
            }
            is_empty = false;
            let strong = rest.strip_prefix(b"W/");
            let text = strong.unwrap_or(rest).strip_prefix(b"\"")?;
            let end = text.iter().position(|byte| *byte == b'"')?;
            let (tag, after) = text.split_at_checked(end)?;
            if !tag.iter().all(|byte| matches!(byte, 0x21..=0x7e | 0x80..)) {
                return None;
            }
            rest = after.get(1..)?.trim_ascii_start();
            if !(rest.is_empty() || rest.starts_with(b",")) {
                return None;
            }
            if strong.is_none() {
                tags.push(tag.to_vec());
            }
        }
    }

    /// Returns true if the precondition allows changing a resource whose `ETag`, including the
    /// quotes, is `etag`.
    pub(super) fn allows(&self, etag: &str) -> bool {
        match self {
            Self::Absent | Self::Any => true,
            Self::Tags(tags) => {
                let etag = etag.trim_matches('"').as_bytes();
                tags.iter().any(|tag| tag == etag)
            }
        }
    }

    pub(super) fn tags(&self) -> impl Iterator<Item = &str> {
        let tags = match self {
            Self::Tags(tags) => tags.as_slice(),
            Self::Absent | Self::Any => &[],
        };
        tags.iter().filter_map(|tag| std::str::from_utf8(tag).ok())
    }
}
