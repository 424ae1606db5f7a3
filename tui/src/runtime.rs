//! The threads of the terminal app, and the one channel between them.
//!
//! ```text
//! input ────keys, mouse, resize──┐
//! signals ──quit, suspend────────┤
//! poller ───snapshots────────────┼→ bounded channel → screen: drain, update, at most one draw
//! worker ───answers──────────────┘                      │
//!    ↑ edits, resets     ↑ poll                         │
//!    └───────────────────┴──────────effects─────────────┘
//! ```
//!
//! Each Envoy that is watched has a state, a poller and a worker of its own; its answers carry its number, and keys go
//! to the state that is shown. The others are polled for their status alone.
//!
//! The screen's thread does no I/O but drawing, so it never blocks. A panic in another thread reaches it
//! as a message and ends the app with the report of that thread.
//!
//! For the test of panics in a real terminal: with `LOUDOU_TEST_PANIC=screen` or `poller` in the
//! environment, that thread panics after it has started.

use std::panic::{self, AssertUnwindSafe};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use loudou_limiter::Nanos;
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGTERM, SIGTSTP};
use signal_hook::iterator::Signals;

use crate::app::effects::{Effect, PollRequest};
use crate::app::msg::Msg;
use crate::app::state::{Exit, Settings, State};
use crate::app::watched::Watched;
use crate::client::Client;
use crate::clock::Clock;
use crate::term::{self, Terminal};
use crate::ui::{Theme, view};

mod poller;
mod trap;
mod worker;

use trap::panic_if_asked;

/// The most messages queued for the screen; senders block beyond that.
const MESSAGES: usize = 256;
/// The most messages drained before the screen is drawn.
const BATCH: usize = 1024;
/// The most changes and single reads queued for the worker.
const JOBS: usize = 8;
/// The least time between frames: at most 30 frames per second.
const FRAME: Nanos = Nanos::from_millis(34);

/// The options of the screen.
#[derive(Clone, Debug)]
pub struct Options {
    /// The admin listeners to show; at least one.
    pub targets: Vec<Clients>,
    /// Whether to refuse all changes.
    pub read_only: bool,
    /// Whether to draw with ASCII only.
    pub ascii: bool,
    /// Whether to use colour.
    pub color: bool,
    /// The poll interval.
    pub interval: Duration,
}

/// The clients of one admin listener.
#[derive(Clone, Debug)]
pub struct Clients {
    /// For polls.
    pub polling: Client,
    /// For changes, which may take longer.
    pub changing: Client,
}

/// Runs the screen until the user quits. The terminal is restored before this returns, also with an
/// error. Returns in words which changes for all Envoys are not known to be in force everywhere.
pub fn run(options: Options) -> anyhow::Result<Vec<String>> {
    let Options {
        targets,
        read_only,
        ascii,
        color,
        interval,
    } = options;
    let clock = Clock::start();
    let (messages, inbox) = sync_channel(MESSAGES);
    // Before any thread can panic.
    term::install_panic_hook();
    let mut states = Vec::new();
    let mut hands = Vec::new();
    for (number, clients) in targets.into_iter().enumerate() {
        let settings = Settings {
            url: clients.polling.url().to_owned(),
            read_only,
            interval: nanos(interval),
        };
        states.push(State::new(settings, Terminal::size()));
        hands.push(Hands::start(clients, clock, &messages, number)?);
    }
    // Before the terminal is taken, so that a signal in between is handled.
    spawn_signals(&messages)?;
    let mut terminal = Terminal::enter().context("cannot use this terminal")?;
    spawn_input(&messages)?;
    let theme = Theme::new(color, ascii);
    let mut screen = Screen {
        watched: Watched::new(states),
        clock,
        hands,
        inbox,
    };
    match screen.run(&mut terminal, &theme)? {
        Exit::Quit => Ok(screen.watched.unfinished()),
        Exit::Fatal(text) => {
            let unfinished = screen.watched.unfinished().into_iter();
            let lines: Vec<String> = std::iter::once(text).chain(unfinished).collect();
            Err(anyhow!(lines.join("\n")))
        }
    }
}

