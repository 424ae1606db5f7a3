//! The heads that syslog puts before the lines of a log, in the forms of RFC 3164 and RFC 5424.
//!
//! They are `Oct 10 13:55:36 HOST TAG[PID]: `, as in files of syslog and of the journal, and
//! `<PRI>1 TIME HOST APP PROCID MSGID DATA `. The first may have `<PRI>` before it, and no host, which is what NGINX
//! sends.

use super::{instant, source};

/// The longest word of a head; a host has 255 bytes at most.
const LONGEST_WORD: usize = 256;

/// The rest of a line after its head; `None` if it has none.
pub(crate) fn after_head(line: &[u8]) -> Option<&[u8]> {
    let after_priority = after_priority(line);
    if let Some(rest) = after_priority.and_then(|rest| rest.strip_prefix(b"1 ")) {
        return after_fields(rest);
    }
    let is_host = |word: &[u8]| is_name(word) || source::is_address(word);
    after_tag(after_time(after_priority.unwrap_or(line))?, is_host)
}

/// The rest after `HOST TAG: ` or `TAG: `, which follow a time of ISO 8601.
///
/// Such a time may also be before the lines of another log, and an address after it is a client.
pub(crate) fn after_iso_time(text: &[u8]) -> Option<&[u8]> {
    after_tag(text, |word| is_name(word) && !source::is_address(word))
}

/// The rest after `HOST TAG: ` or `TAG: `.
fn after_tag(text: &[u8], is_host: impl FnOnce(&[u8]) -> bool) -> Option<&[u8]> {
    let (first, rest) = word(text)?;
    if is_tag(first) {
        return Some(rest);
    }
    let (tag, rest) = word(rest)?;
    (is_host(first) && is_tag(tag)).then_some(rest)
}

/// Whether this is `TAG:` or `TAG[PID]:`, and not an address or a socket of Unix.
fn is_tag(word: &[u8]) -> bool {
    let Some(tag) = word.strip_suffix(b":") else {
        return false;
    };
    let mut parts = tag
        .strip_suffix(b"]")
        .unwrap_or(tag)
        .splitn(2, |b| *b == b'[');
    let (name, pid) = (parts.next().unwrap_or_default(), parts.next());
    let is_pid = |pid: &[u8]| !pid.is_empty() && pid.iter().all(u8::is_ascii_digit);
    is_name(name)
        && pid.is_none_or(is_pid)
        && pid.is_some() == tag.ends_with(b"]")
        && name != b"unix"
        && !source::is_address(name)
}

/// Whether this can be the name of a host or of a program.
fn is_name(word: &[u8]) -> bool {
    let is_of_name = |byte: &u8| byte.is_ascii_alphanumeric() || b"_./-".contains(byte);
    !word.is_empty() && word.iter().all(is_of_name)
}

/// The rest after `<PRI>`, a number up to 191.
fn after_priority(line: &[u8]) -> Option<&[u8]> {
    let rest = line.strip_prefix(b"<")?;
    let end = rest.iter().take(4).position(|byte| *byte == b'>')?;
    let (number, rest) = rest.split_at_checked(end)?;
    let number: u8 = str::from_utf8(number).ok()?.parse().ok()?;
    rest.get(1..).filter(|_| number <= 191)
}

/// The rest after `Oct 10 13:55:36 `; the day has two places.
fn after_time(line: &[u8]) -> Option<&[u8]> {
    let (month, rest) = line.split_at_checked(3)?;
    let (day_and_time, rest) = rest.split_first_chunk::<13>()?;
    let is_like = |(byte, form): (&u8, &u8)| match form {
        b'0' => byte.is_ascii_digit(),
        b'1' => byte.is_ascii_digit() || *byte == b' ',
        _ => byte == form,
    };
    let is_time = day_and_time.iter().zip(b" 10 00:00:00 ").all(is_like);
    (is_time && instant::month(month).is_some()).then_some(rest)
}

/// The rest after `TIME HOST APP PROCID MSGID DATA `, and after the mark of UTF-8.
fn after_fields(mut rest: &[u8]) -> Option<&[u8]> {
    for _ in 0..5 {
        (_, rest) = word(rest)?;
    }
    let rest = match rest.strip_prefix(b"-") {
        Some(rest) => rest,
        None => after_data(rest)?,
    };
    let rest = rest.strip_prefix(b" ")?;
    Some(rest.strip_prefix(b"\xef\xbb\xbf").unwrap_or(rest))
}

/// The rest after elements like `[ID NAME="VALUE"]`.
fn after_data(text: &[u8]) -> Option<&[u8]> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    let mut before = b' ';
    for (at, byte) in text.iter().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_quoted => is_escaped = true,
            b'"' => is_quoted = !is_quoted,
            b' ' if !is_quoted && before == b']' => return text.get(at..),
            b'[' if !is_quoted && at == 0 => {}
            _ if at == 0 => return None,
            _ => {}
        }
        before = *byte;
    }
    None
}

/// The first word and what follows its blank.
fn word(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = memchr::memchr(b' ', text).filter(|end| (1..=LONGEST_WORD).contains(end))?;
    let (word, rest) = text.split_at_checked(end)?;
    Some((word, rest.get(1..)?))
}
