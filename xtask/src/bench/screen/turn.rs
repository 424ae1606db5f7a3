//! A turn: users send requests, then nobody does, while one screen or none watches.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use loudou_tests::clock::{now, pause_for};
use loudou_tests::cpu::process_time;
use loudou_tests::{EDIT_TOKEN, Envoy, Exchange, Pace, Terminal, Traffic};

use super::{Size, USER, request};
use crate::bench::percentile;

/// 1 000 requests a second, over enough connections to reach each worker.
const PACE: Pace = Pace {
    clients: 8,
    interval: Duration::from_millis(8),
    requests: None,
};
/// The users who send requests, of those that have buckets.
const ACTIVE: u64 = 64;
/// The time between two keys of a user who scrolls, and how many go down before as many go up.
const KEYS: Duration = Duration::from_millis(100);
const WAY: u32 = 25;

/// The numbers of a turn. Shares are percent of a core.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Turn {
    pub(super) envoy: f64,
    pub(super) envoy_alone: f64,
    pub(super) p50: f64,
    pub(super) p99: f64,
    pub(super) screen: Option<Screen>,
}

/// The numbers of the screen itself.
#[derive(Debug, Clone, Copy)]
pub(super) struct Screen {
    pub(super) first_ms: f64,
    pub(super) share: f64,
    pub(super) share_alone: f64,
    pub(super) share_scrolling: f64,
}

/// Measures once, with this program on the screen.
pub(super) fn turn(
    envoy: &Envoy,
    buckets: u64,
    size: Size,
    program: Option<&Path>,
) -> Result<Turn> {
    let active = buckets.min(ACTIVE);
    let users = move |n| request(n % active);
    let traffic = Traffic::start([envoy.data_address()], PACE, users);
    let begun = now();
    let open = |program| Terminal::open_build(program, envoy, EDIT_TOKEN, &[]);
    let mut terminal = program.map(open).transpose()?;
    if let Some(terminal) = &terminal {
        terminal.shows(USER)?;
    }
    let first_ms = begun.elapsed().as_secs_f64() * 1e3;
    pause_for(size.settle);

    let shares = Shares::of(envoy, terminal.as_ref())?;
    let from = now();
    pause_for(size.part);
    let (envoy_share, share) = shares.since()?;
    let to = now();
    let share_scrolling = match &mut terminal {
        None => None,
        Some(terminal) => Some(scroll(envoy, terminal, size.part)?),
    };
    let latencies = latencies(&traffic.stop()?, from, to)?;

    let shares = Shares::of(envoy, terminal.as_ref())?;
    pause_for(size.part);
    let (envoy_alone, share_alone) = shares.since()?;
    let screen = share.zip(share_alone).zip(share_scrolling).map(
        |((share, share_alone), share_scrolling)| Screen {
            first_ms,
            share,
            share_alone,
            share_scrolling,
        },
    );
    if let Some(mut terminal) = terminal {
        terminal.press("q")?;
        let (code, seen) = terminal.ended()?;
        ensure!(code == 0, "the screen ended with {code}:\n{seen}");
    }
    let [p50, p99] = latencies;
    Ok(Turn {
        envoy: envoy_share,
        envoy_alone,
        p50,
        p99,
        screen,
    })
}

/// The processor times at an instant.
struct Shares {
    from: Instant,
    envoy: (u32, Duration),
    screen: Option<(u32, Duration)>,
}

impl Shares {
    fn of(envoy: &Envoy, terminal: Option<&Terminal>) -> Result<Self> {
        let time = |process| anyhow::Ok((process, process_time(process)?));
        Ok(Self {
            envoy: time(envoy.pid())?,
            screen: terminal.map(|app| time(app.pid()?)).transpose()?,
            from: now(),
        })
    }

    /// The processor time of Envoy and the screen since.
    fn since(self) -> Result<(f64, Option<f64>)> {
        let elapsed = self.from.elapsed().as_secs_f64();
        let share = |(process, before): (u32, Duration)| {
            let spent = process_time(process)?.saturating_sub(before);
            anyhow::Ok(100.0 * spent.as_secs_f64() / elapsed)
        };
        Ok((share(self.envoy)?, self.screen.map(share).transpose()?))
    }
}

/// The processor time of the screen while a user moves down and up the list.
fn scroll(envoy: &Envoy, terminal: &mut Terminal, part: Duration) -> Result<f64> {
    let shares = Shares::of(envoy, Some(terminal))?;
    let begun = now();
    let mut sent = 0;
    while begun.elapsed() < part {
        let is_down = (sent / WAY).is_multiple_of(2);
        terminal.press(if is_down { "j" } else { "k" })?;
        sent += 1;
        pause_for((KEYS * sent).saturating_sub(begun.elapsed()));
    }
    shares.since()?.1.context("no screen")
}

/// The median and the 99th percentile of the requests in this time, in microseconds.
fn latencies(exchanges: &[Exchange], from: Instant, to: Instant) -> Result<[f64; 2]> {
    let during = exchanges
        .iter()
        .filter(|one| one.sent >= from && one.got <= to);
    let mut times = Vec::new();
    for one in during {
        ensure!(matches!(one.status, Some(200 | 429)), "{one:?}");
        times.push(one.got.duration_since(one.sent));
    }
    let at = |times: &mut [Duration], part| percentile(times, part).context("no requests");
    Ok([at(&mut times, 500)?, at(&mut times, 990)?])
}