fn nanos(duration: Duration) -> Nanos {
    Nanos::new(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
}

/// The screen's thread.
struct Screen {
    watched: Watched,
    clock: Clock,
    hands: Vec<Hands>,
    inbox: Receiver<Tagged>,
}

/// A message, and the number of the Envoy that it is about; none for the one that is shown.
type Tagged = (Option<usize>, Msg);

/// The way to the screen of one thread.
#[derive(Clone)]
struct Outbox {
    to: SyncSender<Tagged>,
    about: Option<usize>,
}

impl Outbox {
    /// Sends a message; false if the screen is gone.
    fn send(&self, msg: Msg) -> bool {
        self.to.send((self.about, msg)).is_ok()
    }
}

impl Screen {
    fn run(&mut self, terminal: &mut Terminal, theme: &Theme) -> anyhow::Result<Exit> {
        let mut drawn: Option<Nanos> = None;
        let mut dirty = true;
        self.step((None, Msg::Tick), terminal)?;
        loop {
            let now = self.clock.now();
            let frame_due = drawn.map_or(now, |drawn| drawn.saturating_add(FRAME));
            if dirty && now >= frame_due {
                let state = self.watched.shown();
                terminal
                    .draw(|frame| view(state, theme, frame))
                    .context("cannot draw")?;
                (drawn, dirty) = (Some(now), false);
                panic_if_asked("screen");
            }
            let tick = self.watched.tick_after();
            let wait = if dirty {
                frame_due.since(now).min(tick)
            } else {
                tick
            };
            let first = match self.inbox.recv_timeout(Duration::from_nanos(wait.get())) {
                Ok(msg) => msg,
                Err(RecvTimeoutError::Timeout) => (None, Msg::Tick),
                Err(RecvTimeoutError::Disconnected) => {
                    (None, Msg::Fatal("all threads ended".to_owned()))
                }
            };
            self.step(first, terminal)?;
            for _ in 0..BATCH {
                let Ok(msg) = self.inbox.try_recv() else {
                    break;
                };
                self.step(msg, terminal)?;
            }
            dirty = true;
            if let Some(exit) = self.watched.exit() {
                return Ok(exit);
            }
        }
    }

    /// Applies one message and starts its effects.
    fn step(&mut self, (about, msg): Tagged, terminal: &mut Terminal) -> anyhow::Result<()> {
        for (number, effect) in self.watched.update(about, msg, self.clock.now()) {
            match effect {
                Effect::Suspend => terminal.suspend().context("cannot suspend")?,
                Effect::Copy(text) => terminal
                    .copy(&text)
                    .context("cannot write to the terminal")?,
                Effect::Resume => terminal.resume().context("cannot take the terminal back")?,
                effect => self.start(number, effect),
            }
        }
        Ok(())
    }

    fn start(&mut self, number: usize, effect: Effect) {
        let goal = effect.goal();
        let hands = self.hands.get(number);
        if !hands.is_some_and(|hands| hands.start_effect(effect)) {
            // `Busy` requests no effects of its own, so this does not recurse.
            let effects = self
                .watched
                .update(Some(number), Msg::Busy(goal), self.clock.now());
            drop(effects);
        }
    }
}

/// The threads that carry out effects.
struct Hands {
    poller: SyncSender<PollRequest>,
    worker: SyncSender<Effect>,
}

impl Hands {
    fn start(
        clients: Clients,
        clock: Clock,
        messages: &SyncSender<Tagged>,
        number: usize,
    ) -> anyhow::Result<Self> {
        let Clients { polling, changing } = clients;
        let about = Outbox {
            to: messages.clone(),
            about: Some(number),
        };
        let (poller, requests) = sync_channel(1);
        let answers = about.clone();
        spawn("poller", messages, move || {
            poller::run(&polling, clock, &requests, &answers);
        })?;
        let (worker, jobs) = sync_channel(JOBS);
        spawn("worker", messages, move || {
            worker::run(&changing, &jobs, &about);
        })?;
        Ok(Self { poller, worker })
    }

    /// Hands an effect to its thread without waiting; false if there is no room for it.
    fn start_effect(&self, effect: Effect) -> bool {
        match effect {
            Effect::Poll(request) => match self.poller.try_send(request) {
                Ok(()) => true,
                // A thread that ended reports that itself.
                Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => false,
            },
            effect => self.worker.try_send(effect).is_ok(),
        }
    }
}

/// The way of a thread that serves no single Envoy.
fn untagged(messages: &SyncSender<Tagged>) -> Outbox {
    Outbox {
        to: messages.clone(),
        about: None,
    }
}

/// Starts a thread whose panic ends the app.
fn spawn(
    name: &str,
    messages: &SyncSender<Tagged>,
    body: impl FnOnce() + Send + 'static,
) -> anyhow::Result<()> {
    let messages = untagged(messages);
    let name = format!("{}{name}", term::BACKGROUND);
    thread::Builder::new()
        .name(name)
        .spawn(move || {
            if panic::catch_unwind(AssertUnwindSafe(body)).is_err() {
                // The receiver is gone if the app is ending anyway.
                messages.send(Msg::Fatal(term::report()));
            }
        })
        .context("cannot start a thread")?;
    Ok(())
}

fn spawn_input(messages: &SyncSender<Tagged>) -> anyhow::Result<()> {
    let out = untagged(messages);
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

fn spawn_signals(messages: &SyncSender<Tagged>) -> anyhow::Result<()> {
    let signals = Signals::new([SIGTERM, SIGHUP, SIGINT, SIGTSTP, SIGCONT]);
    let mut signals = signals.context("cannot listen to signals")?;
    let out = untagged(messages);
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
