//! Input, output and environment of a command. Tests replace them to simulate a terminal.

use std::ffi::OsString;
use std::fmt;
use std::io::{self, BufRead, Write};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use loudou_limiter::Nanos;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use serde::Serialize;
use signal_hook::consts::SIGINT;
use signal_hook::flag::register_conditional_shutdown;

use super::options::{ColorWhen, Format, Global};
use loudou_client::clock::Clock;
use loudou_print::style::Style;
use loudou_words::text::json_safe;

/// Input, output and environment of one run.
pub(crate) struct Io<'a> {
    pub(crate) out: &'a mut dyn Write,
    pub(crate) err: &'a mut dyn Write,
    pub(crate) input: &'a mut dyn BufRead,
    /// True if `out` is a terminal. `width` is its width, if known.
    pub(crate) out_terminal: bool,
    pub(crate) width: Option<usize>,
    /// True if `err` is a terminal.
    pub(crate) err_terminal: bool,
    /// True if `input` is a terminal, so that commands can ask for confirmation.
    pub(crate) input_terminal: bool,
    pub(crate) env: Env,
    /// Maximum time that `--follow` and `--watch` wait for Envoy to answer again.
    pub(crate) patience: Nanos,
    /// Waits between two polls. Fails if the reader of `out` has closed the pipe.
    pub(crate) pause: fn(Duration) -> io::Result<()>,
    /// Returns the wall-clock time since the Unix epoch.
    pub(crate) wall: fn() -> Nanos,
    /// Returns the current columns and rows of the terminal.
    pub(crate) size: fn() -> Option<(usize, usize)>,
    /// From now on, makes Ctrl-C end the process with exit code 0.
    pub(crate) succeed_on_interrupt: fn() -> io::Result<()>,
}

/// Returns the size of the terminal, if there is one.
pub(crate) fn size() -> Option<(usize, usize)> {
    let (columns, rows) = crossterm::terminal::size().ok()?;
    Some((columns.into(), rows.into()))
}

/// See [`Io::succeed_on_interrupt`].
pub(crate) fn succeed_on_interrupt() -> io::Result<()> {
    let always = Arc::new(AtomicBool::new(true));
    register_conditional_shutdown(SIGINT, 0, always).map(drop)
}

