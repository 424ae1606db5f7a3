//! A recording that is played in place of live Envoys: its clock, which runs at a chosen speed, stands still and jumps.

use loudou_limiter::Nanos;

use crate::num::float;
use crate::text::{date, humanise};

/// The speeds, in quarters of real time.
const SPEEDS: [u64; 9] = [1, 2, 4, 8, 20, 40, 80, 120, 240];
/// Real time.
const REAL: usize = 2;

/// What a user can do with a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Control {
    /// Stand still, or go on.
    Pause,
    Faster,
    Slower,
    /// Go back by so many seconds.
    Back(u8),
    /// Go ahead by so many seconds.
    Ahead(u8),
}

/// A recording that is played.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Play {
    /// The time of the first answer, and the wall clock then.
    begin: Nanos,
    begin_unix_ms: u64,
    /// The time of the last answer.
    last: Nanos,
    /// An index of [`SPEEDS`].
    speed: usize,
    is_paused: bool,
    /// An instant, and the time of the recording then.
    anchor: (Nanos, Nanos),
    /// How often it went back. Its reader then begins at an earlier answer.
    pub(crate) rewinds: u64,
    /// Why it ends, once it has.
    pub(crate) end: Option<String>,
    /// The instant of the last update, for what does not follow the recording's clock.
    pub(crate) now: Nanos,
}

impl Play {
    /// A recording between these times, which begins to play at the instant `now`.
    pub(crate) const fn new(begin: Nanos, last: Nanos, begin_unix_ms: u64, now: Nanos) -> Self {
        Self {
            begin,
            begin_unix_ms,
            last,
            speed: REAL,
            is_paused: false,
            anchor: (now, begin),
            rewinds: 0,
            end: None,
            now,
        }
    }

    /// Four times the speed.
    fn quarters(&self) -> u64 {
        SPEEDS.get(self.speed).copied().unwrap_or(4)
    }

    /// The time of the recording at an instant.
    pub(crate) fn at(&self, now: Nanos) -> Nanos {
        let (since, at) = self.anchor;
        if self.is_paused || self.end.is_some() {
            return at;
        }
        let passed = now.since(since).get().saturating_mul(self.quarters()) / 4;
        at.saturating_add(Nanos::new(passed)).min(self.last)
    }

    /// The time until the recording is at `at`; `None` if it does not get there.
    pub(crate) fn until(&self, at: Nanos, now: Nanos) -> Option<Nanos> {
        if self.is_paused || self.end.is_some() {
            return None;
        }
        let left = at.since(self.at(now)).get().saturating_mul(4);
        Some(Nanos::new(left.div_ceil(self.quarters())))
    }

    /// Applies a control at an instant.
    pub(crate) fn control(&mut self, control: Control, now: Nanos) {
        let at = self.at(now);
        self.anchor = (now, at);
        let seconds = |seconds: u8| Nanos::from_secs(seconds.into());
        match control {
            Control::Pause if self.end.is_some() => {}
            Control::Pause => self.is_paused = !self.is_paused,
            Control::Faster => {
                let fastest = SPEEDS.len().saturating_sub(1);
                self.speed = self.speed.saturating_add(1).min(fastest);
            }
            Control::Slower => self.speed = self.speed.saturating_sub(1),
            Control::Back(span) => {
                let to = Nanos::new(at.get().saturating_sub(seconds(span).get()));
                self.anchor = (now, to.max(self.begin));
                self.rewinds = self.rewinds.saturating_add(1);
                self.end = None;
            }
            Control::Ahead(span) => {
                let to = at.saturating_add(seconds(span));
                self.anchor = (now, to.min(self.last));
            }
        }
    }

    /// It has ended.
    pub(crate) fn ended(&mut self, why: String, now: Nanos) {
        self.anchor = (now, self.at(now));
        self.end = Some(why);
    }

    /// The wall clock at a time of the recording.
    pub(crate) fn date(&self, at: Nanos) -> String {
        let since = at.since(self.begin).as_millis();
        date(self.begin_unix_ms.saturating_add(since))
    }

    /// `x4, 12s of 5m`, or why it stands still.
    pub(crate) fn words(&self, at: Nanos) -> String {
        let seconds = |span: Nanos| humanise(span.get() / 1_000_000_000 * 1_000_000_000);
        let (done, all) = (at.since(self.begin), self.last.since(self.begin));
        let place = format!("{} of {}", seconds(done), seconds(all));
        match &self.end {
            Some(why) => format!("recording ends: {why}"),
            None if self.is_paused => format!("recording paused, {place}"),
            None => format!("recording x{}, {place}", float(self.quarters()) / 4.0),
        }
    }

    /// Whether it stands still.
    pub(crate) const fn is_still(&self) -> bool {
        self.is_paused || self.end.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn secs(seconds: u64) -> Nanos {
        Nanos::from_secs(seconds)
    }

    /// A recording of a minute that begins with its third second, played from the instant 100 s on.
    fn play() -> Play {
        Play::new(secs(3), secs(63), 1_795_269_787_000, secs(100))
    }

    #[test]
    fn the_clock_runs_at_its_speed() {
        let mut play = play();
        assert_eq!(
            (play.at(secs(100)), play.at(secs(110))),
            (secs(3), secs(13))
        );
        play.control(Control::Faster, secs(110));
        assert_eq!(play.at(secs(115)), secs(23));
        assert_eq!(play.until(secs(33), secs(115)), Some(secs(5)));
        for _ in 0..20 {
            play.control(Control::Slower, secs(115));
        }
        assert_eq!(play.words(play.at(secs(115))), "recording x0.25, 20s of 1m");
        assert_eq!(play.at(secs(119)), secs(24));
        for _ in 0..20 {
            play.control(Control::Faster, secs(119));
        }
        assert_eq!(play.words(play.at(secs(119))), "recording x60, 21s of 1m");
        assert_eq!(
            play.until(secs(54), secs(119)),
            Some(Nanos::from_millis(500))
        );
        assert_eq!(play.at(secs(500)), secs(63), "never beyond the last answer");
    }

    #[test]
    fn it_stands_still_and_goes_on() {
        let mut play = play();
        play.control(Control::Pause, secs(105));
        assert_eq!(
            (play.at(secs(900)), play.until(secs(9), secs(900))),
            (secs(8), None)
        );
        assert_eq!(play.words(secs(8)), "recording paused, 5s of 1m");
        play.control(Control::Pause, secs(900));
        assert_eq!(play.at(secs(901)), secs(9));
    }

    #[test]
    fn it_jumps_within_its_bounds() {
        let mut play = play();
        play.control(Control::Back(10), secs(101));
        assert_eq!((play.at(secs(101)), play.rewinds), (secs(3), 1));
        play.control(Control::Ahead(60), secs(102));
        assert_eq!((play.at(secs(102)), play.rewinds), (secs(63), 1));
        play.ended("it was interrupted".to_owned(), secs(103));
        assert_eq!(play.words(secs(63)), "recording ends: it was interrupted");
        play.control(Control::Pause, secs(104));
        assert!(play.is_still());
        play.control(Control::Back(10), secs(110));
        assert_eq!((play.at(secs(112)), play.end.clone()), (secs(55), None));
        assert_eq!(play.date(secs(13)), "2026-11-21 14:03:17Z");
    }
}
