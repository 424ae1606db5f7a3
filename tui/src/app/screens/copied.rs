//! Formats rows as plain text, to copy into a message or a ticket.

use loudou_limiter::Nanos;

use crate::app::rows::Row;
use crate::draw::words::{ago, amount, rate};
use loudou_words::text::{escape, humanise};

/// Formats a bucket, `age` after it was read.
pub(super) fn bucket(row: &Row, age: Nanos) -> String {
    let mut parts = vec![row.state(age)];
    parts.extend(row.limit().map(|limit| {
        let (left, capacity) = (amount(limit.remaining), amount(limit.capacity));
        format!("{left}/{capacity} left")
    }));
    parts.extend(row.rates.map(|rates| {
        let (word, refused) = if row.view.shadow {
            ("would refuse", rates.shadow)
        } else {
            ("refused", rates.refused)
        };
        let (admitted, refused) = (rate(Some(rates.admitted)), rate(Some(refused)));
        format!("admitted {admitted}/s, {word} {refused}/s")
    }));
    let wait = row.retry_after_ns(age);
    parts.extend(wait.map(|wait| format!("retry after {}", humanise(wait))));
    let end = row.ban_left_ns(age);
    parts.extend(end.map(|left| format!("ban ends in {}", humanise(left))));
    parts.push(format!("last seen {}", ago(row.idle_ns(age))));
    line(&format!("{} {}", row.id.rule, row.id.key), &parts)
}

/// Formats a name and the facts about it on one line. Line breaks in the name are escaped.
pub(super) fn line(name: &str, parts: &[String]) -> String {
    escape(&format!("{name}: {}", parts.join(", "))).into_owned()
}
