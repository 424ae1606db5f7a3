//! Text access logs: Envoy's default format, Istio's, and NGINX's `combined` and `main`.

use std::borrow::Cow;

use loudou_limiter::Nanos;
use loudou_rules::hex;
use loudou_rules::request::{Sample, bare_address};

use super::instant;
use super::record::{LoggedRequest, Text, last_address};

/// Reads a line of Envoy's default format, or of Istio's, which has more columns.
///
/// `[START_TIME] "METHOD PATH PROTOCOL" CODE FLAGS RECEIVED SENT DURATION UPSTREAM_TIME
/// "X-FORWARDED-FOR" "USER-AGENT" "X-REQUEST-ID" "AUTHORITY" "UPSTREAM_HOST"`
pub(crate) fn envoy(line: &[u8]) -> Result<LoggedRequest<'_>, String> {
    let rest = line.strip_prefix(b"[").ok_or("expected `[` at the start")?;
    let (time, rest) = cut(rest, b"] \"").ok_or("no request after the time")?;
    let at = instant::rfc3339(time).ok_or("expected a time like 2016-04-15T20:17:00.310Z")?;
    let (request, rest) = cut(rest, b"\" ").ok_or("the request has no closing quote")?;
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
        [_cluster, _upstream, _local, remote, _name, ..] => Some(bare_address(remote)),
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
    Ok(LoggedRequest {
        at,
        request,
        duration,
    })
}

/// The quoted columns and the rest after them. Envoy does not escape quotes that a client sends,
/// so a user agent may look like several columns; the columns around it cannot.
#[expect(clippy::type_complexity, reason = "five columns, read in one place")]
fn client(quoted: &[u8]) -> Option<(&[u8], &[u8], &[u8], &[u8], &[u8])> {
    // The last quoted column is the upstream's address, which contains no quotes.
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
pub(crate) fn nginx(line: &[u8]) -> Result<LoggedRequest<'_>, String> {
    let (source, rest) = cut(line, b" ").ok_or("no columns")?;
    let (before, rest) = cut(rest, b"] \"").ok_or("no request after the time")?;
    let (_user, time) = cut_last(before, b" [").ok_or("no time")?;
    let at = instant::common_log(time).ok_or("expected a time like 10/Oct/2000:13:55:36 -0700")?;
    let (request, rest) = cut(rest, b"\" ").ok_or("the request has no closing quote")?;
    let (method, path) = request_line(request)?;
    let (_numbers, rest) = cut(rest, b" \"").ok_or("too few columns")?;
    let rest = rest
        .strip_suffix(b"\"")
        .ok_or("the last column has no closing quote")?;
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
    Ok(LoggedRequest {
        at,
        request,
        duration: None,
    })
}

/// The method and the path of `GET /a HTTP/1.1`. Only the path may contain spaces.
fn request_line(request: &[u8]) -> Result<(&[u8], &[u8]), String> {
    let (method, rest) = cut(request, b" ").ok_or("the request is not `METHOD PATH PROTOCOL`")?;
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

/// The parts before and after the first `mark`.
fn cut<'a>(text: &'a [u8], mark: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let found = memchr::memmem::find(text, mark)?;
    Some((text.get(..found)?, text.get(found + mark.len()..)?))
}

/// The parts before and after the last `mark`.
fn cut_last<'a>(text: &'a [u8], mark: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let found = memchr::memmem::rfind(text, mark)?;
    Some((text.get(..found)?, text.get(found + mark.len()..)?))
}

/// Decodes NGINX's `\xXX`, its form of `"`, `\` and unprintable bytes.
fn unescape(text: &[u8]) -> Text<'_> {
    hex::unescaped(text, b"\\x", |b| b)
}

#[cfg(test)]
mod tests;
