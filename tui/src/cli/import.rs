//! Implements `loudou import`, which applies the output of `loudou export --live`.

use std::path::{Path as FilePath, PathBuf};

use anyhow::Result;
use clap::Args;
use loudou_rules::config::{Path, Problem};
use serde::Serialize;
use serde_json::Value;

use super::context::Context;
use super::files::{problems, report_of};
use super::options::Format;
use super::outcome::Outcome;
use super::world::json_list;
use loudou_check::Report;
use loudou_client::live::apply::{Done, Target};
use loudou_client::live::{Item, TimeLeft, document};
use loudou_print::table::{Set, TextTable};
use loudou_words::num::count;
use loudou_words::text::{counted, escape, humanise};

const EXAMPLES: &str = "\
Examples:
  loudou export --live > live.json                before Envoy restarts
  loudou import live.json --dry-run               after the restart: what would be applied
  loudou import live.json
  loudou --url http://10.0.0.7:9911 export --live | loudou import -    from one Envoy to another";

#[derive(Debug, Args)]
#[command(before_long_help = EXAMPLES)]
pub(crate) struct ImportArgs {
    /// Output of `loudou export --live`; - for standard input
    ///
    /// JSON or YAML
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Show what would be applied, without changing anything
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Do not ask for confirmation
    ///
    /// Without a terminal on standard input, as in scripts, nothing is asked
    #[arg(short, long)]
    pub(crate) yes: bool,
}

/// A change in the file and its outcome, as printed in JSON.
#[derive(Clone, Debug, Serialize)]
struct ResultLine<'a> {
    kind: &'static str,
    rule: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
    /// `applied`, `would_apply`, `so_already`, `ended` or `failed`.
    outcome: &'static str,
    #[serde(skip_serializing_if = "String::is_empty")]
    detail: String,
}

type Results = Vec<(Path, Item, TimeLeft, Done)>;

pub(super) fn run(context: &mut Context<'_, '_>, args: &ImportArgs) -> Result<Outcome> {
    context.no_csv()?;
    if !args.dry_run {
        context.may_change()?;
    }
    let report = report_of(context, &args.file)?;
    let Some(value) = report.document.as_ref().map(|document| &document.value) else {
        problems(context, report, &[])?;
        return Ok(Outcome::Failed);
    };
    let items = match document::read(value) {
        Ok(items) if !report.has_errors() => items,
        Ok(_) => {
            problems(context, report, &[])?;
            return Ok(Outcome::Failed);
        }
        Err(wrong) => {
            problems(context, report, &wrong)?;
            return Ok(Outcome::Failed);
        }
    };
    let client = context.client()?;
    let mut target = Target::read(&client, true)?;
    // Standard input cannot supply both the file and the answer to a prompt.
    let asks = context.io.input_terminal && !args.yes && args.file != FilePath::new("-");
    if asks && !args.dry_run {
        let plan = apply(&mut target, &items);
        let text = table(context, &plan, true)?;
        context.note(&text)?;
        let changes = plan
            .iter()
            .filter(|(_, _, _, done)| matches!(done, Done::Applied(_)));
        let changes = counted(count(changes.count()), "change");
        let url = escape(client.url()).into_owned();
        if !context.confirmed(&format!("Apply {changes} to {url}?"))? {
            context.note("nothing was changed")?;
            return Ok(Outcome::Failed);
        }
    }
    target.dry_run = args.dry_run;
    let results = apply(&mut target, &items);
    print(context, &results, args.dry_run)?;
    print_failures(context, report, &results)?;
    let failed = results.iter().any(|(_, _, _, done)| done.is_failure());
    Ok(if failed {
        Outcome::Failed
    } else {
        Outcome::Done
    })
}

fn apply(target: &mut Target<'_>, items: &[(Path, Item)]) -> Results {
    let unix_ms = target.unix_ms();
    let done = target.apply_all(items.iter().map(|(_, item)| item));
    let results = items.iter().zip(done);
    let results =
        results.map(|((at, item), done)| (at.clone(), item.clone(), item.left(unix_ms), done));
    results.collect()
}

