//! A rule's match, which selects requests.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

use super::cidr::{self, Cidr};
use super::parts;
use super::pattern::Pattern;
use super::text::Truth;
use super::text::{MetadataTest, NamedTest, Test, object};
use crate::request::{Request, without_query};

/// A match. All parts that are present must match. If there are none, every request matches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Match {
    /// The request must have one of these methods. If empty, any method matches.
    pub methods: Vec<String>,
    /// Test of the path, without its query.
    pub path: Option<PathMatch>,
    /// Test of the host, without its port and in lower case.
    pub host: Option<Test>,
    /// Tests of headers, all of which must pass.
    pub headers: Vec<NamedTest>,
    /// Tests of query parameters, all of which must pass.
    pub query: Vec<NamedTest>,
    /// Tests of cookies, all of which must pass.
    pub cookies: Vec<NamedTest>,
    /// The client's address must be in one of these networks. If empty, any address matches.
    pub source: Vec<Cidr>,
    /// Test of the name of the Envoy route.
    pub route: Option<Test>,
    /// Tests of Envoy's dynamic metadata, all of which must pass.
    pub metadata: Vec<MetadataTest>,
    /// A nested match. The requests that it matches are excluded.
    pub not: Option<Box<Self>>,
}

/// A part of a match, or an element of a list part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The part `methods`.
    Methods,
    /// The part `path`.
    Path,
    /// The part `host`.
    Host,
    /// An element of `headers`.
    Header(usize),
    /// An element of `query`.
    Query(usize),
    /// An element of `cookies`.
    Cookie(usize),
    /// The part `source`.
    Source,
    /// The part `route`.
    Route,
    /// An element of `metadata`.
    Metadata(usize),
    /// The part `not`, which fails if the request matches it.
    Not,
}

/// Result of matching a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// The request matches all parts.
    Yes,
    /// The request does not match. The variant contains the first part that fails.
    No(Part),
    /// No part excludes the request, but a value is too long for its regular expression to test.
    /// The variant contains the first part with such a value.
    TooLong(Part),
}

/// A test of the path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathMatch {
    /// The path starts with these whole segments. `/reply` matches `/reply` and `/reply/7` but not
    /// `/replyall`.
    Prefix(String),
    /// The path equals this string.
    Exact(String),
    /// The path ends with this string.
    Suffix(String),
    /// The path has these segments, where `{name}` stands for any non-empty segment: `/users/{id}`.
    Template(String),
    /// The whole path matches this pattern.
    Regex(Pattern),
}

impl Serialize for Match {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.fields().serialize(serializer)
    }
}

impl Match {
    /// Returns the fields as written in a rule file. Not derived, because a derived implementation
    /// would be compiled separately for each serializer.
    pub(super) fn fields(&self) -> Map<String, Value> {
        let named = |tests: &[NamedTest]| list(tests.iter().map(NamedTest::value).collect());
        let metadata = self.metadata.iter().map(MetadataTest::value).collect();
        let fields = [
            ("methods", self.asked(Part::Methods)),
            ("path", self.asked(Part::Path)),
            ("host", self.asked(Part::Host)),
            ("headers", named(&self.headers)),
            ("query", named(&self.query)),
            ("cookies", named(&self.cookies)),
            ("source", self.asked(Part::Source)),
            ("route", self.asked(Part::Route)),
            ("metadata", list(metadata)),
            ("not", self.asked(Part::Not)),
        ];
        let mut map = Map::new();
        for (name, value) in fields {
            if let Some(value) = value {
                map.insert(String::from(name), value);
            }
        }
        map
    }

    /// Returns the requirement of a part as written in a rule file, or `None` if the match lacks
    /// the part.
    pub(super) fn asked(&self, part: Part) -> Option<Value> {
        let named = |tests: &[NamedTest], at| tests.get(at).map(NamedTest::value);
        let whole = |test: &Option<Test>| test.as_ref().map(|test| test.value(None));
        match part {
            Part::Methods => list(self.methods.iter().map(|m| m.as_str().into()).collect()),
            Part::Path => self.path.as_ref().map(|path| {
                let (kind, text) = path.parts();
                object(None, (kind, text.into()))
            }),
            Part::Host => whole(&self.host),
            Part::Header(at) => named(&self.headers, at),
            Part::Query(at) => named(&self.query, at),
            Part::Cookie(at) => named(&self.cookies, at),
            Part::Source => list(self.source.iter().map(|n| format!("{n}").into()).collect()),
            Part::Route => whole(&self.route),
            Part::Metadata(at) => self.metadata.get(at).map(MetadataTest::value),
            Part::Not => self.not.as_ref().map(|not| Value::Object(not.fields())),
        }
    }

