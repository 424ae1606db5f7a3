//! Reads lines of any length in bounded memory. A line that is too long is reported, but its
//! content is discarded.

use std::io::{self, Read};

use memchr::memchr;

use loudou_words::num::count;

/// Maximum length of a line in bytes, excluding the line ending.
pub(crate) const MAX_LINE: usize = 256 << 10;
const BUFFER: usize = 1 << 20;

/// Iterates over the lines of a reader, without their line endings.
pub(crate) struct Lines<R> {
    reader: R,
    buffer: Vec<u8>,
    /// Start of the buffered bytes that have not been returned yet, which extend to `end`.
    start: usize,
    end: usize,
    at_end: bool,
    /// Number of the last line returned (1-based).
    number: u64,
    /// Number of bytes read so far.
    read: u64,
}

/// A line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RawLine<'a> {
    Bytes(&'a [u8]),
    /// A line longer than [`MAX_LINE`].
    TooLong,
}

impl<R: Read> Lines<R> {
    pub(crate) fn new(reader: R) -> Self {
        Self {
            reader,
            buffer: vec![0; BUFFER],
            start: 0,
            end: 0,
            at_end: false,
            number: 0,
            read: 0,
        }
    }

    /// Returns the number of the last line returned (1-based).
    pub(crate) const fn number(&self) -> u64 {
        self.number
    }

    /// Returns the number of bytes in all lines returned so far, including line endings.
    pub(crate) fn bytes_done(&self) -> u64 {
        self.read.saturating_sub(count(self.end - self.start))
    }

    /// Returns the next line, or `None` after the last line. The last line does not need a line
    /// ending.
    pub(crate) fn next(&mut self) -> io::Result<Option<RawLine<'_>>> {
        let mut searched = 0;
        loop {
            let pending = self.buffer.get(self.start..self.end).unwrap_or_default();
            let fresh = pending.get(searched..).unwrap_or_default();
            if let Some(found) = memchr(b'\n', fresh) {
                return Ok(Some(self.take(searched + found, 1)));
            }
            searched = pending.len();
            if searched > MAX_LINE + 1 {
                return self.skip().map(Some);
            }
            if self.at_end {
                let last = (searched > 0).then(|| self.take(searched, 0));
                return Ok(last);
            }
            self.fill()?;
        }
    }

    /// Consumes and returns a line of `length` bytes, followed by a line ending of `ending` bytes.
    fn take(&mut self, length: usize, ending: usize) -> RawLine<'_> {
        let line = self.start..self.start + length;
        self.start = line.end + ending;
        self.number += 1;
        let mut line = self.buffer.get(line).unwrap_or_default();
        if self.number == 1 {
            line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
        }
        line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.len() > MAX_LINE {
            RawLine::TooLong
        } else {
            RawLine::Bytes(line)
        }
    }

    /// Skips the rest of a line that is too long.
    fn skip(&mut self) -> io::Result<RawLine<'_>> {
        loop {
            self.start = self.end;
            if self.at_end {
                break;
            }
            self.fill()?;
            let pending = self.buffer.get(..self.end).unwrap_or_default();
            if let Some(found) = memchr(b'\n', pending) {
                self.start = found + 1;
                break;
            }
        }
        self.number += 1;
        Ok(RawLine::TooLong)
    }

    /// Moves the pending bytes to the front of the buffer, and reads more bytes after them.
    fn fill(&mut self) -> io::Result<()> {
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        let room = self.buffer.get_mut(self.end..).unwrap_or_default();
        loop {
            match self.reader.read(room) {
                Ok(read) => {
                    self.at_end = read == 0;
                    self.end += read;
                    self.read += count(read);
                    return Ok(());
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A reader that returns at most a given number of bytes per call.
    struct Drip<'a>(&'a [u8], usize);

    impl Read for Drip<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let most = self.1.min(into.len()).min(self.0.len());
            let (now, later) = self.0.split_at(most);
            into[..most].copy_from_slice(now);
            self.0 = later;
            Ok(most)
        }
    }

    /// Returns all lines, with `None` for each line that is too long.
    fn all(bytes: &[u8], drip: usize) -> Vec<Option<Vec<u8>>> {
        let mut lines = Lines::new(Drip(bytes, drip));
        let mut out = Vec::new();
        while let Some(line) = lines.next().expect("reads") {
            out.push(match line {
                RawLine::Bytes(line) => Some(line.to_vec()),
                RawLine::TooLong => None,
            });
        }
        assert_eq!(lines.number(), count(out.len()));
        assert_eq!(lines.bytes_done(), count(bytes.len()));
        assert_eq!(lines.buffer.len(), BUFFER, "the buffer never grows");
        out
    }

    #[test]
    fn line_ends() {
        let line = |text: &str| Some(text.as_bytes().to_vec());
        assert_eq!(
            all(b"\xef\xbb\xbfa\r\n\nb\rc\nlast", 3),
            [line("a"), line(""), line("b\rc"), line("last")]
        );
        assert!(all(b"", 1).is_empty());
    }

    #[test]
    fn long_lines_are_reported_and_not_kept() {
        let long = vec![b'x'; 10 << 20];
        let fits = vec![b'y'; MAX_LINE];
        let over = vec![b'z'; MAX_LINE + 1];
        let text: [&[u8]; 5] = [&long, &fits, &over, b"a", &long];
        for drip in [1 << 12, 1 << 20, usize::MAX] {
            let lines = all(&text.join(&b'\n'), drip);
            let expected = [None, Some(fits.clone()), None, Some(b"a".to_vec()), None];
            assert!(lines == expected, "{drip}");
        }
    }

    proptest! {
        #[test]
        fn lines_are_the_same_however_they_arrive(
            text in "[ab\n\r]{0,60}", drip in 1_usize..9
        ) {
            let whole = all(text.as_bytes(), usize::MAX);
            prop_assert_eq!(all(text.as_bytes(), drip), whole);
        }
    }
}
