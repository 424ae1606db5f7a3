//! A terminal for the app under test: a PTY with a readable screen.

use std::io::{Read as _, Write};
use std::num::NonZero;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use portable_pty::{Child, CommandBuilder, MasterPty, PtySize, native_pty_system};

use crate::clock::eventually;
use crate::envoy::Envoy;
use crate::paths::{in_terminal, loudou_bin};

/// Time limit for the app. A slower app has hung.
const PATIENCE: Duration = Duration::from_secs(20);
/// Maximum number of bytes that are kept.
const FIRST_BYTES: usize = 1 << 20;
const ROWS: NonZero<u16> = NonZero::<u16>::MIN.saturating_add(29);
const COLUMNS: NonZero<u16> = NonZero::<u16>::MIN.saturating_add(109);

/// `loudou` in its terminal.
pub struct Terminal {
    child: Box<dyn Child + Send + Sync>,
    master: Box<dyn MasterPty + Send>,
    keys: Arc<Mutex<Box<dyn Write + Send>>>,
    screen: Arc<Mutex<vt100::Parser>>,
    /// First bytes of the output.
    bytes: Arc<Mutex<Vec<u8>>>,
    /// Thread that reads the output. It ends when no other process uses the terminal.
    reader: JoinHandle<()>,
}

/// Returns a terminal's answers to the queries in the bytes after `before`: the background colour,
/// and the kind of terminal.
fn answer(bytes: &[u8], before: usize, background: &str) -> String {
    let mut answer = String::new();
    for (question, text) in [
        ("\x1b]11;?", format!("\x1b]11;rgb:{background}\x1b\\")),
        ("\x1b[c", "\x1b[?62;22c".to_owned()),
    ] {
        // The query may have arrived in two parts.
        let from = before.saturating_sub(question.len() - 1);
        let new = bytes.get(from..).unwrap_or_default();
        if new
            .windows(question.len())
            .any(|part| part == question.as_bytes())
        {
            answer.push_str(&text);
        }
    }
    answer
}

impl std::fmt::Debug for Terminal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Terminal")
            .field("app", &self.child.process_id())
            .finish_non_exhaustive()
    }
}

impl Terminal {
    /// Opens the live screen on `envoy`, with more environment variables.
    pub fn open(envoy: &Envoy, token: &str, more: &[(&str, &str)]) -> Result<Self> {
        Self::open_build(&loudou_bin()?, envoy, token, more)
    }

    /// Like [`Self::open`], but with another build of `loudou`.
    pub fn open_build(
        program: &Path,
        envoy: &Envoy,
        token: &str,
        more: &[(&str, &str)],
    ) -> Result<Self> {
        Self::on(envoy, token, in_terminal(program), more)
    }

    /// Opens a shell with job control, whose prompt is `ready>`.
    pub fn shell(envoy: &Envoy, token: &str) -> Result<Self> {
        let mut command = in_terminal(Path::new("bash"));
        command.args(["--norc", "--noprofile", "-i"]);
        command.env("PS1", "ready>");
        command.env("LOUDOU", loudou_bin()?);
        Self::on(envoy, token, command, &[])
    }

    fn on(
        envoy: &Envoy,
        token: &str,
        mut command: CommandBuilder,
        more: &[(&str, &str)],
    ) -> Result<Self> {
        command.env("LOUDOU_URL", envoy.admin_url());
        command.env("LOUDOU_TOKEN", token);
        for (name, value) in more {
            command.env(name, value);
        }
        Self::run(command)
    }

    /// Runs a program that opens the live screen.
    pub fn run(command: CommandBuilder) -> Result<Self> {
        Self::run_as("xterm-256color", command)
    }

    /// Like [`Self::run`], but in a terminal of this name.
    pub fn run_as(term: &str, command: CommandBuilder) -> Result<Self> {
        Self::run_on(term, "0000/0000/0000", command)
    }

