//! Caveats about the results of one rule: request parts that the log lacks, and limits whose
//! refusals depend on when Envoy started.

use loudou_limiter::Limit;
use loudou_rules::rule::{Mode, OnMissingKey, Rule, Scope};

use super::format::LogFormat;
use super::input::Intake;
use super::missing::{MissingPart, Need, missing};
use super::tally::{RuleCounts, has_phase};
use loudou_words::text::counted;

/// Adds warnings about request parts that a rule needs but that are missing from the log. Each
/// warning begins with `name`.
pub(super) fn of_log(
    input: &Intake,
    name: &str,
    (rule, counts): (&Rule, &RuleCounts),
    warnings: &mut Vec<String>,
) {
    if rule.mode == Mode::Off {
        return;
    }
    if rule.when.is_some() {
        warnings.push(format!(
            "{name}rule {} applies only while an upstream fails, which no trace records",
            rule.name
        ));
    }
    if rule.scope == Scope::Fleet {
        warnings.push(format!(
            "{name}rule {} is decided as one central bucket, without the waits and leases of a fleet",
            rule.name
        ));
    }
    // A trace records every part of a request, so a part that is missing from the trace was not in
    // the request.
    let is_whole = input.forms.iter().all(|form| *form == LogFormat::Trace);
    let is_idle = counts.skipped == counts.matched;
    let mut missing = missing(rule, &input.seen);
    // If no request matched, the rule looked up neither a key nor a cost.
    missing.retain(|part| part.need == Need::Match || counts.matched > 0);
    for part in missing.iter().filter(|_| !is_whole || is_idle) {
        let effect = effect(rule, part, counts);
        warnings.push(format!(
            "{name}rule {} needs {}, which no line has: {effect}",
            rule.name, part.name
        ));
    }
    if missing.is_empty() && counts.matched > 0 && is_idle {
        let skipped = skipped(counts);
        warnings.push(format!(
            "{name}rule {} did not find its key in any request: {skipped}",
            rule.name
        ));
    }
}

/// Describes how a request part that no request had affects a rule.
fn effect(rule: &Rule, part: &MissingPart, counts: &RuleCounts) -> String {
    let matched = counted(counts.matched, "request");
    match (part.need, rule.on_missing_key) {
        _ if counts.matched == 0 => "it matched no request".to_owned(),
        (Need::Key, OnMissingKey::Skip) => skipped(counts),
        (Need::Key, OnMissingKey::Refuse) => {
            format!("without a key it refuses all it matched, {matched}")
        }
        (Need::Key, OnMissingKey::Share) => {
            format!("without a key all it matched, {matched}, share one bucket")
        }
        (Need::Match, _) => {
            format!("its match takes all requests for such without it, and matched {matched}")
        }
        (Need::Cost, _) => {
            let units = counted(rule.cost.usual().into(), "unit");
            format!("each of {matched} costs {units}, the default")
        }
        (Need::Settled, _) => {
            format!("each of {matched} costs what its status or duration says, or what it reserves")
        }
        (Need::Numbers, _) => format!("the limits of {matched} have their default numbers"),
    }
}

fn skipped(counts: &RuleCounts) -> String {
    format!(
        "{} of {} skipped",
        counts.skipped,
        counted(counts.matched, "request")
    )
}

/// Adds a warning about limits whose refusals depend on when Envoy started.
pub(super) fn of_phase(
    name: &str,
    (rule, counts): (&Rule, &RuleCounts),
    warnings: &mut Vec<String>,
) {
    if counts.refused_by_phase == 0 {
        return;
    }
    let limits = rule.limits.iter();
    let limits = limits.filter(|limit| has_phase(limit.algorithm()));
    let mut limits: Vec<&str> = limits.map(Limit::name).collect();
    if limits.is_empty() {
        limits.push("of overrides or edits");
    }
    warnings.push(format!(
        "{name}rule {}: {} are by limits ({}) whose periods begin when Envoy starts, here with the first \
         request; with another start it is other requests, up to half or twice as many. `align: clock` makes \
         it certain",
        rule.name,
        counted(counts.refused_by_phase, "refusal"),
        limits.join(", "),
    ));
}