    /// Returns true if every request matches.
    pub fn is_everything(&self) -> bool {
        self.fields().is_empty()
    }

    /// Returns true if all parts that are present match, and no value is too long to be tested.
    pub fn holds(&self, request: &mut dyn Request) -> bool {
        self.fit(request) == Fit::Yes
    }

    /// Matches a request. If a part fails, the match fails, even if another part's value is too
    /// long to be tested. Cheap tests come first, and values that require a host call are read only
    /// when needed.
    pub fn fit(&self, request: &mut dyn Request) -> Fit {
        let mut open = None;
        match (self.first_failing(request, &mut open), open) {
            (Some(part), _) => Fit::No(part),
            (None, Some(part)) => Fit::TooLong(part),
            (None, None) => Fit::Yes,
        }
    }

    /// Returns the first failing part, and sets `open` to the first part whose value is too long.
    fn first_failing(&self, request: &mut dyn Request, open: &mut Option<Part>) -> Option<Part> {
        let mut unless = |holds: Truth, part: Part| {
            if holds == Truth::TooLong {
                open.get_or_insert(part);
            }
            (holds == Truth::No).then_some(part)
        };
        unless(self.method_holds(request).into(), Part::Methods)
            .or_else(|| unless(self.path_holds(request), Part::Path))
            .or_else(|| unless(self.host_holds(request), Part::Host))
            .or_else(|| self.failing_header(request, &mut unless))
            .or_else(|| self.failing_query(request, &mut unless))
            .or_else(|| self.failing_cookie(request, &mut unless))
            .or_else(|| unless(self.source_holds(request).into(), Part::Source))
            .or_else(|| unless(self.route_holds(request), Part::Route))
            .or_else(|| self.failing_metadata(request, &mut unless))
            .or_else(|| unless(self.not_holds(request), Part::Not))
    }

