//! The only module that accesses the terminal. This module acquires and releases the terminal,
//! reads events, and draws.
//!
//! However the app ends, the terminal is restored: raw mode, alternate screen, mouse, bracketed
//! paste and cursor are reset on return, on a panic in any thread, on signals and while suspended.
//! [`restore`] may be called any number of times.

use std::io::{BufWriter, Stdout, Write};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{io, panic, thread};

use base64::prelude::{BASE64_STANDARD, Engine as _};
use crossterm::cursor::{Hide, Show};
use crossterm::event::{
    DisableBracketedPaste, DisableMouseCapture, EnableBracketedPaste, Event, KeyCode, KeyEvent,
    KeyEventKind, KeyModifiers, MouseButton, MouseEvent, MouseEventKind,
};
use crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode, size,
};
use crossterm::{event, execute};
use ratatui::Frame;
use ratatui::backend::CrosstermBackend;
use ratatui::layout::Rect;
use rustix::process::{Signal, getpgrp, getsid, kill_current_process_group};

use terminal_colorsaurus::{QueryOptions, background_color};

use crate::app::msg::Msg;
use crate::app::press::{Code, Mouse, MouseAction, Press};
use crate::draw::theme::{Base, Depth};

/// Name prefix of threads whose panics end the app through a message.
pub(crate) const BACKGROUND: &str = "loudou-";
/// Turns on reports of mouse clicks and the mouse wheel, in the encoding that supports any number
/// of columns. Mouse movements are not used.
const MOUSE_ON: &str = "\x1b[?1000h\x1b[?1006h";

/// True while the app uses the terminal.
static TAKEN: AtomicBool = AtomicBool::new(false);
/// Report of the first background thread that panicked.
static REPORT: Mutex<Option<String>> = Mutex::new(None);

/// Maximum time to wait for the terminal to report its background colour. Terminals without this
/// feature are recognised at once.
const ANSWERS_WITHIN: Duration = Duration::from_millis(500);

/// Returns the theme for the terminal's background, if the terminal reports it. Must be called
/// before the terminal is entered, because the report arrives as input.
pub(crate) fn background(depth: Depth) -> Option<Base> {
    if depth == Depth::Plain {
        return None;
    }
    let mut options = QueryOptions::default();
    options.timeout = ANSWERS_WITHIN;
    let background = background_color(options).ok()?;
    Some(if background.perceived_lightness() > 0.5 {
        Base::Light
    } else {
        Base::Dark
    })
}

/// The terminal, which is released when this value is dropped.
pub(crate) struct Terminal {
    inner: ratatui::Terminal<CrosstermBackend<Basic<BufWriter<Stdout>>>>,
}

impl Terminal {
    /// Acquires the terminal. `depth` describes the colours that the terminal can show.
    pub(crate) fn enter(depth: Depth) -> io::Result<Self> {
        take()?;
        let out = Basic::new(BufWriter::new(io::stdout()), depth == Depth::Sixteen);
        let backend = CrosstermBackend::new(out);
        let inner = ratatui::Terminal::new(backend);
        if inner.is_err() {
            restore();
        }
        inner.map(|inner| Self { inner })
    }

    /// Returns the numbers of columns and rows.
    pub(crate) fn size() -> (u16, u16) {
        size().unwrap_or((80, 24))
    }

    /// Draws one frame.
    pub(crate) fn draw(&mut self, view: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        self.inner.draw(view).map(|_| ())
    }

    /// Releases the terminal and stops the process, like Ctrl-Z in any program. Acquires the
    /// terminal again when the process is continued.
    ///
    /// The whole process group is stopped, just as if the terminal itself had handled the key. For
    /// example, if a script runs `loudou`, the shell gets the terminal back only once the script
    /// has stopped, too.
    pub(crate) fn suspend(&mut self) -> io::Result<()> {
        if getsid(None)? == getpgrp() {
            // There is no shell that could continue the process.
            return self.resume();
        }
        restore();
        // SIGTSTP is caught, so it would not stop this process.
        kill_current_process_group(Signal::STOP)?;
        self.resume()
    }

    /// Asks the terminal to copy a string to the clipboard (OSC 52). Terminals without this feature
    /// ignore the request.
    pub(crate) fn copy(&mut self, text: &str) -> io::Result<()> {
        let out = self.inner.backend_mut();
        write!(out, "{}", clipboard(text))?;
        out.flush()
    }

