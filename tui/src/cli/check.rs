//! `loudou check`: everything that is wrong with rule files, or in words what they do.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use anyhow::{Context as _, Result};
use loudou_rules::config::{self, MAX_FILE_BYTES};
use loudou_rules::rule::RuleFile;

use super::Outcome;
use super::args::{CheckArgs, Format};
use super::context::Context;
use super::report::{FileProblem, Report};
use super::table::csv;
use super::world::json_list;
use crate::text::escape;
use summary::{Content, FileReport};

mod summary;

pub(super) fn run(context: &mut Context<'_, '_>, args: &CheckArgs) -> Result<Outcome> {
    let mut files: Vec<FileReport> = Vec::new();
    let mut problems: Vec<FileProblem> = Vec::new();
    let mut valid = true;
    for path in &args.files {
        let bytes = bytes_of(context, path)?;
        let (report, found) = check(&name_of(path), &bytes);
        valid &= found.is_some();
        match context.format() {
            Format::Table => {
                let text = report.lines(context.style);
                write!(context.io.out, "{text}")?;
                match &found {
                    Some(found) => summary::print(report.file(), found, context.io.out)?,
                    None => writeln!(context.io.out, "{}", report.count())?,
                }
            }
            Format::Json | Format::Jsonl => files.push(FileReport::new(&report, found.as_ref())),
            Format::Csv => problems.extend(report.problems()),
        }
    }
    let format = context.format();
    let out = &mut *context.io.out;
    match format {
        Format::Table => {}
        Format::Json | Format::Jsonl => json_list(out, format, &files, &files)?,
        Format::Csv => lines(&problems, out)?,
    }
    Ok(if valid {
        Outcome::Done
    } else {
        Outcome::Failed
    })
}

/// All that is wrong with a text, and what it says when nothing is.
fn check(name: &str, bytes: &[u8]) -> (Report, Option<Content>) {
    let mut report = Report::of_text(name, bytes);
    let Some(document) = &report.document else {
        return (report, None);
    };
    let (problems, content) = if config::is_admin(&document.value) {
        match config::parse_admin(&document.value) {
            Ok(settings) => (Vec::new(), Some(Content::Admin(settings))),
            Err(problems) => (problems, None),
        }
    } else {
        let mut parsed = config::parse(&document.value);
        if let Some(file) = &parsed.file {
            parsed.problems.extend(config::advice(file));
        }
        (parsed.problems, parsed.file.map(Content::Rules))
    };
    report.add(&problems);
    let content = content.filter(|_| !report.has_errors());
    (report, content)
}

/// The rules of a file for another command. What is wrong with them goes to standard error.
pub(super) fn rules_of(context: &mut Context<'_, '_>, path: &Path) -> Result<Option<RuleFile>> {
    let bytes = bytes_of(context, path)?;
    let (report, found) = check(&name_of(path), &bytes);
    write!(context.io.err, "{}", report.lines(context.style))?;
    match found {
        Some(Content::Rules(file)) => return Ok(Some(file)),
        Some(Content::Admin(_)) => writeln!(
            context.io.err,
            "{}: the configuration of the admin role has no rules",
            escape(&name_of(path))
        )?,
        None => writeln!(context.io.err, "{}", report.count())?,
    }
    Ok(None)
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
