//! Replays a log as `loudou replay` does: with the given rules, or to suggest a limit.

use loudou_print::replay::suggest::Suggested;
use loudou_print::replay::{self as printed, RuleText, first_lines, no_requests, unknown_format};
use loudou_print::style::Style;
use loudou_replay::input::Intake;
use loudou_replay::source::ClientSource;
use loudou_replay::suggest::{Candidates, Share, suggest};
use loudou_replay::{Error, Input, Observer, Reading, Run, RunSummary, replay};
use serde::{Deserialize, Serialize};

use crate::explain::{rules_of, text_of};

/// Number of keys in a list; the same as in the output of `loudou replay`.
const KEYS: usize = 10;

/// Rules, and the names that the report shows.
#[derive(Debug, Deserialize)]
pub(crate) struct Question {
    name: String,
    rules: String,
    log_name: String,
    /// Value of the option `--source`.
    source: Option<String>,
    /// Value of the option `--at-most`. Without it, no limit is suggested.
    at_most: Option<String>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Answer {
    /// Output of `loudou replay`.
    text: String,
    /// Output of `loudou replay --output html`.
    page: String,
    requests: u64,
}

pub(crate) fn answer(
    question: &Question,
    log: &[u8],
    observer: &mut dyn Observer,
) -> Result<Answer, String> {
    let Question {
        name,
        rules,
        log_name,
        source,
        at_most,
    } = question;
    let file = rules_of(name, rules)?;
    let source = source.as_deref().map(ClientSource::parse).transpose();
    let reading = Reading {
        source: source.map_err(text_of)?.unwrap_or_default(),
        ..Reading::default()
    };
    let inputs = vec![Input::new(log_name, log)];
    let files = [RuleText {
        name: name.clone(),
        text: rules.clone(),
    }];
    let mut text = Vec::new();
    let style = Style::default();
    let (page, requests) = if let Some(at_most) = at_most {
        let bound = Share::parse(at_most)?;
        let found = suggest(inputs, &reading, (&file, Candidates::default()), observer)
            .map_err(explained)?;
        has_requests(log_name, &found.intake)?;
        let suggested = Suggested::new(&found, bound);
        suggested.print(&mut text, style).map_err(text_of)?;
        (suggested.page(log_name, &files), found.intake.records)
    } else {
        let run = Run::new((name, &file), &[]);
        let mut run = run.map_err(|gave_up| format!("no room for buckets: {gave_up:?}"))?;
        let intake = replay(inputs, &reading, &mut run, observer).map_err(explained)?;
        has_requests(log_name, &intake)?;
        let summary = RunSummary::new(log_name, &intake, &run, KEYS);
        printed::print(&summary, &mut text, style).map_err(text_of)?;
        (printed::page(&summary, &files), intake.records)
    };
    Ok(Answer {
        text: String::from_utf8_lossy(&text).into_owned(),
        page,
        requests,
    })
}

fn has_requests(name: &str, intake: &Intake) -> Result<(), String> {
    if intake.records == 0 && intake.bad > 0 {
        return Err(no_requests(name, &intake.first_bad));
    }
    Ok(())
}

fn explained(error: Error) -> String {
    match error {
        Error::Bad(line) => first_lines(&[line]),
        Error::Unknown(name, line) => unknown_format(&name, line.as_ref()),
        other => other.to_string(),
    }
}
