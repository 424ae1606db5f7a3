//! Makes changes. Prints a preview, asks for confirmation, and prints the outcome or, after a
//! conflict, the current rule.

use anyhow::{Context as _, Result};
use loudou_api::{BanAnswer, EditAnswer, Spread};
use serde::Serialize;
use serde_json::Value;

use super::context::Context;
use super::options::{AskArgs, Format};
use super::outcome::Outcome;
use super::world::{json as print_json, json_list};
use super::{buckets, rules};
use loudou_client::ClientError;
use loudou_client::change::Change;
use loudou_client::change::edit::{Edit, EditTo};
use loudou_client::change::verb::{Answer, Verb as _};
use loudou_words::limit_edit::full_later;
use loudou_words::meaning::leased;
use loudou_words::text::escape;

const BEFORE_AFTER: [&str; 2] = ["BEFORE", "AFTER"];

/// Note for addresses at which the filter receives no request bodies.
const IN_HEADER: &str = "sent in a header, of at most 32 KiB: no body arrives at this address";

/// Fails if changes are forbidden, or if the outcome cannot be printed in the requested output
/// format.
pub(super) fn allowed(context: &Context<'_, '_>, dry_run: bool) -> Result<()> {
    context.no_csv()?;
    if dry_run {
        return Ok(());
    }
    context.may_change()
}

/// Error message for a change whose response was lost. Envoy may still have made the change.
const IN_DOUBT: &str = "it is not known whether the change was made";

/// Makes a change. On a terminal, first shows a preview and asks for confirmation.
pub(super) fn run(
    context: &mut Context<'_, '_>,
    mut change: Change,
    ask: &AskArgs,
    dry_run: bool,
) -> Result<Outcome> {
    allowed(context, dry_run)?;
    let client = context.client()?;
    let asks = context.asks(ask) && !dry_run;
    if asks {
        match change.preview(&client) {
            Ok(None) => {}
            Ok(Some(preview)) => show_preview(context, &change, preview)?,
            Err(error) => return stale(context, error, &change),
        }
        if !context.confirmed(&change.verb().question().line)? {
            context.note("nothing was changed")?;
            return Ok(Outcome::Failed);
        }
    }
    let sent = change.send(&client, dry_run);
    if matches!(change, Change::Edit(_) | Change::Override(_)) && client.has_no_bodies() {
        context.note(IN_HEADER)?;
    }
    match sent {
        Ok(Answer::BanAll(results)) => print_all(context, &change, results),
        Ok(answer) => print(context, &change, &answer, asks),
        Err(error) if error.is_in_doubt() && !dry_run => Err(error).context(IN_DOUBT),
        Err(error) => stale(context, error, &change),
    }
}

/// Prints the outcome of a change. Leaves out the table of differences if the preview has already
/// shown it (`seen`).
fn print(
    context: &mut Context<'_, '_>,
    change: &Change,
    answer: &Answer,
    seen: bool,
) -> Result<Outcome> {
    let format = context.format();
    let line = change.verb().outcome(answer).line;
    if format == Format::Table {
        writeln!(context.io.out, "{}", context.style.marks(&line))?;
    }
    match answer {
        Answer::Edit(answer) if format == Format::Table => {
            print_edit(context, change, answer, seen)?;
        }
        Answer::Edit(answer) => print_json(context.io.out, format, answer)?,
        Answer::Ban(answer) if format == Format::Table => {
            if let Some(bucket) = &answer.bucket {
                writeln!(context.io.out)?;
                buckets::one(bucket, Some(answer.now_ns), context.style, context.io.out)?;
            }
            print_spread(context, answer.fleet.filter(|_| answer.changed))?;
        }
        Answer::Ban(answer) => print_json(context.io.out, format, answer)?,
        Answer::Reset(answer) if format == Format::Table => {
            if let Some(before) = &answer.before {
                buckets::one(before, None, context.style, context.io.out)?;
            }
        }
        Answer::Reset(answer) => print_json(context.io.out, format, answer)?,
        // `print_all` prints this answer.
        Answer::BanAll(_) => {}
    }
    Ok(Outcome::Done)
}

/// Result of a ban or unban in one rule, as printed in JSON.
#[derive(Clone, Debug, Serialize)]
struct RuleResult<'a> {
    rule: &'a str,
    key: &'a str,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    answer: Option<&'a BanAnswer>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// Prints the result for each rule, so that a failure in one rule does not hide the results in the
