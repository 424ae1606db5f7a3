//! Threads of the terminal app, and the single channel through which they send messages to the
//! screen.
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
//! Each watched Envoy has a state, a poller and a worker. The answers about an Envoy carry the
//! Envoy's number. Key presses are sent to the state of the Envoy that is shown. For the other
//! Envoys, only the status is polled.
//!
//! The screen's thread does no I/O except drawing, so it never blocks. A panic in another thread is
//! sent to the screen's thread as a message, and ends the app with a report of the panic.
//!
//! To test panics in a real terminal, set the environment variable `LOUDOU_TEST_PANIC` to `screen`
//! or `poller`. The thread with this name panics after it has started.

use std::env;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use inbox::{Inbound, MESSAGES, Outbox, spawn, spawn_input, spawn_signals};
use loudou_limiter::Nanos;

use crate::app::effects::{Effect, PollRequest};
use crate::app::history::History;
use crate::app::msg::{Failure, Msg};
use crate::app::state::{Exit, Settings, State};
use crate::app::watched::Watched;
use crate::draw::pen::Spots;
use crate::draw::theme::Appearance;
use crate::term;
use crate::term::Terminal;
use crate::ui::{Theme, view};
use loudou_client::clock::Clock;
use loudou_client::live::Item;
use loudou_client::live::apply::{Done, Target};
use loudou_client::{Client, ClientError};

mod inbox;
mod poller;

/// Maximum number of messages that are drained before the screen is drawn.
const BATCH: usize = 1024;
/// Minimum time between frames, which means at most 30 frames per second.
const FRAME: Nanos = Nanos::from_millis(34);

/// Options of the screen.
#[derive(Clone, Debug)]
pub struct Options {
    /// Admin listeners to watch. There must be at least one.
    pub targets: Vec<Clients>,
    /// True to refuse all changes.
    pub read_only: bool,
    /// Colours and glyphs.
    pub(crate) look: Appearance,
    /// Poll interval.
    pub interval: Duration,
}

/// Clients of one admin listener.
#[derive(Clone, Debug)]
pub struct Clients {
    /// Client for polls.
    pub polling: Client,
    /// Client for changes, which may take longer.
    pub changing: Client,
    /// True if a command without `--url` calls this admin listener.
    pub is_usual: bool,
}

/// Runs the screen until the user quits. The terminal is restored before this returns, even after
/// an error. Returns a description of each change that was meant for all Envoys but is not known to
/// be in effect at all of them.
pub fn run(options: Options) -> anyhow::Result<Vec<String>> {
    let Options {
        targets,
        read_only,
        look,
        interval,
    } = options;
    let clock = Clock::start();
    let (messages, inbox) = sync_channel(MESSAGES);
    // The panic hook must be installed before any thread can panic.
    term::install_panic_hook();
    let (envoys, mut states) = (targets.len(), Vec::new());
    let mut threads = Vec::new();
    for (number, clients) in targets.into_iter().enumerate() {
        let settings = Settings {
            url: clients.polling.url().to_owned(),
            is_usual: clients.is_usual,
            read_only,
            interval: nanos(interval),
        };
        let mut state = State::new(settings, Terminal::size());
        state.history = History::of_one(envoys);
        states.push(state);
        threads.push(EnvoyThreads::start(clients, clock, &messages, number)?);
    }
    let screen = Screen {
        watched: Watched::new(states),
        clock,
        threads,
        inbox,
        spots: Spots::default(),
    };
    screen.show(&messages, &look)
}

