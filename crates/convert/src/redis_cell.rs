//! Converts commands for redis-cell: `CL.THROTTLE key max_burst count_per_period period
//! [quantity]`.

use std::collections::BTreeSet;
use std::rc::Rc;

use loudou_check::document::Position;
use serde_json::json;

use crate::model::Model;
use crate::model::redis_cell::Throttle;
use crate::number::rate;
use crate::out::{Out, Place, Rule, quoted};

const COMMAND: &str = "CL.THROTTLE";
/// Characters that mark a placeholder, which a program replaces.
const PLACEHOLDERS: [char; 6] = ['{', '$', '%', '<', '#', '*'];

/// Returns true if any line of the text is a `CL.THROTTLE` command.
pub(crate) fn looks_like(text: &str) -> bool {
    text.lines().any(|line| call(line).is_some())
}

/// Returns the arguments of a `CL.THROTTLE` command, or `None` for other lines. A prompt or
/// `redis-cli` may precede the command.
fn call(line: &str) -> Option<Vec<&str>> {
    let mut words = line.split_whitespace();
    // A word that ends with `>` is a prompt.
    let is_start = |word: &&str| {
        !word.eq_ignore_ascii_case(COMMAND) && (word.ends_with('>') || *word == "redis-cli")
    };
    let first = words.find(|word| !is_start(word))?;
    first.eq_ignore_ascii_case(COMMAND).then(|| words.collect())
}

/// Converts all `CL.THROTTLE` commands in a text.
pub(crate) fn convert(file: &Rc<str>, text: &str, out: &mut Out) {
    let mut seen = BTreeSet::new();
    for (line, text) in (1..).zip(text.lines()) {
        let place = Place::new(file, Position { line, column: 1 });
        let trimmed = text.trim();
        if trimmed.is_empty() || trimmed.starts_with('#') {
            continue;
        }
        let Some(words) = call(text) else {
            out.lost(
                &place,
                &format!("`{}` is no call of {COMMAND}", quoted(trimmed)),
            );
            continue;
        };
        // A repeated command describes the same limit.
        if !seen.insert(words.join(" ")) {
            continue;
        }
        let numbers: Vec<Option<u64>> =
            words.iter().skip(1).map(|word| word.parse().ok()).collect();
        let (burst, count, period, quantity) = match numbers.as_slice() {
            [Some(burst), Some(count), Some(period)] => (burst, count, period, &1),
            [Some(burst), Some(count), Some(period), Some(quantity)] => {
                (burst, count, period, quantity)
            }
            _ => {
                let message = format!(
                    "`{}`: expected a key, and max_burst, count, period and an optional quantity as whole numbers",
                    quoted(trimmed)
                );
                out.lost(&place, &message);
                continue;
            }
        };
        if *quantity == 0 {
            let message = format!(
                "`{}`: a quantity of 0 only looks; `loudou explain` does",
                quoted(trimmed)
            );
            out.lost(&place, &message);
            continue;
        }
        let key = words.first().copied().unwrap_or_default();
        let mut rule = Rule::new(key, &place, trimmed);
        rule.set("key", json!([{ "literal": key }]));
        if key.contains(PLACEHOLDERS) {
            rule.differs(format!(
                "all requests share one bucket, because only the program knows what `{}` contains; put that part of the request into `key`, such as {{ header: x-user-id }}",
                quoted(key)
            ));
        } else {
            rule.differs(
                "all requests share the bucket of this key; if the program calls with a key per user, put the user into `key`",
            );
        }
        let nanos = period.saturating_mul(1_000_000_000);
        rule.set(
            "limits",
            json!([{ "algorithm": "funnel", "capacity": burst.saturating_add(1), "rate": rate(*count, nanos) }]),
        );
        let throttle = Throttle::new(*burst, *count, *period);
        rule.counts(key, Model::Throttle(throttle));
        if *quantity > 1 {
            rule.set("cost", json!(quantity));
        }
        rule.set("scope", json!("fleet"));
        out.add(rule);
    }
}
