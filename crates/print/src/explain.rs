//! Explains a request according to a rule file, and prints explanations as text with a block for each rule.

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

/// Seed of an empty store. Its value does not matter.
const SEED: [u8; 16] = *b"loudou explain 1";
/// Note below an explanation from a rule file.
const FRESH: &str =
    "evaluated against the rule file only: every bucket is new, whatever Envoy has counted";
/// Note below an explanation from a rule file whose rules are shared by a fleet.
const CENTRAL: &str =
    "buckets that a fleet shares are decided as one central bucket, without its waits and leases";

/// Explains a request as the first request ever, according to the rules of a file.
pub fn by_file(file: &RuleFile, sample: &Value) -> Result<ExplainAnswer, String> {
    let rules = file.rules.iter().cloned();
    let rules: RuleSet = rules
        .map(|rule| ActiveRule::new(rule, History::default()))
        .collect();
    // The time does not matter for new buckets. With a constant, equal input gives equal output.
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

/// Returns the notes below an explanation from this rule file.
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

/// Returns a sentence after its mark, in the colour of the outcome.
fn headline(says: Says, is_shadow: bool, text: &str, style: Style) -> String {
    let paint = match words::tone(says, is_shadow) {
        Tone::Good | Tone::Plain => Paint::Heading,
        Tone::Warn => Paint::Warn,
        Tone::Bad => Paint::Bad,
        Tone::Dim => Paint::Dim,
    };
    // On ASCII terminals the mark is left out, because the words have its meaning.
    let mark = if style.ascii {
        String::new()
    } else {
        format!("{} ", words::mark(says))
    };
    paint.on(&format!("{mark}{}", escape(text)), style)
}

/// Returns the rows of a rule.
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
            // For a banned key, the ban decides and the limits do not.
            if rule.ban.is_some() {
                String::from(" ").into()
            } else {
                words::limit(limit, rule.cost.or(rule.reserved)).into()
            },
        ]);
    }
    table
}
