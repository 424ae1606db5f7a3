//! `loudou ban` and `loudou unban`.

use anyhow::Result;
use clap::Args;
use loudou_api::BanAnswer;
use loudou_limiter::Nanos;

use super::buckets;
use super::context::Context;
use super::options::{AskArgs, Format, span};
use super::world::{Outcome, json as print_json};
use crate::text::escape;

const BAN_EXAMPLES: &str = "\
Examples:
  loudou ban per-user mallory --for 10m --reason 'scraping'
  loudou ban per-user mallory                     until somebody lifts it
  loudou buckets --state banned                   who is banned";

#[derive(Debug, Args)]
#[command(before_help = BAN_EXAMPLES)]
pub(crate) struct BanArgs {
    /// The rule
    pub(crate) rule: String,
    /// The key, as `loudou buckets` prints it
    #[arg(allow_hyphen_values = true)]
    pub(crate) key: String,
    /// Let it free by itself after this time, such as 10m
    #[arg(long = "for", value_name = "TIME", value_parser = span)]
    pub(crate) span: Option<Nanos>,
    #[command(flatten)]
    pub(crate) ask: AskArgs,
}

const UNBAN_EXAMPLES: &str = "\
Examples:
  loudou unban per-user mallory --reason 'ticket 4711'";

#[derive(Debug, Args)]
#[command(before_help = UNBAN_EXAMPLES)]
pub(crate) struct UnbanArgs {
    /// The rule
    pub(crate) rule: String,
    /// The key, as `loudou buckets` prints it
    #[arg(allow_hyphen_values = true)]
    pub(crate) key: String,
    #[command(flatten)]
    pub(crate) ask: AskArgs,
}

pub(super) fn ban(context: &mut Context<'_, '_>, args: &BanArgs) -> Result<Outcome> {
    let (rule, key) = (escape(&args.rule), escape(&args.key));
    let how_long = match args.span {
        None => "until somebody lifts it".to_owned(),
        Some(span) => format!("for {span}"),
    };
    if !may(
        context,
        &args.ask,
        &format!("Ban {key} of {rule} {how_long}?"),
    )? {
        return Ok(Outcome::Failed);
    }
    let client = context.client()?;
    let answer = client.ban(&args.rule, &args.key, args.span, &args.ask.reason)?;
    print(
        context,
        &answer,
        &format!("{key} of {rule} is banned {how_long}"),
    )
}

pub(super) fn unban(context: &mut Context<'_, '_>, args: &UnbanArgs) -> Result<Outcome> {
    let (rule, key) = (escape(&args.rule), escape(&args.key));
    if !may(context, &args.ask, &format!("Let {key} of {rule} free?"))? {
        return Ok(Outcome::Failed);
    }
    let client = context.client()?;
    let answer = client.unban(&args.rule, &args.key, &args.ask.reason)?;
    let still = answer
        .bucket
        .as_ref()
        .is_some_and(|bucket| bucket.ban.is_some());
    let said = match (&answer.before, still) {
        (_, true) => format!("the ban of {key} of {rule} is lifted, but its override bans it, too"),
        (Some(_), false) => format!("{key} of {rule} is free again"),
        (None, false) => format!("{key} of {rule} was not banned"),
    };
    print(context, &answer, &said)
}

/// Whether it may be done, and whoever can be asked agrees.
fn may(context: &mut Context<'_, '_>, ask: &AskArgs, question: &str) -> Result<bool> {
    context.no_csv()?;
    context.may_change()?;
    if context.asks(ask) && !context.confirmed(question)? {
        context.note("nothing was changed")?;
        return Ok(false);
    }
    Ok(true)
}

fn print(context: &mut Context<'_, '_>, answer: &BanAnswer, said: &str) -> Result<Outcome> {
    let format = context.format();
    if format != Format::Table {
        print_json(context.io.out, format, answer)?;
        return Ok(Outcome::Done);
    }
    writeln!(context.io.out, "{said}")?;
    if let Some(bucket) = &answer.bucket {
        writeln!(context.io.out)?;
        buckets::one(bucket, Some(answer.now_ns), context.style, context.io.out)?;
    }
    Ok(Outcome::Done)
}
