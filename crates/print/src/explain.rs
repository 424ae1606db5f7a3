//! Explains how the rules of a file decide a request, and prints explanations as text with one block per rule.

use std::io::{self, Write};

use loudou_api::{ExplainAnswer, ExplainedRule, Says};
use loudou_limiter::{Clock, Nanos};
use loudou_rules::config::parse_sample;
use loudou_rules::explain::explain;
use loudou_rules::rule::{RuleFile, Scope};
use loudou_rules::rule_set::{ActiveRule, RuleSet};
use loudou_rules::versions::History;
use loudou_store::Table;
use loudou_store::memory::MemoryStore;
use loudou_words::meaning::explained::{self as words, Tone};
use loudou_words::text::escape;
use serde_json::Value;

use crate::style::Style;
use crate::table::{Paint, Set, TextTable, bar};

/// Seed of the empty bucket table. Its value does not matter.
const SEED: [u8; 16] = *b"loudou explain 1";
/// Note printed below an explanation that is based on a rule file.
const FRESH: &str =
    "evaluated against the rule file only: every bucket is new, whatever Envoy has counted";
/// Note printed if the rule file contains rules whose buckets a fleet shares.
const CENTRAL: &str =
    "buckets that a fleet shares are decided as one central bucket, without its waits and leases";

/// Explains how the rules of a file would decide the request if it were the first request.
pub fn by_file(file: &RuleFile, sample: &Value) -> Result<ExplainAnswer, String> {
    let rules = file.rules.iter().cloned();
    let rules: RuleSet = rules
        .map(|rule| ActiveRule::new(rule, History::default()))
        .collect();
    // The time does not affect new buckets. A constant makes the output reproducible.
    let now = Nanos::ZERO;
    let settings = &file.store;
    let mut store = MemoryStore::new();
    let table = Table::open(&mut store, &settings.namespace, settings.buckets, SEED, now)
        .map_err(|gave_up| format!("no room for buckets: {gave_up:?}"))?;
    let mut sample = parse_sample(sample).map_err(|_problems| "invalid request".to_owned())?;
    let clock = Clock::at(now);
    let explained = explain(&rules, &table, &mut store, &mut sample, clock);
    Ok(ExplainAnswer::new(&explained, &rules, now, 0))
}

/// Returns the notes to print below an explanation that is based on this rule file.
pub fn notes(file: &RuleFile) -> impl Iterator<Item = &'static str> {
    let has_fleet = file.rules.iter().any(|rule| rule.scope == Scope::Fleet);
    [FRESH].into_iter().chain(has_fleet.then_some(CENTRAL))
}

/// Indentation of a block.
const INDENT: &str = "    ";

/// Prints the verdict, then the outcome of each rule.
pub fn print(
    answer: &ExplainAnswer,
    title: &str,
    out: &mut dyn Write,
    style: Style,
) -> io::Result<()> {
    let verdict = words::verdict(answer, title);
    writeln!(out, "{}", headline(answer.verdict, false, &verdict, style))?;
    for rule in &answer.rules {
        writeln!(out)?;
        let line = format!("{} {}", rule.rule, words::outcome(rule, answer));
        let is_shadow = rule.mode == "shadow";
        writeln!(out, "{}", headline(rule.says, is_shadow, &line, style))?;
        block(rule).print_rows(out, style)?;
        limits(rule, style).print_rows(out, style)?;
    }
    Ok(())
}

/// Returns a sentence with a mark before it, in the colour of the outcome.
fn headline(says: Says, is_shadow: bool, text: &str, style: Style) -> String {
    let paint = match words::tone(says, is_shadow) {
        Tone::Good | Tone::Plain => Paint::Heading,
        Tone::Warn => Paint::Warn,
        Tone::Bad => Paint::Bad,
        Tone::Dim => Paint::Dim,
    };
    // On ASCII terminals the mark is omitted, because the sentence has the same meaning without it.
    let mark = if style.ascii {
        String::new()
    } else {
        format!("{} ", words::mark(says))
    };
    paint.on(&format!("{mark}{}", escape(text)), style)
}

/// Returns a table with the details of a rule, one per row.
fn block(rule: &ExplainedRule) -> TextTable {
    let mut table = TextTable::new(&[("", Set::Left), ("", Set::Left)]);
    for (name, value) in words::rows(rule) {
        table.row(vec![format!("{INDENT}{name}").into(), value.into()]);
    }
    table
}

fn limits(rule: &ExplainedRule, style: Style) -> TextTable {
    let mut table = TextTable::new(&[
        ("", Set::Left),
        ("", Set::Left),
        ("", Set::Right),
        ("", Set::Left),
    ]);
    for limit in &rule.limits {
        let now = &limit.now;
        let (part, whole) = now.level(0);
        table.row(vec![
            format!("{INDENT}{}", now.name).into(),
            bar(part, whole, style).into(),
            format!("{}/{} left", now.remaining, now.capacity).into(),
            // If the key is banned, the ban decides, so the outcome of each limit is left empty.
            if rule.ban.is_some() {
                String::from(" ").into()
            } else {
                words::limit(limit, rule.cost.or(rule.reserved)).into()
            },
        ]);
    }
    table
}
