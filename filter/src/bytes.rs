//! Encodes and decodes numbers and strings in shared data values that only this filter reads.

/// Appends a number as eight little-endian bytes.
pub(crate) fn put_number(to: &mut Vec<u8>, number: u64) {
    to.extend_from_slice(&number.to_le_bytes());
}

/// Appends bytes, prefixed by their length.
pub(crate) fn put(to: &mut Vec<u8>, bytes: &[u8]) {
    put_number(to, u64::try_from(bytes.len()).unwrap_or(0));
    to.extend_from_slice(bytes);
}

/// Removes a number from the front of a slice and returns it.
pub(crate) fn take_number(from: &mut &[u8]) -> Option<u64> {
    let (number, rest) = from.split_first_chunk()?;
    *from = rest;
    Some(u64::from_le_bytes(*number))
}

/// Removes bytes written by [`put`] from the front of a slice and returns them.
pub(crate) fn take<'a>(from: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::try_from(take_number(from)?).ok()?;
    let (bytes, rest) = from.split_at_checked(length)?;
    *from = rest;
    Some(bytes)
}

/// Removes a string written by [`put`] from the front of a slice and returns it.
pub(crate) fn take_text(from: &mut &[u8]) -> Option<String> {
    let bytes = take(from)?;
    Some(str::from_utf8(bytes).ok()?.to_owned())
}
