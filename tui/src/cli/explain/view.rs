//! An explanation as text, a block for each rule, and as CSV.

use std::io::{self, Write};

use loudou_api::{ExplainAnswer, ExplainedLimit, ExplainedRule, Says, UnmetPart};

use crate::cli::table::{Paint, Set, TextTable, bar, csv};
use crate::cli::world::Style;
use loudou_words::meaning::explained::{self as words, Tone};
use loudou_words::text::escape;

/// The indentation of the lines of a block.
const INDENT: &str = "    ";

/// Prints the verdict, then the outcome of each rule.
pub(super) fn print(
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

/// A sentence after its mark, in the colour of the outcome.
fn headline(says: Says, is_shadow: bool, text: &str, style: Style) -> String {
    let paint = match words::tone(says, is_shadow) {
        Tone::Good | Tone::Plain => Paint::Heading,
        Tone::Warn => Paint::Warn,
        Tone::Bad => Paint::Bad,
        Tone::Dim => Paint::Dim,
    };
    // The words repeat the meaning of the mark.
    let mark = if style.ascii {
        String::new()
    } else {
        format!("{} ", words::mark(says))
    };
    paint.on(&format!("{mark}{}", escape(text)), style)
}

/// The rows of a rule.
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
            // The limits of a banned key do not decide.
            if rule.ban.is_some() {
                String::from(" ").into()
            } else {
                words::limit(limit, rule.cost).into()
            },
        ]);
    }
    table
}

/// Prints one record for each limit, and one for a rule without limits.
pub(super) fn lines(answer: &ExplainAnswer, out: &mut dyn Write) -> io::Result<()> {
    let heading = "rule,mode,says,overruled,behind,error,place,asked,found,key,cost,unlimited,\
                   banned,ban_lasts_ns,limit,algorithm,capacity,rate,used,remaining,limit_says,remaining_after,wait_ns,retry_after_ns,\
                   reset_after_ns";
    csv(out, heading.split(','))?;
    for rule in &answer.rules {
        let mut limits = rule.limits.iter().map(Some).collect::<Vec<_>>();
        if limits.is_empty() {
            limits.push(None);
        }
        for limit in limits {
            let mut record = of_rule(rule);
            record.extend(limit.map_or_else(|| vec![String::new(); 11], of_limit));
            csv(out, record.iter().map(String::as_str))?;
        }
    }
    Ok(())
}

fn of_rule(rule: &ExplainedRule) -> Vec<String> {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let number = |number: Option<u64>| number.map(|number| number.to_string()).unwrap_or_default();
    let part = rule.failing.as_ref().or(rule.too_long.as_ref());
    let part = part.or(rule.missing.as_ref());
    let part = part.or(rule.repeated.as_ref());
    let of = |read: fn(&UnmetPart) -> String| part.map(read).unwrap_or_default();
    vec![
        rule.rule.clone(),
        rule.mode.clone(),
        rule.says.name().to_owned(),
        rule.overruled.to_string(),
        text(&rule.behind),
        text(&rule.error),
        of(|part| part.place.clone()),
        of(|part| part.asked.to_string()),
        of(|part| part.found.clone().unwrap_or_default()),
        text(&rule.key),
        number(rule.cost),
        rule.unlimited.to_string(),
        rule.ban.is_some().to_string(),
        number(rule.ban.as_ref().and_then(|ban| ban.lasts_ns)),
    ]
}

fn of_limit(limit: &ExplainedLimit) -> Vec<String> {
    let number = |number: u64| number.to_string();
    let now = &limit.now;
    vec![
        now.name.clone(),
        now.algorithm.clone(),
        number(now.capacity),
        now.rate.clone(),
        number(now.used),
        number(now.remaining),
        limit.says.name().to_owned(),
        number(limit.remaining),
        number(limit.wait_ns),
        now.retry_after_ns.map(number).unwrap_or_default(),
        number(now.reset_after_ns),
    ]
}
