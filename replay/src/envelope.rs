//! What a container's runtime puts around the lines of a log.
//!
//! `kubectl logs --prefix` writes `[pod/NAME/CONTAINER] ` before a line, `docker compose logs` `NAME  | `, and
//! `--timestamps` a time; a CRI file has `TIME stdout F ` before it, with `P` for parts of a long line, and Docker's
//! `json-file` has the line as a string in an object. The heads of `syslog` have a home of their own.

use serde::Deserialize;

use super::json::{self, JsonStr};
use super::lines::MAX_LINE;
use super::{source, syslog};

/// Removes what surrounds lines, and joins the parts of long ones.
#[derive(Debug, Default)]
pub(crate) struct Envelope {
    /// The parts of Docker's lines, which may be lines of CRI.
    docker: Parts,
    /// The parts of CRI's lines.
    cri: Parts,
    /// Whether what a log's own lines may begin with is left in its place: a time, a name, and a head of syslog.
    keeps_heads: bool,
}

/// The parts of lines that have not ended.
#[derive(Debug, Default)]
struct Parts {
    /// Those of standard output and of standard error.
    streams: [Vec<u8>; 2],
    /// The last line that was joined.
    line: Vec<u8>,
}

/// A line without what surrounds it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unwrapped<'a> {
    Line(&'a [u8]),
    /// A part of a line that goes on.
    Part,
    /// Longer than [`MAX_LINE`] with all its parts.
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
    /// Removes what is known; `keeps_heads` for a log whose format the user has described.
    pub(crate) fn new(keeps_heads: bool) -> Self {
        Self {
            keeps_heads,
            ..Self::default()
        }
    }

    /// The line within `line`.
    pub(crate) fn unwrap<'a>(&'a mut self, line: &'a [u8]) -> Unwrapped<'a> {
        let Self {
            docker,
            cri,
            keeps_heads,
        } = self;
        let line = match docker.of_docker(line) {
            None => without_prefix(line, *keeps_heads),
            Some(Unwrapped::Line(line)) => line,
            Some(other) => return other,
        };
        let without_head = |line| {
            let rest = (!*keeps_heads).then(|| syslog::after_head(line));
            rest.flatten().unwrap_or(line)
        };
        let Some(rest) = after_time(line) else {
            return Unwrapped::Line(without_head(line));
        };
        match cri.of_cri(rest) {
            Some(Unwrapped::Line(line)) => Unwrapped::Line(without_head(line)),
            Some(other) => other,
            None if *keeps_heads => Unwrapped::Line(line),
            None => Unwrapped::Line(syslog::after_iso_time(rest).unwrap_or(rest)),
        }
    }

    /// The parts of a line that the input ended in.
    pub(crate) fn last(&mut self) -> Option<Vec<u8>> {
        let mut streams = self.docker.streams.iter_mut().chain(&mut self.cri.streams);
        let parts = streams.find(|parts| !parts.is_empty())?;
        Some(std::mem::take(parts)).filter(|parts| parts.len() <= MAX_LINE)
    }
}

impl Parts {
    /// What is in a line of Docker's `json-file`; `None` if this is none.
    fn of_docker(&mut self, line: &[u8]) -> Option<Unwrapped<'_>> {
        if !line.starts_with(b"{\"log\":\"") {
            return None;
        }
        let docker = json::read::<DockerLine<'_>>(line).ok()?;
        let stream = usize::from(*docker.stream.0 == *"stderr");
        let log = docker.log.bytes();
        Some(match log.strip_suffix(b"\n") {
            None => self.part(stream, &log),
            Some(end) => self.joined(stream, end),
        })
    }

    /// What is in a line of a CRI file, after its time; `None` if this is none.
    fn of_cri<'a>(&'a mut self, rest: &'a [u8]) -> Option<Unwrapped<'a>> {
        let (stream, is_whole, text) = cri(rest)?;
        let has_part = self
            .streams
            .get(stream)
            .is_some_and(|parts| !parts.is_empty());
        Some(match (is_whole, has_part) {
            (false, _) => self.part(stream, text),
            (true, false) => Unwrapped::Line(text),
            (true, true) => self.joined(stream, text),
        })
    }

    fn part(&mut self, stream: usize, text: &[u8]) -> Unwrapped<'_> {
        if let Some(parts) = self.streams.get_mut(stream) {
            // One byte more than the longest line shows that it was too long.
            let room = (MAX_LINE + 1).saturating_sub(parts.len());
            parts.extend_from_slice(text.get(..room).unwrap_or(text));
        }
        Unwrapped::Part
    }

    /// The parts so far with the last one.
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