/// others.
fn print_all(
    context: &mut Context<'_, '_>,
    change: &Change,
    results: Vec<Result<BanAnswer, ClientError>>,
) -> Result<Outcome> {
    let Change::BanAll(all) = change else {
        return Ok(Outcome::Done);
    };
    let format = context.format();
    let pairs = all.bans.iter().zip(&results);
    if format == Format::Table {
        let mut spread = None;
        for (ban, result) in pairs {
            if let Ok(answer) = result {
                spread = answer.fleet.filter(|_| answer.changed).or(spread);
                let answer = Answer::Ban(Box::new(answer.clone()));
                let line = ban.outcome(&answer).line;
                writeln!(context.io.out, "{}", context.style.marks(&line))?;
            }
        }
        print_spread(context, spread)?;
    } else {
        let lines = pairs.map(|(ban, result)| RuleResult {
            rule: &ban.rule,
            key: &ban.key,
            answer: result.as_ref().ok(),
            error: result.as_ref().err().map(ToString::to_string),
        });
        let lines: Vec<RuleResult<'_>> = lines.collect();
        json_list(context.io.out, format, &lines, &lines)?;
    }
    let at = context.at_envoy();
    for (ban, result) in all.bans.iter().zip(&results) {
        if let Err(error) = result {
            let rule = escape(&ban.rule);
            let doubt = if error.is_in_doubt() {
                format!("{IN_DOUBT}: ")
            } else {
                String::new()
            };
            context.note(&format!("loudou: {at}{rule}: {doubt}{error}"))?;
        }
    }
    let is_partial = results.iter().any(Result::is_ok);
    let answer = Answer::BanAll(results);
    let Some(first) = answer.failures().next() else {
        return Ok(Outcome::Done);
    };
    context.note(&format!("{at}{}", change.verb().outcome(&answer).line))?;
    Ok(if is_partial {
        Outcome::Failed
    } else {
        Outcome::of(&first.clone().into())
    })
}

/// Prints the differences that an edit makes, and the generation with which the edit or override is
/// in effect.
fn print_edit(
    context: &mut Context<'_, '_>,
    change: &Change,
    answer: &EditAnswer,
    seen: bool,
) -> Result<()> {
    if let (Change::Edit(edit), false) = (change, seen) {
        let table = rules::differences(&answer.before, &answer.after.rule, BEFORE_AFTER);
        writeln!(context.io.out)?;
        table.print(context.io.out, context.style)?;
        writeln!(context.io.out)?;
        for line in full_later(&answer.before, &answer.after.rule, edit.carry) {
            writeln!(context.io.out, "{line}")?;
        }
    }
    if answer.dry_run {
        writeln!(context.io.out, "dry run: nothing was changed")?;
        return Ok(());
    }
    if !answer.changed {
        let generation = answer.after.generation;
        writeln!(
            context.io.out,
            "already in effect with generation {generation}: nothing was changed"
        )?;
        return Ok(());
    }
    let expires_after = match change {
        Change::Edit(Edit {
            to: EditTo::Put { expires_after, .. },
            ..
        }) => *expires_after,
        Change::Override(change) => change.expires_after,
        _ => None,
    };
    let span = expires_after.map(|span| format!(", for {span}"));
    let (generation, span) = (answer.after.generation, span.unwrap_or_default());
    writeln!(
        context.io.out,
        "in effect with generation {generation}{span}"
    )?;
    print_spread(context, answer.fleet)
}

/// Prints to which other Envoys the change has spread.
fn print_spread(context: &mut Context<'_, '_>, spread: Option<Spread>) -> Result<()> {
    if let Some(words) = leased::spread(spread) {
        writeln!(context.io.out, "{words}")?;
    }
    Ok(())
}

/// Prints the preview to standard error.
fn show_preview(context: &mut Context<'_, '_>, change: &Change, preview: EditAnswer) -> Result<()> {
    let Change::Edit(edit) = change else {
        let preview = Answer::Edit(Box::new(preview));
        context.note(&change.verb().outcome(&preview).line)?;
        return Ok(());
    };
    let (before, after): (&Value, &Value) = (&preview.before, &preview.after.rule);
    let mut text = Vec::new();
    let style = context.style;
    rules::differences(before, after, BEFORE_AFTER).print(&mut text, style)?;
    context.note(&String::from_utf8_lossy(&text))?;
    for line in full_later(before, after, edit.carry) {
        context.note(&line)?;
    }
    Ok(())
}

/// Prints the current rule after a conflict. Other errors are returned unchanged.
fn stale(context: &mut Context<'_, '_>, error: ClientError, change: &Change) -> Result<Outcome> {
    let current = error.current().filter(|_| error.status() == Some(412));
    let (Some(current), Some(seen)) = (current, change.seen()) else {
        return Err(error.into());
    };
    let mut text = Vec::new();
    let style = context.style;
    rules::one(current, None, style, &mut text)?;
    let text = String::from_utf8_lossy(&text).into_owned();
    let happened = if current.instance == seen.instance {
        "another operator changed the rule"
    } else {
        "Envoy restarted and lost its edits"
    };
    context.note(&format!(
        "loudou: {happened} in the meantime; nothing was changed. The rule is now:\n\n{text}\nrun the \
         command again to change it"
    ))?;
    Ok(Outcome::Conflict)
}
