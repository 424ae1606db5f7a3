//! A request's header lines, in the proxy-wasm ABI's encoding: the number of lines, the lengths of
//! all names and values, and then all names and values, each followed by a NUL byte.

/// All headers of a request, including pseudo-headers, in their original order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeaderLines(Vec<u8>);

impl HeaderLines {
    /// Wraps headers in the ABI's encoding.
    pub const fn new(serialized: Vec<u8>) -> Self {
        Self(serialized)
    }

    /// Iterates over the values of all lines of the header `name`, which must be lowercase.
    pub fn of<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        // Envoy stores the `host` header as `:authority`.
        let name = if name == "host" { ":authority" } else { name };
        let lines = self.all().filter(move |(own, _)| *own == name.as_bytes());
        lines.map(|(_, line)| line)
    }

    /// Iterates over all names and values. If the encoding is truncated, stops before the first
    /// incomplete pair.
    fn all(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let (count, rest) = number(&self.0).unwrap_or_default();
        let lengths = count.saturating_mul(8);
        let (mut lengths, mut texts) = rest.split_at_checked(lengths).unwrap_or_default();
        std::iter::from_fn(move || {
            let mut text = || {
                let (len, after) = number(lengths)?;
                lengths = after;
                let (text, after) = texts.split_at_checked(len)?;
                texts = after.get(1..)?;
                Some(text)
            };
            Some((text()?, text()?))
        })
    }
}

fn number(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (number, rest) = bytes.split_first_chunk()?;
    let number = usize::try_from(u32::from_le_bytes(*number)).ok()?;
    Some((number, rest))
}

/// Encodes names and values in the ABI's encoding.
pub fn serialized<'a>(
    pairs: impl ExactSizeIterator<Item = (&'a [u8], &'a [u8])> + Clone,
) -> Vec<u8> {
    let number = |n: usize| u32::try_from(n).unwrap_or(0).to_le_bytes();
    let sizes = pairs.clone().map(|(name, value)| {
        10_usize
            .saturating_add(name.len())
            .saturating_add(value.len())
    });
    let mut out = Vec::with_capacity(sizes.fold(4, usize::saturating_add));
    out.extend_from_slice(&number(pairs.len()));
    for (name, value) in pairs.clone() {
        out.extend_from_slice(&number(name.len()));
        out.extend_from_slice(&number(value.len()));
    }
    for (name, value) in pairs {
        for text in [name, value] {
            out.extend(text);
            out.push(0);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_keep_their_order_and_their_bytes() {
        let pairs: [(&[u8], &[u8]); 5] = [
            (b":authority", b"example.com"),
            (b"x-key", b""),
            (b"cookie", b"a=b"),
            (b"x-key", b"\0\xff"),
            (b"", b"x-key"),
        ];
        let lines = HeaderLines::new(serialized(pairs.into_iter()));
        let of = |name| lines.of(name).collect::<Vec<_>>();
        assert_eq!(of("x-key"), [&b""[..], b"\0\xff"]);
        assert_eq!(of("cookie"), [b"a=b"]);
        assert_eq!(of("host"), [b"example.com"]);
        assert!(of("x-keys").is_empty());
    }

    #[test]
    fn cut_bytes_give_the_lines_before_the_cut() {
        let pairs: [(&[u8], &[u8]); 2] = [(b"a", b"first"), (b"a", b"second")];
        let whole = serialized(pairs.into_iter());
        for len in 0..whole.len() {
            let lines = HeaderLines::new(whole[..len].to_vec());
            let found: Vec<&[u8]> = lines.of("a").collect();
            assert_eq!(found, [&b"first"[..]][..usize::from(len >= 28)], "{len}");
        }
        let endless = HeaderLines::new(vec![0xff; 64]);
        assert_eq!(endless.of("a").count(), 0);
    }
}
