//! Access logs that are text: Envoy's default format, Istio's, and NGINX's `combined` and `main`.

use std::borrow::Cow;

use loudou_limiter::Nanos;
use loudou_rules::request::Sample;

use super::instant;
use super::record::{Record, Text, last_address, without_port};

/// Reads a line of Envoy's default format, or of Istio's, which has more columns.
///
/// `[START_TIME] "METHOD PATH PROTOCOL" CODE FLAGS RECEIVED SENT DURATION UPSTREAM_TIME
/// "X-FORWARDED-FOR" "USER-AGENT" "X-REQUEST-ID" "AUTHORITY" "UPSTREAM_HOST"`
pub(crate) fn envoy(line: &[u8]) -> Result<Record<'_>, String> {
    let rest = line.strip_prefix(b"[").ok_or("it begins with no `[`")?;
    let (time, rest) = cut(rest, b"] \"").ok_or("no request after the time")?;
    let at = instant::rfc3339(time).ok_or("the time is none like 2016-04-15T20:17:00.310Z")?;
    let (request, rest) = cut(rest, b"\" ").ok_or("the request has no end")?;
    let (method, path) = request_line(request)?;
    let (numbers, quoted) = cut(rest, b" \"").ok_or("no columns after the request")?;
    // Istio has three more columns, the last of them quoted.
    let (numbers, quoted) = if numbers.split(|b| *b == b' ').count() == 4 {
        let (_failure, rest) = cut(quoted, b"\" ").ok_or("too few columns")?;
        cut(rest, b" \"").ok_or("too few columns")?
    } else {
        (numbers, quoted)
    };
    let duration = numbers.rsplit(|b| *b == b' ').nth(1);
    let duration = duration.and_then(whole).map(Nanos::from_millis);
    let (forwarded_for, user_agent, id, host, tail) = client(quoted).ok_or("too few columns")?;
    let istio: Vec<&[u8]> = tail.split(|b| *b == b' ').skip(1).collect();
    let source = match istio.as_slice() {
        [_cluster, _upstream, _local, remote, _name, ..] => Some(without_port(remote)),
        _ => known(forwarded_for).map(last_address),
    };
    let route = istio.get(5).copied();
    let named = [
        ("x-forwarded-for", forwarded_for),
        ("user-agent", user_agent),
        ("x-request-id", id),
    ];
    let request = Sample {
        method: known(method).map(Cow::Borrowed),
        path: known(path).map(Cow::Borrowed),
        host: known(host).map(Cow::Borrowed),
        source: source.and_then(known).map(Cow::Borrowed),
        route: route.and_then(known).map(Cow::Borrowed),
        headers: headers(named.map(|(name, value)| (name, Cow::Borrowed(value)))),
        ..Sample::default()
    };
    Ok(Record {
        at,
        request,
        duration,
    })
}

/// The quoted columns, and what follows them. Envoy does not escape the quotes that a client sends,
/// so a user agent may look like several columns; those around it do not.
#[expect(clippy::type_complexity, reason = "five columns, read in one place")]
fn client(quoted: &[u8]) -> Option<(&[u8], &[u8], &[u8], &[u8], &[u8])> {
    // The upstream's address is the last to be quoted, and has no quotes of its own.
    let end = quoted.iter().rposition(|b| *b == b'"')?;
    let (columns, tail) = quoted.split_at_checked(end)?;
    let tail = tail.get(1..)?;
    let (forwarded_for, rest) = cut(columns, b"\" \"")?;
    let (rest, _upstream) = cut_last(rest, b"\" \"")?;
    let (rest, host) = cut_last(rest, b"\" \"")?;
    let (user_agent, id) = cut_last(rest, b"\" \"")?;
    Some((forwarded_for, user_agent, id, host, tail))
}

