//! Writes a recording so that it can be read however the writer ends: each line reaches the file before the next one.

use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use serde::Serialize;

use super::{End, Head, Line, Stamp};
use crate::app::msg::{Failure, Snapshot};
use crate::text::json_safe;

/// The text in one member of a compressed file: a reader can begin at each.
const MEMBER: u64 = 1 << 20;
/// The room that is left for the last line.
const RESERVE: u64 = 1 << 10;

/// The writer of a recording.
pub(crate) struct Writer<'a> {
    out: Out<'a>,
    /// The most bytes of the file.
    most: u64,
    /// The text in the current member.
    in_member: u64,
}

enum Out<'a> {
    Plain(Counted<'a>),
    /// Absent only while one member follows another.
    Compressed(Option<GzEncoder<Counted<'a>>>),
}

/// Counts the bytes of the file.
struct Counted<'a> {
    out: Box<dyn Write + 'a>,
    bytes: u64,
}

impl Write for Counted<'_> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let written = self.out.write(buffer)?;
        self.bytes = self.bytes.saturating_add(crate::num::count(written));
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

impl<'a> Writer<'a> {
    /// A recording that begins with `head`, of at most so many bytes.
    pub(crate) fn new(
        out: Box<dyn Write + 'a>,
        is_compressed: bool,
        most: Option<u64>,
        head: &Head,
    ) -> io::Result<Self> {
        let out = Counted { out, bytes: 0 };
        let out = if is_compressed {
            Out::Compressed(Some(GzEncoder::new(out, Compression::default())))
        } else {
            Out::Plain(out)
        };
        let most = most.unwrap_or(u64::MAX);
        let mut writer = Self {
            out,
            most,
            in_member: 0,
        };
        writer.line(head, 0)?;
        Ok(writer)
    }

    /// Adds the answer of an Envoy. False if it does not fit any more; then nothing was written.
    pub(crate) fn entry(
        &mut self,
        stamp: Stamp,
        url: &str,
        answer: &Result<Box<Snapshot>, Failure>,
    ) -> io::Result<bool> {
        let (snapshot, failed) = match answer {
            Ok(snapshot) => (Some(snapshot.as_ref()), None),
            Err(failure) => (None, Some(failure.text.clone())),
        };
        let line = Line {
            at_ns: stamp.at_ns,
            unix_ms: stamp.unix_ms,
            url: Some(url.to_owned()),
            snapshot,
            failed,
            end: None,
        };
        self.line(&line, RESERVE)
    }

    /// Ends the recording.
    pub(crate) fn finish(mut self, stamp: Stamp, end: End) -> io::Result<()> {
        let line: Line<()> = Line {
            at_ns: stamp.at_ns,
            unix_ms: stamp.unix_ms,
            url: None,
            snapshot: None,
            failed: None,
            end: Some(end),
        };
        self.line(&line, 0)?;
        match self.out {
            Out::Plain(mut out) => out.flush(),
            Out::Compressed(None) => Ok(()),
            Out::Compressed(Some(encoder)) => encoder.finish()?.flush(),
        }
    }

    /// The bytes of the file so far.
    pub(crate) fn bytes(&self) -> u64 {
        match &self.out {
            Out::Plain(out) => out.bytes,
            Out::Compressed(encoder) => encoder.as_ref().map_or(0, |out| out.get_ref().bytes),
        }
    }

    /// Writes a line, if that leaves `reserve` bytes.
    fn line(&mut self, line: &impl Serialize, reserve: u64) -> io::Result<bool> {
        let mut text = json_safe(serde_json::to_string(line)?);
        text.push('\n');
        let length = crate::num::count(text.len());
        // What does not compress becomes a little longer.
        let at_most = length.saturating_add(length / 64).saturating_add(64);
        let whole = self.bytes().saturating_add(at_most).saturating_add(reserve);
        if reserve > 0 && whole > self.most {
            return Ok(false);
        }
        match &mut self.out {
            Out::Plain(out) => {
                out.write_all(text.as_bytes())?;
                out.flush()?;
            }
            Out::Compressed(place) => {
                if self.in_member >= MEMBER
                    && let Some(encoder) = place.take()
                {
                    *place = Some(GzEncoder::new(encoder.finish()?, Compression::default()));
                    self.in_member = 0;
                }
                if let Some(encoder) = place {
                    encoder.write_all(text.as_bytes())?;
                    encoder.flush()?;
                }
                self.in_member = self.in_member.saturating_add(length);
            }
        }
        Ok(true)
    }
}
