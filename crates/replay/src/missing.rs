//! Finds request parts that rules need but that no line of a log contains.

use loudou_rules::rule::settlement::{Reserve, Settlement, Usage};
use loudou_rules::rule::{Cost, KeyPart, Match, Rule};

use super::encode::flag;
use super::input::Seen;

/// What a rule needs a request part for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    Key,
    Match,
    Cost,
    /// Final cost of requests, for rules with `settle`.
    Settled,
    /// A number in a limit that is taken from the request's metadata.
    Numbers,
}

/// A request part that a rule needs but that no request had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MissingPart {
    pub(crate) name: String,
    pub(crate) need: Need,
}

/// Returns the request parts that `rule` needs but that no request had. Each part is listed once,
/// with the first need for it.
pub(crate) fn missing(rule: &Rule, seen: &Seen) -> Vec<MissingPart> {
    let mut missing = MissingParts {
        seen,
        need: Need::Key,
        found: Vec::new(),
    };
    for part in &rule.key {
        match part {
            KeyPart::Header(name) => missing.header(name),
            KeyPart::Cookie(_) => missing.header("cookie"),
            KeyPart::Host => missing.header(":authority"),
            KeyPart::Route => missing.route(),
            KeyPart::Metadata(_) => missing.metadata(),
            KeyPart::ClientCert => missing.add("client certificates"),
            KeyPart::Query(_)
            | KeyPart::Literal(_)
            | KeyPart::Source(_)
            | KeyPart::Path { .. }
            | KeyPart::Method => {}
        }
    }
    missing.need = Need::Match;
    missing.of_match(&rule.matches);
    missing.need = Need::Cost;
    match &rule.cost {
        Cost::Header { name, .. } => missing.header(name),
        Cost::Metadata { .. } => missing.metadata(),
        Cost::RequestBytes(_) if !seen.has_lengths => missing.header("content-length"),
        Cost::RequestBytes(_) | Cost::Fixed(_) => {}
        Cost::Settled(settlement) => missing.of_settlement(settlement),
    }
    if rule.limits.is_template() {
        missing.need = Need::Numbers;
        missing.metadata();
    }
    missing.found
}

struct MissingParts<'a> {
    seen: &'a Seen,
    need: Need,
    found: Vec<MissingPart>,
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
            self.metadata();
        }
        if let Some(not) = &matches.not {
            self.of_match(not);
        }
    }

    fn of_settlement(&mut self, settlement: &Settlement) {
        let is_in_logs = |source: &Usage| matches!(source, Usage::Status(_) | Usage::Duration(_));
        if !self.seen.has(flag::SETTLED) && !settlement.settle.iter().all(is_in_logs) {
            self.need = Need::Settled;
            self.add("`settled`, what a request cost");
            self.need = Need::Cost;
        }
        for source in &settlement.reserve {
            match source {
                Reserve::Fixed(_) => return,
                Reserve::Header(name) => self.header(name),
                Reserve::Metadata(_) => self.metadata(),
                Reserve::RequestBytes(_) if !self.seen.has_lengths => self.header("content-length"),
                Reserve::RequestBytes(_) => {}
            }
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

    fn metadata(&mut self) {
        if !self.seen.has(flag::METADATA) {
            self.add("metadata");
        }
    }

    fn add(&mut self, part: &str) {
        if !self.found.iter().any(|found| found.name == part) {
            self.found.push(MissingPart {
                name: part.to_owned(),
                need: self.need,
            });
        }
    }
}
