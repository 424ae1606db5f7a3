//! `loudou ban`, `unban` and `reset`: changes for single keys.

use anyhow::Result;
use clap::Args;
use loudou_limiter::Nanos;

use super::changes;
use super::complete;
use super::context::Context;
use super::options::{self, AskArgs, span};
use super::outcome::Outcome;
use loudou_client::change::Change;
use loudou_client::change::ban::{Ban, BanTo};
use loudou_client::change::reset::Reset;

const BAN_EXAMPLES: &str = "\
Examples:
  loudou ban per-user mallory --for 10m --reason 'scraping'
  loudou ban per-user mallory                     until `loudou unban`
  loudou ban per-user mallory --for 1m --replace  even if an earlier ban would last longer
  loudou buckets --state banned                   banned keys";

#[derive(Debug, Args)]
#[command(before_long_help = BAN_EXAMPLES)]
pub(crate) struct BanArgs {
    /// The rule
    #[arg(add = complete::rules())]
    pub(crate) rule: String,
    /// The key, as `loudou buckets` prints it
    #[arg(allow_hyphen_values = true, value_parser = options::key, add = complete::keys_of_rule())]
    pub(crate) key: String,
    /// Lift the ban automatically after this time, such as 10m
    #[arg(long = "for", value_name = "TIME", value_parser = span, allow_hyphen_values = true)]
    pub(crate) span: Option<Nanos>,
    /// Replace an earlier ban even if it ends later
    #[arg(long)]
    pub(crate) replace: bool,
    #[command(flatten)]
    pub(crate) ask: AskArgs,
}

const UNBAN_EXAMPLES: &str = "\
Examples:
  loudou unban per-user mallory --reason 'ticket 4711'";

#[derive(Debug, Args)]
#[command(before_long_help = UNBAN_EXAMPLES)]
pub(crate) struct UnbanArgs {
    /// The rule
    #[arg(add = complete::rules())]
    pub(crate) rule: String,
    /// The key, as `loudou buckets` prints it
    #[arg(allow_hyphen_values = true, value_parser = options::key, add = complete::keys_of_rule())]
    pub(crate) key: String,
    #[command(flatten)]
    pub(crate) ask: AskArgs,
}

const RESET_EXAMPLES: &str = "\
Examples:
  loudou reset per-user alice --reason 'ticket 4711'";

#[derive(Debug, Args)]
#[command(before_long_help = RESET_EXAMPLES)]
pub(crate) struct ResetArgs {
    /// The rule
    #[arg(add = complete::rules())]
    pub(crate) rule: String,
    /// The key, as `loudou buckets` prints it
    #[arg(allow_hyphen_values = true, value_parser = options::key, add = complete::keys_of_rule())]
    pub(crate) key: String,
    #[command(flatten)]
    pub(crate) ask: AskArgs,
}

pub(super) fn ban(context: &mut Context<'_, '_>, args: &BanArgs) -> Result<Outcome> {
    let change = Change::Ban(Ban {
        rule: args.rule.clone(),
        key: args.key.clone(),
        to: BanTo::Banned(args.span),
        replaces: args.replace,
        if_match: None,
        reason: args.ask.reason.clone(),
    });
    changes::run(context, change, &args.ask, false)
}

pub(super) fn unban(context: &mut Context<'_, '_>, args: &UnbanArgs) -> Result<Outcome> {
    let change = Change::Ban(Ban {
        rule: args.rule.clone(),
        key: args.key.clone(),
        to: BanTo::Free(None),
        replaces: false,
        if_match: None,
        reason: args.ask.reason.clone(),
    });
    changes::run(context, change, &args.ask, false)
}

pub(super) fn reset(context: &mut Context<'_, '_>, args: &ResetArgs) -> Result<Outcome> {
    let change = Change::Reset(Reset {
        rule: args.rule.clone(),
        key: args.key.clone(),
        reason: args.ask.reason.clone(),
    });
    changes::run(context, change, &args.ask, false)
}
