//! Reads a recording: once through, for an index of its lines, and then any line by its place.
//!
//! What comes after a damaged line is not trusted: the recording ends there. Nothing in a file is trusted to be of a
//! reasonable size: lines, texts and their number are bounded.

use std::fmt;

use loudou_api::{BucketView, Event};
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};

use super::source::{Found, Input, MAX_LINE, Source};
use super::{End, FORMAT, Head, Line, MAX_ENVOYS, Stamp};
use crate::app::msg::Snapshot;
use crate::num::count;
use crate::text::escape;

/// The most lines, of some 40 bytes each in memory: three weeks of one Envoy at one poll a second.
const MOST_LINES: usize = 2_000_000;
/// The longest text of a snapshot, such as a key or a reason.
const MAX_TEXT: usize = 64 << 10;
/// The most buckets, and the most rules, events or warnings of a snapshot.
const MOST_BUCKETS: usize = 10_000;
const MOST_OTHERS: usize = 4_096;
/// The longest part of a text that a message quotes.
const QUOTED: usize = 60;

/// What is wrong with a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bad {
    /// Its number, from 1 on.
    pub(crate) line: u64,
    pub(crate) why: String,
}

impl fmt::Display for Bad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.why)
    }
}

/// How a recording ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// As its last line says.
    Said(End),
    /// Without that line.
    Cut,
    /// With a line that cannot be read.
    Damaged(Bad),
}

/// A line in the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    place: u64,
    pub(crate) line: u64,
    pub(crate) stamp: Stamp,
    /// The number of the Envoy.
    pub(crate) envoy: usize,
    /// Whether it is an answer, not the lack of one.
    pub(crate) is_answer: bool,
    /// Whether it has the rules.
    pub(crate) has_rules: bool,
    /// Whether it has events.
    pub(crate) has_events: bool,
}

/// The answer of an Envoy, or the reason why there was none.
pub(crate) type Entry = Result<Box<Snapshot>, String>;

/// A recording.
pub(crate) struct Tape {
    source: Source,
    pub(crate) head: Head,
    /// The answers, in order of time; at least one.
    pub(crate) marks: Vec<Mark>,
    pub(crate) ending: Ending,
}

/// What the index needs of a snapshot.
#[derive(Deserialize)]
struct Parts {
    #[serde(default)]
    rules: Option<IgnoredAny>,
    #[serde(default)]
    events: Vec<IgnoredAny>,
}

/// The version of a first line.
#[derive(Deserialize)]
struct Version {
    loudou_recording: u64,
    #[serde(default)]
    version: String,
}

impl Tape {
    /// Opens a recording. Fails if nothing of it can be played.
    pub(crate) fn open(file: Box<dyn Input>) -> Result<Self, Bad> {
        let mut buffer = Vec::new();
        let first = |why: String| Bad { line: 1, why };
        let source = Source::new(file).map_err(|error| first(error.to_string()));
        let mut source = source?;
        match source.read(&mut buffer) {
            Ok(Found::End) => return Err(first("the file is empty".to_owned())),
            Ok(Found::TooLong) => return Err(first(no_recording())),
            Ok(_) => {}
            Err(error) => return Err(first(unreadable(&error))),
        }
        let head = head(&buffer).map_err(first)?;
        let mut tape = Self {
            source,
            head,
            marks: Vec::new(),
            ending: Ending::Cut,
        };
        tape.ending = tape.index(&mut buffer);
        match tape.ending {
            Ending::Damaged(bad) if tape.marks.is_empty() => Err(bad),
            _ if tape.marks.is_empty() => {
                Err(first("the recording has no answer of an Envoy".to_owned()))
            }
            _ => Ok(tape),
        }
    }