    /// Returns the regular expression of a part, if it has one.
    pub(super) fn pattern(&self, part: Part) -> Option<&Pattern> {
        match part {
            Part::Path => match self.path.as_ref()? {
                PathMatch::Regex(pattern) => Some(pattern),
                _ => None,
            },
            Part::Header(at) => self.headers.get(at)?.test.pattern(),
            Part::Query(at) => self.query.get(at)?.test.pattern(),
            Part::Cookie(at) => self.cookies.get(at)?.test.pattern(),
            Part::Metadata(at) => self.metadata.get(at)?.test.pattern(),
            _ => None,
        }
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

    fn path_holds(&self, request: &mut dyn Request) -> Truth {
        let Some(test) = &self.path else {
            return Truth::Yes;
        };
        let Some(path) = request.path() else {
            return Truth::No;
        };
        test.holds(without_query(&path))
    }

    fn host_holds(&self, request: &mut dyn Request) -> Truth {
        let Some(test) = &self.host else {
            return Truth::Yes;
        };
        test.holds(parts::host(request).as_deref())
    }

    fn failing_header(&self, request: &mut dyn Request, unless: Unless<'_>) -> Option<Part> {
        let mut headers = self.headers.iter().enumerate();
        headers
            .find_map(|(at, header)| unless(parts::header_holds(request, header), Part::Header(at)))
    }

    fn failing_query(&self, request: &mut dyn Request, unless: Unless<'_>) -> Option<Part> {
        let mut query = self.query.iter().enumerate();
        query.find_map(|(at, part)| {
            let value = parts::query(request, &part.name);
            unless(part.test.holds(value.as_deref()), Part::Query(at))
        })
    }

    fn failing_cookie(&self, request: &mut dyn Request, unless: Unless<'_>) -> Option<Part> {
        let mut cookies = self.cookies.iter().enumerate();
        cookies.find_map(|(at, cookie)| {
            let value = parts::cookie(request, &cookie.name);
            unless(cookie.test.holds(value.as_deref()), Part::Cookie(at))
        })
    }

    fn source_holds(&self, request: &mut dyn Request) -> bool {
        if self.source.is_empty() {
            return true;
        }
        let address = request.source().and_then(|source| cidr::address(&source));
        address.is_some_and(|address| self.source.iter().any(|cidr| cidr.contains(address)))
    }

    fn route_holds(&self, request: &mut dyn Request) -> Truth {
        let Some(test) = &self.route else {
            return Truth::Yes;
        };
        test.holds(request.route().as_deref())
    }

    fn failing_metadata(&self, request: &mut dyn Request, unless: Unless<'_>) -> Option<Part> {
        let mut metadata = self.metadata.iter().enumerate();
        metadata
            .find_map(|(at, part)| unless(parts::metadata_holds(request, part), Part::Metadata(at)))
    }

    /// Returns [`Truth::No`] if `not` excludes the request.
    fn not_holds(&self, request: &mut dyn Request) -> Truth {
        match self.not.as_ref().map(|not| not.fit(request)) {
            None | Some(Fit::No(_)) => Truth::Yes,
            Some(Fit::TooLong(_)) => Truth::TooLong,
            Some(Fit::Yes) => Truth::No,
        }
    }
}

/// Records whether a part fails or is undecided, and returns it if it fails.
type Unless<'a> = &'a mut dyn FnMut(Truth, Part) -> Option<Part>;

impl PathMatch {
    /// Returns the test's name in rule files, and its text.
    pub(super) fn parts(&self) -> (&'static str, &str) {
        match self {
            Self::Prefix(text) => ("prefix", text),
            Self::Exact(text) => ("exact", text),
            Self::Suffix(text) => ("suffix", text),
            Self::Template(text) => ("template", text),
            Self::Regex(pattern) => ("regex", pattern.text()),
        }
    }

    /// Tests a path without its query.
    pub fn holds(&self, path: &[u8]) -> Truth {
        Truth::from(match self {
            Self::Exact(exact) => path == exact.as_bytes(),
            Self::Prefix(prefix) => has_segments(path, prefix.as_bytes()),
            Self::Suffix(suffix) => path.ends_with(suffix.as_bytes()),
            Self::Template(template) => fits(path, template.as_bytes()),
            Self::Regex(pattern) => return pattern.holds(path),
        })
    }
}

/// Returns the elements as a JSON list, or `None` if there are no elements.
fn list(elements: Vec<Value>) -> Option<Value> {
    (!elements.is_empty()).then(|| Value::from(elements))
}

/// Returns true if `prefix` matches whole leading segments of `path`.
fn has_segments(path: &[u8], prefix: &[u8]) -> bool {
    path.strip_prefix(prefix)
        .is_some_and(|rest| rest.is_empty() || prefix.ends_with(b"/") || rest.starts_with(b"/"))
}

/// Returns true if the segments of `path` match the segments of `template`.
fn fits(path: &[u8], template: &[u8]) -> bool {
    let mut segments = path.split(|b| *b == b'/');
    let mut wanted = template.split(|b| *b == b'/');
    loop {
        match (segments.next(), wanted.next()) {
            (None, None) => return true,
            (Some(segment), Some([b'{', ..])) if !segment.is_empty() => {}
            (Some(segment), Some(wanted)) if segment == wanted => {}
            _ => return false,
        }
    }
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

    #[test]
    fn templates_have_as_many_segments() {
        assert!(fits(b"/users/7", b"/users/{id}"));
        assert!(fits(b"/users/\xff/posts", b"/users/{id}/posts"));
        for path in [
            &b"/users"[..],
            b"/users/",
            b"/users/7/",
            b"/users/7/posts",
            b"/user/7",
            b"users/7",
            b"",
        ] {
            assert!(!fits(path, b"/users/{id}"), "{path:?}");
        }
        // Braces in a request's path have no special meaning.
        assert!(!fits(b"/{id}/7", b"/users/{id}"));
    }
}