    /// Like [`Self::run_as`], but on a background of this colour: red, green and blue in
    /// hexadecimal.
    pub fn run_on(
        term: &str,
        background: &'static str,
        mut command: CommandBuilder,
    ) -> Result<Self> {
        let size = PtySize {
            rows: ROWS.get(),
            cols: COLUMNS.get(),
            pixel_width: 0,
            pixel_height: 0,
        };
        let pair = native_pty_system().openpty(size)?;
        command.env("TERM", term);
        command.env_remove("COLORTERM");
        command.env_remove("NO_COLOR");
        let child = pair.slave.spawn_command(command)?;
        let keys = Arc::new(Mutex::new(pair.master.take_writer()?));
        let answers = Arc::clone(&keys);
        let mut output = pair.master.try_clone_reader()?;
        let screen = Arc::new(Mutex::new(vt100::Parser::new(ROWS, COLUMNS, 0)));
        let shared = Arc::clone(&screen);
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let first = Arc::clone(&bytes);
        let reader = thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(read @ 1..) = output.read(&mut buffer) {
                let seen = buffer.get(..read).unwrap_or_default();
                let mut first = first.lock().unwrap_or_else(PoisonError::into_inner);
                let before = first.len();
                if before < FIRST_BYTES {
                    first.extend_from_slice(seen);
                }
                let answer = answer(&first, before, background);
                drop(first);
                if !answer.is_empty() {
                    let mut keys = answers.lock().unwrap_or_else(PoisonError::into_inner);
                    // Ignore a failure, because a program that has ended needs no answer.
                    drop(keys.write_all(answer.as_bytes()));
                }
                shared
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .process(seen);
            }
        });
        Ok(Self {
            child,
            master: pair.master,
            keys,
            screen,
            bytes,
            reader,
        })
    }

    /// Types keys.
    pub fn press(&mut self, keys: &str) -> Result<()> {
        let mut to = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        to.write_all(keys.as_bytes())?;
        to.flush()?;
        Ok(())
    }

    /// Returns the text of the screen.
    pub fn contents(&self) -> String {
        self.screen
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .screen()
            .contents()
    }

    /// Returns the first bytes of the output, with control sequences.
    pub fn first_bytes(&self) -> Vec<u8> {
        self.bytes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Waits until `wanted` accepts the screen.
    pub fn until(&self, what: &str, wanted: impl Fn(&str) -> bool) -> Result<String> {
        let seen = eventually(PATIENCE, what, || {
            let contents = self.contents();
            Ok(wanted(&contents).then_some(contents))
        });
        seen.with_context(|| format!("the screen is:\n{}", self.contents()))
    }

    /// Waits until the screen shows `text`.
    pub fn shows(&self, text: &str) -> Result<String> {
        self.until(&format!("{text:?} on the screen"), |contents| {
            contents.contains(text)
        })
    }

    /// Returns the process id of the app.
    pub fn pid(&self) -> Result<u32> {
        self.child.process_id().context("the app has no process id")
    }

    /// Waits for the end of the app, and checks that the terminal is restored.
    pub fn ended(mut self) -> Result<(u32, String)> {
        let status = eventually(PATIENCE, "the app's end", || Ok(self.child.try_wait()?))?;
        // Wait for the whole output, because before that, even an untouched screen looks restored.
        eventually(PATIENCE, "the end of the output", || {
            Ok(self.reader.is_finished().then_some(()))
        })?;
        ensure!(self.is_restored(), "{}\n{}", self.state(), self.contents());
        self.is_cooked()?;
        Ok((status.exit_code(), self.contents()))
    }

    /// Quits the app like a user. It must end without an error, and restore the terminal.
    pub fn quit(mut self) -> Result<()> {
        self.press("q")?;
        let (code, end) = self.ended()?;
        ensure!(code == 0, "exit code {code}\n{end}");
        Ok(())
    }

    fn is_restored(&self) -> bool {
        let parser = self.screen.lock().unwrap_or_else(PoisonError::into_inner);
        let screen = parser.screen();
        !screen.alternate_screen()
            && !screen.hide_cursor()
            && !screen.bracketed_paste()
            && screen.mouse_protocol_mode() == vt100::MouseProtocolMode::None
    }

    /// Describes the modes of the screen.
    pub fn state(&self) -> String {
        let parser = self.screen.lock().unwrap_or_else(PoisonError::into_inner);
        let screen = parser.screen();
        format!(
            "alternate screen {}, hidden cursor {}, bracketed paste {}, mouse {:?}",
            screen.alternate_screen(),
            screen.hide_cursor(),
            screen.bracketed_paste(),
            screen.mouse_protocol_mode()
        )
    }

    /// Fails unless typing is echoed and read line by line again, according to `stty`.
    fn is_cooked(&self) -> Result<()> {
        let name = self.master.tty_name().context("the terminal has no name")?;
        let output = std::process::Command::new("stty")
            .arg("-a")
            .arg("-F")
            .arg(&name)
            .output()?;
        let settings = String::from_utf8_lossy(&output.stdout).into_owned();
        let has = |wanted: &str| settings.split([' ', ';', '\n']).any(|word| word == wanted);
        if !(has("icanon") && has("echo") && has("isig")) {
            bail!("raw mode is left on: {settings}");
        }
        Ok(())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // If the test succeeded, the app has already ended.
        if self.child.kill().is_ok() {
            drop(self.child.wait());
        }
    }
}
