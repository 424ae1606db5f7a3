//! Implements `loudou export`, which prints the effective rules as a file, or the changes that a
//! restart would lose.
//!
//! A rule file cannot record when a change ends. Bans are therefore left out, and temporary edits
//! are left out by default. The command reports how the file differs from the rules in effect.

use anyhow::Result;
use clap::Args;
use serde_json::Value;

use super::context::Context;
use super::world::json;
use loudou_client::live::collect::{Live, collect};
use loudou_client::live::document::Document;
use loudou_client::live::{Item, Kind, TimeLeft};
use loudou_words::num::count;
use loudou_words::text::{counted, escape, humanise};

const EXAMPLES: &str = "\
Examples:
  loudou export > rules.json
  loudou export --live > live.json                everything that a restart of Envoy would lose";

/// Warning that the file contains rules that need `fleet` settings, but leaves these settings out.
const NO_FLEET: &str = "warning: `fleet` left out: it belongs to Envoy's configuration; add it for the rules with `scope: fleet`";

/// Warning that the file leaves out the `admin` settings, without which the admin API would no
/// longer answer.
const NO_ADMIN: &str = "warning: `admin` left out: it belongs to Envoy's configuration; add it, or nothing can reach this API";

/// Maximum number of changes that a note lists.
const LISTED: usize = 10;

#[derive(Debug, Args)]
#[command(before_long_help = EXAMPLES)]
pub(crate) struct ExportArgs {
    /// Print what a restart would lose, for `loudou import`
    ///
    /// Edits, edited overrides and bans by operators, with their ends
    #[arg(long)]
    pub(crate) live: bool,
    /// Include edits and overrides that end
    ///
    /// A rule file cannot record when they end
    #[arg(long)]
    pub(crate) with_temporary: bool,
}

pub(super) fn run(context: &mut Context<'_, '_>, args: &ExportArgs) -> Result<()> {
    context.no_csv()?;
    if args.live {
        return live(context);
    }
    let client = context.client()?;
    let file = client.export(args.with_temporary)?;
    let format = context.format();
    json(context.io.out, format, &file)?;
    if client.has_no_bodies() {
        context.note(NO_ADMIN)?;
    }
    if lacks_fleet(&file) {
        context.note(NO_FLEET)?;
    }
    match collect(&client) {
        Ok(live) => warn(context, &live, args.with_temporary),
        Err(error) => {
            let what = "whether there are temporary edits and bans is unknown";
            Ok(context.note(&format!("{what}: {}", escape(&error.to_string())))?)
        }
    }
}

/// Returns true if a rule in the file needs `fleet` settings, but the file has none.
fn lacks_fleet(file: &Value) -> bool {
    let mut rules = file["rules"].as_array().into_iter().flatten();
    file["fleet"].is_null() && rules.any(|rule| rule["scope"] == "fleet")
}

/// Reports temporary changes that the file makes permanent, and changes in effect that the file
/// leaves out.
fn warn(context: &mut Context<'_, '_>, live: &Live, is_with: bool) -> Result<()> {
    let ends = |item: &&Item| item.kind() != Kind::Ban && item.ends_unix_ms.is_some();
    let temporary: Vec<&Item> = live.items.values().filter(ends).collect();
    let bans = live.items.values().filter(|item| item.kind() == Kind::Ban);
    let bans: Vec<&Item> = bans.collect();
    if !temporary.is_empty() {
        let many = counted(count(temporary.len()), "temporary change");
        let note = if is_with {
            format!("the file includes {many}, and would make them last:")
        } else {
            format!("{many} left out (--with-temporary includes them, without their ends):")
        };
        list(context, &note, &temporary, live)?;
    }
    let all = bans.len().saturating_add(live.nameless);
    if all > 0 {
        let many = counted(count(all), "ban");
        let note = format!(
            "{many} left out: a rule file has no bans; `loudou export --live` has them, with their ends:"
        );
        list(context, &note, &bans, live)?;
    }
    Ok(())
}

fn list(context: &mut Context<'_, '_>, note: &str, items: &[&Item], live: &Live) -> Result<()> {
    let mut text = format!("warning: {note}");
    for item in items.iter().take(LISTED) {
        let left = match item.left(live.status.unix_ms) {
            TimeLeft::Endless => "no end".to_owned(),
            TimeLeft::For(span) => format!("ends in {}", humanise(span.get())),
            TimeLeft::Nothing => "has ended".to_owned(),
        };
        let by = match item.by.as_str() {
            "" => String::new(),
            by => format!(", by {by}"),
        };
        let change = format!("{}: {}{by}, {left}", item.rule, item.words());
        text.push_str("\n  ");
        text.push_str(&escape(&change));
    }
    if let Some(more @ 1..) = items.len().checked_sub(LISTED) {
        text = format!("{text}\n  and {more} more");
    }
    Ok(context.note(&text)?)
}

/// Prints the live changes that would be lost if Envoy restarted.
fn live(context: &mut Context<'_, '_>) -> Result<()> {
    context.no_csv()?;
    let live = collect(&context.client()?)?;
    let document = Document::new(
        &live.status.instance,
        live.status.unix_ms,
        live.items.values(),
    );
    let format = context.format();
    json(context.io.out, format, &document)?;
    if live.nameless > 0 {
        let bans = counted(count(live.nameless), "ban");
        context.note(&format!(
            "{bans} left out: the name of a key is unknown until its next request"
        ))?;
    }
    Ok(())
}
