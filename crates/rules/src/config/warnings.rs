//! Finds valid rules that are probably a mistake.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use loudou_limiter::{Decimal, Limit, Limits, Nanos, Rate};
use loudou_store::page::SLOTS;
pub use preflights::preflight_advice;
use serde_json::Value;

use crate::config::problem::{Path, Problem};
use crate::joined::joined;
use crate::rule::{Impossible, Rule, RuleFile};

mod contradictions;
mod fleet;
pub(super) mod patterns;
mod preflights;

/// State size per bucket, in bytes, above which reading and writing pages costs more than making
/// the decision.
const LARGE_STATE: usize = 1024;

/// Returns warnings about valid parts of a file that are probably a mistake, in addition to the
/// warnings of [`super::parse`]. They are meant for people who check a file. The filter does not
/// use these warnings.
pub fn advice(file: &RuleFile) -> Vec<Problem> {
    let at_rules = Path::root().field("rules");
    let mut warnings = Vec::new();
    for (index, rule) in file.rules.iter().enumerate() {
        let earlier = file.rules.get(..index).unwrap_or_default();
        let at = at_rules.index(index);
        warnings.extend(of_rule(rule, &at));
        warnings.extend(repetition(rule, earlier, &at));
    }
    warnings.extend(fleet::of_file(file));
    warnings.extend(patterns::of_file(&file.rules, &at_rules));
    warnings
}

fn of_rule(rule: &Rule, at: &Path) -> Vec<Problem> {
    let mut warnings = Vec::new();
    warnings.extend(contradictions::never_matches(
        &rule.matches,
        &at.field("match"),
    ));
    warnings.extend(patterns::of_rule(rule, at));
    warnings.extend(never_over(rule, at));
    let impossible = impossible_keys(rule, at).into_iter();
    warnings.extend(impossible.map(Problem::warning));
    let at = at.field("limits");
    let limits = rule.limits.iter().enumerate();
    warnings.extend(limits.filter_map(|(index, limit)| {
        hardly_holds(limit, u64::from(rule.cost.least()), &at.index(index))
    }));
    warnings.extend(large_state(&rule.limits.largest(), &at));
    warnings
}

/// Warns about an error rate threshold that can never be exceeded.
fn never_over(rule: &Rule, at: &Path) -> Option<Problem> {
    let over = rule.when?.over;
    if over < Decimal::from_thousandths(1_000) {
        return None;
    }
    let at = at.field("when").field("upstream_error_rate_over");
    let message = "this rule never applies: the share of errors cannot exceed 1";
    Some(Problem::error(at, &Value::from(1), message).warning())
}

/// Warns about a rule whose overrides replace the overrides in `defaults` but omit keys that are
/// banned there.
pub(super) fn dropped_bans(defaults: &Value, own: &Value, at: Path) -> Option<Problem> {
    let (defaults, own) = (defaults.as_object()?, own.as_object()?);
    let bans = |over: &Value| over == "banned";
    let covers = |pattern: &str, key: &str| {
        let beginning = pattern.strip_suffix('*');
        beginning.is_some_and(|beginning| key.starts_with(beginning))
    };
    let is_dropped = |key: &str| {
        let is_covered = own
            .iter()
            .any(|(pattern, over)| bans(over) && covers(pattern, key));
        !own.contains_key(key) && !is_covered
    };
    let banned = defaults.iter().filter(|(_, over)| bans(over));
    let dropped = banned
        .map(|(key, _)| key.as_str())
        .filter(|key| is_dropped(key));
    let dropped: Vec<&str> = dropped.collect();
    let first = dropped.first()?;
    let are = if dropped.len() > 1 { "are" } else { "is" };
    let message = format!(
        "`{}` {are} banned in `defaults`, and not by this rule: its own overrides replace all of the defaults",
        joined(&dropped, "`, `")
    );
    let problem = Problem::error(at, &Value::Null, message).warning();
    Some(problem.suggest(Some(&format!("{first}: banned"))))
}

