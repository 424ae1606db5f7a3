//! Caveats about the results of a run. A caveat is a warning if it could change the conclusion,
//! otherwise a note.

use loudou_limiter::Nanos;

use super::format::LogFormat;
use super::input::Intake;
use super::rule_notes;
use super::run::{Run, Side};
use super::top::TopKeys;
use loudou_words::text::counted;

/// Minimum number of requests before the run warns that one client sent nearly all of them.
const ENOUGH: u64 = 100;
/// Percentage that counts as nearly all requests.
const NEARLY_ALL: u64 = 95;

/// Returns all warnings about the input, the clients and the rules.
pub(super) fn warnings(input: &Intake, run: &Run) -> Vec<String> {
    let mut warnings = of_log(input, run.clients.as_ref(), run.requests());
    if run.others.is_empty() {
        side(input, run, ("", &run.side), &mut warnings);
        return warnings;
    }
    let others = run.others.iter().map(|(other, _)| other);
    for (letter, one) in ('A'..).zip(std::iter::once(&run.side).chain(others)) {
        side(input, run, (&format!("{letter}: "), one), &mut warnings);
    }
    warnings
}

/// Returns the warnings that depend on the log but not on the rules. `clients` contains the clients
/// with the most of the `total` requests, if any rule counts by client.
pub(super) fn of_log(input: &Intake, clients: Option<&TopKeys>, total: u64) -> Vec<String> {
    let mut warnings = Vec::new();
    if total == 0 {
        warnings.push(match input.outside {
            0 => "the log has no request".to_owned(),
            n => format!(
                "no request is in the part that --from and --to choose: {} outside of it",
                counted(n, "request")
            ),
        });
    }
    order(input, &mut warnings);
    times(input, &mut warnings);
    if let Some(clients) = clients {
        of_clients(input, clients, total, &mut warnings);
    }
    if input.answered_429 > 0 {
        let n = counted(input.answered_429, "request");
        warnings.push(format!(
            "{n} of the log had status 429: something limited this traffic already, and clients may have \
             sent less, or tried again"
        ));
    }
    warnings
}

/// Returns notes on lines and requests that the results exclude.
pub(super) fn notes(input: &Intake) -> Vec<String> {
    let mut notes = Vec::new();
    for (kind, count) in input.other_lines().filter(|(_, count)| *count > 0) {
        let lines = counted(count, "line");
        notes.push(format!("{lines} skipped: {}", kind.title()));
    }
    if input.outside > 0 {
        let n = counted(input.outside, "request");
        notes.push(format!("{n} outside of --from and --to"));
    }
    notes
}

/// Adds warnings about lines that are out of order or have no timestamp, and about truncated
/// inputs.
fn order(input: &Intake, warnings: &mut Vec<String>) {
    if input.steps_back > 0 {
        let n = share(input.steps_back, input.records);
        let longest = Nanos::new(input.longest_step_back_ns);
        warnings.push(format!(
            "{n} of the lines were out of order, by at most {}: all were sorted by time",
            seconds(longest)
        ));
    }
    if input.untimed > 0 {
        let n = share(input.untimed, input.lines);
        warnings.push(format!(
            "{n} of the lines could not be put in order and are left out: their time cannot be read"
        ));
    }
    for about in &input.inputs {
        if let Some(reason) = &about.damaged {
            let (name, lines) = (&about.name, counted(about.lines, "line"));
            warnings.push(format!("{name} ends after {lines}: {reason}"));
        }
    }
}

fn times(input: &Intake, warnings: &mut Vec<String>) {
    if input.is_coarse {
        let end = match input.forms.as_slice() {
            [LogFormat::IngressNginx] => ", less the request's duration",
            forms if forms.contains(&LogFormat::Combined) => {
                "; NGINX logs the end of a request, Apache its start"
            }
            _ => "",
        };
        warnings.push(format!(
            "times are whole seconds{end}: bursts look sharper, and a small capacity refuses more"
        ));
    }
}

fn of_clients(input: &Intake, clients: &TopKeys, total: u64, warnings: &mut Vec<String>) {
    let seen = &input.seen;
    if seen.without_source > 0 {
        let n = share(seen.without_source, total);
        let source = match &input.source {
            Some(source) => format!("from --source {source}"),
            None => "in the log".to_owned(),
        };
        warnings.push(format!(
            "{n} of the requests have no client {source}: rules by source skip them, or do as their on_missing_key says"
        ));
    }
    if seen.forwarded > 0 {
        warnings.push(
            "the log has no column for the client: it is the last address of x-forwarded-for; choose \
             another one with --source"
                .to_owned(),
        );
    }
    if let [client, ..] = clients.most(1).as_slice() {
        let least = client.total.saturating_sub(client.surplus);
        let is_most = u128::from(least) * 100 >= u128::from(total) * u128::from(NEARLY_ALL);
        if total >= ENOUGH && is_most {
            let n = share(least, total);
            warnings.push(format!(
                "{} makes {n} of the requests: if it is a proxy, choose the client behind it with --source \
                 xff or --source header:NAME",
                client.key
            ));
        }
    }
}

fn side(input: &Intake, run: &Run, (name, side): (&str, &Side), warnings: &mut Vec<String>) {
    let engine = &side.engine;
    if run.requests() == 0 {
        return;
    }
    for (active, counts) in engine.rules().iter().zip(&side.tally.rules) {
        let rule = active.rule();
        rule_notes::of_log(input, name, (rule, counts), warnings);
        // If a trace starts at zero, its clock starts with the process, so the phase of each period
        // is known.
        if !run.time.is_from_zero() {
            rule_notes::of_phase(name, (rule, counts), warnings);
        }
    }
    let lossy = engine.stats().evicted_lossy;
    if lossy > 0 {
        let n = counted(lossy, "bucket");
        warnings.push(format!(
            "{name}{n} evicted while in use: `store.buckets` is too small for these keys"
        ));
    }
    if engine.endless > 0 {
        let n = counted(engine.endless, "request");
        warnings.push(format!(
            "{name}{n} had no duration: `concurrency` counted each as ended once it passed"
        ));
    }
    if engine.ended_early > 0 {
        let n = counted(engine.ended_early, "request");
        warnings.push(format!("{name}{n} ended early: too many in flight"));
    }
}

/// Formats a share of a total as a percentage and a count.
fn share(part: u64, whole: u64) -> String {
    let whole = u128::from(whole);
    let tenths = (u128::from(part) * 1_000 + whole / 2).checked_div(whole);
    let tenths = tenths.unwrap_or(0);
    let least = if part > 0 && tenths == 0 { "<" } else { "" };
    let tenths = tenths.max(u128::from(part > 0));
    format!("{least}{}.{} % ({part})", tenths / 10, tenths % 10)
}

/// Formats a time span in seconds, rounded up to the millisecond.
fn seconds(span: Nanos) -> String {
    let ms = span.get().div_ceil(1_000_000);
    let (seconds, ms) = (ms / 1_000, ms % 1_000);
    if ms == 0 {
        format!("{seconds} s")
    } else {
        format!("{seconds}.{ms:03} s")
    }
}
