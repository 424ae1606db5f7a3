//! Runs `loudou` without a terminal, for `cargo xtask fuzz`.

use std::ffi::OsString;

use loudou_limiter::Nanos;

use super::config_file;
use super::run;
use super::world::{Env, Io};
use loudou_words::text::is_unsafe;

/// Runs `loudou` with these arguments and `input` as standard input. Returns its exit code, and the
/// text printed to standard output and standard error.
pub fn loudou(arguments: &[&str], input: &[u8]) -> (u8, String) {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let mut input = input;
    let mut io = Io {
        out: &mut out,
        err: &mut err,
        input: &mut input,
        out_terminal: false,
        width: None,
        err_terminal: false,
        input_terminal: false,
        env: Env::default(),
        patience: Nanos::ZERO,
        pause: |_| Ok(()),
        size: || None,
        wall: || Nanos::ZERO,
        succeed_on_interrupt: || Ok(()),
    };
    let arguments = std::iter::once(&"loudou").chain(arguments);
    let code = run(arguments.map(OsString::from), &mut io).code();
    out.extend(err);
    (code, String::from_utf8_lossy(&out).into_owned())
}

/// Parses a config file, and returns its problems as they would be printed.
pub fn configured(text: &[u8]) -> String {
    match config_file::parse("config.toml", text) {
        Ok(_) => String::new(),
        Err(error) => error.to_string(),
    }
}

/// Returns the first character in the output, apart from line breaks, that is unsafe to print on a
/// terminal.
pub fn unsafe_character(printed: &str) -> Option<char> {
    printed
        .chars()
        .find(|c| is_unsafe(*c) && !matches!(c, '\n' | '\r'))
}
