//! Actions of the driver on single keys: temporary overrides and bans, and resets.

use anyhow::Result;
use serde_json::json;

use super::{Driver, ends_between};
use crate::http::Request;
use crate::operator::percent;
use crate::soak::book::Key;
use crate::soak::plan::Special;
use crate::soak::timeline::{At, Gives, KeySpan, OPEN};

/// Gives the key in a slot other numbers than its rule.
pub(super) fn set_override(
    driver: &mut Driver<'_>,
    rule: usize,
    slot: usize,
    special: Special,
    lasts: u64,
) -> Result<()> {
    let book = driver.book;
    let (Some(key), Some(own)) = (book.key(rule, slot), book.rules.get(rule)) else {
        return Ok(());
    };
    let (body, gives, what) = match special {
        Special::Scale(factor) => (json!({ "scale": factor }), Gives::Scale(factor), "scales"),
        Special::Own(numbers) => {
            let body = json!({ "limits": own.limits(numbers) });
            (body, Gives::Own(numbers), "numbers of a key's own")
        }
        Special::Unlimited => (json!("unlimited"), Gives::Unlimited, "unlimited keys"),
        Special::Banned => (json!("banned"), Gives::Banned, "banned keys"),
    };
    let path = format!(
        "/v1/overrides/{}/{}?for={lasts}ms",
        own.name,
        percent(&key.name)
    );
    let request = Request::new("PUT", &path).header("if-match", "*");
    let sent = book.now();
    book.note_key(&key, sent, format!("override for {lasts}ms: {special:?}"));
    begin(&key, sent, gives, false);
    let answer = driver.call(&request.json(&body))?;
    let answered = book.now();
    if driver.taken(rule, &answer) {
        end(&key, sent, answered, false);
        settle(&key, sent, answered, lasts);
        book.count(what, 1);
    } else {
        withdraw(&key, answered);
    }
    Ok(())
}

/// Removes the override of the key in a slot, if it has one.
pub(super) fn drop_override(driver: &mut Driver<'_>, rule: usize, slot: usize) -> Result<()> {
    let Some((key, path)) = place(driver, "/v1/overrides", rule, slot) else {
        return Ok(());
    };
    let book = driver.book;
    let sent = book.now();
    book.note_key(&key, sent, "override dropped".to_owned());
    let request = Request::new("DELETE", &path).header("if-match", "*");
    let answer = driver.call(&request)?;
    // 404: there was no override, or it has ended.
    if answer.status == 404 || driver.taken(rule, &answer) {
        end(&key, sent, book.now(), false);
    } else {
        doubt(&key, sent, false);
    }
    book.count("overrides dropped", 1);
    Ok(())
}

/// Bans the key in a slot.
pub(super) fn ban(driver: &mut Driver<'_>, rule: usize, slot: usize, lasts: u64) -> Result<()> {
    let Some((key, path)) = place(driver, "/v1/buckets", rule, slot) else {
        return Ok(());
    };
    let book = driver.book;
    let sent = book.now();
    book.note_key(&key, sent, format!("ban for {lasts}ms"));
    doubt(&key, sent, true);
    begin(&key, sent, Gives::Banned, true);
    let answer = driver.call(&Request::post(&format!("{path}/ban?for={lasts}ms")))?;
    let answered = book.now();
    if driver.taken(rule, &answer) {
        settle(&key, sent, answered, lasts);
        book.count("bans", 1);
    } else {
        withdraw(&key, answered);
    }
    Ok(())
}

/// Lifts the ban of the key in a slot, if there is one.
pub(super) fn unban(driver: &mut Driver<'_>, rule: usize, slot: usize) -> Result<()> {
    let Some((key, path)) = place(driver, "/v1/buckets", rule, slot) else {
        return Ok(());
    };
    let book = driver.book;
    let sent = book.now();
    book.note_key(&key, sent, "unban".to_owned());
    let answer = driver.call(&Request::post(&format!("{path}/unban")))?;
    if answer.status == 404 || driver.taken(rule, &answer) {
        end(&key, sent, book.now(), true);
    } else {
        doubt(&key, sent, true);
    }
    book.count("bans undone", 1);
    Ok(())
}

/// Deletes the bucket of the key in a slot, including a ban.
pub(super) fn reset(driver: &mut Driver<'_>, rule: usize, slot: usize) -> Result<()> {
    let Some((key, path)) = place(driver, "/v1/buckets", rule, slot) else {
        return Ok(());
    };
    let book = driver.book;
    let sent = book.now();
    book.note_key(&key, sent, "reset".to_owned());
    key.record().resets.push((sent, OPEN));
    doubt(&key, sent, true);
    let answer = driver.call(&Request::post(&format!("{path}/reset")))?;
    if answer.status != 404 {
        driver.taken(rule, &answer);
    }
    if let Some((_, until)) = key.record().resets.last_mut() {
        *until = book.now();
    }
    book.count("buckets reset", 1);
    Ok(())
}

fn place(
    driver: &Driver<'_>,
    of: &str,
    rule: usize,
    slot: usize,
) -> Option<(std::sync::Arc<Key>, String)> {
    let key = driver.book.key(rule, slot)?;
    let name = &driver.book.rules.get(rule)?.name;
    let path = format!("{of}/{name}/{}", percent(&key.name));
    Some((key, path))
}

/// Records that a change was sent, so that it may be in force from now on.
fn begin(key: &Key, sent: At, gives: Gives, is_ban: bool) {
    key.record().spans.push(KeySpan {
        from: sent,
        sure_from: OPEN,
        sure_until: 0,
        until: OPEN,
        gives,
        is_ban,
    });
}

/// Records that the last change is in force, and that it ends after `lasts` milliseconds.
fn settle(key: &Key, sent: At, answered: At, lasts: u64) {
    if let Some(span) = key.record().spans.last_mut() {
        span.sure_from = answered;
        (span.sure_until, span.until) = ends_between(sent, answered, lasts);
    }
}

/// Records that the last change was refused.
fn withdraw(key: &Key, answered: At) {
    if let Some(span) = key.record().spans.last_mut() {
        span.until = answered;
    }
}

/// Records that all changes from before `sent` have ended.
pub(super) fn end(key: &Key, sent: At, answered: At, bans: bool) {
    doubt(key, sent, bans);
    let mut record = key.record();
    let before = record.spans.iter_mut();
    for span in before.filter(|span| span.is_ban == bans && span.from < sent) {
        span.until = span.until.min(answered);
    }
}

/// Records that all changes from before `sent` may have ended.
fn doubt(key: &Key, sent: At, bans: bool) {
    let mut record = key.record();
    let before = record.spans.iter_mut();
    for span in before.filter(|span| span.is_ban == bans && span.from < sent) {
        span.sure_until = span.sure_until.min(sent);
    }
}
