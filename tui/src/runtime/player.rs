//! The player's thread: in place of pollers, it sends the answers of a recording when they are due.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::Duration;

use loudou_api::{Event, Rules};
use loudou_limiter::Nanos;

use super::inbox::Inbound;
use crate::app::msg::{Failure, Msg, Snapshot};
use crate::app::play::Play;
use crate::clock::Clock;
use crate::tape::{Bad, End, Ending, Mark, Tape};

/// How much of a recording is read again when it goes back: the minute of the sparklines. Charts of a longer time remember
/// what was before.
const BEFORE: Nanos = Nanos::from_secs(61);
/// The most earlier lines that are read for their events.
const EARLIER: usize = 64;

/// The player.
pub(super) struct Player {
    pub(super) tape: Tape,
    pub(super) clock: Clock,
    /// How it is to be played, whenever that changes.
    pub(super) orders: Receiver<Play>,
    pub(super) screen: SyncSender<Inbound>,
    pub(super) play: Play,
    /// The next answer, as an index of the tape's marks.
    pub(super) next: usize,
}

/// The screen is gone.
struct Gone;

impl Player {
    /// Plays until the screen is gone.
    pub(super) fn run(mut self) {
        while self.step().is_ok() {}
    }

    fn step(&mut self) -> Result<(), Gone> {
        let wait = match self.tape.marks.get(self.next) {
            Some(mark) => self.play.until(at(mark), self.clock.now()),
            None if self.play.end.is_none() => {
                let why = why(&self.tape);
                return self.end(why);
            }
            None => None,
        };
        let order = match wait {
            None => self.orders.recv().map_err(|_closed| Gone)?,
            Some(wait) => match self.orders.recv_timeout(Duration::from_nanos(wait.get())) {
                Ok(order) => order,
                Err(RecvTimeoutError::Timeout) => return self.feed_next(),
                Err(RecvTimeoutError::Disconnected) => return Err(Gone),
            },
        };
        // Only the last one counts.
        let order = self.orders.try_iter().last().unwrap_or(order);
        let goes_back = order.rewinds != self.play.rewinds;
        self.play = order;
        if goes_back { self.go_back() } else { Ok(()) }
    }

    fn send(&self, inbound: Inbound) -> Result<(), Gone> {
        self.screen.send(inbound).map_err(|_closed| Gone)
    }

    fn end(&mut self, why: String) -> Result<(), Gone> {
        self.play.ended(why.clone(), self.clock.now());
        self.send(Inbound::Ended(why))
    }

    fn feed_next(&mut self) -> Result<(), Gone> {
        let index = self.next;
        self.next = index.saturating_add(1);
        self.feed(index, &mut |_, _| {})
    }

    /// Sends an answer, after `change` was applied to it. A recording ends before a line that cannot be read.
    fn feed(
        &mut self,
        index: usize,
        change: &mut dyn FnMut(&mut Tape, (usize, &mut Snapshot)),
    ) -> Result<(), Gone> {
        let Some(mark) = self.tape.marks.get(index).copied() else {
            return Ok(());
        };
        let answer = match self.tape.read(&mark) {
            Ok(Ok(mut snapshot)) => {
                change(&mut self.tape, (index, &mut snapshot));
                Ok(snapshot)
            }
            Ok(Err(text)) => Err(Failure {
                text,
                ..Failure::default()
            }),
            Err(bad) => {
                self.tape.ending = Ending::Damaged(bad);
                self.tape.marks.truncate(index);
                self.next = self.next.min(index);
                return Ok(());
            }
        };
        let msg = Msg::Polled(answer);
        self.send(Inbound::Played(at(&mark), Some(mark.envoy), msg))
    }

