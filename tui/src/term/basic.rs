//! Colours for terminals with 16 of them: the writer of the screen asks for each by a number of 256
//! (`38;5;9`), which such a terminal reads as other styles, such as blinking. Here it becomes the old form (`91`).

use std::io::{self, Write};

const BEGIN: &[u8] = b"\x1b[";

/// A writer that rewrites colours, or passes everything on.
#[derive(Debug)]
pub(super) struct Basic<W> {
    inner: W,
    /// The bytes since the last flush; a sequence may come in several writes.
    pending: Vec<u8>,
    rewrites: bool,
}

impl<W> Basic<W> {
    pub(super) const fn new(inner: W, rewrites: bool) -> Self {
        Self {
            inner,
            pending: Vec::new(),
            rewrites,
        }
    }
}

impl<W: Write> Write for Basic<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.rewrites {
            return self.inner.write(bytes);
        }
        self.pending.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let pending = std::mem::take(&mut self.pending);
        self.inner.write_all(&rewritten(&pending))?;
        self.inner.flush()
    }
}

/// The same output with the colours in their old form.
fn rewritten(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some(first) = rest.first() {
        if let Some((colors, tail)) = styles(rest) {
            out.extend_from_slice(BEGIN);
            out.extend_from_slice(old_form(colors).as_bytes());
            out.push(b'm');
            rest = tail;
        } else {
            out.push(*first);
            rest = rest.get(1..).unwrap_or_default();
        }
    }
    out
}

/// The parameters of a sequence that sets styles at the beginning of `bytes`, and what follows it.
fn styles(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let rest = bytes.strip_prefix(BEGIN)?;
    let end = rest
        .iter()
        .position(|b| !b.is_ascii_digit() && *b != b';')?;
    let (styles, rest) = rest.split_at_checked(end)?;
    let tail = rest.strip_prefix(b"m")?;
    Some((std::str::from_utf8(styles).ok()?, tail))
}

fn old_form(styles: &str) -> String {
    let mut out: Vec<String> = Vec::new();
    let mut parts = styles.split(';');
    while let Some(part) = parts.next() {
        let base = match part {
            "38" => 30_u8,
            "48" => 40,
            other => {
                out.push(other.to_owned());
                continue;
            }
        };
        let color = match (parts.next(), parts.next().map(str::parse::<u8>)) {
            (Some("5"), Some(Ok(n @ 0..8))) => base.saturating_add(n),
            // The bright ones.
            (Some("5"), Some(Ok(n @ 8..16))) => base.saturating_add(n).saturating_add(52),
            // The theme has none of the others.
            _ => base.saturating_add(9),
        };
        out.push(color.to_string());
    }
    out.join(";")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(rewrites: bool, parts: &[&str]) -> String {
        let mut out = Vec::new();
        let mut basic = Basic::new(&mut out, rewrites);
        for part in parts {
            basic.write_all(part.as_bytes()).expect("a buffer");
        }
        basic.flush().expect("a buffer");
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn colours_are_in_their_old_form() {
        for (parts, out) in [
            (&["\x1b[38;5;1mx"][..], "\x1b[31mx"),
            (&["\x1b[38;5;9m", "\x1b[48;5;15m"], "\x1b[91m\x1b[107m"),
            (&["\x1b[38;5", ";0;48;5;8m"], "\x1b[30;100m"),
            (&["\x1b[39;49;1m"], "\x1b[39;49;1m"),
            (&["\x1b[38;5;99m"], "\x1b[39m"),
            (&["\x1b[12;5H漏斗\x1b[?25l"], "\x1b[12;5H漏斗\x1b[?25l"),
            (&["\x1b[38;5;1"], "\x1b[38;5;1"),
        ] {
            assert_eq!(written(true, parts), out);
            assert_eq!(written(false, parts), parts.concat());
        }
    }
}
