//! Implements `loudou check`, which prints all problems of rule files, or describes valid ones in
//! words.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args;
use loudou_check::{FileProblem, FileReport, check, check_around, describe, only_rules, severity};
use loudou_rules::config;
use loudou_rules::rule::RuleFile;

use super::context::Context;
use super::files::{bytes_of, name_of, painted};
use super::options::Format;
use super::outcome::Outcome;
use super::world::json_list;
use super::zones::{Zones, next_windows};
use loudou_print::table::csv;

const EXAMPLES: &str = "\
Examples:
  loudou check rules.yaml other.json
  loudou check envoy.yaml                         the rules in Envoy's configuration
  kustomize build DIR | loudou check -            manifests for Istio and Envoy Gateway
  loudou export | loudou check -
  loudou check --output json rules.yaml           for editors and pipelines";

#[derive(Debug, Args)]
#[command(before_long_help = EXAMPLES)]
pub(crate) struct CheckArgs {
    /// Rule files, or envoy.yaml; - for standard input
    ///
    /// JSON or YAML; also manifests for Kubernetes
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
}

pub(super) fn run(context: &mut Context<'_, '_>, args: &CheckArgs) -> Result<Outcome> {
    let mut files: Vec<FileReport> = Vec::new();
    let mut problems: Vec<FileProblem> = Vec::new();
    let mut valid = true;
    let mut texts = Vec::new();
    for path in &args.files {
        let bytes = bytes_of(context, path)?;
        texts.push(check(&name_of(path), &bytes, config::preflight_advice));
    }
    check_around(&mut texts);
    // A folder of Kubernetes manifests may also contain unrelated manifests, which are skipped.
    let mut reports = texts.iter().flatten();
    if reports.any(|(report, _)| report.is_manifest()) {
        texts.retain(|text| !text.iter().any(|(report, _)| report.is_unrelated));
    }
    let zones = Zones::new(&context.io.env, (context.io.wall)());
    for checked in texts {
        for (mut report, found) in checked {
            report.suggest(&|path, value| zones.suggested(path, value));
            valid &= found.is_some();
            match context.format() {
                Format::Table => {
                    let text = report.lines(&painted(context.style));
                    write!(context.io.out, "{text}")?;
                    match &found {
                        Some(found) => {
                            describe(&report.name(), found, context.io.out)?;
                            next_windows(found, (context.io.wall)(), context.io.out)?;
                        }
                        None => writeln!(context.io.out, "{}", report.count())?,
                    }
                }
                Format::Json | Format::Jsonl => {
                    files.push(FileReport::new(&report, found.as_ref()));
                }
                Format::Csv => problems.extend(report.problems()),
            }
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

/// Reads the rules of a file on behalf of another command. The file may be a rule file or an Envoy
/// configuration. Problems are printed to standard error.
pub(super) fn rules_of(context: &mut Context<'_, '_>, path: &Path) -> Result<Option<RuleFile>> {
    let bytes = bytes_of(context, path)?;
    rules_of_text(context, &name_of(path), &bytes)
}

/// Like [`rules_of`], but takes the contents of the file.
pub(super) fn rules_of_text(
    context: &mut Context<'_, '_>,
    name: &str,
    bytes: &[u8],
) -> Result<Option<RuleFile>> {
    // Advice about preflight requests is left out, because it only matters for a file that Envoy
    // will load.
    let checked = check(name, bytes, |_| Vec::new());
    Ok(only_rules(
        name,
        &checked,
        &painted(context.style),
        context.io.err,
    )?)
}

fn lines(problems: &[FileProblem], out: &mut dyn Write) -> io::Result<()> {
    let heading = "file,line,column,severity,path,value,message,allowed,suggestion,filter";
    csv(out, heading.split(','))?;
    for FileProblem {
        file,
        filter,
        problem,
    } in problems
    {
        let number = |number: Option<usize>| number.map(|n| n.to_string()).unwrap_or_default();
        let record = [
            file.clone(),
            number(problem.line),
            number(problem.column),
            severity(problem.severity).to_owned(),
            problem.path.clone(),
            problem.value.clone(),
            problem.message.clone(),
            problem.allowed.clone().unwrap_or_default(),
            problem.suggestion.clone().unwrap_or_default(),
            filter.clone().unwrap_or_default(),
        ];
        csv(out, record.iter().map(String::as_str))?;
    }
    Ok(())
}
