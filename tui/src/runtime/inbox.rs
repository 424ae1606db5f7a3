//! Messages to the screen's thread, and the threads that send input and signals to it.

use std::panic::{self, AssertUnwindSafe};
use std::sync::mpsc::SyncSender;
use std::thread;

use anyhow::Context as _;
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGTERM, SIGTSTP};
use signal_hook::iterator::Signals;

use crate::app::msg::Msg;
use crate::term;

/// Maximum number of messages queued for the screen. If the queue is full, senders block.
pub(super) const MESSAGES: usize = 256;

/// Signals that the screen handles.
pub(super) const OF_SCREEN: [i32; 5] = [SIGTERM, SIGHUP, SIGINT, SIGTSTP, SIGCONT];

/// A message to the screen.
pub(super) struct Inbound {
    /// Number of the Envoy that the message concerns, or `None` for the Envoy that is shown.
    pub(super) about: Option<usize>,
    pub(super) msg: Msg,
}

impl Inbound {
    /// Returns a message that concerns the shown Envoy.
    pub(super) const fn shown(msg: Msg) -> Self {
        Self { about: None, msg }
    }
}

/// A thread's handle for sending messages to the screen.
#[derive(Clone)]
pub(super) struct Outbox {
    to: SyncSender<Inbound>,
    about: Option<usize>,
}

impl Outbox {
    /// Returns a handle for a thread whose messages concern the Envoy `about` or, if it is `None`,
    /// the Envoy that is shown.
    pub(super) fn new(to: &SyncSender<Inbound>, about: Option<usize>) -> Self {
        let to = to.clone();
        Self { to, about }
    }

    /// Sends a message. Returns false if the screen has ended.
    pub(super) fn send(&self, msg: Msg) -> bool {
        let about = self.about;
        self.to.send(Inbound { about, msg }).is_ok()
    }
}

/// Starts a thread whose panic ends the app.
pub(super) fn spawn(
    name: &str,
    messages: &SyncSender<Inbound>,
    body: impl FnOnce() + Send + 'static,
) -> anyhow::Result<()> {
    let messages = Outbox::new(messages, None);
    let name = format!("{}{name}", term::BACKGROUND);
    thread::Builder::new()
        .name(name)
        .spawn(move || {
            if panic::catch_unwind(AssertUnwindSafe(body)).is_err() {
                // Sending fails only if the app is ending anyway.
                messages.send(Msg::Fatal(term::report()));
            }
        })
        .context("cannot start a thread")?;
    Ok(())
}

pub(super) fn spawn_input(messages: &SyncSender<Inbound>) -> anyhow::Result<()> {
    let out = Outbox::new(messages, None);
    spawn("input", messages, move || {
        loop {
            let msg = match term::read() {
                Ok(Some(msg)) => msg,
                Ok(None) => continue,
                // The terminal is gone, so the app ends.
                Err(_) => Msg::Quit,
            };
            let last = matches!(msg, Msg::Quit);
            if !out.send(msg) || last {
                return;
            }
        }
    })
}

pub(super) fn spawn_signals(messages: &SyncSender<Inbound>, which: &[i32]) -> anyhow::Result<()> {
    let mut signals = Signals::new(which).context("cannot listen to signals")?;
    let out = Outbox::new(messages, None);
    spawn("signals", messages, move || {
        for signal in signals.forever() {
            let msg = match signal {
                SIGTSTP => Msg::Suspend,
                SIGCONT => Msg::Resumed,
                _ => Msg::Quit,
            };
            if !out.send(msg) {
                return;
            }
        }
    })
}