    /// Reads all lines once.
    fn index(&mut self, buffer: &mut Vec<u8>) -> Ending {
        let mut before = Stamp::default();
        for number in 2.. {
            let damaged = |why: String| Ending::Damaged(Bad { line: number, why });
            let (place, is_whole) = match self.source.read(buffer) {
                Ok(Found::Line(place)) => (place, true),
                Ok(Found::Part(place)) => (place, false),
                Ok(Found::End) => return Ending::Cut,
                Ok(Found::TooLong) => return damaged(too_long()),
                Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                    return Ending::Cut;
                }
                Err(error) => return damaged(unreadable(&error)),
            };
            let line: Line<Parts> = match serde_json::from_slice(buffer) {
                Ok(line) => line,
                Err(_) if !is_whole => return Ending::Cut,
                Err(error) => return damaged(not_json(&error)),
            };
            if let Some(end) = line.end {
                return Ending::Said(end);
            }
            match self.mark(&line, number, place, before) {
                Ok(mark) => {
                    before = mark.stamp;
                    self.marks.push(mark);
                }
                Err(why) => return damaged(why),
            }
        }
        Ending::Cut
    }

    fn mark(
        &self,
        line: &Line<Parts>,
        number: u64,
        place: u64,
        before: Stamp,
    ) -> Result<Mark, String> {
        if line.at_ns < before.at_ns {
            return Err(format!(
                "`at_ns` goes back from {} to {}",
                before.at_ns, line.at_ns
            ));
        }
        if self.marks.len() >= MOST_LINES {
            return Err(format!("more than {MOST_LINES} lines; record in parts"));
        }
        let url = line.url.as_deref().ok_or("`url` is missing")?;
        let urls = &self.head.urls;
        let envoy = urls.iter().position(|other| other == url);
        let envoy = envoy.ok_or_else(|| {
            let allowed: Vec<String> = urls.iter().map(|url| quoted(url)).collect();
            let allowed = allowed.join(", ");
            format!("unknown `url` {}; allowed: {allowed}", quoted(url))
        })?;
        if line.snapshot.is_some() == line.failed.is_some() {
            return Err("expected one of `snapshot`, `failed` and `end`".to_owned());
        }
        let parts = line.snapshot.as_ref();
        Ok(Mark {
            place,
            line: number,
            stamp: Stamp {
                at_ns: line.at_ns,
                unix_ms: line.unix_ms,
            },
            envoy,
            is_answer: parts.is_some(),
            has_rules: parts.is_some_and(|parts| parts.rules.is_some()),
            has_events: parts.is_some_and(|parts| !parts.events.is_empty()),
        })
    }

    /// Reads the answer of a line in the index.
    pub(crate) fn read(&mut self, mark: &Mark) -> Result<Entry, Bad> {
        let bad = |why: String| Bad {
            line: mark.line,
            why,
        };
        let mut buffer = Vec::new();
        let sought = self.source.seek(mark.place);
        let found = sought.and_then(|()| self.source.read(&mut buffer));
        if let Err(error) = found {
            return Err(bad(unreadable(&error)));
        }
        let line: Line<Box<Snapshot>> =
            serde_json::from_slice(&buffer).map_err(|error| bad(not_json(&error)))?;
        match (line.snapshot, line.failed) {
            (Some(snapshot), _) => {
                is_reasonable(&snapshot).map_err(bad)?;
                Ok(Ok(snapshot))
            }
            (None, Some(failed)) => Ok(Err(cut(&failed, MAX_TEXT))),
            (None, None) => Err(bad("the file has changed".to_owned())),
        }
    }
}

/// Reads the first line.
fn head(line: &[u8]) -> Result<Head, String> {
    let version: Version = serde_json::from_slice(line).map_err(|_not_json| no_recording())?;
    if version.loudou_recording > FORMAT {
        return Err(format!(
            "format {} of loudou {}, which is newer than this loudou: it reads formats up to {FORMAT}",
            version.loudou_recording,
            quoted(&version.version)
        ));
    }
    let head: Head = parsed(line)?;
    match head.urls.len() {
        1..=MAX_ENVOYS => Ok(head),
        many => Err(format!(
            "`urls` has {many} Envoys; expected 1 to {MAX_ENVOYS}"
        )),
    }
}

fn parsed<T: DeserializeOwned>(line: &[u8]) -> Result<T, String> {
    serde_json::from_slice(line).map_err(|error| not_json(&error))
}

fn no_recording() -> String {
    "this is not a recording: it does not begin with the field `loudou_recording`; \
     `loudou record FILE` makes one"
        .to_owned()
}

fn too_long() -> String {
    format!("longer than {}", crate::text::bytes(MAX_LINE))
}

fn unreadable(error: &std::io::Error) -> String {
    format!("cannot be read: {}", escape(&error.to_string()))
}

/// The reason why a line is not what it should be. The line of the message is that of the file, so it is left out.
fn not_json(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let at = format!(" at line {} column {}", error.line(), error.column());
    let why = text.strip_suffix(at.as_str()).unwrap_or(&text);
    format!("column {}: {}", error.column(), quoted_plain(why))
}

fn quoted(text: &str) -> String {
    format!("`{}`", quoted_plain(text))
}

fn quoted_plain(text: &str) -> String {
    escape(&cut(text, QUOTED)).into_owned()
}

/// The beginning of a text.
fn cut(text: &str, most: usize) -> String {
    text.chars().take(most).collect()
}

/// Refuses a snapshot that no Envoy has, so that the memory of a player is bounded.
fn is_reasonable(snapshot: &Snapshot) -> Result<(), String> {
    let lists = [
        ("status.rules", snapshot.status.rules.len(), MOST_OTHERS),
        (
            "status.warnings",
            snapshot.status.warnings.len(),
            MOST_OTHERS,
        ),
        ("buckets", snapshot.buckets.len(), MOST_BUCKETS),
        ("gone", snapshot.gone.len(), MOST_BUCKETS),
        ("events", snapshot.events.len(), MOST_OTHERS),
    ];
    for (name, length, most) in lists {
        if length > most {
            return Err(format!(
                "`snapshot.{name}` has {length} items; at most {most} are read"
            ));
        }
    }
    let of_bucket = |(_, bucket): &(u64, BucketView)| bucket.rule.len().max(bucket.key.len());
    let of_event = |event: &Event| {
        let texts = [&event.by, &event.detail, &event.reason];
        let key = event.key.as_ref().map_or(0, String::len);
        texts.map(String::len).into_iter().fold(key, usize::max)
    };
    let status = &snapshot.status;
    let rules = status.rules.iter().map(|rule| rule.name.len());
    let buckets = snapshot.buckets.iter().map(of_bucket);
    let events = snapshot.events.iter().map(of_event);
    let warnings = status.warnings.iter().map(String::len);
    let all = rules.chain(buckets).chain(events).chain(warnings);
    let longest = all
        .chain([status.instance.len(), status.version.len()])
        .max();
    match longest {
        Some(length) if length > MAX_TEXT => Err(format!(
            "a text of {}; at most {} are read",
            crate::text::bytes(count(length)),
            crate::text::bytes(count(MAX_TEXT))
        )),
        _ => Ok(()),
    }
}
