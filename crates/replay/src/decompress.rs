//! Decompresses gzip and Zstandard input, including files with several members or frames. The
//! format is detected from the first bytes. Other known binary formats are rejected with advice on
//! how to convert them.

use std::io::{self, BufRead, BufReader, Cursor, Read};

use flate2::bufread::GzDecoder;
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

/// Number of leading bytes needed to detect every known format. The magic bytes of tar are near the
/// end of its header.
const MAGIC: u64 = 262;
const BUFFER: usize = 64 << 10;

/// Leading bytes of unsupported file types, with advice for each type.
const OTHERS: [(&[u8], &str); 7] = [
    (
        b"BZh",
        "it is compressed by bzip2; pipe it through bzip2 -dc",
    ),
    (
        b"\xfd7zXZ\0",
        "it is compressed by xz; pipe it through xz -dc",
    ),
    (
        b"\x04\x22\x4d\x18",
        "it is compressed by lz4; pipe it through lz4 -dc",
    ),
    (
        b"PK\x03\x04",
        "it is a ZIP archive; pipe it through unzip -p",
    ),
    (b"PK\x05\x06", "it is an empty ZIP archive"),
    (
        b"\xff\xfe",
        "it is in UTF-16; pipe it through iconv -f UTF-16 -t UTF-8",
    ),
    (
        b"\xfe\xff",
        "it is in UTF-16; pipe it through iconv -f UTF-16 -t UTF-8",
    ),
];

/// Wraps `reader` in a decompressor if its content is compressed.
pub(crate) fn plain<'a>(mut reader: Box<dyn Read + 'a>) -> io::Result<Box<dyn Read + 'a>> {
    let mut first = Vec::new();
    reader.by_ref().take(MAGIC).read_to_end(&mut first)?;
    if let Some(advice) = other(&first) {
        return Err(io::Error::new(io::ErrorKind::Unsupported, advice));
    }
    let is_gzip = first.starts_with(&[0x1f, 0x8b]);
    let is_zstd = first.get(..4).is_some_and(is_frame);
    let whole = Cursor::new(first).chain(reader);
    Ok(if is_gzip {
        let source = BufReader::with_capacity(BUFFER, whole);
        Box::new(Gzip(Some(GzDecoder::new(source))))
    } else if is_zstd {
        Box::new(Zstd {
            source: BufReader::with_capacity(BUFFER, whole),
            decoder: FrameDecoder::new(),
            is_in_frame: false,
        })
    } else {
        Box::new(whole)
    })
}

/// Returns advice if a file that starts with these bytes has an unsupported format.
fn other(first: &[u8]) -> Option<&'static str> {
    if first.get(257..).is_some_and(|rest| rest == b"ustar") {
        return Some("it is a tar archive; pipe it through tar -xO -f");
    }
    let found = OTHERS.iter().find(|(start, _)| first.starts_with(start));
    found.map(|(_, advice)| *advice)
}

/// Decompresses the members of a gzip file in sequence. Some gzip files are padded with zeros.
/// `flate2::MultiGzDecoder` treats that padding as a broken member, but this reader skips it.
struct Gzip<R>(Option<GzDecoder<R>>);

impl<R: BufRead> Read for Gzip<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while let Some(decoder) = &mut self.0 {
            match decoder.read(into) {
                Ok(0) if !into.is_empty() => {}
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    let cut = "the gzip data is cut off";
                    return Err(io::Error::new(io::ErrorKind::UnexpectedEof, cut));
                }
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                    let wrong = "the gzip data is damaged";
                    return Err(io::Error::new(io::ErrorKind::InvalidData, wrong));
                }
                read => return read,
            }
            let Some(mut source) = self.0.take().map(GzDecoder::into_inner) else {
                break;
            };
            if !is_at_end(&mut source)? {
                self.0 = Some(GzDecoder::new(source));
            }
        }
        Ok(0)
    }
}

/// Skips zero bytes. Returns true if the input ends after the zeros.
fn is_at_end(source: &mut impl BufRead) -> io::Result<bool> {
    loop {
        let bytes = source.fill_buf()?;
        let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
        if bytes.is_empty() || zeros < bytes.len() {
            let is_end = bytes.is_empty();
            source.consume(zeros);
            return Ok(is_end);
        }
        source.consume(zeros);
    }
}

/// Returns true if these are the magic bytes of a Zstandard frame or a skippable frame.
fn is_frame(bytes: &[u8]) -> bool {
    matches!(
        bytes,
        [0x28, 0xb5, 0x2f, 0xfd] | [0x50..=0x5f, 0x2a, 0x4d, 0x18]
    )
}

/// Decompresses the frames of a Zstandard file in sequence.
struct Zstd<R> {
    source: R,
    decoder: FrameDecoder,
    is_in_frame: bool,
}

impl<R: BufRead> Zstd<R> {
    /// Starts the next frame. Returns false at the end of the input.
    fn begin(&mut self) -> io::Result<bool> {
        use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
        while !self.source.fill_buf()?.is_empty() {
            match self.decoder.reset(&mut self.source) {
                Ok(()) => {
                    self.is_in_frame = true;
                    return Ok(true);
                }
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let mut skipped = self.source.by_ref().take(length.into());
                    io::copy(&mut skipped, &mut io::sink())?;
                }
                Err(_unreadable) => return Err(damaged()),
            }
        }
        Ok(false)
    }
}

/// Replaces the decoder's own error message, which describes decoder internals and does not
/// distinguish a truncated file from other damage.
fn damaged() -> io::Error {
    let wrong = "the Zstandard data is cut off or damaged";
    io::Error::new(io::ErrorKind::InvalidData, wrong)
}

impl<R: BufRead> Read for Zstd<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while !into.is_empty() {
            if !self.is_in_frame && !self.begin()? {
                break;
            }
            let ready = self.decoder.can_collect();
            if ready > 0 {
                return self.decoder.read(into);
            }
            if self.decoder.is_finished() {
                self.is_in_frame = false;
                continue;
            }
            let some = BlockDecodingStrategy::UptoBytes(into.len());
            let decoded = self.decoder.decode_blocks(&mut self.source, some);
            decoded.map_err(|_unreadable| damaged())?;
        }
        Ok(0)
    }
}

#[cfg(test)]
mod tests;
