//! Finds regular expressions that may be slow or can test only short values.

use alloc::format;
use alloc::vec::Vec;

use serde_json::Value;

use crate::config::problem::{Path, Problem};
use crate::rule::pattern::Pattern;
use crate::rule::{Mode, OnLongValue, Part, Rule};

/// Size of a value, in bytes, that every pattern should be able to test. Paths and user agents are
/// usually a few hundred bytes long.
const TYPICAL_VALUE: usize = 1024;
/// Time per request, in nanoseconds, that triggers a warning.
const LONG: usize = 1_000_000;

/// Returns the maximum time, in nanoseconds, that the regular expressions of all rules need for one
/// request.
pub fn worst_ns(rules: &[Rule]) -> usize {
    let rules = rules.iter().filter(|rule| rule.mode != Mode::Off);
    let patterns = rules.flat_map(|rule| rule.matches.patterns());
    patterns.fold(0, |sum, (_, pattern)| {
        sum.saturating_add(pattern.worst_ns())
    })
}

/// Warns about patterns that can test only short values, and about rules that let a client bypass
/// later rules.
pub(super) fn of_rule(rule: &Rule, at: &Path) -> Vec<Problem> {
    let patterns = rule.matches.patterns();
    let short = patterns
        .iter()
        .filter(|(_, pattern)| pattern.longest() < TYPICAL_VALUE);
    let mut warnings: Vec<Problem> = short
        .map(|(parts, pattern)| costly(pattern, &place(&at.field("match"), parts)))
        .collect();
    let is_open = rule.on_long_value == OnLongValue::Apply && !patterns.is_empty();
    if is_open && rule.stop && rule.mode == Mode::Enforce {
        let message = "a client whose value is too long for this rule's regular expression gets it applied and so \
                       avoids the later rules: probably `on_long_value: skip` is meant";
        let stop = Value::from(true);
        warnings.push(Problem::error(at.field("stop"), &stop, message).warning());
    }
    warnings
}

fn costly(pattern: &Pattern, at: &Path) -> Problem {
    let (longest, worst) = (pattern.longest(), pattern.worst_ns());
    let micros = worst.div_ceil(1_000);
    let message = format!(
        "expensive: up to {micros} µs for a value of {longest} bytes, so longer ones are not tested and \
         `on_long_value` decides; shorter repetitions test longer values"
    );
    Problem::error(at.clone(), &Value::from(pattern.text()), message).warning()
}

/// Warns if the patterns of all rules combined may take too long for one request.
pub(super) fn of_file(rules: &[Rule], at: &Path) -> Option<Problem> {
    let worst = worst_ns(rules);
    if worst < LONG {
        return None;
    }
    let count = rules.iter().fold(0_usize, |sum, rule| {
        sum.saturating_add(rule.matches.patterns().len())
    });
    let message = format!(
        "the {count} regular expressions of these rules may take up to {} ms of a worker for one request with long \
         values",
        worst.div_ceil(1_000_000)
    );
    Some(Problem::error(at.clone(), &Value::Null, message).warning())
}

/// Returns the path of a regular expression, given the path of its match.
fn place(at: &Path, parts: &[Part]) -> Path {
    let at = parts.iter().fold(at.clone(), |at, part| match part {
        Part::Path => at.field("path"),
        Part::Header(index) => at.field("headers").index(*index),
        Part::Query(index) => at.field("query").index(*index),
        Part::Cookie(index) => at.field("cookies").index(*index),
        Part::Metadata(index) => at.field("metadata").index(*index),
        Part::Not => at.field("not"),
        Part::Methods | Part::Host | Part::Source | Part::Route => at,
    });
    at.field("regex")
}
