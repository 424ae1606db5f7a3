//! A text that is searched for in many short values, by Horspool's algorithm: where the text is absent,
//! which is usual, it looks at a fraction of the bytes.

/// The longest jump.
const FAR: u8 = u8::MAX;

/// A text to search for.
#[derive(Clone, Debug)]
pub struct Needle<'a> {
    text: &'a [u8],
    /// By the byte under the end of the text: how far it can move without skipping a match.
    jumps: [u8; 256],
}

impl<'a> Needle<'a> {
    /// A text; the empty one is in every value.
    pub fn new(text: &'a str) -> Self {
        let text = text.as_bytes();
        let jump = |distance: usize| u8::try_from(distance).unwrap_or(FAR);
        let mut jumps = [jump(text.len()).max(1); 256];
        let (_, before_last) = text.split_last().unwrap_or((&0, &[]));
        for (place, byte) in before_last.iter().enumerate() {
            if let Some(entry) = jumps.get_mut(usize::from(*byte)) {
                *entry = jump(before_last.len().saturating_sub(place));
            }
        }
        Self { text, jumps }
    }

    /// Whether the text is in `value`.
    pub fn is_in(&self, value: &[u8]) -> bool {
        let mut end = self.text.len();
        let Some(last) = self.text.last() else {
            return true;
        };
        while let Some(byte) = value.get(end.saturating_sub(1)) {
            if byte == last && value.get(..end).is_some_and(|v| v.ends_with(self.text)) {
                return true;
            }
            let jump = self.jumps.get(usize::from(*byte)).copied().unwrap_or(1);
            end = end.saturating_add(jump.into());
        }
        false
    }
}
