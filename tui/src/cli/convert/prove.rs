//! Implements `loudou convert --prove`, which compares the source's limits with the converted rules
//! over a log.

use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::{Result, anyhow};
use loudou_convert::Converted;
use loudou_convert::prove::{
    Counts, Difference, Logged, MAX_COUNTERS, MAX_RUNNING, Ours, Proof, Prover,
};
use loudou_limiter::Nanos;
use loudou_print::replay::{bad_lines, first_lines, instant, print_note};
use loudou_print::style::Style;
use loudou_print::table::{Cell, Set, TextTable};
use loudou_replay::decisions::Decided;
use loudou_replay::run::Run;
use loudou_replay::summary::RunSummary;
use loudou_replay::{Observer, Progress, replay};
use loudou_words::text::{counted, escape};

use crate::cli::check::rules_of_text;
use crate::cli::context::Context;
use crate::cli::outcome::Outcome;
use crate::cli::replay::{LogArgs, nothing, traces, with_inputs};

/// Number of differences that are printed.
const SHOWN: usize = 20;

/// Note about the scope of the comparison.
const READING: &str = "which limits a request meets, its key and its cost are read from the rules. Only the counting is compared.";

/// Observer that passes each decision to the prover, and the progress to `inner`.
struct Watch<'a, 'p> {
    prover: &'a mut Prover<'p>,
    inner: &'a mut dyn Observer,
}

impl Observer for Watch<'_, '_> {
    fn decided(&mut self, decided: &Decided<'_>) -> io::Result<()> {
        let logged = Logged {
            file: decided.file,
            line: decided.line,
            at: decided.at(),
            end: decided.end(),
        };
        let rule = decided.reported.rule.as_ref();
        let ours = Ours {
            verdict: decided.reported.verdict,
            wait: rule.map_or(Nanos::ZERO, |rule| rule.wait),
            rule: rule.map(|rule| rule.index),
        };
        self.prover.request(&logged, &mut decided.sample(), ours);
        Ok(())
    }

    fn progress(&mut self, progress: Progress) -> io::Result<()> {
        self.inner.progress(progress)
    }
}

/// Compares the source's limits with the converted rules over logs, and prints the result.
pub(super) fn run(
    context: &mut Context<'_, '_>,
    converted: &Converted,
    logs: &[PathBuf],
    log: &LogArgs,
) -> Result<Outcome> {
    let name = "converted rules";
    let Some(mut file) = rules_of_text(context, name, converted.text.as_bytes())? else {
        return Ok(Outcome::Failed);
    };
    // With fewer buckets, the rules would forget keys that the source still counts.
    file.store.buckets = file.store.buckets.max(MAX_COUNTERS.saturating_mul(2));
    let mut run = Run::new((name, &file), &[])
        .map_err(|gave_up| anyhow!("no room for buckets: {gave_up:?}"))?;
    let traces = traces::expand(logs)?;
    let mut prover = Prover::new(&file, &converted.counted);
    let input = with_inputs(context, (log, false), &traces, |inputs, reading, inner| {
        let prover = &mut prover;
        replay(inputs, reading, &mut run, &mut Watch { prover, inner })
    })?;
    nothing(&traces, &input)?;
    let summary = RunSummary::new(&traces.name(), &input, &run, 0);
    let proof = prover.finish();
    let style = Style {
        width: context.io.width,
        ..context.style
    };
    print(&proof, &summary, context.io.out, style)?;
    let trace = &summary.trace;
    if trace.bad_lines > 0 {
        let lines = first_lines(&trace.first_bad_lines);
        context.note(&format!("{}\n{lines}", bad_lines(trace.bad_lines)))?;
    }
    Ok(if proof.agrees() {
        Outcome::Done
    } else {
        Outcome::Failed
    })
}