/// Waits for `time`. Fails with a broken pipe if the reader of standard output closes it.
pub(crate) fn pause(time: Duration) -> io::Result<()> {
    let clock = Clock::start();
    let out = io::stdout();
    loop {
        let left = time.saturating_sub(Duration::from_nanos(clock.now().get()));
        // `poll` always reports errors, so no events are requested.
        let mut out = [PollFd::new(&out, PollFlags::empty())];
        match poll(&mut out, Timespec::try_from(left).ok().as_ref()) {
            Ok(0) => return Ok(()),
            Ok(_) => return Err(io::ErrorKind::BrokenPipe.into()),
            // A signal interrupted the wait.
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Environment variables that do not set an option.
#[derive(Clone, Debug, Default)]
pub(crate) struct Env {
    /// `LOUDOU_TOKEN`.
    pub(crate) token: Option<OsString>,
    /// `LOUDOU_TOKEN_FILE`.
    pub(crate) token_file: Option<OsString>,
    /// `https_proxy` or `HTTPS_PROXY`.
    pub(crate) https_proxy: Option<OsString>,
    /// `all_proxy` or `ALL_PROXY`.
    pub(crate) all_proxy: Option<OsString>,
    /// `no_proxy` or `NO_PROXY`.
    pub(crate) no_proxy: Option<OsString>,
    /// `TZDIR`.
    pub(crate) time_zones: Option<OsString>,
    /// `NO_COLOR`.
    pub(crate) no_color: Option<OsString>,
    /// `TERM`.
    pub(crate) term: Option<OsString>,
    /// `HOME`.
    pub(crate) home: Option<OsString>,
    /// `XDG_CONFIG_HOME`.
    pub(crate) config_home: Option<OsString>,
    /// `COLORTERM`.
    pub(crate) color_term: Option<OsString>,
    /// Character locale: the first of `LC_ALL`, `LC_CTYPE` and `LANG` that is set.
    pub(crate) locale: Option<OsString>,
}

impl Env {
    /// Reads the environment of this process. An empty variable counts as unset.
    pub(crate) fn read() -> Self {
        let var = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        let either = |name, other| var(name).or_else(|| var(other));
        Self {
            token: var("LOUDOU_TOKEN"),
            token_file: var("LOUDOU_TOKEN_FILE"),
            https_proxy: either("https_proxy", "HTTPS_PROXY"),
            all_proxy: either("all_proxy", "ALL_PROXY"),
            no_proxy: either("no_proxy", "NO_PROXY"),
            time_zones: var("TZDIR"),
            no_color: var("NO_COLOR"),
            term: var("TERM"),
            home: var("HOME"),
            config_home: var("XDG_CONFIG_HOME"),
            color_term: var("COLORTERM"),
            locale: var("LC_ALL").or_else(|| either("LC_CTYPE", "LANG")),
        }
    }
}

impl Env {
    /// Returns true if `TERM` names a terminal that cannot move its cursor.
    fn is_dumb(&self) -> bool {
        self.term.as_ref().is_some_and(|term| term == "dumb")
    }

    /// Returns true if a locale is set and does not use UTF-8, such as `C`. Most containers set no
    /// locale. The terminal's characters are then unknown, and the result is false.
    fn is_ascii(&self) -> bool {
        let is_utf8 = |locale: &OsString| {
            let locale = locale.to_string_lossy().to_ascii_lowercase();
            locale.contains("utf-8") || locale.contains("utf8")
        };
        self.locale.as_ref().is_some_and(|locale| !is_utf8(locale))
    }
}

impl Io<'_> {
    /// Returns true if the output is a terminal that can show the screen.
    pub(crate) fn has_screen(&self) -> bool {
        self.out_terminal && !self.env.is_dumb()
    }
}

/// Returns the style for these options and this environment.
pub(super) fn style(global: &Global, io: &Io<'_>) -> Style {
    let plain = io.env.no_color.is_some() || io.env.is_dumb();
    // The font of the Linux console has at most 512 characters.
    let is_console = io.env.term.as_ref().is_some_and(|term| term == "linux");
    Style {
        color: match global.color {
            ColorWhen::Always => true,
            ColorWhen::Never => false,
            ColorWhen::Auto => io.out_terminal && !plain,
        },
        ascii: global
            .ascii
            .or(global.config.ascii)
            .unwrap_or_else(|| io.env.is_ascii() || (is_console && io.out_terminal)),
        width: io.width.filter(|_| io.out_terminal),
    }
}

/// A usage error that is only detected at run time. It leads to exit code 2.
#[derive(Debug)]
pub(crate) struct Usage(pub(crate) String);

impl std::error::Error for Usage {}

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Prints one JSON document, on several lines or, for `jsonl`, on one line.
pub(crate) fn json(out: &mut dyn Write, format: Format, value: &impl Serialize) -> io::Result<()> {
    let text = if format == Format::Jsonl {
        serde_json::to_string(value)?
    } else {
        serde_json::to_string_pretty(value)?
    };
    writeln!(out, "{}", json_safe(text))
}

/// Prints a list as one JSON document or, for `jsonl`, as one item per line.
pub(crate) fn json_list<T: Serialize>(
    out: &mut dyn Write,
    format: Format,
    whole: &impl Serialize,
    items: &[T],
) -> io::Result<()> {
    if format != Format::Jsonl {
        return json(out, format, whole);
    }
    items.iter().try_for_each(|item| json(out, format, item))
}

#[cfg(test)]
mod tests {
    use super::*;
    use loudou_words::text::is_unsafe;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn json_is_safe_and_the_same(text in any::<String>()) {
            let mut out = Vec::new();
            json(&mut out, Format::Jsonl, &text).expect("writes");
            let out = String::from_utf8(out).expect("UTF-8");
            prop_assert!(out.trim_end_matches('\n').chars().all(|c| !is_unsafe(c)));
            prop_assert_eq!(serde_json::from_str::<String>(&out).expect("JSON"), text);
        }
    }
}