/// A line without the prefix of `kubectl logs --prefix`, or of `docker compose logs`.
fn without_prefix(line: &[u8], keeps_heads: bool) -> &[u8] {
    if line.starts_with(b"[pod/") {
        let end = memchr::memmem::find(line, b"] ");
        return end.and_then(|end| line.get(end + 2..)).unwrap_or(line);
    }
    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || b"_.-".contains(byte);
    let end = line.iter().position(|byte| !is_name(byte)).unwrap_or(0);
    let after = line.get(end..).unwrap_or_default();
    let bar = after.iter().position(|byte| *byte != b' ').unwrap_or(0);
    let rest = after.get(bar..).and_then(|rest| rest.strip_prefix(b"| "));
    let name = line.get(..end).unwrap_or_default();
    let is_compose = !keeps_heads
        && bar > 0
        && name.first().is_some_and(u8::is_ascii_alphanumeric)
        && !source::is_address(name);
    rest.filter(|_| is_compose).unwrap_or(line)
}

/// The rest after a time like `2016-10-06T00:17:09.669794202Z `.
fn after_time(line: &[u8]) -> Option<&[u8]> {
    let [b'0'..=b'9', b'0'..=b'9', b'0'..=b'9', b'0'..=b'9', b'-', ..] = line else {
        return None;
    };
    let end = memchr::memchr(b' ', line)?;
    let (time, rest) = line.split_at_checked(end)?;
    let is_time = time.len() > 18 && time.get(10) == Some(&b'T');
    rest.get(1..).filter(|_| is_time)
}

