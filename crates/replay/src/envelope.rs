//! Removes the wrapper that container runtimes and `kubectl` put around log lines.
//!
//! `kubectl logs --prefix` writes `[pod/NAME/CONTAINER] ` before each line, and `--timestamps`
//! writes a timestamp. In a CRI log file, `TIME stdout F ` precedes each line. A long line is split
//! into parts, and each part except the last has `P` instead of `F`. Docker's `json-file` driver
//! stores each line as a string in a JSON object.

use serde::Deserialize;

use super::json::{self, JsonStr};
use super::lines::MAX_LINE;

/// Removes wrappers, and joins the parts of long lines.
#[derive(Debug, Default)]
pub(crate) struct Envelope {
    /// Lines of `stdout` and `stderr` whose last part has not arrived yet.
    streams: [Vec<u8>; 2],
    /// Last line that was joined from parts.
    line: Vec<u8>,
    /// True if a timestamp before a line is kept, because the log's own lines may begin with one.
    keeps_times: bool,
}

/// Result of removing the wrapper from a line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unwrapped<'a> {
    Line(&'a [u8]),
    /// A part of a line whose remaining parts have not arrived yet.
    Part,
    /// A line that is longer than [`MAX_LINE`] after its parts were joined.
    TooLong,
}

#[derive(Deserialize)]
struct DockerLine<'a> {
    #[serde(borrow)]
    log: JsonStr<'a>,
    #[serde(borrow)]
    stream: JsonStr<'a>,
}

impl Envelope {
    /// Creates an `Envelope` that removes all known wrappers. Set `keeps_times` if the user
    /// specified a custom log format.
    pub(crate) fn new(keeps_times: bool) -> Self {
        Self {
            keeps_times,
            ..Self::default()
        }
    }

    /// Removes the wrapper from `line`. If `line` is the last part of a long line, returns the
    /// joined line.
    pub(crate) fn unwrap<'a>(&'a mut self, line: &'a [u8]) -> Unwrapped<'a> {
        if let Some((stream, log)) = docker(line) {
            let log = log.bytes();
            return match log.strip_suffix(b"\n") {
                None => self.part(stream, &log),
                Some(end) => self.joined(stream, end),
            };
        }
        let line = without_prefix(line);
        let Some(rest) = after_time(line) else {
            return Unwrapped::Line(line);
        };
        match cri(rest) {
            Some((stream, false, text)) => self.part(stream, text),
            Some((stream, true, text)) if self.has_part(stream) => self.joined(stream, text),
            Some((_, true, text)) => Unwrapped::Line(text),
            None if self.keeps_times => Unwrapped::Line(line),
            None => Unwrapped::Line(rest),
        }
    }

    /// Returns one of the unfinished lines at the end of the input, if any.
    pub(crate) fn last(&mut self) -> Option<Vec<u8>> {
        let parts = self.streams.iter_mut().find(|parts| !parts.is_empty())?;
        Some(std::mem::take(parts)).filter(|parts| parts.len() <= MAX_LINE)
    }

    fn has_part(&self, stream: usize) -> bool {
        let parts = self.streams.get(stream);
        parts.is_some_and(|parts| !parts.is_empty())
    }

    fn part(&mut self, stream: usize, text: &[u8]) -> Unwrapped<'_> {
        if let Some(parts) = self.streams.get_mut(stream) {
            // Keep one byte more than the maximum, so that the joined line is recognised as too
            // long.
            let room = (MAX_LINE + 1).saturating_sub(parts.len());
            parts.extend_from_slice(text.get(..room).unwrap_or(text));
        }
        Unwrapped::Part
    }

    /// Adds the last part of a line, and returns the joined line.
    fn joined(&mut self, stream: usize, end: &[u8]) -> Unwrapped<'_> {
        self.part(stream, end);
        self.line.clear();
        if let Some(parts) = self.streams.get_mut(stream) {
            std::mem::swap(parts, &mut self.line);
        }
        if self.line.len() > MAX_LINE {
            Unwrapped::TooLong
        } else {
            Unwrapped::Line(&self.line)
        }
    }
}

/// Returns the stream and the content of a Docker `json-file` line, or `None` for any other line.
fn docker(line: &[u8]) -> Option<(usize, JsonStr<'_>)> {
    if !line.starts_with(b"{\"log\":\"") {
        return None;
    }
    let docker = json::read::<DockerLine<'_>>(line).ok()?;
    Some((usize::from(*docker.stream.0 == *"stderr"), docker.log))
}

/// Removes the prefix of `kubectl logs --prefix`.
fn without_prefix(line: &[u8]) -> &[u8] {
    if !line.starts_with(b"[pod/") {
        return line;
    }
    let end = memchr::memmem::find(line, b"] ");
    end.and_then(|end| line.get(end + 2..)).unwrap_or(line)
}