fn nanos(duration: Duration) -> Nanos {
    Nanos::new(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
}

/// State of the screen's thread.
struct Screen {
    watched: Watched,
    clock: Clock,
    threads: Vec<EnvoyThreads>,
    inbox: Receiver<Inbound>,
    /// Clickable places of the last frame.
    spots: Spots,
}

impl Screen {
    /// Acquires the terminal and runs until the user quits. Returns a description of each change
    /// that was meant for all Envoys but is not known to be in effect at all of them.
    fn show(
        mut self,
        messages: &SyncSender<Inbound>,
        look: &Appearance,
    ) -> anyhow::Result<Vec<String>> {
        // The signal handlers are installed before the terminal is acquired, so that no signal is
        // lost in between.
        spawn_signals(messages, &inbox::OF_SCREEN)?;
        let look = &Appearance {
            base: look.base.or_else(|| term::background(look.depth)),
            ..look.clone()
        };
        let mut terminal = Terminal::enter(look.depth).context("cannot use this terminal")?;
        spawn_input(messages)?;
        let theme = Theme::of(look);
        match self.run(&mut terminal, &theme)? {
            Exit::Quit => Ok(self.watched.unfinished()),
            Exit::Fatal(text) => {
                let unfinished = self.watched.unfinished().into_iter();
                let lines: Vec<String> = std::iter::once(text).chain(unfinished).collect();
                Err(anyhow!(lines.join("\n")))
            }
        }
    }

    fn run(&mut self, terminal: &mut Terminal, theme: &Theme) -> anyhow::Result<Exit> {
        let mut drawn: Option<Nanos> = None;
        let mut dirty = true;
        self.step(Inbound::shown(Msg::Tick), terminal)?;
        loop {
            let now = self.clock.now();
            let frame_due = drawn.map_or(now, |drawn| drawn.saturating_add(FRAME));
            if dirty && now >= frame_due {
                let state = self.watched.shown();
                terminal
                    .draw(|frame| view(state, theme, frame, &mut self.spots))
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
                Err(RecvTimeoutError::Timeout) => Inbound::shown(Msg::Tick),
                Err(RecvTimeoutError::Disconnected) => {
                    Inbound::shown(Msg::Fatal("all threads ended".to_owned()))
                }
            };
            dirty |= self.step(first, terminal)?;
            for _ in 0..BATCH {
                let Ok(msg) = self.inbox.try_recv() else {
                    break;
                };
                dirty |= self.step(msg, terminal)?;
            }
            if let Some(exit) = self.watched.exit() {
                return Ok(exit);
            }
        }
    }

    /// Applies one message, and starts the effects that it causes. Returns true if the screen must be drawn. After a
    /// tick that starts a poll, the screen is not drawn, because the answer usually arrives within milliseconds and is
    /// drawn then.
    fn step(&mut self, inbound: Inbound, terminal: &mut Terminal) -> anyhow::Result<bool> {
        let Inbound { about, mut msg } = inbound;
        let is_tick = matches!(msg, Msg::Tick);
        let mut polls = false;
        if let Msg::Mouse(mouse) = &mut msg {
            mouse.spot = self.spots.at(mouse.x, mouse.y);
        }
        for (number, effect) in self.watched.update(about, msg, self.clock.now()) {
            polls |= matches!(effect, Effect::Poll(_));
            match effect {
                Effect::Suspend => terminal.suspend().context("cannot suspend")?,
                Effect::Copy(text) => terminal
                    .copy(&text)
                    .context("cannot write to the terminal")?,
                Effect::Resume => terminal.resume().context("cannot take the terminal back")?,
                effect => self.start(number, effect),
            }
        }
        Ok(!(is_tick && polls))
    }

    fn start(&mut self, number: usize, effect: Effect) {
        let goal = effect.goal();
        let threads = self.threads.get(number);
        if !threads.is_some_and(|threads| threads.start_effect(effect)) {
            // `Busy` requests no effects, so this does not recurse.
            let now = self.clock.now();
            let effects = self.watched.update(Some(number), Msg::Busy(goal), now);
            drop(effects);
        }
    }
}

/// Panics if `LOUDOU_TEST_PANIC` is set to `name`, the name of this thread.
fn panic_if_asked(name: &str) {
    let requested = env::var("LOUDOU_TEST_PANIC").is_ok_and(|wanted| wanted == name);
    assert!(!requested, "panic requested by LOUDOU_TEST_PANIC");
}

// The threads of an Envoy: a poller, and a worker for changes and single reads.

/// Maximum number of changes and single reads queued for the worker.
const JOBS: usize = 8;

/// The threads that carry out the effects of an Envoy.
struct EnvoyThreads {
    poller: SyncSender<PollRequest>,
    worker: SyncSender<Effect>,
}

impl EnvoyThreads {
    fn start(
        clients: Clients,
        clock: Clock,
        messages: &SyncSender<Inbound>,
        number: usize,
    ) -> anyhow::Result<Self> {
        let Clients {
            polling, changing, ..
        } = clients;
        let poller = spawn_poller(polling, clock, messages, number)?;
        let answers = Outbox::new(messages, Some(number));
        let (worker, jobs) = sync_channel(JOBS);
        spawn("worker", messages, move || {
            run_jobs(&changing, &jobs, &answers);
        })?;
        Ok(Self { poller, worker })
    }

    /// Sends an effect to the poller or the worker without waiting. Returns false if the thread's
    /// queue is full.
    fn start_effect(&self, effect: Effect) -> bool {
        match effect {
            Effect::Poll(request) => match self.poller.try_send(request) {
                Ok(()) => true,
                // A thread that has ended has already sent a report.
                Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => false,
            },
            effect => self.worker.try_send(effect).is_ok(),
        }
    }
}

/// Starts the poller of an Envoy, which polls once per request.
fn spawn_poller(
    client: Client,
    clock: Clock,
    messages: &SyncSender<Inbound>,
    number: usize,
) -> anyhow::Result<SyncSender<PollRequest>> {
    let answers = Outbox::new(messages, Some(number));
    let (poller, requests) = sync_channel(1);
    spawn("poller", messages, move || {
        poller::run(&client, clock, &requests, &answers);
    })?;
    Ok(poller)
}

/// Carries out jobs until all senders are dropped.
fn run_jobs(client: &Client, jobs: &Receiver<Effect>, answers: &Outbox) {
    for job in jobs {
        let Some(msg) = work(client, job) else {
            continue;
        };
        if !answers.send(msg) {
            return;
        }
    }
}

fn work(client: &Client, job: Effect) -> Option<Msg> {
    match job {
        Effect::ReadRule(rule) => {
            let result = client.rule(&rule).map(Box::new).map_err(Failure::from);
            Some(Msg::RuleRead(rule, result))
        }
        Effect::Change(mut sending) => {
            let result = sending.change.send(client, false);
            Some(Msg::Changed(sending, result.map_err(Failure::from)))
        }
        Effect::Explain(request) => {
            let result = client.explain(&request).map(Box::new);
            Some(Msg::Explained(result.map_err(Failure::from)))
        }
        Effect::Again(items) => Some(Msg::Again(again(client, items).map_err(Failure::from))),
        // Other threads carry out these effects.
        Effect::Poll(_)
        | Effect::ChangeAll(_)
        | Effect::Copy(_)
        | Effect::Suspend
        | Effect::Resume => None,
    }
}

/// Applies changes again that were lost when Envoy restarted.
fn again(client: &Client, items: Vec<Item>) -> Result<Vec<(Item, Done)>, ClientError> {
    let mut target = Target::read(client, false)?;
    let done = target.apply_all(items.iter());
    Ok(items.into_iter().zip(done).collect())
}
