//! The whole state of the app: what was read, what is shown, and what is being asked.

use std::collections::BTreeMap;

use loudou_api::{Access, BucketView, Event, RuleView, Rules, Status};
use loudou_limiter::Nanos;

use super::columns::Sort;
use super::filter::Filter;
use super::form::Form;
use super::history::{Rates, Track};
use super::line::Line;
use super::link::Link;
use super::msg::Snapshot;
use super::of_key::KeyForm;
use super::question::Pending;
use super::rows::{BucketName, Row};
use super::screen::Screen;
use crate::change::Undo;
use crate::change::ban_undo::Seen;
use crate::live::ledger::Ledger;

/// The most events that are kept.
pub(crate) const MAX_EVENTS: usize = 500;

/// What is said of a change until it is answered.
pub(crate) const SENDING: &str = "sending";

/// What does not change while the app runs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    /// The address of the admin listener.
    pub(crate) url: String,
    /// Whether changes are off because the user said so.
    pub(crate) read_only: bool,
    /// How often to poll.
    pub(crate) interval: Nanos,
}

/// What keys go to. Each mode has its own data, so no two can be on at once.
#[derive(Clone, Debug, Default)]
pub(crate) enum Mode {
    /// The screen itself.
    #[default]
    Browse,
    /// The filter line; with the filter as it was before.
    Filter(Line, String),
    /// The sort menu; with the chosen row.
    Sort(usize),
    /// The keys of this screen; with the first line shown.
    Help(usize),
    /// The command palette.
    Palette(Line, usize),
    /// A question.
    Confirm(Box<Pending>),
    /// The edit form.
    Edit(Box<Form>),
    /// The small form for one key.
    OfKey(Box<KeyForm>),
}

/// Everything that was read, as of the last poll that is shown.
#[derive(Clone, Debug, Default)]
pub(crate) struct Data {
    pub(crate) status: Status,
    pub(crate) rules: Rules,
    /// Newest first.
    pub(crate) events: Vec<Event>,
    pub(crate) last_seq: u64,
    pub(crate) events_lost: u64,
    pub(crate) rows: Vec<Row>,
    pub(crate) truncated: bool,
    /// How wide the longest rule and the longest key are.
    pub(crate) longest: (u16, u16),
    /// When it was read.
    pub(crate) read_at: Nanos,
}

/// Counters through time.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    pub(crate) buckets: BTreeMap<BucketName, Track>,
    pub(crate) rules: BTreeMap<String, Track>,
}

/// The Buckets table: what of the rows is shown, and how.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    pub(crate) sort: Sort,
    pub(crate) filter: Filter,
    pub(crate) filter_text: String,
    /// What is wrong with the text being typed; the last good filter holds.
    pub(crate) filter_error: Option<String>,
    /// Indices of the rows that pass, in order.
    pub(crate) visible: Vec<usize>,
    /// The bucket the selection sticks to; the top row while nobody moved.
    pub(crate) pinned: Option<BucketName>,
    /// Where in `visible` the selection is.
    pub(crate) at: usize,
    /// The first row on screen.
    pub(crate) offset: usize,
}

/// A message that goes away by itself.
#[derive(Clone, Debug)]
pub(crate) struct Toast {
    pub(crate) text: String,
    pub(crate) is_bad: bool,
    pub(crate) until: Nanos,
}

/// A frozen screen: polls go on, and the newest waits.
#[derive(Clone, Debug)]
pub(crate) struct Frozen {
    pub(crate) since: Nanos,
    pub(crate) waiting: Option<(Box<Snapshot>, Nanos)>,
}

/// How the app ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// As asked.
    Quit,
    /// Because of this.
    Fatal(String),
}

/// The state.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    pub(crate) settings: Settings,
    /// The time of the last update.
    pub(crate) now: Nanos,
    /// Columns and rows of the terminal.
    pub(crate) size: (u16, u16),
    pub(crate) screen: Screen,
    pub(crate) mode: Mode,
    pub(crate) link: Link,
    pub(crate) data: Option<Data>,
    pub(crate) history: History,
    pub(crate) table: Table,
    /// The bucket of the Bucket screen.
    pub(crate) open: Option<BucketName>,
    /// The limit drawn on the Bucket screen; the reported one when none was chosen.
    pub(crate) limit: Option<usize>,
    /// The selected line of screens that are plain lists.
    pub(crate) selected: BTreeMap<Screen, usize>,
    pub(crate) frozen: Option<Frozen>,
    pub(crate) toasts: Vec<Toast>,
    /// Own edits that can be taken back, newest last.
    pub(crate) undos: Vec<Undo>,
    /// A rule that was just changed, and until when its rows stand out.
    pub(crate) changed: Option<(String, Nanos)>,
    /// What is live, and what restarts took.
    pub(crate) ledger: Ledger,
    /// Whether the status line offers to apply again what a restart took.
    pub(crate) offers: bool,
    pub(crate) exit: Option<Exit>,
}

impl State {
    /// The state before anything was read.
    pub(crate) fn new(settings: Settings, size: (u16, u16)) -> Self {
        Self {
            settings,
            size,
            ..Self::default()
        }
    }

    /// How long ago the shown data were read; stands still while frozen.
    pub(crate) fn age(&self) -> Nanos {
        let until = self.frozen.as_ref().map_or(self.now, |frozen| frozen.since);
        let read_at = self.data.as_ref().map_or(until, |data| data.read_at);
        until.since(read_at)
    }