/// Warns about a rule that differs from an earlier rule only in its name. A request must be
/// admitted by both rules, so the later one has no effect.
fn repetition(rule: &Rule, earlier: &[Rule], at: &Path) -> Option<Problem> {
    let same = |other: &&Rule| {
        let named = Rule {
            name: rule.name.clone(),
            ..(*other).clone()
        };
        named == *rule
    };
    let other = earlier.iter().find(same)?;
    let message = format!(
        "duplicate of the rule `{}`: one of them is enough",
        other.name
    );
    let name = Value::from(rule.name.as_str());
    Some(Problem::error(at.field("name"), &name, message).warning())
}

/// Warns about a cost above a limit's capacity, which makes the limit refuse every request.
pub(super) fn never_admits(rule: &Rule, at: &Path) -> Option<Problem> {
    let cost = u64::from(rule.cost.least());
    let small: Vec<_> = rule
        .limits
        .largest()
        .iter()
        .filter(|limit| cost > limit.algorithm().max_cost())
        .map(|limit| String::from(limit.name()))
        .collect();
    if small.is_empty() {
        return None;
    }
    let message = format!(
        "no request is ever admitted: the cost is above the capacity of {}",
        joined(&small, ", ")
    );
    let value = Value::from(rule.cost.least());
    Some(Problem::error(at.field("cost"), &value, message).warning())
}

/// Warns about a `max_wait` shorter than the time in which the rate admits one request, because
/// almost no request could then wait.
fn hardly_holds(limit: &Limit, cost: u64, at: &Path) -> Option<Problem> {
    let fields = super::reader::written(limit);
    let max_wait = Nanos::parse(fields.get("max_wait")?.as_str()?)?;
    let one = time_of(cost, limit.algorithm().rate()?);
    // The next refill may be imminent, so even a short wait can be enough.
    let comes_in_lumps = fields
        .get("refill")
        .is_some_and(|refill| refill == "interval");
    if max_wait == Nanos::ZERO || max_wait >= one || comes_in_lumps {
        return None;
    }
    let value = Value::from(format!("{max_wait}"));
    let message = format!(
        "shorter than the {one} that one request takes: simultaneous requests are refused, not held"
    );
    Some(Problem::error(at.field("max_wait"), &value, message).warning())
}

/// Returns the time that a rate needs to refill `cost` units, rounded up.
fn time_of(cost: u64, rate: Rate) -> Nanos {
    let span = u128::from(cost).saturating_mul(rate.period().get().into());
    let span = span.div_ceil(u128::from(rate.amount()).max(1));
    Nanos::new(u64::try_from(span).unwrap_or(u64::MAX))
}

fn large_state(limits: &Limits, at: &Path) -> Option<Problem> {
    let bytes = limits.state_bytes();
    if bytes <= LARGE_STATE {
        return None;
    }
    let largest = limits.iter().enumerate();
    let (index, limit) = largest.max_by_key(|(_, limit)| limit.algorithm().state_bytes())?;
    let kib = bytes.saturating_mul(SLOTS).div_ceil(1024);
    let mut message = format!(
        "a bucket takes up to {bytes} bytes, and each request reads and writes a page of {SLOTS}, \
         {kib} KiB"
    );
    if limit.algorithm().name() == "sliding_log" {
        message.push_str("; a sliding_window is exact to a slot and much smaller");
    }
    let name = Value::from(limit.algorithm().name());
    let at = at.index(index).field("algorithm");
    Some(Problem::error(at, &name, message).warning())
}

/// Warns about overrides for keys that no request can have.
pub(crate) fn impossible_keys(rule: &Rule, at: &Path) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (pattern, _) in rule.overrides.iter() {
        let Some(problem) = impossible_key(rule, &pattern) else {
            continue;
        };
        problems.push(Problem {
            path: at.field("overrides").field(&pattern),
            at_name: true,
            ..problem
        });
    }
    problems
}

/// Returns a problem if no request can have an override's key.
pub fn impossible_key(rule: &Rule, pattern: &str) -> Option<Problem> {
    let beginning = pattern.strip_suffix('*');
    let possible = rule.may_have(beginning.unwrap_or(pattern), beginning.is_some());
    let Impossible { why, meant } = possible.err()?;
    let star = if beginning.is_some() { "*" } else { "" };
    let meant = meant.map(|meant| format!("{meant}{star}"));
    let key = Value::from(pattern);
    let problem = Problem::error(Path::root(), &key, "no request can have this key");
    Some(problem.allowed(why).suggest(meant.as_deref()))
}