fn print(context: &mut Context<'_, '_>, results: &Results, dry_run: bool) -> Result<()> {
    let format = context.format();
    if format != Format::Table {
        let lines: Vec<ResultLine<'_>> =
            results.iter().map(|result| line(result, dry_run)).collect();
        json_list(context.io.out, format, &lines, &lines)?;
        return Ok(());
    }
    let text = table(context, results, dry_run)?;
    write!(context.io.out, "{text}")?;
    let count_of =
        |is_it: fn(&Done) -> bool| results.iter().filter(|(_, _, _, done)| is_it(done)).count();
    let counts = [
        (
            count_of(|done| matches!(done, Done::Applied(_))),
            if dry_run {
                "would be applied"
            } else {
                "applied"
            },
        ),
        (
            count_of(|done| *done == Done::SoAlready),
            "already in effect",
        ),
        (count_of(|done| *done == Done::Ended), "ended"),
        (count_of(Done::is_failure), "failed"),
    ];
    let counts = counts.into_iter().filter(|(n, _)| *n > 0);
    let counts: Vec<String> = counts.map(|(n, what)| format!("{n} {what}")).collect();
    let counts = if counts.is_empty() {
        "nothing to apply: the file is empty".to_owned()
    } else {
        counts.join(", ")
    };
    let note = if dry_run {
        "; dry run: nothing was changed"
    } else {
        ""
    };
    writeln!(context.io.out, "{counts}{note}")?;
    Ok(())
}

/// Returns a table with the outcome of each item, or an empty string if there are no items.
fn table(context: &Context<'_, '_>, results: &Results, dry_run: bool) -> Result<String> {
    if results.is_empty() {
        return Ok(String::new());
    }
    let mut table = TextTable::new(&[
        ("RULE", Set::Left),
        ("CHANGE", Set::Shrink),
        ("FOR", Set::Left),
        ("OUTCOME", Set::Shrink),
    ]);
    for (_, item, left, done) in results {
        let left = match left {
            TimeLeft::Endless => "no end".to_owned(),
            TimeLeft::For(span) => humanise(span.get()),
            TimeLeft::Nothing => "-".to_owned(),
        };
        table.row(vec![
            item.rule.as_str().into(),
            item.words().into(),
            left.into(),
            done.words(dry_run).into(),
        ]);
    }
    let mut text = Vec::new();
    table.print(&mut text, context.style)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

fn line((_, item, _, done): &(Path, Item, TimeLeft, Done), dry_run: bool) -> ResultLine<'_> {
    let (outcome, detail) = match done {
        Done::Applied(change) if dry_run => ("would_apply", change.clone()),
        Done::Applied(change) => ("applied", change.clone()),
        Done::SoAlready => ("so_already", String::new()),
        Done::Ended => ("ended", String::new()),
        Done::UnknownRule { known, .. } => {
            ("failed", format!("unknown rule; this Envoy has {known}"))
        }
        Done::Failed(why) => ("failed", why.clone()),
    };
    ResultLine {
        kind: item.kind().name(),
        rule: &item.rule,
        key: item.key(),
        outcome,
        detail,
    }
}

/// Prints each failed item with its position in the file and the reason for the failure.
fn print_failures(context: &mut Context<'_, '_>, report: Report, results: &Results) -> Result<()> {
    let failures: Vec<Problem> = results
        .iter()
        .filter_map(|(at, item, _, done)| failure(at, item, done))
        .collect();
    if !failures.is_empty() {
        problems(context, report, &failures)?;
    }
    Ok(())
}

fn failure(at: &Path, item: &Item, done: &Done) -> Option<Problem> {
    match done {
        Done::UnknownRule { known, meant } => {
            let name = Value::from(item.rule.as_str());
            let problem = Problem::error(at.field("rule"), &name, "unknown rule in this Envoy");
            Some(problem.allowed(known.as_str()).suggest(meant.as_deref()))
        }
        Done::Failed(why) => {
            let what = Value::from(item.words());
            Some(Problem::error(at.clone(), &what, why.as_str()))
        }
        _ => None,
    }
}
