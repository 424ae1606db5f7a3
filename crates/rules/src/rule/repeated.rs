//! Key parts that a request has several times: lines of a header, cookies, query parameters.
//!
//! The first value that is not empty is the key, but an upstream may read another one. A client could so
//! have any number of buckets: it repeats the header, with a new first value in each request. A rule with
//! `on_ambiguous_key: refuse` refuses such requests.

use alloc::vec::Vec;

use super::{KeyPart, Rule, parts};
use crate::request::Request;

impl Rule {
    /// The index of the first part of the key that has several values.
    pub fn first_ambiguous(&self, request: &mut dyn Request) -> Option<usize> {
        let mut parts = self.key.iter();
        parts.position(|part| part.is_ambiguous(request))
    }
}

impl KeyPart {
    /// Whether a request has several values of this part: more than one line of a header, or different values
    /// of a cookie or a query parameter. Every reader of equal values finds the same, but lines may be
    /// joined.
    fn is_ambiguous(&self, request: &mut dyn Request) -> bool {
        let is_header = matches!(self, Self::Header(_));
        let mut first: Option<Vec<u8>> = None;
        let mut is_ambiguous = false;
        self.each_value(request, &mut |value| match &first {
            None => first = Some(value.to_vec()),
            Some(first) => is_ambiguous |= is_header || first != value,
        });
        is_ambiguous
    }

    /// Calls `see` for each value of this part that is not empty, if requests may repeat it.
    pub(super) fn each_value(&self, request: &mut dyn Request, see: &mut dyn FnMut(&[u8])) {
        let mut filled = |value: &[u8]| {
            if !value.is_empty() {
                see(value);
            }
        };
        match self {
            Self::Header(name) => request.each_line(name, &mut filled),
            Self::Cookie(name) => request.each_line("cookie", &mut |line| {
                parts::cookie_values(line, name).for_each(&mut filled);
            }),
            Self::Query(name) => {
                if let Some(path) = request.path() {
                    parts::query_values(&path, name).for_each(|value| filled(&value));
                }
            }
            _ => {}
        }
    }
}
