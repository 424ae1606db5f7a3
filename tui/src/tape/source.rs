//! The lines of a file, plain or compressed, from any place on, without the whole of it in memory.

use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};

use flate2::bufread::GzDecoder;

use crate::num::count;

/// The longest line. A snapshot of the largest store and configuration has a fraction of that.
pub(super) const MAX_LINE: u64 = 16 << 20;
/// The first bytes of a compressed file.
const MAGIC: [u8; 2] = [0x1f, 0x8b];
/// The least text between two remembered beginnings of members.
const APART: u64 = 1 << 18;

/// A file, or what is like one.
pub(crate) trait Input: Read + Seek + Send {}

impl<T: Read + Seek + Send> Input for T {}

/// A file's lines.
pub(super) struct Source {
    text: BufReader<Text>,
    /// The place of the next line in the text.
    at: u64,
}

/// What was read into the buffer that was passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// A line, from this place.
    Line(u64),
    /// Without an end of line: the file ends in it.
    Part(u64),
    TooLong,
    End,
}

impl Source {
    /// A file, from its beginning.
    pub(super) fn new(mut file: Box<dyn Input>) -> io::Result<Self> {
        let mut first = Vec::new();
        file.by_ref().take(2).read_to_end(&mut first)?;
        file.rewind()?;
        let file = Counted {
            inner: BufReader::new(file),
            at: 0,
        };
        let text = if first == MAGIC {
            Text::Compressed(Box::new(Members {
                decoder: Some(GzDecoder::new(file)),
                is_at_end: false,
                text_at: 0,
                begins: vec![(0, 0)],
            }))
        } else {
            Text::Plain(file)
        };
        let text = BufReader::with_capacity(1 << 16, text);
        Ok(Self { text, at: 0 })
    }

    /// Goes to a place in the text.
    pub(super) fn seek(&mut self, place: u64) -> io::Result<()> {
        if place == self.at {
            return Ok(());
        }
        // What was read ahead is not at that place.
        let ahead = self.text.buffer().len();
        self.text.consume(ahead);
        self.text.get_mut().seek(place)?;
        self.at = place;
        Ok(())
    }

    /// Reads the next line into `line`, without its end.
    pub(super) fn read(&mut self, line: &mut Vec<u8>) -> io::Result<Found> {
        line.clear();
        let place = self.at;
        let most = MAX_LINE.saturating_add(1);
        let length = self.text.by_ref().take(most).read_until(b'\n', line)?;
        self.at = self.at.saturating_add(count(length));
        Ok(if line.last() == Some(&b'\n') {
            line.pop();
            Found::Line(place)
        } else if count(length) >= most {
            Found::TooLong
        } else if length == 0 {
            Found::End
        } else {
            Found::Part(place)
        })
    }
}

/// The text of a file.
enum Text {
    Plain(Counted),
    Compressed(Box<Members>),
}

impl Text {
    fn seek(&mut self, place: u64) -> io::Result<()> {
        match self {
            Self::Plain(file) => file.seek(place),
            Self::Compressed(members) => members.seek(place),
        }
    }
}

impl Read for Text {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(file) => file.read(buffer),
            Self::Compressed(members) => members.read(buffer),
        }
    }
}

/// A compressed file: one member after the other.
struct Members {
    /// Absent only while one member follows another.
    decoder: Option<GzDecoder<Counted>>,
    is_at_end: bool,
    /// The place in the text.
    text_at: u64,
    /// Beginnings of members, in the file and in the text.
    begins: Vec<(u64, u64)>,
}

impl Members {
    fn seek(&mut self, place: u64) -> io::Result<()> {
        let after = self.begins.partition_point(|(_, text)| *text <= place);
        let begin = self.begins.get(after.saturating_sub(1));
        let (file_at, text_at) = begin.copied().unwrap_or_default();
        let Some(decoder) = self.decoder.take() else {
            return Err(io::ErrorKind::UnexpectedEof.into());
        };
        if (text_at..=place).contains(&self.text_at) {
            self.decoder = Some(decoder);
        } else {
            let mut file = decoder.into_inner();
            let sought = file.seek(file_at);
            self.decoder = Some(GzDecoder::new(file));
            sought?;
            (self.text_at, self.is_at_end) = (text_at, false);
        }
        let skipped = place.saturating_sub(self.text_at);
        io::copy(&mut self.by_ref().take(skipped), &mut io::sink())?;
        Ok(())
    }
}

impl Read for Members {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let decoder = self.decoder.as_mut().filter(|_| !self.is_at_end);
            let Some(decoder) = decoder else {
                return Ok(0);
            };
            let read = decoder.read(buffer)?;
            if read > 0 || buffer.is_empty() {
                self.text_at = self.text_at.saturating_add(count(read));
                return Ok(read);
            }
            let Some(mut file) = self.decoder.take().map(GzDecoder::into_inner) else {
                return Ok(0);
            };
            let is_end = file.fill_buf().map(<[u8]>::is_empty);
            let begin = (file.at, self.text_at);
            self.decoder = Some(GzDecoder::new(file));
            self.is_at_end = is_end?;
            if self.is_at_end {
                return Ok(0);
            }
            let last = self.begins.last().map_or(0, |(_, text)| *text);
            if self.text_at >= last.saturating_add(APART) {
                self.begins.push(begin);
            }
        }
    }
}

/// A file that knows its place.
struct Counted {
    inner: BufReader<Box<dyn Input>>,
    at: u64,
}

impl Counted {
    fn seek(&mut self, place: u64) -> io::Result<()> {
        self.at = self.inner.seek(SeekFrom::Start(place))?;
        Ok(())
    }
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.at = self.at.saturating_add(count(read));
        Ok(read)
    }
}

impl BufRead for Counted {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.inner.fill_buf()
    }

    fn consume(&mut self, bytes: usize) {
        self.inner.consume(bytes);
        self.at = self.at.saturating_add(count(bytes));
    }
}
