//! Finds matches whose parts contradict each other.

use alloc::format;
use alloc::string::String;

use serde_json::Value;

use crate::config::problem::{Path, Problem};
use crate::request::without_query;
use crate::rule::{Match, NamedTest, PathMatch, Test, Truth};

/// Warns about parts of a match that contradict each other.
pub(super) fn never_matches(matches: &Match, at: &Path) -> Option<Problem> {
    if let Some((at, why)) = of_tests(&matches.headers, at, "headers", contradict_on_one_line) {
        return Some(warning(at, HARDLY, &why));
    }
    let (at, why) = of_tests(&matches.headers, at, "headers", contradict)
        .or_else(|| of_tests(&matches.query, at, "query", contradict))
        .or_else(|| of_tests(&matches.cookies, at, "cookies", contradict))
        .or_else(|| of_pseudo_headers(matches, at))
        .or_else(|| of_not(matches, at))?;
    Some(warning(at, "no request ever matches", &why))
}

/// Message for two contradictory tests of the same header. A request can pass both tests only if it
/// repeats the header and each test is passed by a different header line.
const HARDLY: &str = "only requests that repeat the header may match";

fn warning(at: Path, what: &str, why: &str) -> Problem {
    Problem::error(at, &Value::Null, format!("{what}: {why}")).warning()
}

/// Finds two contradictory tests of the same header, query parameter or cookie.
fn of_tests(
    tests: &[NamedTest],
    at: &Path,
    list: &str,
    contradict: fn(&Test, &Test) -> bool,
) -> Option<(Path, String)> {
    tests.iter().enumerate().find_map(|(index, part)| {
        let earlier = tests.iter().take(index);
        let mut same_name = earlier.filter(|other| other.name == part.name);
        let other = same_name.find(|other| contradict(&other.test, &part.test))?;
        let (one, two) = (in_words(other), in_words(part));
        let why = format!("{one} and {two} contradict each other");
        Some((at.field(list).index(index), why))
    })
}

fn of_pseudo_headers(matches: &Match, at: &Path) -> Option<(Path, String)> {
    let mut headers = matches.headers.iter().enumerate();
    headers.find_map(|(index, header)| {
        let why = contradicts_parts(matches, &header.name, &header.test)?;
        let why = format!("{} {why}", in_words(header));
        Some((at.field("headers").index(index), why))
    })
}

/// Finds a `not` that excludes everything that the other parts match.
fn of_not(matches: &Match, at: &Path) -> Option<(Path, String)> {
    let not = matches.not.as_ref()?;
    let why = if not.is_everything() {
        "`not` excludes every request"
    } else if follows(not, matches) {
        "`not` excludes everything that the other parts match"
    } else {
        return None;
    };
    Some((at.field("not"), String::from(why)))
}

/// Returns true if the other parts of `matches` imply `other`. Each part is compared separately, so
/// some cases may be missed.
fn follows(other: &Match, matches: &Match) -> bool {
    let methods = other.methods.is_empty()
        || (!matches.methods.is_empty()
            && matches.methods.iter().all(|m| other.methods.contains(m)));
    let path = match (&other.path, &matches.path) {
        (None, _) => true,
        (Some(other), Some(PathMatch::Exact(path))) => other.holds(path.as_bytes()) == Truth::Yes,
        (Some(PathMatch::Prefix(_)), Some(PathMatch::Prefix(prefix))) => other
            .path
            .as_ref()
            .is_some_and(|p| p.holds(prefix.as_bytes()) == Truth::Yes),
        (other, own) => other == own,
    };
    let source = other.source.is_empty()
        || (!matches.source.is_empty()
            && matches
                .source
                .iter()
                .all(|own| other.source.iter().any(|cidr| cidr.covers(own))));
    methods
        && path
        && source
        && (other.host.is_none() || other.host == matches.host)
        && (other.route.is_none() || other.route == matches.route)
        && other.headers.iter().all(|t| matches.headers.contains(t))
        && other.query.iter().all(|t| matches.query.contains(t))
        && other.cookies.iter().all(|t| matches.cookies.contains(t))
        && other.metadata.iter().all(|t| matches.metadata.contains(t))
        && other.not.is_none()
}

/// Returns true if no single line of a header can pass both tests. Two different lines may still
/// each pass one of the tests.
fn contradict_on_one_line(one: &Test, two: &Test) -> bool {
    let is_of_presence = |test: &Test| matches!(test, Test::Present(_));
    !is_of_presence(one) && !is_of_presence(two) && contradict(one, two)
}

fn contradict(one: &Test, two: &Test) -> bool {
    match (one, two) {
        (Test::Present(one), Test::Present(two)) => one != two,
        (Test::Present(present), _) | (_, Test::Present(present)) => !present,
        (Test::Exact(text), other) | (other, Test::Exact(text)) => {
            other.holds(Some(text.as_bytes())) == Truth::No
        }
        (Test::Prefix(one), Test::Prefix(two)) => !one.starts_with(two) && !two.starts_with(one),
        (Test::Suffix(one), Test::Suffix(two)) => !one.ends_with(two) && !two.ends_with(one),
        _ => false,
    }
}

/// Returns the reason why the test of a pseudo-header contradicts the method or the path.
fn contradicts_parts(matches: &Match, name: &str, test: &Test) -> Option<&'static str> {
    match (name, test) {
        (":method" | ":path" | ":authority" | ":scheme", Test::Present(false)) => {
            Some("never matches: every request has it")
        }
        (":method", Test::Exact(method)) => {
            let methods = &matches.methods;
            let other = !methods.is_empty() && !methods.contains(method);
            other.then_some("is not in `methods`")
        }
        (":path", Test::Exact(exact)) => {
            let path = without_query(exact.as_bytes());
            let test = matches.path.as_ref()?;
            (test.holds(path) == Truth::No).then_some("is not the path")
        }
        _ => None,
    }
}

fn in_words(NamedTest { name, test }: &NamedTest) -> String {
    match test {
        Test::Present(true) => format!("`{name}` present"),
        Test::Present(false) => format!("`{name}` absent"),
        Test::Exact(exact) => format!("`{name}` = `{exact}`"),
        Test::Prefix(text) => format!("`{name}` = `{text}…`"),
        Test::Suffix(text) => format!("`{name}` = `…{text}`"),
        Test::Regex(pattern) => format!("`{name}` = /{}/", pattern.text()),
    }
}