/// Returns the rest of a line that starts with a timestamp such as `2016-10-06T00:17:09.669794202Z
/// `, or `None` if there is no timestamp.
fn after_time(line: &[u8]) -> Option<&[u8]> {
    let [b'0'..=b'9', b'0'..=b'9', b'0'..=b'9', b'0'..=b'9', b'-', ..] = line else {
        return None;
    };
    let end = memchr::memchr(b' ', line)?;
    let (time, rest) = line.split_at_checked(end)?;
    let is_time = time.len() > 18 && time.get(10) == Some(&b'T');
    rest.get(1..).filter(|_| is_time)
}

/// Parses a CRI line, without its timestamp, into the stream, a flag that is true for the last part
/// of a line, and the content.
fn cri(rest: &[u8]) -> Option<(usize, bool, &[u8])> {
    let (stream, rest) = match rest.split_at_checked(7)? {
        (b"stdout ", rest) => (0, rest),
        (b"stderr ", rest) => (1, rest),
        _ => return None,
    };
    let end = memchr::memchr(b' ', rest).unwrap_or(rest.len());
    let (tags, text) = rest.split_at_checked(end)?;
    let is_whole = match tags.first()? {
        b'F' => true,
        b'P' => false,
        _ => return None,
    };
    Some((stream, is_whole, text.get(1..).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the unwrapped lines of `text`, with `None` for each line that is too long.
    fn unwrapped(text: &[u8]) -> Vec<Option<Vec<u8>>> {
        let mut envelope = Envelope::default();
        let mut out = Vec::new();
        for line in text.split(|b| *b == b'\n') {
            match envelope.unwrap(line) {
                Unwrapped::Line(line) => out.push(Some(line.to_vec())),
                Unwrapped::Part => {}
                Unwrapped::TooLong => out.push(None),
            }
            assert!(
                envelope
                    .streams
                    .iter()
                    .all(|parts| parts.len() <= MAX_LINE + 1)
            );
        }
        out.extend(envelope.last().map(Some));
        out
    }

    #[test]
    fn every_envelope() {
        let line = br#"10.0.0.1 - - [x] "GET / HTTP/1.1" 200"#;
        let with = |before: &str| [before.as_bytes(), line].concat();
        for text in [
            with(""),
            with("[pod/web-5d/nginx] "),
            with("2016-10-06T00:17:09.669794202Z "),
            with("[pod/web-5d/nginx] 2016-10-06T00:17:09.669794202Z "),
            with("2016-10-06T00:17:09.669794202Z stdout F "),
            with("2016-10-06T02:17:09.669794202+02:00 stderr F "),
            br#"{"log":"10.0.0.1 - - [x] \"GET / HTTP/1.1\" 200\n","stream":"stdout","time":"x"}"#
                .to_vec(),
        ] {
            let shown = String::from_utf8_lossy(&text).into_owned();
            assert_eq!(unwrapped(&text), [Some(line.to_vec())], "{shown}");
        }
    }

    #[test]
    fn parts_are_joined_by_stream() {
        let t = "2016-10-06T00:17:09.669794202Z";
        let text = format!(
            "{t} stdout P a\n{t} stderr P x\n{t} stdout F b\n{t} stderr F y\n{t} stdout P c"
        );
        let lines = ["ab", "xy", "c"].map(|line| Some(line.into()));
        assert_eq!(unwrapped(text.as_bytes()), lines);
        let docker = br#"{"log":"a","stream":"stdout"}
{"log":"b\n","stream":"stdout"}"#;
        assert_eq!(unwrapped(docker), [Some(b"ab".to_vec())]);
    }

    #[test]
    fn a_time_stays_in_a_format_that_the_user_described() {
        let line = b"2016-10-06T00:17:09.669794202Z 10.0.0.1 GET /";
        let mut envelope = Envelope::new(true);
        assert_eq!(envelope.unwrap(line), Unwrapped::Line(line));
    }

    #[test]
    fn endless_parts_take_no_memory() {
        let t = "2016-10-06T00:17:09.669794202Z stdout";
        let part = format!("{t} P {}\n", "x".repeat(MAX_LINE / 2));
        let text = format!("{}{t} F x\n{t} F y", part.repeat(9));
        assert_eq!(unwrapped(text.as_bytes()), [None, Some(b"y".to_vec())]);
    }

    #[test]
    fn lines_that_only_look_alike_stay() {
        for line in [
            "[pod/web",
            "2016-10-06 00:17:09 x",
            "2016-10-06T00:17:09.669794202Z",
            r#"{"log":"x"}"#,
            r#"{"log":1,"stream":"stdout"}"#,
            "",
            "nginx-1  | x",
            "Oct 10 13:55:36 host nginx: x",
        ] {
            assert_eq!(unwrapped(line.as_bytes()), [Some(line.into())], "{line}");
        }
    }
}
