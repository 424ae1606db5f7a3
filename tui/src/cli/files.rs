//! Reads the files that are passed to commands (`-` for standard input), and prints the problems in
//! them.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use anyhow::{Context as _, Result};
use loudou_check::Report;
use loudou_check::document::MAX_MANIFEST_BYTES;
use loudou_rules::config::{Problem, Severity};
use loudou_words::text::escape;

use super::context::Context;
use loudou_print::style::Style;
use loudou_print::table::Paint;

/// Returns the name of a file for messages.
pub(super) fn name_of(path: &Path) -> String {
    if path == Path::new("-") {
        "(standard input)".to_owned()
    } else {
        path.display().to_string()
    }
}

/// Reads a file, or standard input for `-`. Reads at most one byte more than the maximum file size,
/// which is enough to detect that a file is too long.
pub(super) fn bytes_of(context: &mut Context<'_, '_>, path: &Path) -> Result<Vec<u8>> {
    let most = u64::try_from(MAX_MANIFEST_BYTES).unwrap_or(u64::MAX);
    let mut bytes = Vec::new();
    let mut read = |reader: &mut dyn Read| -> io::Result<usize> {
        reader.take(most.saturating_add(1)).read_to_end(&mut bytes)
    };
    let read = if path == Path::new("-") {
        read(&mut context.io.input)
    } else {
        File::open(path).and_then(|mut file| read(&mut file))
    };
    read.with_context(|| format!("cannot read {}", escape(&name_of(path))))?;
    Ok(bytes)
}

/// Reads a file, and returns a report that contains its syntax errors.
pub(super) fn report_of(context: &mut Context<'_, '_>, file: &Path) -> Result<Report> {
    let bytes = bytes_of(context, file)?;
    Ok(Report::of_text(&name_of(file), &bytes))
}

/// Prints the problems of a file: its syntax errors, and the problems in `wrong`.
pub(super) fn problems(
    context: &mut Context<'_, '_>,
    mut read: Report,
    wrong: &[Problem],
) -> Result<()> {
    read.add(wrong);
    let text = read.lines(&painted(context.style));
    context.note(text.trim_end())?;
    Ok(())
}

/// Returns a function that colours text by the severity of a problem.
pub(super) fn painted(style: Style) -> impl Fn(Severity, &str) -> String {
    move |severity, text| {
        let paint = match severity {
            Severity::Error => Paint::Bad,
            Severity::Warning => Paint::Warn,
        };
        paint.on(text, style)
    }
}