fn print(proof: &Proof, summary: &RunSummary, out: &mut dyn Write, style: Style) -> io::Result<()> {
    let Counts {
        requests,
        more,
        less,
        delay,
    } = proof.counts;
    let name = escape(&summary.trace.name);
    writeln!(
        out,
        "{name}: {}, {} equal, {more} more allowed, {less} less allowed, {delay} delayed differently\n",
        counted(requests, "request"),
        proof.counts.equal(),
    )?;
    rules(proof).print(out, style)?;
    if !proof.causes.is_empty() {
        writeln!(out, "\nwhy they differ")?;
        let mut table = TextTable::new(&[("REQUESTS", Set::Right), ("CAUSE", Set::Left)]);
        for cause in &proof.causes {
            table.row(vec![cause.requests.into(), Cell::new(&cause.why)]);
        }
        table.print(out, style)?;
        writeln!(out, "\n{}", heading(proof))?;
        let shown = proof.differences.get(..SHOWN);
        differences(shown.unwrap_or(&proof.differences)).print(out, style)?;
    }
    writeln!(out)?;
    print_note("note", READING, out, style)?;
    if !proof.has_met() {
        let warning = "no request of the log meets a limit and has its key, so nothing is proven";
        print_note("warning", warning, out, style)?;
    }
    if proof.without_duration > 0 {
        let note = format!(
            "{} not compared, because the log lacks durations, and `limit_conn` counts running requests; log them, such as \
             nginx's `$request_time`",
            counted(proof.without_duration, "request"),
        );
        print_note("warning", &note, out, style)?;
    }
    if proof.uncompared > 0 {
        let note = format!(
            "{} not compared, because the log has more than {MAX_COUNTERS} keys or {MAX_RUNNING} requests at once; choose a \
             part of it with --from and --to",
            counted(proof.uncompared, "request"),
        );
        print_note("warning", &note, out, style)?;
    }
    for warning in &summary.warnings {
        print_note("warning", warning, out, style)?;
    }
    Ok(())
}

/// Returns a table with the results per rule.
fn rules(proof: &Proof) -> TextTable {
    let mut table = TextTable::new(&[
        ("RULE", Set::Shrink),
        ("REQUESTS", Set::Right),
        ("EQUAL", Set::Right),
        ("MORE", Set::Right),
        ("LESS", Set::Right),
        ("DELAY", Set::Right),
        ("NO KEY", Set::Right),
    ]);
    for rule in &proof.rules {
        let counts = rule.counts;
        table.row(vec![
            rule.rule.as_str().into(),
            counts.requests.into(),
            counts.equal().into(),
            counts.more.into(),
            counts.less.into(),
            counts.delay.into(),
            rule.without_key.into(),
        ]);
    }
    table
}

/// Returns the heading of the table of differences.
fn heading(proof: &Proof) -> String {
    let Counts {
        more, less, delay, ..
    } = proof.counts;
    let all = more.saturating_add(less).saturating_add(delay);
    let shown = proof.differences.len().min(SHOWN);
    if usize::try_from(all) == Ok(shown) {
        "differences".to_owned()
    } else {
        format!("first {shown} of {all} differences")
    }
}

/// Returns a table of differences.
fn differences(differences: &[Difference]) -> TextTable {
    let has_files = differences.iter().any(|one| one.file.is_some());
    let mut columns = vec![
        ("LINE", Set::Right),
        ("TIME", Set::Left),
        ("RULE", Set::Shrink),
        ("KEY", Set::Shrink),
        ("SOURCE", Set::Left),
        ("RULES", Set::Left),
    ];
    if has_files {
        columns.insert(0, ("FILE", Set::Shrink));
    }
    let mut table = TextTable::new(&columns);
    for one in differences {
        let mut row: Vec<Cell> = vec![
            one.line.into(),
            instant(one.at.get()).into(),
            one.rule.as_str().into(),
            one.key.as_str().into(),
            one.theirs.as_str().into(),
            one.ours.as_str().into(),
        ];
        if has_files {
            row.insert(0, one.file.as_deref().unwrap_or_default().into());
        }
        table.row(row);
    }
    table
}
