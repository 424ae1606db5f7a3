//! Finds probable mistakes in fleet settings and in the limits of rules with fleet scope.

use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;

use loudou_limiter::Limit;
use serde_json::Value;

use crate::config::problem::{Path, Problem};
use crate::rule::{FleetSettings, Mode, Rule, RuleFile, Scope};

pub(super) fn of_file(file: &RuleFile) -> Vec<Problem> {
    let Some(fleet) = &file.fleet else {
        return Vec::new();
    };
    let at = Path::root().field("fleet");
    let mut warnings = Vec::new();
    warnings.extend(unused(&file.rules, &at));
    warnings.extend(late(fleet, &at));
    let rules = file.rules.iter().enumerate();
    let shared = rules.filter(|(_, rule)| is_shared(rule));
    let at = Path::root().field("rules");
    for (index, rule) in shared {
        warnings.extend(much_credit(rule, fleet.credit, &at.index(index)));
    }
    warnings
}

fn is_shared(rule: &Rule) -> bool {
    rule.scope == Scope::Fleet && rule.mode != Mode::Off
}

/// Warns about fleet settings that no rule uses.
fn unused(rules: &[Rule], at: &Path) -> Option<Problem> {
    if rules.iter().any(|rule| rule.scope == Scope::Fleet) {
        return None;
    }
    let message = "no rule has `scope: fleet`: each Envoy has its own buckets";
    Some(Problem::error(at.clone(), &Value::Null, message).warning())
}

/// Warns about a timeout that is long enough for the relay's response to arrive after its tokens
/// have expired.
fn late(fleet: &FleetSettings, at: &Path) -> Option<Problem> {
    if fleet.timeout < fleet.lease {
        return None;
    }
    let value = Value::from(fleet.timeout.to_string());
    let message = "not shorter than the lease: tokens may have expired when the relay answers";
    let problem = Problem::error(at.field("timeout"), &value, message);
    let allowed = format!("less than {}", fleet.lease);
    Some(problem.allowed(allowed).warning())
}

/// Warns about a credit that lets each Envoy admit more at once than the limit does.
fn much_credit(rule: &Rule, credit: u32, at: &Path) -> Vec<Problem> {
    let limits = rule.limits.iter().enumerate();
    let small = limits.filter(|(_, limit)| limit.algorithm().capacity() < credit.into());
    let warning = |(index, limit): (usize, &Limit)| {
        let at = at.field("limits").index(index).field("capacity");
        let value = Value::from(limit.algorithm().capacity());
        let message = format!(
            "less than the fleet's credit of {credit}, which passes in each Envoy before the relay answers"
        );
        Problem::error(at, &value, message).warning()
    };
    small.map(warning).collect()
}
