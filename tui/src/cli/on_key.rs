//! Implements `loudou ban`, `unban` and `reset`, which change single keys.

use anyhow::{Error, Result};
use clap::Args;
use loudou_limiter::Nanos;

use super::changes;
use super::complete;
use super::context::Context;
use super::options::{self, AskArgs, span};
use super::outcome::Outcome;
use loudou_client::change::Change;
use loudou_client::change::ban::{Ban, BanTo};
use loudou_client::change::ban_all::BanAll;
use loudou_client::change::reset::Reset;
use loudou_words::text::escape;

/// Selects the key to ban or unban, in one rule or in all rules.
#[derive(Debug, Args)]
struct OfArgs {
    /// The rule
    #[arg(required_unless_present = "all_rules", add = complete::rules())]
    rule: Option<String>,
    /// The key, as `loudou buckets` prints it
    #[arg(required_unless_present = "all_rules")]
    #[arg(allow_hyphen_values = true, value_parser = options::key, add = complete::keys_of_rule())]
    key: Option<String>,
    /// A key, in every rule that can have it
    #[arg(long, value_name = "KEY", conflicts_with_all = ["rule", "key"])]
    #[arg(allow_hyphen_values = true, value_parser = options::key, add = complete::keys())]
    all_rules: Option<String>,
}

const BAN_USAGE: &str = "\
loudou ban [OPTIONS] <RULE> <KEY>
       loudou ban [OPTIONS] --all-rules <KEY>";

const BAN_EXAMPLES: &str = "\
Examples:
  loudou ban per-user mallory --for 10m --reason 'scraping'
  loudou ban per-user mallory                     until `loudou unban`
  loudou ban per-user mallory --for 1m --replace  even if an earlier ban would last longer
  loudou ban --all-rules mallory --for 10m        in every rule in which a request can have this key
  loudou buckets --state banned                   banned keys";

#[derive(Debug, Args)]
#[command(before_long_help = BAN_EXAMPLES, override_usage = BAN_USAGE)]
pub(crate) struct BanArgs {
    #[command(flatten)]
    of: OfArgs,
    /// Lift the ban automatically after this time, such as 10m
    #[arg(long = "for", value_name = "TIME", value_parser = span, allow_hyphen_values = true)]
    pub(crate) span: Option<Nanos>,
    /// Replace an earlier ban even if it ends later
    #[arg(long)]
    pub(crate) replace: bool,
    #[command(flatten)]
    pub(crate) ask: AskArgs,
}

const UNBAN_USAGE: &str = "\
loudou unban [OPTIONS] <RULE> <KEY>
       loudou unban [OPTIONS] --all-rules <KEY>";

const UNBAN_EXAMPLES: &str = "\
Examples:
  loudou unban per-user mallory --reason 'ticket 4711'
  loudou unban --all-rules mallory                in every rule";

#[derive(Debug, Args)]
#[command(before_long_help = UNBAN_EXAMPLES, override_usage = UNBAN_USAGE)]
pub(crate) struct UnbanArgs {
    #[command(flatten)]
    of: OfArgs,
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
    run(
        context,
        &args.of,
        (BanTo::Banned(args.span), args.replace),
        &args.ask,
    )
}

pub(super) fn unban(context: &mut Context<'_, '_>, args: &UnbanArgs) -> Result<Outcome> {
    run(context, &args.of, (BanTo::Free(None), false), &args.ask)
}

/// Bans or unbans a key, in one rule or in all rules.
fn run(
    context: &mut Context<'_, '_>,
    of: &OfArgs,
    (to, replaces): (BanTo, bool),
    ask: &AskArgs,
) -> Result<Outcome> {
    let key = of.all_rules.as_ref().or(of.key.as_ref());
    let ban = Ban {
        rule: of.rule.clone().unwrap_or_default(),
        key: key.cloned().unwrap_or_default(),
        to,
        replaces,
        if_match: None,
        reason: ask.reason.clone(),
    };
    if of.all_rules.is_none() {
        return changes::run(context, Change::Ban(ban), ask, false);
    }
    changes::allowed(context, false)?;
    let rules = context.client()?.rules()?.rules;
    let all = BanAll::new(&ban, &rules).map_err(Error::msg)?;
    if let Some(left_out) = all.left_out() {
        let at = context.at_envoy();
        context.note(&format!("{at}{}", escape(&left_out)))?;
    }
    changes::run(context, Change::BanAll(all), ask, false)
}

pub(super) fn reset(context: &mut Context<'_, '_>, args: &ResetArgs) -> Result<Outcome> {
    let change = Change::Reset(Reset {
        rule: args.rule.clone(),
        key: args.key.clone(),
        reason: args.ask.reason.clone(),
    });
    changes::run(context, change, &args.ask, false)
}
