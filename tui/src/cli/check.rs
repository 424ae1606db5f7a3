//! `loudou check`: everything that is wrong with rule files, or in words what they do.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use anyhow::{Context as _, Result};
use loudou_limiter::config::{self, MAX_FILE_BYTES};
use loudou_limiter::rule::RuleFile;

use super::args::{CheckArgs, Format};
use super::context::Context;
use super::report::{FileProblem, Report};
use super::table::csv;
use super::world::json_list;
use super::{Outcome, words};
use crate::text::escape;

/// What a bucket takes of Envoy's memory, its name and the store's own books included.
const BYTES_PER_BUCKET: u64 = 110;

pub(super) fn run(context: &mut Context<'_, '_>, args: &CheckArgs) -> Result<Outcome> {
    let mut problems: Vec<FileProblem> = Vec::new();
    let mut valid = true;
    for path in &args.files {
        let bytes = bytes_of(context, path)?;
        let (report, file) = check(&name_of(path), &bytes);
        valid &= file.is_some();
        if context.format() == Format::Table {
            let text = report.lines(context.style);
            write!(context.io.out, "{text}")?;
            match &file {
                Some(file) => summary(report.file(), file, context.io.out)?,
                None => writeln!(context.io.out, "{}", report.count())?,
            }
        }
        problems.extend(report.problems());
    }
    let out = &mut *context.io.out;
    match context.global.output.unwrap_or_default() {
        Format::Table => {}
        format @ (Format::Json | Format::Jsonl) => json_list(out, format, &problems, &problems)?,
        Format::Csv => lines(&problems, out)?,
    }
    Ok(if valid {
        Outcome::Done
    } else {
        Outcome::Failed
    })
}

/// All that is wrong with a text, and the rules when nothing is.
pub(super) fn check(name: &str, bytes: &[u8]) -> (Report, Option<RuleFile>) {
    let mut report = Report::of_text(name, bytes);
    let Some(document) = &report.document else {
        return (report, None);
    };
    let parsed = config::parse(&document.value);
    report.add(&parsed.problems);
    let file = parsed.file.filter(|_| !report.has_errors());
    (report, file)
}

/// What a file is called in messages.
pub(super) fn name_of(path: &Path) -> String {
    if path == Path::new("-") {
        "(standard input)".to_owned()
    } else {
        path.display().to_string()
    }
}

/// The bytes of a file, or for `-` of standard input; one more than a rule file may have at most.
pub(super) fn bytes_of(context: &mut Context<'_, '_>, path: &Path) -> Result<Vec<u8>> {
    let most = u64::try_from(MAX_FILE_BYTES).unwrap_or(u64::MAX);
    let mut bytes = Vec::new();
    let mut read = |reader: &mut dyn Read| -> io::Result<usize> {
        reader.take(most.saturating_add(1)).read_to_end(&mut bytes)
    };
    let read = if path == Path::new("-") {
        read(&mut context.io.input)
    } else {
        File::open(path).and_then(|mut file| read(&mut file))
    };
    read.with_context(|| format!("cannot read {}", escape(&name_of(path))))?;
    Ok(bytes)
}

fn summary(name: &str, file: &RuleFile, out: &mut dyn Write) -> io::Result<()> {
    let count = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
    let limits = file.rules.iter().map(|rule| rule.limits.iter().len()).sum();
    writeln!(
        out,
        "{}: valid: {}, {}",
        escape(name),
        count(file.rules.len(), "rule"),
        count(limits, "limit")
    )?;
    let buckets = file.store.buckets;
    let memory = u64::from(buckets).saturating_mul(BYTES_PER_BUCKET);
    let memory = words::bytes(memory);
    writeln!(
        out,
        "  store: {buckets} buckets at most, about {memory} of memory when full"
    )?;
    for rule in &file.rules {
        let who = words::who(rule);
        writeln!(
            out,
            "  {} ({}): {}",
            rule.name,
            rule.mode.name(),
            escape(&who)
        )?;
        if let Some(cost) = words::cost(&rule.cost) {
            writeln!(out, "    a request takes {}", escape(&cost))?;
        }
        for limit in &rule.limits {
            let meaning = words::meaning(limit, !rule.key.is_empty());
            writeln!(out, "    {}: {meaning}", limit.name())?;
        }
    }
    Ok(())
}

fn lines(problems: &[FileProblem], out: &mut dyn Write) -> io::Result<()> {
    let heading = "file,line,column,severity,path,value,message,allowed,suggestion";
    csv(out, heading.split(','))?;
    for FileProblem { file, problem } in problems {
        let number = |number: Option<usize>| number.map(|n| n.to_string()).unwrap_or_default();
        let record = [
            file.clone(),
            number(problem.line),
            number(problem.column),
            super::report::severity(problem.severity).to_owned(),
            problem.path.clone(),
            problem.value.clone(),
            problem.message.clone(),
            problem.allowed.clone().unwrap_or_default(),
            problem.suggestion.clone().unwrap_or_default(),
        ];
        csv(out, record.iter().map(String::as_str))?;
    }
    Ok(())
}
