//! Prints the results of replays: the summary of a run as text or as an HTML page, and suggested
//! limits.

use loudou_replay::LogFormat;
use loudou_replay::input::BadLine;
use loudou_words::text::escape;

mod beside_log;
mod compared;
mod html;
mod of_keys;
mod over_time;
mod plot;
pub mod suggest;
mod view;
mod words;

pub use html::page;
pub use over_time::instant;
pub use view::{bad_lines, print};
pub use words::print_note;

/// The original text of a rule file.
#[derive(Clone, Debug)]
pub struct RuleText {
    /// Name of the file.
    pub name: String,
    /// Contents of the file.
    pub text: String,
}

/// Returns the error message for a log whose format is not recognised. The message contains the
/// first line.
pub fn unknown_format(name: &str, line: Option<&BadLine>) -> String {
    let names = LogFormat::ALL.map(LogFormat::name).join(", ");
    format!(
        "the format of {} is not recognised\n{}\nwrite --format with one of {names}, or --log-format",
        escape(name),
        first_lines(line.map(std::slice::from_ref).unwrap_or_default()),
    )
}

/// Returns the error message for a log without valid lines.
pub fn no_requests(name: &str, first: &[BadLine]) -> String {
    let lines = first_lines(first);
    format!("no line of {} is a request\n{lines}", escape(name))
}

/// Returns invalid lines, escaped for printing.
pub fn first_lines(lines: &[BadLine]) -> String {
    let mut out = Vec::new();
    for line in lines {
        out.push(escape(&line.to_string()).into_owned());
        if !line.text.is_empty() {
            out.push(format!("  {}", escape(&line.text)));
        }
    }
    out.join("\n")
}
