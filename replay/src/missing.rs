//! Parts of requests that rules need and that no line of a log has.

use loudou_rules::rule::{KeyPart, Match, Rule};

use super::encode::flag;
use super::input::Seen;

/// The parts that `rule` needs and no request had.
pub(crate) fn missing(rule: &Rule, seen: &Seen) -> Vec<String> {
    let mut missing = MissingParts {
        seen,
        found: Vec::new(),
    };
    for part in &rule.key {
        match part {
            KeyPart::Header(name) => missing.header(name),
            KeyPart::Cookie(_) => missing.header("cookie"),
            KeyPart::Host => missing.header(":authority"),
            KeyPart::Route => missing.route(),
            KeyPart::Metadata(_) => missing.add("metadata"),
            KeyPart::ClientCert => missing.add("client certificates"),
            KeyPart::Query(_)
            | KeyPart::Literal(_)
            | KeyPart::Source(_)
            | KeyPart::Path { .. }
            | KeyPart::Method => {}
        }
    }
    missing.of_match(&rule.matches);
    missing.found
}

struct MissingParts<'a> {
    seen: &'a Seen,
    found: Vec<String>,
}

impl MissingParts<'_> {
    fn of_match(&mut self, matches: &Match) {
        for header in &matches.headers {
            self.header(&header.name);
        }
        if !matches.cookies.is_empty() {
            self.header("cookie");
        }
        if matches.host.is_some() {
            self.header(":authority");
        }
        if matches.route.is_some() {
            self.route();
        }
        if !matches.metadata.is_empty() {
            self.add("metadata");
        }
        if let Some(not) = &matches.not {
            self.of_match(not);
        }
    }

    fn header(&mut self, name: &str) {
        if !self.seen.header(name) {
            self.add(&format!("header {name}"));
        }
    }

    fn route(&mut self) {
        if !self.seen.has(flag::ROUTE) {
            self.add("the route");
        }
    }

    fn add(&mut self, part: &str) {
        if !self.found.iter().any(|found| found == part) {
            self.found.push(part.to_owned());
        }
    }
}
