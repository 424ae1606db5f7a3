//! Texts put together to one.

use alloc::string::String;

/// The texts with `between` between them. Unlike the standard library's `join`, it is not made for every
/// length of `between`, which is 1.5 KiB of the filter.
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