    /// Acquires the terminal again after another program used it. The next frame is drawn in full.
    pub(crate) fn resume(&mut self) -> io::Result<()> {
        // Discards the terminal mode that crossterm has saved, because it may be outdated.
        disable_raw_mode()?;
        take()?;
        // A resize clears and redraws the screen. `clear` would first query the cursor position,
        // and the input thread would read the terminal's response.
        let size = self.inner.size()?;
        self.inner.resize(Rect::new(0, 0, size.width, size.height))
    }
}

/// Returns the escape sequence that copies a string to the clipboard. The string is encoded in
/// base64, so that the sequence contains no other control characters.
pub(crate) fn clipboard(text: &str) -> String {
    format!("\u{1b}]52;c;{}\u{7}", BASE64_STANDARD.encode(text))
}

impl Drop for Terminal {
    fn drop(&mut self) {
        restore();
    }
}

fn take() -> io::Result<()> {
    // The flag is set first, so that a partial failure is undone, too.
    TAKEN.store(true, Ordering::SeqCst);
    let taken = enable_raw_mode().and_then(|()| {
        let mut out = io::stdout();
        execute!(out, EnterAlternateScreen, EnableBracketedPaste, Hide)?;
        out.write_all(MOUSE_ON.as_bytes())?;
        out.flush()
    });
    if taken.is_err() {
        restore();
    }
    taken
}

/// Restores the terminal. Does nothing if the app has not acquired the terminal.
pub(crate) fn restore() {
    if !TAKEN.swap(false, Ordering::SeqCst) {
        return;
    }
    // Errors are dropped, because a terminal that is gone can neither be restored nor show a
    // report.
    let shown = execute!(
        io::stdout(),
        DisableMouseCapture,
        DisableBracketedPaste,
        LeaveAlternateScreen,
        Show
    );
    let cooked = disable_raw_mode();
    drop((shown, cooked));
}

/// Installs a panic hook that leaves the terminal readable. If the screen's thread panics, the
/// terminal is restored before the report is printed. Reports of the app's other threads are stored
/// until [`report`] returns them.
pub(crate) fn install_panic_hook() {
    let print = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        let thread = thread::current();
        let name = thread.name().unwrap_or("");
        if name.starts_with(BACKGROUND) {
            let text = format!("thread {name}: {info}");
            if let Ok(mut report) = REPORT.lock() {
                report.get_or_insert(text);
            }
        } else {
            restore();
            print(info);
        }
    }));
}

/// Returns the report of the first background thread that panicked.
pub(crate) fn report() -> String {
    let report = REPORT.lock().ok().and_then(|mut report| report.take());
    report.unwrap_or_else(|| "a background thread panicked".to_owned())
}

/// Waits for the next event of the terminal. Returns `None` for an event that the app does not use.
pub(crate) fn read() -> io::Result<Option<Msg>> {
    Ok(match event::read()? {
        // Some terminals also report when a key is released. These events are not used.
        Event::Key(key) if key.kind != KeyEventKind::Release => press(key).map(Msg::Press),
        Event::Paste(text) => Some(Msg::Paste(text)),
        Event::Mouse(mouse) => self::mouse(mouse).map(Msg::Mouse),
        Event::Resize(columns, rows) => Some(Msg::Resize(columns, rows)),
        _ => None,
    })
}

fn press(key: KeyEvent) -> Option<Press> {
    let code = match key.code {
        KeyCode::Char(c) => Code::Char(c),
        KeyCode::Enter => Code::Enter,
        KeyCode::Esc => Code::Esc,
        KeyCode::Tab => Code::Tab,
        KeyCode::BackTab => Code::BackTab,
        KeyCode::Backspace => Code::Backspace,
        KeyCode::Delete => Code::Delete,
        KeyCode::Up => Code::Up,
        KeyCode::Down => Code::Down,
        KeyCode::Left => Code::Left,
        KeyCode::Right => Code::Right,
        KeyCode::Home => Code::Home,
        KeyCode::End => Code::End,
        KeyCode::PageUp => Code::PageUp,
        KeyCode::PageDown => Code::PageDown,
        _ => return None,
    };
    // A letter that is pressed together with Alt does not count as text.
    if key.modifiers.contains(KeyModifiers::ALT) {
        return None;
    }
    let ctrl = key.modifiers.contains(KeyModifiers::CONTROL);
    Some(Press { code, ctrl })
}

