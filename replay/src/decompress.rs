//! Compressed input, recognised by its first bytes: gzip and Zstandard, of one part or of several.

use std::io::{self, BufRead, BufReader, Cursor, Read};

use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

/// Enough first bytes to recognise a compression.
const MAGIC: usize = 4;
const BUFFER: usize = 64 << 10;

/// The bytes of `reader`, decompressed if they are compressed.
pub(crate) fn plain<'a>(mut reader: Box<dyn Read + 'a>) -> io::Result<Box<dyn Read + 'a>> {
    let mut first = Vec::with_capacity(MAGIC);
    let mut few = reader.by_ref().take(MAGIC.try_into().unwrap_or(4));
    few.read_to_end(&mut first)?;
    let (is_gzip, is_zstd) = (first.starts_with(&[0x1f, 0x8b]), is_frame(&first));
    let whole = Cursor::new(first).chain(reader);
    Ok(if is_gzip {
        Box::new(MultiGzDecoder::new(BufReader::with_capacity(BUFFER, whole)))
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

/// Whether a frame of Zstandard begins here, or one to be skipped.
fn is_frame(bytes: &[u8]) -> bool {
    matches!(
        bytes,
        [0x28, 0xb5, 0x2f, 0xfd] | [0x50..=0x5f, 0x2a, 0x4d, 0x18]
    )
}

/// Reads the frames of a Zstandard file, one after the other.
struct Zstd<R> {
    source: R,
    decoder: FrameDecoder,
    is_in_frame: bool,
}

impl<R: BufRead> Zstd<R> {
    /// Begins the next frame; false at the end of the input.
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
                Err(error) => return Err(damaged(&error)),
            }
        }
        Ok(false)
    }
}

fn damaged(error: &dyn std::error::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error.to_string())
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
            decoded.map_err(|error| damaged(&error))?;
        }
        Ok(0)
    }
}

#[cfg(test)]
mod tests;
