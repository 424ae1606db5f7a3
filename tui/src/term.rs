//! The only module that touches the terminal: entering, leaving, reading events, drawing.
//!
//! However the app ends, the terminal is restored: raw mode, alternate screen, mouse, bracketed paste and
//! cursor are reset on return, on a panic in any thread, on signals and while suspended.
//! [`restore`] may be called any number of times.

use std::io::{self, BufWriter, Stdout, Write as _};
use std::panic;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use crossterm::cursor::{Hide, Show};
use crossterm::event::{
    self, DisableBracketedPaste, DisableMouseCapture, EnableBracketedPaste, Event, KeyCode,
    KeyEvent, KeyEventKind, KeyModifiers, MouseButton, MouseEvent, MouseEventKind,
};
use crossterm::execute;
use crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode, size,
};
use ratatui::Frame;
use ratatui::backend::CrosstermBackend;
use ratatui::layout::Rect;
use rustix::process::{Signal, getpgrp, getsid, kill_current_process_group};

use crate::app::msg::Msg;
use crate::app::press::{Code, Mouse, MouseAction, Press};
use crate::draw::theme::color::Depth;

mod basic;

use basic::Basic;

/// The prefix of the names of threads whose panics end the app through a message.
pub(crate) const BACKGROUND: &str = "loudou-";
/// Turns on reports of clicks and the wheel, in the form without a limit on columns. Movements are unused.
const MOUSE_ON: &str = "\x1b[?1000h\x1b[?1006h";

/// Whether the app has taken the terminal.
static TAKEN: AtomicBool = AtomicBool::new(false);
/// The report of the first background thread that panicked.
static REPORT: Mutex<Option<String>> = Mutex::new(None);

/// The terminal, taken until this is dropped.
pub(crate) struct Terminal {
    inner: ratatui::Terminal<CrosstermBackend<Basic<BufWriter<Stdout>>>>,
}

impl Terminal {
    /// Takes the terminal, which has these colours.
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

    /// Columns and rows.
    pub(crate) fn size() -> (u16, u16) {
        size().unwrap_or((80, 24))
    }

    /// Draws one frame.
    pub(crate) fn draw(&mut self, view: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        self.inner.draw(view).map(|_| ())
    }

    /// Gives the terminal back and stops, like Ctrl-Z in any program; resumes when continued.
    ///
    /// The whole process group stops, as when the terminal itself handles the key: a shell gets the terminal
    /// back only when everything that it started has stopped, such as a script that runs `loudou`.
    pub(crate) fn suspend(&mut self) -> io::Result<()> {
        if getsid(None)? == getpgrp() {
            // There is no shell that could continue it.
            return self.resume();
        }
        restore();
        // SIGTSTP is caught, so it would not stop this process.
        kill_current_process_group(Signal::STOP)?;
        self.resume()
    }

    /// Asks the terminal to put a text on the clipboard (OSC 52). Terminals that do not know this ignore it.
    pub(crate) fn copy(&mut self, text: &str) -> io::Result<()> {
        let out = self.inner.backend_mut();
        write!(out, "{}", clipboard(text))?;
        io::Write::flush(out)
    }

    /// Takes the terminal again after another program had it; the next draw is complete.
    pub(crate) fn resume(&mut self) -> io::Result<()> {
        // The remembered mode of the terminal may be outdated.
        disable_raw_mode()?;
        take()?;
        // A resize clears and redraws. `clear` would first query the cursor position, and the answer
        // would go to the thread that reads keys.
        let size = self.inner.size()?;
        self.inner.resize(Rect::new(0, 0, size.width, size.height))
    }
}

/// The request to put a text on the clipboard, in base64, so that nothing in the text is a control character.
pub(crate) fn clipboard(text: &str) -> String {
    format!("\u{1b}]52;c;{}\u{7}", BASE64_STANDARD.encode(text))
}

impl Drop for Terminal {
    fn drop(&mut self) {
        restore();
    }
}

fn take() -> io::Result<()> {
    // First, so that a partial failure is undone too.
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

/// Restores the terminal. Does nothing if the app has not taken it.
pub(crate) fn restore() {
    if !TAKEN.swap(false, Ordering::SeqCst) {
        return;
    }
    // Errors are dropped: a terminal that is gone cannot be restored, and cannot show a report.
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

/// Makes panics leave a readable terminal: on the screen's thread it is restored before the report is
/// printed; on the app's other threads the report waits for [`report`].
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

/// The report of the first background thread that panicked.
pub(crate) fn report() -> String {
    let report = REPORT.lock().ok().and_then(|mut report| report.take());
    report.unwrap_or_else(|| "a background thread panicked".to_owned())
}

/// Waits for the next event of the terminal; `None` for an unused one.
pub(crate) fn read() -> io::Result<Option<Msg>> {
    Ok(match event::read()? {
        // Some terminals also report releases.
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
    // A letter with Alt is not text.
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
