//! Whether a rule is for a request.

use super::{HeaderTest, Match, PathMatch};
use crate::request::{Request, without_query};

impl Match {
    /// Whether all given parts hold. Cheap tests come first; headers are read only when needed.
    pub fn holds(&self, request: &mut dyn Request) -> bool {
        self.method_holds(request) && self.path_holds(request) && self.headers_hold(request)
    }

    fn method_holds(&self, request: &mut dyn Request) -> bool {
        if self.methods.is_empty() {
            return true;
        }
        let Some(method) = request.method() else {
            return false;
        };
        self.methods
            .iter()
            .any(|allowed| allowed.as_bytes() == method.as_ref())
    }

    fn path_holds(&self, request: &mut dyn Request) -> bool {
        let Some(test) = &self.path else { return true };
        let Some(path) = request.path() else {
            return false;
        };
        test.holds(without_query(&path))
    }

    fn headers_hold(&self, request: &mut dyn Request) -> bool {
        self.headers.iter().all(|header| {
            let value = request.header(&header.name);
            match &header.test {
                HeaderTest::Present(present) => value.is_some() == *present,
                HeaderTest::Exact(exact) => value.is_some_and(|v| v.as_ref() == exact.as_bytes()),
            }
        })
    }
}

impl PathMatch {
    /// Whether it holds for a path without its query.
    pub fn holds(&self, path: &[u8]) -> bool {
        match self {
            Self::Exact(exact) => path == exact.as_bytes(),
            Self::Prefix(prefix) => has_segments(path, prefix.as_bytes()),
        }
    }
}

/// Whether `path` starts with `prefix` on whole segments.
fn has_segments(path: &[u8], prefix: &[u8]) -> bool {
    path.strip_prefix(prefix)
        .is_some_and(|rest| rest.is_empty() || prefix.ends_with(b"/") || rest.starts_with(b"/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_end_on_segments() {
        assert!(has_segments(b"/reply", b"/reply"));
        assert!(has_segments(b"/reply/7", b"/reply"));
        assert!(has_segments(b"/reply/7", b"/reply/"));
        assert!(has_segments(b"/anything", b"/"));
        assert!(!has_segments(b"/replyall", b"/reply"));
        assert!(!has_segments(b"/", b"/reply"));
    }
}