    /// The part of the age by which levels are drawn lower: past that they are not known.
    pub(crate) fn drain_age(&self) -> Nanos {
        // Extrapolating further than polling explains would be inventing.
        let most = self.settings.interval.get().saturating_mul(2);
        self.age().min(Nanos::new(most))
    }

    /// Whether the shown data are older than polling explains.
    pub(crate) fn is_stale(&self) -> bool {
        let patience = self.settings.interval.get().saturating_mul(3);
        self.data.is_some()
            && self.frozen.is_none()
            && self.age() > Nanos::new(patience.max(2_000_000_000))
    }

    /// The server's clock as it was when the shown data were read.
    pub(crate) fn server_ns(&self) -> u64 {
        self.data.as_ref().map_or(0, |data| data.status.now_ns)
    }

    /// The server's wall clock now, as far as the last poll tells.
    pub(crate) fn unix_ms(&self) -> u64 {
        let status = self.waiting().map(|waiting| &waiting.status);
        let status = status.or_else(|| self.data.as_ref().map(|data| &data.status));
        status.map_or(0, |status| status.unix_ms)
    }

    /// What was read last, while the screen is frozen and does not show it.
    fn waiting(&self) -> Option<&Snapshot> {
        let waiting = self.frozen.as_ref()?.waiting.as_ref();
        waiting.map(|(snapshot, _)| snapshot.as_ref())
    }

    /// The server's clock at the last poll, whether that is shown or not.
    pub(crate) fn polled_ns(&self) -> u64 {
        let waiting = self.waiting();
        waiting.map_or_else(|| self.server_ns(), |waiting| waiting.status.now_ns)
    }

    /// What the last poll, shown or not, tells of the ban of a bucket as it is after `after_ns`.
    pub(crate) fn seen_after(&self, id: &BucketName, after_ns: u64) -> Seen {
        let (found, all) = if let Some(waiting) = self.waiting() {
            let is_it = |view: &BucketView| view.rule == id.rule && view.key == id.key;
            let mut buckets = waiting.buckets.iter();
            let found = buckets.find(|(_, view)| is_it(view));
            (found.map(|(at, view)| (*at, view)), !waiting.truncated)
        } else if let Some(data) = &self.data {
            let found = data.rows.iter().find(|row| row.id == *id);
            (found.map(|row| (row.as_of_ns, &row.view)), !data.truncated)
        } else {
            (None, false)
        };
        match found {
            Some((at_ns, view)) if at_ns > after_ns => Seen::Read(view.ban),
            None if all && self.polled_ns() > after_ns => Seen::Gone,
            _ => Seen::Unknown,
        }
    }

    /// Why nothing may be changed, if so.
    pub(crate) fn locked(&self) -> Option<&'static str> {
        if self.settings.read_only {
            return Some("read-only: started with --read-only");
        }
        match &self.data {
            Some(data) if data.status.access == Access::View => {
                Some("read-only: this token may only view")
            }
            _ => None,
        }
    }

    /// The visible rows, in order.
    pub(crate) fn rows(&self) -> impl ExactSizeIterator<Item = Option<&Row>> {
        let rows = self.data.as_ref().map_or(&[][..], |data| &data.rows);
        self.table.visible.iter().map(move |index| rows.get(*index))
    }

    /// The selected row of the Buckets screen.
    pub(crate) fn selected_row(&self) -> Option<&Row> {
        let index = self.table.visible.get(self.table.at)?;
        self.data.as_ref()?.rows.get(*index)
    }

    /// The selected line of a screen that is a plain list.
    pub(crate) fn selected(&self, screen: Screen) -> usize {
        self.selected.get(&screen).copied().unwrap_or(0)
    }

    /// The row of the open bucket, if it still lives.
    pub(crate) fn open_row(&self) -> Option<&Row> {
        let id = self.open.as_ref()?;
        self.data.as_ref()?.rows.iter().find(|row| row.id == *id)
    }

    /// A rule by its place.
    pub(crate) fn rule_view(&self, index: usize) -> Option<&RuleView> {
        self.data.as_ref()?.rules.rules.get(index)
    }

    /// A rule by its name.
    pub(crate) fn rule_named(&self, name: &str) -> Option<&RuleView> {
        let rules = &self.data.as_ref()?.rules.rules;
        rules.iter().find(|rule| rule.name == name)
    }

    /// Admitted and refused per second over all rules; `None` before there were two polls.
    pub(crate) fn total_rates(&self) -> Option<Rates> {
        let rates = self.history.rules.values().filter_map(Track::rates);
        rates.reduce(Rates::plus)
    }

    /// Says something for a few seconds. The same text is not said twice at once.
    pub(crate) fn toast(&mut self, is_bad: bool, text: impl Into<String>) {
        const SHOWN: Nanos = Nanos::from_secs(6);
        const MOST: usize = 3;
        let text = text.into();
        self.toasts.retain(|toast| toast.text != text);
        if self.toasts.len() >= MOST {
            self.toasts.remove(0);
        }
        self.toasts.push(Toast {
            text,
            is_bad,
            until: self.now.saturating_add(SHOWN),
        });
    }

    /// A change was answered: it is not being sent any more.
    pub(crate) fn sent(&mut self) {
        self.toasts.retain(|toast| toast.text != SENDING);
    }
}
