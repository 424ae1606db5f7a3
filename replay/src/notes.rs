//! Caveats about a run's numbers.

use loudou_rules::rule::{Mode, Scope};

use super::format::LogFormat;
use super::input::Intake;
use super::missing::missing;
use super::num::counted;
use super::run::{Run, Side};
use super::tally::RuleCounts;

/// Notes on rules that need something the log does not have, and on inexact numbers.
pub(super) fn notes(input: &Intake, run: &Run) -> Vec<String> {
    let Some(form) = input.form else {
        return Vec::new();
    };
    let mut notes = Vec::new();
    match &run.other {
        None => side_notes("", &run.side, form, &mut notes),
        Some((other, _)) => {
            side_notes("A: ", &run.side, form, &mut notes);
            side_notes("B: ", other, form, &mut notes);
        }
    }
    let about_form = match form {
        LogFormat::Nginx => {
            "times are whole seconds and are taken at each request's end: bursts look sharper"
        }
        LogFormat::Envoy => {
            "the source is the last address of x-forwarded-for unless the log has a column for it"
        }
        LogFormat::Trace | LogFormat::EnvoyJson => return notes,
    };
    notes.push(about_form.to_owned());
    notes
}

fn side_notes(name: &str, side: &Side, form: LogFormat, notes: &mut Vec<String>) {
    let engine = &side.engine;
    for (active, counts) in engine.rules().iter().zip(&side.tally.rules) {
        let rule = active.rule();
        if rule.when.is_some() {
            notes.push(format!(
                "{name}rule {} applies only while an upstream fails, which no trace records",
                rule.name
            ));
        }
        if rule.scope == Scope::Fleet && rule.mode != Mode::Off {
            notes.push(format!(
                "{name}rule {} is decided as one central bucket, without the waits and leases of a fleet",
                rule.name
            ));
        }
        let missing = missing(rule, form);
        for part in &missing {
            let title = form.title();
            let skipped = skipped(counts);
            notes.push(format!(
                "{name}rule {} needs {part}, which {title} does not have: {skipped}",
                rule.name
            ));
        }
        if missing.is_empty() && counts.matched > 0 && counts.skipped == counts.matched {
            let skipped = skipped(counts);
            let rule = &rule.name;
            notes.push(format!(
                "{name}rule {rule} did not find its key in any request: {skipped}"
            ));
        }
    }
    let lossy = engine.stats().evicted_lossy;
    if lossy > 0 {
        let n = counted(lossy, "bucket");
        notes.push(format!(
            "{name}{n} evicted while in use: `store.buckets` is too small for these keys"
        ));
    }
    if engine.endless > 0 {
        let n = counted(engine.endless, "request");
        notes.push(format!(
            "{name}{n} had no duration: `concurrency` counted each as ended once it passed"
        ));
    }
    if engine.ended_early > 0 {
        let n = counted(engine.ended_early, "request");
        notes.push(format!("{name}{n} ended early: too many in flight"));
    }
}

fn skipped(counts: &RuleCounts) -> String {
    format!(
        "{} of {} skipped",
        counts.skipped,
        counted(counts.matched, "request")
    )
}
