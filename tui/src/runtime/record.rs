//! Records what a screen would show: the same app polls through the same pollers, and the answers go to a file.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use anyhow::anyhow;
use loudou_limiter::Nanos;

use super::hands::spawn_poller;
use super::inbox::{Inbound, MESSAGES, OF_END, spawn_signals};
use crate::app::effects::{Effect, PollRequest};
use crate::app::msg::Msg;
use crate::app::state::{Settings, State};
use crate::app::update::{tick_after, update};
use crate::client::Client;
use crate::clock::{Clock, unix_ms};
use crate::tape::{End, Stamp, Writer};
use crate::term;

/// The terminal that the recorded screen would have: its rows are read in each poll.
const SIZE: (u16, u16) = (120, 40);
/// The longest time between two reports of progress.
const REPORT: Nanos = Nanos::from_millis(500);

/// What was recorded.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Progress {
    pub(crate) time: Nanos,
    pub(crate) answers: u64,
    /// Polls without an answer.
    pub(crate) failures: u64,
    pub(crate) bytes: u64,
}

/// What to record, and for how long.
pub(crate) struct Options {
    pub(crate) clients: Vec<Client>,
    pub(crate) interval: Nanos,
    /// None until a signal comes.
    pub(crate) time: Option<Nanos>,
}

/// Records until the time is over, the file is full or a signal comes. `report` gets the progress now and then.
pub(crate) fn run(
    options: Options,
    mut writer: Writer<'_>,
    report: &mut dyn FnMut(&Progress) -> io::Result<()>,
) -> anyhow::Result<(Progress, End)> {
    let clock = Clock::start();
    let (messages, inbox) = sync_channel(MESSAGES);
    term::install_panic_hook();
    spawn_signals(&messages, &OF_END)?;
    let mut envoys = Vec::new();
    for (number, client) in options.clients.into_iter().enumerate() {
        envoys.push(Envoy::start(
            client,
            options.interval,
            clock,
            &messages,
            number,
        )?);
    }
    let mut recorder = Recorder {
        envoys,
        clock,
        done: Progress::default(),
    };
    let end = recorder.run(options.time, &inbox, &mut writer, report)?;
    let stamp = stamp(clock);
    let done = Progress {
        time: Nanos::new(stamp.at_ns),
        ..recorder.done
    };
    writer.finish(stamp, end)?;
    Ok((done, end))
}

fn stamp(clock: Clock) -> Stamp {
    Stamp {
        at_ns: clock.now().get(),
        unix_ms: unix_ms(),
    }
}

/// One Envoy: the state of its screen, which nobody sees, and its poller.
struct Envoy {
    state: State,
    url: String,
    poller: SyncSender<PollRequest>,
}

impl Envoy {
    fn start(
        client: Client,
        interval: Nanos,
        clock: Clock,
        messages: &SyncSender<Inbound>,
        number: usize,
    ) -> anyhow::Result<Self> {
        let url = client.url().to_owned();
        let settings = Settings {
            url: url.clone(),
            read_only: true,
            interval,
            ..Settings::default()
        };
        Ok(Self {
            state: State::new(settings, SIZE),
            url,
            poller: spawn_poller(client, clock, messages, number)?,
        })
    }

    /// Applies a message, and starts the poll that it asks for.
    fn update(&mut self, msg: Msg, now: Nanos) {
        for effect in update(&mut self.state, msg, now) {
            let Effect::Poll(request) = effect else {
                continue;
            };
            // A poller whose thread ended reports that itself.
            drop(self.poller.try_send(request));
        }
    }
}

struct Recorder {
    envoys: Vec<Envoy>,
    clock: Clock,
    done: Progress,
}

impl Recorder {
    fn run(
        &mut self,
        time: Option<Nanos>,
        inbox: &Receiver<Inbound>,
        writer: &mut Writer<'_>,
        report: &mut dyn FnMut(&Progress) -> io::Result<()>,
    ) -> anyhow::Result<End> {
        let mut report_at = Nanos::ZERO;
        loop {
            let now = self.clock.now();
            if time.is_some_and(|time| now >= time) {
                return Ok(End::Done);
            }
            for envoy in &mut self.envoys {
                envoy.update(Msg::Tick, now);
            }
            (self.done.time, self.done.bytes) = (now, writer.bytes());
            if now >= report_at {
                report(&self.done)?;
                report_at = now.saturating_add(REPORT);
            }
            let ticks = self.envoys.iter().map(|envoy| tick_after(&envoy.state));
            let left = time.map(|time| time.since(now));
            let wait = ticks.chain(left).min().unwrap_or(REPORT);
            match inbox.recv_timeout(Duration::from_nanos(wait.get())) {
                Ok(Inbound::Live(_, Msg::Quit)) => return Ok(End::Interrupted),
                Ok(Inbound::Live(_, Msg::Fatal(text))) => return Err(anyhow!(text)),
                Ok(Inbound::Live(Some(number), msg)) => {
                    if !self.answered(number, msg, writer)? {
                        return Ok(End::Full);
                    }
                }
                Ok(_) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(anyhow!("all threads ended")),
            }
        }
    }

    /// Writes an answer; false if there is no room for it.
    fn answered(&mut self, number: usize, msg: Msg, writer: &mut Writer<'_>) -> io::Result<bool> {
        let Some(envoy) = self.envoys.get_mut(number) else {
            return Ok(true);
        };
        if let Msg::Polled(answer) = &msg {
            if !writer.entry(stamp(self.clock), &envoy.url, answer)? {
                return Ok(false);
            }
            let count = match answer {
                Ok(_) => &mut self.done.answers,
                Err(_) => &mut self.done.failures,
            };
            *count = count.saturating_add(1);
        }
        envoy.update(msg, self.clock.now());
        Ok(true)
    }
}