    /// Makes the screen what it was at an earlier time: what it has is forgotten, and the last answers before that time
    /// are sent again, with the rules and the events of those before them.
    fn go_back(&mut self) -> Result<(), Gone> {
        let to = self.play.at(self.clock.now());
        let from = Nanos::new(to.get().saturating_sub(BEFORE.get()));
        let marks = &self.tape.marks;
        let end = marks.partition_point(|mark| at(mark) <= to);
        let begin = marks.partition_point(|mark| at(mark) < from);
        let envoys = self.tape.head.urls.len();
        let mut first: BTreeMap<usize, usize> = BTreeMap::new();
        for (index, mark) in marks.iter().enumerate().take(end).skip(begin) {
            if mark.is_answer {
                first.entry(mark.envoy).or_insert(index);
            }
        }
        // Of an Envoy that was away, the last answer before that.
        let before = marks.get(..begin).unwrap_or_default();
        let mut earlier = Vec::new();
        for envoy in (0..envoys).filter(|envoy| !first.contains_key(envoy)) {
            let is_its = |mark: &Mark| mark.envoy == envoy && mark.is_answer;
            earlier.extend(before.iter().rposition(is_its).map(|index| (envoy, index)));
        }
        first.extend(earlier.iter().copied());
        let mut earlier: Vec<usize> = earlier.into_iter().map(|(_, index)| index).collect();
        earlier.sort_unstable();
        for envoy in 0..envoys {
            let since = first.get(&envoy).and_then(|index| marks.get(*index));
            let since = since.map_or(to, at);
            self.send(Inbound::Played(since, Some(envoy), Msg::Rewind))?;
        }
        let mut is_new = vec![true; envoys];
        for index in earlier.into_iter().chain(begin..end) {
            self.feed(index, &mut |tape, (index, snapshot)| {
                let envoy = tape.marks.get(index).map_or(0, |mark| mark.envoy);
                let is_first = is_new.get_mut(envoy).map(std::mem::take);
                if is_first == Some(true) {
                    add_earlier(tape, index, snapshot);
                }
            })?;
        }
        self.next = end.min(self.tape.marks.len());
        self.send(Inbound::Sought(self.play.rewinds))
    }
}

/// Adds what was sent once before an answer, of the same process: the rules and the events.
fn add_earlier(tape: &mut Tape, index: usize, snapshot: &mut Snapshot) {
    let Some(envoy) = tape.marks.get(index).map(|mark| mark.envoy) else {
        return;
    };
    let before = tape.marks.get(..index).unwrap_or_default().iter().rev();
    let rare = before.filter(|mark| mark.envoy == envoy && (mark.has_rules || mark.has_events));
    let rare: Vec<Mark> = rare.copied().collect();
    let mut rules: Option<Rules> = snapshot.rules.take();
    let mut events: Vec<Vec<Event>> = vec![std::mem::take(&mut snapshot.events)];
    for (number, mark) in rare.iter().enumerate() {
        if number >= EARLIER && (rules.is_some() || !mark.has_rules) {
            continue;
        }
        let Ok(Ok(other)) = tape.read(mark) else {
            break;
        };
        if other.status.instance != snapshot.status.instance {
            break;
        }
        rules = rules.or(other.rules);
        events.push(other.events);
        if number >= EARLIER {
            break;
        }
    }
    snapshot.rules = rules;
    snapshot.events = events.into_iter().rev().flatten().collect();
}

/// The time of an answer.
pub(super) const fn at(mark: &Mark) -> Nanos {
    Nanos::new(mark.stamp.at_ns)
}

/// Why a recording ends, in words.
pub(super) fn why(tape: &Tape) -> String {
    match &tape.ending {
        Ending::Said(End::Done) => "its time was over".to_owned(),
        Ending::Said(End::Interrupted) => "it was stopped".to_owned(),
        Ending::Said(End::Full) => "the file had reached its size".to_owned(),
        Ending::Said(End::Other) => "for a reason that this loudou does not know".to_owned(),
        Ending::Cut => {
            let last = tape.marks.last().map_or(1, |mark| mark.line);
            format!("the file is cut short after line {last}")
        }
        Ending::Damaged(Bad { line, why }) => format!("line {line} is damaged: {why}"),
    }
}

#[cfg(test)]
mod tests;