fn mouse(mouse: MouseEvent) -> Option<Mouse> {
    let action = match mouse.kind {
        MouseEventKind::Down(MouseButton::Left) => MouseAction::Click,
        MouseEventKind::ScrollUp => MouseAction::WheelUp,
        MouseEventKind::ScrollDown => MouseAction::WheelDown,
        _ => return None,
    };
    Some(Mouse {
        action,
        x: mouse.column,
        y: mouse.row,
        spot: None,
    })
}

// Colours for terminals with 16 colours. crossterm encodes each colour as one of 256 colours
// (`38;5;9`), which a terminal with 16 colours interprets as other styles, such as blinking. The
// writer below uses the older form (`91`) instead.

const BEGIN: &[u8] = b"\x1b[";

/// A writer that rewrites colours to the older form if `rewrites` is true, and otherwise passes on
/// its input unchanged.
#[derive(Debug)]
struct Basic<W> {
    inner: W,
    /// Bytes since the last flush. An escape sequence may be split over several writes.
    pending: Vec<u8>,
    rewrites: bool,
}

impl<W> Basic<W> {
    const fn new(inner: W, rewrites: bool) -> Self {
        Self {
            inner,
            pending: Vec::new(),
            rewrites,
        }
    }
}

impl<W: Write> Write for Basic<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.rewrites {
            return self.inner.write(bytes);
        }
        self.pending.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let pending = std::mem::take(&mut self.pending);
        self.inner.write_all(&rewritten(&pending))?;
        self.inner.flush()
    }
}

/// Returns the output with its colours in the older form.
fn rewritten(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some(first) = rest.first() {
        if let Some((colors, tail)) = styles(rest) {
            out.extend_from_slice(BEGIN);
            out.extend_from_slice(old_form(colors).as_bytes());
            out.push(b'm');
            rest = tail;
        } else {
            out.push(*first);
            rest = rest.get(1..).unwrap_or_default();
        }
    }
    out
}

/// Parses an SGR sequence, which sets colours and styles, at the start of `bytes`. Returns the parameters of the
/// sequence and the bytes after it.
fn styles(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let rest = bytes.strip_prefix(BEGIN)?;
    let end = rest
        .iter()
        .position(|b| !b.is_ascii_digit() && *b != b';')?;
    let (styles, rest) = rest.split_at_checked(end)?;
    let tail = rest.strip_prefix(b"m")?;
    Some((std::str::from_utf8(styles).ok()?, tail))
}

fn old_form(styles: &str) -> String {
    let mut out: Vec<String> = Vec::new();
    let mut parts = styles.split(';');
    while let Some(part) = parts.next() {
        let base = match part {
            "38" => 30_u8,
            "48" => 40,
            other => {
                out.push(other.to_owned());
                continue;
            }
        };
        let color = match (parts.next(), parts.next().map(str::parse::<u8>)) {
            (Some("5"), Some(Ok(n @ 0..8))) => base.saturating_add(n),
            // The bright colours.
            (Some("5"), Some(Ok(n @ 8..16))) => base.saturating_add(n).saturating_add(52),
            // The themes for 16 colours use no other colours.
            _ => base.saturating_add(9),
        };
        out.push(color.to_string());
    }
    out.join(";")
}

#[cfg(test)]
mod basic_tests {
    use super::*;

    fn written(rewrites: bool, parts: &[&str]) -> String {
        let mut out = Vec::new();
        let mut basic = Basic::new(&mut out, rewrites);
        for part in parts {
            basic.write_all(part.as_bytes()).expect("a buffer");
        }
        basic.flush().expect("a buffer");
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn colours_are_in_their_old_form() {
        for (parts, out) in [
            (&["\x1b[38;5;1mx"][..], "\x1b[31mx"),
            (&["\x1b[38;5;9m", "\x1b[48;5;15m"], "\x1b[91m\x1b[107m"),
            (&["\x1b[38;5", ";0;48;5;8m"], "\x1b[30;100m"),
            (&["\x1b[39;49;1m"], "\x1b[39;49;1m"),
            (&["\x1b[38;5;99m"], "\x1b[39m"),
            (&["\x1b[12;5H漏斗\x1b[?25l"], "\x1b[12;5H漏斗\x1b[?25l"),
            (&["\x1b[38;5;1"], "\x1b[38;5;1"),
        ] {
            assert_eq!(written(true, parts), out);
            assert_eq!(written(false, parts), parts.concat());
        }
    }
}
