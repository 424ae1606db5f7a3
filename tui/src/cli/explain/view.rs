//! An explanation as text, a block for each rule, and as CSV.

use std::io::{self, Write};

use loudou_api::{ExplainAnswer, ExplainedLimit, ExplainedRule, Says, UnmetPart};
use serde_json::Value;

use super::words;
use crate::cli::table::{Paint, Set, TextTable, bar, csv};
use crate::cli::world::Style;
use crate::meaning::leased::outage;
use crate::text::escape;

/// The indentation of the lines of a block.
const INDENT: &str = "    ";

/// The title of the request: `POST /reply`.
pub(super) fn title(sample: &Value) -> String {
    let text = |name: &str, default: &'static str| {
        let text = sample.get(name).and_then(Value::as_str);
        text.unwrap_or(default).to_owned()
    };
    format!("{} {}", text("method", "GET"), text("path", "/"))
}

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
    let (mark, paint) = match says {
        Says::Admit => ("✓ ", Paint::Heading),
        Says::Hold => ("~ ", Paint::Warn),
        Says::Refuse if is_shadow => ("✗ ", Paint::Warn),
        Says::Refuse => ("✗ ", Paint::Bad),
        Says::Skip | Says::NoMatch | Says::NotNow | Says::Off | Says::Stopped | Says::NotAsked => {
            ("- ", Paint::Dim)
        }
        Says::Unknown => ("? ", Paint::Warn),
    };
    // The words repeat the meaning of the mark.
    let mark = if style.ascii { "" } else { mark };
    paint.on(&format!("{mark}{}", escape(text)), style)
}

/// The reason why a rule does not match the request, or the bucket that it selects.
fn block(rule: &ExplainedRule) -> TextTable {
    let mut table = TextTable::new(&[("", Set::Left), ("", Set::Left)]);
    let mut row = |name: &str, value: String| {
        table.row(vec![format!("{INDENT}{name}").into(), value.into()]);
    };
    let parts = rule.failing.iter().chain(&rule.too_long);
    for part in parts.chain(&rule.missing) {
        row(
            &part.place,
            format!("requires {}", words::requirement(part)),
        );
        if part.place.starts_with("match.") {
            row("found", words::found(part));
        }
        if let Some(longest) = part.longest {
            row(
                "too long",
                format!("longer than the {longest} bytes that it tests, so on_long_value decides"),
            );
        }
    }
    if let Some(part) = &rule.repeated {
        row(
            &part.place,
            format!("several: {}", words::requirement(part)),
        );
        row("found", words::found(part));
    }
    if let Some(key) = &rule.key {
        row("key", key.clone());
    }
    if let Some(ban) = &rule.ban {
        row("banned", words::lasts(ban));
    }
    if rule.unlimited {
        row("unlimited", "this key has no limits".to_owned());
    }
    if let Some(out) = rule.outage {
        row("outage", outage(out));
    }
    if let Some(reason) = &rule.not_held {
        let words = match reason.as_str() {
            "deadline" => "its deadline would come first",
            _ => "the worker holds as many requests as it may",
        };
        row("not held", words.to_owned());
    }
    if let Some(cost) = rule.cost.filter(|cost| *cost != 1 || rule.invalid_cost) {
        let odd = if rule.invalid_cost {
            ", the default: the request has no cost that is a whole number from 1"
        } else {
            ""
        };
        row("cost", format!("{cost}{odd}"));
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