/// The stream of a CRI line, whether the line ends here, and its text.
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

    /// The lines within `text`; `None` for one that is too long.
    fn unwrapped(text: &[u8]) -> Vec<Option<Vec<u8>>> {
        unwrapped_by(&mut Envelope::default(), text)
    }

    fn unwrapped_by(envelope: &mut Envelope, text: &[u8]) -> Vec<Option<Vec<u8>>> {
        let mut out = Vec::new();
        for line in text.split(|b| *b == b'\n') {
            match envelope.unwrap(line) {
                Unwrapped::Line(line) => out.push(Some(line.to_vec())),
                Unwrapped::Part => {}
                Unwrapped::TooLong => out.push(None),
            }
            assert!(
                [&envelope.docker, &envelope.cri]
                    .iter()
                    .flat_map(|parts| &parts.streams)
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
            br#"{"log":"2016-10-06T00:17:09.669794202Z stdout F 10.0.0.1 - - [x] \"GET / HTTP/1.1\" 200\n","stream":"stdout"}"#
                .to_vec(),
            with("nginx-1  | "),
            with("nginx_1 | 2016-10-06T00:17:09.669794202Z "),
            with("Oct 10 13:55:36 host nginx[1]: "),
            with("<190>Oct  1 13:55:36 host nginx: "),
            with("<190>Oct 10 13:55:36 nginx: "),
            with("2023-10-10T13:55:36.123456+02:00 host nginx[1]: "),
            with("<190>1 2023-10-10T13:55:36.123Z host nginx - - - "),
            with("<190>1 2023-10-10T13:55:36.123Z host nginx 12 access [a@1 b=\"c\\]\" d=\"e\"][f@1] "),
            with("<190>1 - - nginx - - - \u{feff}"),
            with("2016-10-06T00:17:09.669794202Z stdout F Oct 10 13:55:36 host nginx[1]: "),
            with("2023-10-10T13:55:36.1Z postfix/smtpd[12]: "),
            with("Oct 10 13:55:36 10.0.0.9 nginx: "),
            with("Oct 10 13:55:36 2001:db8::9 nginx: "),
        ] {
            let shown = String::from_utf8_lossy(&text).into_owned();
            assert_eq!(unwrapped(&text), [Some(line.to_vec())], "{shown}");
        }
    }

    #[test]
    fn parts_are_joined_by_stream() {
        let t = "2016-10-06T00:17:09.669794202Z";
        let text = format!(
            "{t} stdout P Oct 10 13:55:36 host nginx: a\n{t} stderr P x\n{t} stdout F b\n{t} stderr F y\n{t} stdout P c"
        );
        let lines = ["ab", "xy", "c"].map(|line| Some(line.into()));
        assert_eq!(unwrapped(text.as_bytes()), lines);
        let docker = br#"{"log":"a","stream":"stdout"}
{"log":"b\n","stream":"stdout"}"#;
        assert_eq!(unwrapped(docker), [Some(b"ab".to_vec())]);
    }

    /// The parts of CRI, within Docker's, which may have parts too.
    #[test]
    fn parts_within_parts_are_joined() {
        let cri = "2016-10-06T00:17:09.669794202Z stdout";
        for keeps_heads in [false, true] {
            let text = format!(
                r#"{{"log":"{cri} P a\n","stream":"stdout"}}
{{"log":"{cri} P ","stream":"stdout"}}
{{"log":"b\n","stream":"stdout"}}
{{"log":"{cri} F c\n","stream":"stdout"}}
{{"log":"{cri} F d\n","stream":"stdout"}}
{{"log":"{cri} P e\n","stream":"stdout"}}"#
            );
            let lines = ["abc", "d", "e"].map(|line| Some(line.into()));
            let mut envelope = Envelope::new(keeps_heads);
            assert_eq!(unwrapped_by(&mut envelope, text.as_bytes()), lines);
        }
    }

    /// A line after a time of `kubectl logs --timestamps` that begins like a head of syslog.
    #[test]
    fn what_is_no_head_of_syslog_stays() {
        for line in [
            r#"{"start_time": "2024-01-01T00:00:00Z", "path": "/"}"#,
            r#"{"user_agent":"a: b","path":"/"}"#,
            "[x: y: z",
            "2001:db8:1:: - - [x]",
            "2001:db8:: - bob smith [x]",
            "2001:db8:: x: 6.6.6.6 - - [x]",
            "unix: - - [x]",
            "unix: x: 6.6.6.6 - - [x]",
            "1.1.1.1: - - [x]",
            "1.1.1.1 x: 6.6.6.6 - - [x]",
            "1.1.1.1, nginx: 6.6.6.6 - - [x]",
            "host nginx[]: 6.6.6.6 - - [x]",
            "host nginx[a]: 6.6.6.6 - - [x]",
            "host : 6.6.6.6 - - [x]",
        ] {
            for before in ["", "[pod/a/b] ", "nginx-1  | "] {
                let text = format!("{before}2023-10-10T13:55:40.1Z {line}");
                assert_eq!(unwrapped(text.as_bytes()), [Some(line.into())], "{text}");
            }
        }
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
            "nginx-1 || x",
            "nginx-1| x",
            " | x",
            "Oct 10 13:55:36",
            "Oct 10 13:55:36 host nginx x",
            "Okt 10 13:55:36 host nginx: x",
            "<999>Oct 10 13:55:36 host nginx: x",
            "<190>1 2023-10-10T13:55:36.123Z host nginx - - [a",
            "<190>2 2023-10-10T13:55:36.123Z host nginx - - - x",
            "9.9.9.9 | 1.1.1.1 - - [x]",
            "9.9.9.9  | 1.1.1.1 - - [x]",
            "- | 1.1.1.1 - - [x]",
            "Oct 10 13:55:36 unix: - - [x]",
            "Oct 10 13:55:36 1.1.1.1: - - [x]",
            r#"Oct 10 13:55:36 {"a": "b: "#,
        ] {
            assert_eq!(unwrapped(line.as_bytes()), [Some(line.into())], "{line}");
        }
    }
}
