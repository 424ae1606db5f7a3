//! Joins strings.

use alloc::string::String;

/// Joins the strings with the separator `between`. The standard library's `join` is specialised for
/// each length of `between`, which would add 1.5 KiB to the filter.
pub fn joined(texts: &[impl AsRef<str>], between: &str) -> String {
    let mut out = String::new();
    for (index, text) in texts.iter().enumerate() {
        if index > 0 {
            out.push_str(between);
        }
        out.push_str(text.as_ref());
    }
    out
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn it_does_what_join_does() {
        for texts in [&[][..], &["a"], &["", ""], &["a", "", "\u{e9}"]] {
            for between in ["", ", ", " and "] {
                assert_eq!(joined(texts, between), texts.join(between));
            }
        }
        let owned: Vec<String> = Vec::from(["a", "b"].map(String::from));
        assert_eq!(joined(&owned, "; "), "a; b");
    }
}