/// Reads a line of NGINX's `combined`, or of `main`, which ends with the `x-forwarded-for`.
///
/// `ADDRESS - USER [TIME] "METHOD PATH PROTOCOL" STATUS SENT "REFERER" "USER-AGENT"`
pub(crate) fn nginx(line: &[u8]) -> Result<Record<'_>, String> {
    let (source, rest) = cut(line, b" ").ok_or("no columns")?;
    let (before, rest) = cut(rest, b"] \"").ok_or("no request after the time")?;
    let (_user, time) = cut_last(before, b" [").ok_or("no time")?;
    let at = instant::common_log(time).ok_or("the time is none like 10/Oct/2000:13:55:36 -0700")?;
    let (request, rest) = cut(rest, b"\" ").ok_or("the request has no end")?;
    let (method, path) = request_line(request)?;
    let (_numbers, rest) = cut(rest, b" \"").ok_or("too few columns")?;
    let rest = rest
        .strip_suffix(b"\"")
        .ok_or("the last column has no end")?;
    let (referer, rest) = cut(rest, b"\" \"").ok_or("too few columns")?;
    let (user_agent, forwarded_for) = cut(rest, b"\" \"").unwrap_or((rest, b"-"));
    let named = [
        ("user-agent", unescape(user_agent)),
        ("referer", unescape(referer)),
        ("x-forwarded-for", unescape(forwarded_for)),
    ];
    let request = Sample {
        method: Some(unescape(method)),
        path: Some(unescape(path)),
        source: known(source).map(Cow::Borrowed),
        headers: headers(named),
        ..Sample::default()
    };
    Ok(Record {
        at,
        request,
        duration: None,
    })
}

/// The method and the path of `GET /a HTTP/1.1`. A path may have spaces, the others have none.
fn request_line(request: &[u8]) -> Result<(&[u8], &[u8]), String> {
    let (method, rest) = cut(request, b" ").ok_or("the request is no `METHOD PATH PROTOCOL`")?;
    let (path, _protocol) = cut_last(rest, b" ").ok_or("the request has no protocol")?;
    Ok((method, path))
}

fn headers<'a, const N: usize>(
    named: [(&'static str, Text<'a>); N],
) -> Vec<(Cow<'a, str>, Text<'a>)> {
    let known = named
        .into_iter()
        .filter(|(_, value)| known(value).is_some());
    known
        .map(|(name, value)| (Cow::Borrowed(name), value))
        .collect()
}

/// A column that is not empty.
fn known(column: &[u8]) -> Option<&[u8]> {
    Some(column).filter(|column| !column.is_empty() && **column != *b"-")
}

fn whole(digits: &[u8]) -> Option<u64> {
    str::from_utf8(digits).ok()?.parse().ok()
}

/// What is before and after the first `mark`.
fn cut<'a>(text: &'a [u8], mark: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let found = memchr::memmem::find(text, mark)?;
    Some((text.get(..found)?, text.get(found + mark.len()..)?))
}

/// What is before and after the last `mark`.
fn cut_last<'a>(text: &'a [u8], mark: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let found = memchr::memmem::rfind(text, mark)?;
    Some((text.get(..found)?, text.get(found + mark.len()..)?))
}

/// NGINX writes `"`, `\` and what is not printable as `\xXX`.
fn unescape(text: &[u8]) -> Text<'_> {
    if !text.contains(&b'\\') {
        return Cow::Borrowed(text);
    }
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, tail)) = rest.split_first() {
        let escaped = match rest {
            [b'\\', b'x', high, low, ..] => digit(*high).zip(digit(*low)),
            _ => None,
        };
        if let Some((high, low)) = escaped {
            out.push(high << 4 | low);
            rest = rest.get(4..).unwrap_or_default();
        } else {
            out.push(*first);
            rest = tail;
        }
    }
    Cow::Owned(out)
}

fn digit(hex: u8) -> Option<u8> {
    let digit = char::from(hex).to_digit(16)?;
    u8::try_from(digit).ok()
}

#[cfg(test)]
mod tests;
