//! Checks the text of rule files, Envoy configurations and Kubernetes manifests. Reports every
//! problem with its position, and describes the effect of a valid file in words and as JSON. This
//! crate accesses no terminal, files or network.
#![forbid(unsafe_code)]

use std::io::{self, Write};

use loudou_rules::config::{self, Problem};
use loudou_rules::rule::RuleFile;
use loudou_words::text::escape;

mod context;
pub mod document;
pub mod form;
mod report;
mod secret;
mod summary;

pub use report::{FileProblem, Paint, Report, severity};
pub use summary::{Content, FileReport, describe};

/// Report on a configuration and, if the configuration is valid, its contents.
pub type Checked = (Report, Option<Content>);

/// Checks each Loudou configuration in a file. A rule file is a single configuration. An Envoy file
/// can contain several configurations, one for each Loudou filter.
pub fn check(name: &str, bytes: &[u8], on_preflights: Advice) -> Vec<Checked> {
    let reports = Report::of_text(name, bytes).configurations();
    let checked = reports
        .into_iter()
        .map(|report| check_one(report, on_preflights));
    checked.collect()
}

/// Adds problems in the Envoy or Kubernetes configuration around the rules. All manifest files are
/// checked together, because they may configure the same Envoy. Each Envoy file is checked
/// separately.
pub fn check_around(texts: &mut [Vec<Checked>]) {
    let mut manifests: Vec<&mut Checked> = Vec::new();
    for text in texts {
        if text.iter().any(|(report, _)| report.is_manifest()) {
            manifests.extend(text);
        } else {
            context::add(&mut text.iter_mut().collect::<Vec<_>>());
        }
    }
    context::add(&mut manifests);
}

/// Returns the rules in a checked file, for commands that need exactly one set of rules. Problems
/// are printed to `err`.
pub fn only_rules(
    name: &str,
    checked: &[Checked],
    paint: Paint<'_>,
    err: &mut dyn Write,
) -> io::Result<Option<RuleFile>> {
    let mut distinct: Vec<(String, &RuleFile)> = Vec::new();
    let mut valid = true;
    for (report, found) in checked {
        write!(err, "{}", report.lines(paint))?;
        match found {
            None => {
                valid = false;
                writeln!(err, "{}", report.count())?;
            }
            Some(Content::Rules(file, _)) if distinct.iter().all(|(_, other)| *other != file) => {
                distinct.push((report.filter().unwrap_or_default().to_owned(), file));
            }
            Some(_) => {}
        }
    }
    let name = escape(name);
    match distinct.as_slice() {
        _ if !valid => {}
        [(_, file)] => return Ok(Some((*file).clone())),
        [] => writeln!(
            err,
            "{name}: the configuration of the admin role has no rules"
        )?,
        several => {
            let filters: Vec<&str> = several.iter().map(|(filter, _)| filter.as_str()).collect();
            writeln!(
                err,
                "{name}: {} filters have different rules, but this command takes only one: {}",
                several.len(),
                escape(&filters.join("; "))
            )?;
        }
    }
    Ok(None)
}

/// Function that returns additional warnings about a valid rule file.
pub type Advice = fn(&RuleFile) -> Vec<Problem>;

fn check_one(mut report: Report, on_preflights: Advice) -> Checked {
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
            if !report.is_without_preflights {
                parsed.problems.extend(on_preflights(file));
            }
        }
        let (file, admin) = (parsed.file, parsed.admin);
        (
            parsed.problems,
            file.map(|file| Content::Rules(file, admin)),
        )
    };
    report.add(&problems);
    let content = content.filter(|_| !report.has_errors());
    (report, content)
}
