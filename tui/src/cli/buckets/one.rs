//! `loudou get`: one bucket in full.

use std::io::{self, Write};

use anyhow::Result;
use clap::Args;
use loudou_api::BucketView;

use super::{leased, left, level_bar, lines, retry, state};
use crate::cli::complete;
use crate::cli::context::Context;
use crate::cli::options::{self, Format};
use crate::cli::table::{Set, TextTable};
use crate::cli::world::{Style, json};
use crate::meaning::leased::{heard, lease};
use crate::meaning::{Origins, refusals, stands_out};
use crate::text::{escape, humanise};

const GET_EXAMPLES: &str = "\
Examples:
  loudou get per-user alice                       its limits, its ban, its override
  loudou get per-user alice --output json | jq .limits
  loudou get daily-quota alice --fleet            what is leased here, and left for all Envoys";

#[derive(Debug, Args)]
#[command(before_help = GET_EXAMPLES)]
pub(crate) struct GetArgs {
    /// The rule
    #[arg(add = complete::rules())]
    pub(crate) rule: String,
    /// The key, as `loudou buckets` prints it
    #[arg(allow_hyphen_values = true, value_parser = options::key, add = complete::keys_of_rule())]
    pub(crate) key: String,
    /// Only what this Envoy leased of a bucket that a fleet shares, and what is left for all
    #[arg(long)]
    pub(crate) fleet: bool,
}

pub(in crate::cli) fn get(context: &mut Context<'_, '_>, args: &GetArgs) -> Result<()> {
    if args.fleet {
        return leased::get(context, &args.rule, &args.key);
    }
    let client = context.client()?;
    let bucket = client.bucket(&args.rule, &args.key)?;
    let format = context.format();
    match format {
        Format::Table => {
            // The answer has no clock reading, and the local clock is a different one.
            let now = client.status().ok().map(|status| status.now_ns);
            one(&bucket, now, context.style, context.io.out)?;
        }
        Format::Json | Format::Jsonl => json(context.io.out, format, &bucket)?,
        Format::Csv => lines(std::slice::from_ref(&bucket), context.io.out)?,
    }
    Ok(())
}

/// One bucket in full.
pub(in crate::cli) fn one(
    bucket: &BucketView,
    now_ns: Option<u64>,
    style: Style,
    out: &mut dyn Write,
) -> io::Result<()> {
    let seen = now_ns.map(|now| {
        let ago = humanise(now.saturating_sub(bucket.last_seen_ns));
        format!("{ago} ago")
    });
    let mut head = TextTable::new(&[
        ("RULE", Set::Left),
        ("KEY", Set::Left),
        ("STATE", Set::Left),
        ("ADMITTED", Set::Right),
        ("REFUSED", Set::Right),
        ("SEEN", Set::Right),
    ]);
    head.row(vec![
        bucket.rule.as_str().into(),
        bucket.key.as_str().into(),
        state(bucket),
        bucket.admitted.into(),
        refusals(bucket.refused, bucket.shadow).into(),
        seen.into(),
    ]);
    head.print(out, style)?;
    if let Some(line) = lease(bucket, |lease| heard(lease, now_ns)) {
        writeln!(out, "{line}")?;
    }
    stand_out(bucket, now_ns, out)?;
    writeln!(out)?;
    let mut limits = TextTable::new(&[
        ("LIMIT", Set::Left),
        ("ALGORITHM", Set::Left),
        ("RATE", Set::Right),
        ("LEVEL", Set::Left),
        ("LEFT", Set::Right),
        ("RETRY", Set::Right),
        ("RESET", Set::Right),
    ]);
    for limit in &bucket.limits {
        limits.row(vec![
            limit.name.as_str().into(),
            limit.algorithm.as_str().into(),
            limit.rate.as_str().into(),
            level_bar(limit, style).into(),
            left(limit).into(),
            retry(limit).into(),
            humanise(limit.reset_after_ns).into(),
        ]);
    }
    limits.print(out, style)
}

/// Prints the remarkable properties of a bucket besides its level.
fn stand_out(bucket: &BucketView, now_ns: Option<u64>, out: &mut dyn Write) -> io::Result<()> {
    for line in stands_out(bucket, now_ns, Origins::default()) {
        writeln!(out, "{}", escape(&line))?;
    }
    Ok(())
}
