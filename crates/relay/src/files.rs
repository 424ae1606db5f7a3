//! Reads files specified in options.

use std::fs;
use std::path::Path;

/// Reads a file. Errors name the option and the path.
pub(crate) fn bytes(option: &str, path: &Path) -> Result<Vec<u8>, String> {
    fs::read(path).map_err(|error| format!("{option} {}: {error}", path.display()))
}

/// Reads a secret from a file, trimming whitespace. An empty file is an error.
pub(crate) fn secret(option: &str, path: &Path) -> Result<String, String> {
    let text = String::from_utf8(bytes(option, path)?)
        .map_err(|error| format!("{option} {}: {}", path.display(), error.utf8_error()))?;
    let text = text.trim();
    if text.is_empty() {
        return Err(format!(
            "{option} {}: the file is empty; allowed: a file with the secret",
            path.display()
        ));
    }
    Ok(text.to_owned())
}
