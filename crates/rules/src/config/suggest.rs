//! Finds "did you mean" suggestions: the allowed name closest to a misspelt one.

use alloc::vec::Vec;

/// Maximum size of a string to correct, in bytes. Longer strings are unlikely to be misspelt names,
/// and the comparison takes quadratic time.
const MAX_LENGTH: usize = 64;

/// Returns the closest allowed name within two edits of `text`, or within one edit if `text` is at
/// most three bytes long.
pub fn nearest<'a>(text: &str, allowed: &[&'a str]) -> Option<&'a str> {
    if text.len() > MAX_LENGTH {
        return None;
    }
    let within = if text.len() <= 3 { 1 } else { 2 };
    // Comparing lengths rules out most names at almost no cost.
    let length = text.chars().count();
    allowed
        .iter()
        .filter(|name| name.chars().count().abs_diff(length) <= within)
        .map(|name| (distance(text, name), *name))
        .filter(|(distance, _)| *distance <= within)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// Returns the Levenshtein distance in characters, ignoring ASCII case.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().map(|c| c.to_ascii_lowercase()).collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().map(|c| c.to_ascii_lowercase()).enumerate() {
        let mut diagonal = i;
        let mut left = i.saturating_add(1);
        if let Some(first) = row.first_mut() {
            *first = left;
        }
        for (y, cell) in b.iter().zip(row.iter_mut().skip(1)) {
            let substituted = diagonal.saturating_add(usize::from(x != *y));
            diagonal = *cell;
            left = substituted
                .min(left.saturating_add(1))
                .min(cell.saturating_add(1));
            *cell = left;
        }
    }
    row.last().copied().unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_slips_and_nothing_else() {
        assert_eq!(nearest("prefx", &["exact", "prefix"]), Some("prefix"));
        assert_eq!(nearest("Funnel", &["funnel"]), Some("funnel"));
        assert_eq!(nearest("algorihtm", &["algorithm"]), Some("algorithm"));
        assert_eq!(nearest("leaky", &["funnel", "token_bucket"]), None);
        assert_eq!(nearest("", &["a"]), Some("a"));
    }

    #[test]
    fn counts_edits() {
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("abc", "abc"), 0);
    }
}
