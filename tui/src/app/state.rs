//! The state of the app: the data read, the current view, and the open dialog.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use loudou_api::{Access, BucketView, Event, RuleView, Rules, Status};
use loudou_limiter::Nanos;

use super::broadcast::Delivery;
use super::columns::Longest;
use super::effects::Undoable;
use super::explain::Explain;
use super::form::Form;
use super::history::{History, Rates, Scale, admitting};
use super::link::Link;
use super::merged::{Keys, Summed};
use super::msg::Snapshot;
use super::of_key::KeyForm;
use super::polls::Polls;
use super::question::Pending;
use super::rows::{BucketName, Row};
use super::running::Running;
use super::screen::Screen;
use super::table::Table;
use super::targets::{Numbers, TargetSummary};
use super::text_field::TextField;
use crate::typed_request::TypedRequest;
use loudou_client::change::ban_undo::Seen;
use loudou_client::live::ledger::Ledger;

/// Maximum number of events that are kept.
pub(crate) const MAX_EVENTS: usize = 500;

/// Message that is shown while a change is being sent.
pub(crate) const SENDING: &str = "sending";

/// The settings, which do not change while the app runs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    /// Address of the admin listener.
    pub(crate) url: String,
    /// True if `loudou` uses this address when no `--url` is given.
    pub(crate) is_usual: bool,
    /// True if the user disabled changes.
    pub(crate) read_only: bool,
    /// Poll interval.
    pub(crate) interval: Nanos,
}

impl Settings {
    /// Returns the address, unless it is the default, which command lines need not name.
    pub(crate) fn named_url(&self) -> Option<&str> {
        (!self.is_usual).then_some(self.url.as_str())
    }
}

/// The dialog that receives key presses, or `Browse` if the screen receives them. Exactly one mode
/// is active, and it contains the data of its dialog.
#[derive(Clone, Debug, Default)]
pub(crate) enum Mode {
    /// The screen itself.
    #[default]
    Browse,
    /// The filter line, with the previous filter.
    Filter(TextField, String),
    /// The sort menu, with the selected row.
    Sort(usize),
    /// The list of keys, with the index of the first visible line.
    Help(usize),
    /// The command palette, with the selected row.
    Palette(TextField, usize),
    /// A question.
    Confirm(Box<Pending>),
    /// The edit form.
    Edit(Box<Form>),
    /// The form that changes a single rate-limit key.
    OfKey(Box<KeyForm>),
    /// The Explain overlay.
    Explain(Box<Explain>),
    /// An event with all its fields.
    Event(Box<Event>),
}

/// The displayed data, as of the last poll that was applied.
#[derive(Clone, Debug, Default)]
pub(crate) struct Data {
    pub(crate) status: Status,
    pub(crate) rules: Rules,
    /// The parts of the rules that are compared with other Envoys.
    pub(crate) numbers: BTreeMap<String, Arc<Numbers>>,
    /// The rules, parsed when they are first needed.
    pub(crate) running: Running,
    /// Events, newest first.
    pub(crate) events: Vec<Event>,
    pub(crate) last_seq: u64,
    pub(crate) events_lost: u64,
    /// Known buckets, sorted by name.
    pub(crate) rows: Vec<Row>,
    /// True if the store has more buckets than `rows` contains.
    pub(crate) truncated: bool,
    /// Server's clock when all buckets were last read.
    pub(crate) whole_ns: Option<u64>,
    /// Server's clock when there was a row for each bucket in the store.
    pub(crate) complete_ns: Option<u64>,
    /// Buckets that the last poll looked up and did not find, with the server's clock at that time.
    pub(crate) gone: BTreeMap<BucketName, u64>,
    /// Percentage of the store that the searches for the filter text have covered, or `None` when
    /// they have finished.
    pub(crate) searching: Option<u64>,
    pub(crate) longest: Longest,
    /// Time at which the data were read.
    pub(crate) read_at: Nanos,
}

/// A message that disappears after a few seconds.
#[derive(Clone, Debug)]
pub(crate) struct Toast {
    pub(crate) text: String,
    pub(crate) is_bad: bool,
    pub(crate) until: Nanos,
    /// True if the message concerns only the last key press. The next key press removes the
    /// message.
    pub(crate) is_hint: bool,
}

/// A frozen screen. The app continues to poll, and keeps the newest snapshot to show it when the
/// user unfreezes the screen.
#[derive(Clone, Debug)]
pub(crate) struct Frozen {
    pub(crate) since: Nanos,
    pub(crate) waiting: Option<(Box<Snapshot>, Nanos)>,
}

/// How the app ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// The user quit.
    Quit,
    /// A fatal error occurred.
    Fatal(String),
}

/// State of the app for one Envoy.
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    pub(crate) settings: Settings,
    /// Time of the last update.
    pub(crate) now: Nanos,
    /// Columns and rows of the terminal.
    pub(crate) size: (u16, u16),
    pub(crate) screen: Screen,
    pub(crate) mode: Mode,
    pub(crate) link: Link,
    pub(crate) polls: Polls,
    pub(crate) data: Option<Data>,
    pub(crate) history: History,
    /// Time span of the charts.
    pub(crate) scale: Scale,
    pub(crate) table: Table,
    /// The keys of all watched Envoys.
    pub(crate) keys: Keys,
    /// The keys to read from this Envoy while the Keys screen is open.
    pub(crate) summed: Option<Summed>,
    /// The bucket that the Bucket screen shows.
    pub(crate) open: Option<BucketName>,
    /// Filter of the events.
    pub(crate) event_filter: String,
    /// The last request that was sent from the Explain overlay.
    pub(crate) explained: Option<TypedRequest>,
    /// The limit drawn on the Bucket screen, or `None` for the main limit.
    pub(crate) limit: Option<usize>,
    /// The selected line of each screen that is a plain list.
    pub(crate) selected: BTreeMap<Screen, usize>,
    pub(crate) frozen: Option<Frozen>,
    pub(crate) toasts: Vec<Toast>,
    /// The user's changes, newest last, for the undo key.
    pub(crate) undos: Vec<Undoable>,
    /// A deferred question about an undo, which opens when the user presses the undo key.
    pub(crate) unasked: Option<Box<Pending>>,
    /// A rule that was just changed, and the time until which it is highlighted.
    pub(crate) changed: Option<(String, Nanos)>,
    /// The live changes, and the changes lost in restarts.
    pub(crate) ledger: Ledger,
    /// True if the banner of a restart offers to apply the lost changes.
    pub(crate) offers: bool,
    /// Time at which a restart of Envoy was detected.
    pub(crate) restarted_at: Option<Nanos>,
    pub(crate) exit: Option<Exit>,
    /// All watched Envoys, if there are several.
    pub(crate) targets: Vec<TargetSummary>,
    /// Titles of the last broadcasts, newest first, with the result at each Envoy.
    pub(crate) broadcasts: Vec<(String, Vec<Delivery>)>,
    /// Number of this Envoy.
    pub(crate) number: usize,
    /// Number of the Envoy to which the user wants to switch.
    pub(crate) wants: Option<usize>,
    /// The bucket to select after switching to the Envoy in `wants`.
    pub(crate) wants_bucket: Option<BucketName>,
    /// True if the user asked to apply the changes that are missing at this Envoy or, if none are,
    /// at another one.
    pub(crate) asks_again: bool,
    /// Number of the Envoy that the user wants to mark or unmark.
    pub(crate) marks: Option<usize>,
    /// True if keys are hidden.
    pub(crate) hides_keys: bool,
    /// True if another Envoy is shown.
    pub(crate) is_hidden: bool,
    /// True if the next poll restarts the searches for buckets.
    pub(crate) searches_anew: bool,
}

impl State {
    /// Returns the state before the first poll.
    pub(crate) fn new(settings: Settings, size: (u16, u16)) -> Self {
        Self {
            settings,
            size,
            ..Self::default()
        }
    }

    /// Returns the age of the displayed data. The age does not change while the screen is frozen.
    pub(crate) fn age(&self) -> Nanos {
        let until = self.frozen.as_ref().map_or(self.now, |frozen| frozen.since);
        let read_at = self.data.as_ref().map_or(until, |data| data.read_at);
        until.since(read_at)
    }

    /// Returns the time by which the drawn levels of a row have drained since the row was read, at
    /// most two poll intervals.
    pub(crate) fn drain_age(&self, row: &Row) -> Nanos {
        // Levels are not extrapolated further, because new requests may have arrived.
        let most = self.settings.interval.get().saturating_mul(2);
        // A slow poll reads its rows later than the status, so the rows are younger.
        let later = row.as_of_ns.saturating_sub(self.server_ns());
        let age = self.age().get().saturating_sub(later);
        Nanos::new(age.min(most))
    }

    /// Returns the maximum time between two answers that still counts as normal: three poll
    /// intervals, but at least 2 s.
    pub(crate) fn patience(&self) -> Nanos {
        let patience = self.settings.interval.get().saturating_mul(3);
        Nanos::new(patience.max(2_000_000_000))
    }

    /// Returns true if the screen is not frozen and the displayed data are older than normal
    /// polling allows.
    pub(crate) fn is_stale(&self) -> bool {
        self.data.is_some() && self.frozen.is_none() && self.age() > self.patience()
    }

    /// Returns the end time of charts: the last answer or, if the data are stale, now.
    pub(crate) fn charts_end_ns(&self) -> u64 {
        let since = if self.is_stale() { self.age().get() } else { 0 };
        self.history.place(self.server_ns()).saturating_add(since)
    }

    /// Returns the server's clock when the displayed data were read.
    pub(crate) fn server_ns(&self) -> u64 {
        self.data.as_ref().map_or(0, |data| data.status.now_ns)
    }

    /// Returns the server's wall clock in the last poll.
    pub(crate) fn unix_ms(&self) -> u64 {
        let status = self.waiting().map(|waiting| &waiting.status);
        let status = status.or_else(|| self.data.as_ref().map(|data| &data.status));
        status.map_or(0, |status| status.unix_ms)
    }

    /// Returns the newest snapshot if the screen is frozen and does not show it.
    fn waiting(&self) -> Option<&Snapshot> {
        let waiting = self.frozen.as_ref()?.waiting.as_ref();
        waiting.map(|(snapshot, _)| snapshot.as_ref())
    }

    /// Returns the server's clock in the last poll, even if the screen is frozen.
    pub(crate) fn polled_ns(&self) -> u64 {
        let waiting = self.waiting();
        waiting.map_or_else(|| self.server_ns(), |waiting| waiting.status.now_ns)
    }

    /// Returns the ban of a bucket as of the last poll, even if the screen is frozen. The result is
    /// `Unknown` unless the bucket was read after `after_ns`.
    pub(crate) fn seen_after(&self, id: &BucketName, after_ns: u64) -> Seen {
        let (found, gone_ns) = if let Some(waiting) = self.waiting() {
            let is_it = |view: &BucketView| view.rule == id.rule && view.key == id.key;
            let mut buckets = waiting.buckets.iter();
            let found = buckets.find(|(_, view)| is_it(view));
            let is_gone = waiting.gone.contains(id) || !waiting.truncated;
            let gone_ns = is_gone.then_some(waiting.status.now_ns);
            (found.map(|(at, view)| (*at, view)), gone_ns)
        } else if let Some(data) = &self.data {
            let found = data.rows.iter().find(|row| row.id == *id);
            let gone_ns = data.gone.get(id).copied().max(data.whole_ns);
            (found.map(|row| (row.as_of_ns, &row.view)), gone_ns)
        } else {
            (None, None)
        };
        match (found, gone_ns) {
            (Some((at_ns, view)), _) if at_ns > after_ns => Seen::Read(view.ban),
            (None, Some(gone_ns)) if gone_ns > after_ns => Seen::Gone,
            _ => Seen::Unknown,
        }
    }

    /// Returns a key for display. While keys are hidden, this is a pseudonym, which stays the same
    /// until Envoy restarts.
    pub(crate) fn shown_key<'a>(&self, key: &'a str) -> Cow<'a, str> {
        if !self.hides_keys {
            return Cow::Borrowed(key);
        }
        let instance = self.data.as_ref().map(|data| &data.status.instance);
        let mut hasher = DefaultHasher::new();
        (instance, key).hash(&mut hasher);
        Cow::Owned(format!("key-{:04x}", hasher.finish() >> 48))
    }

    /// Replaces the known keys in a message with pseudonyms. The message may contain keys if, for
    /// example, it answers a change that was sent before keys were hidden.
    fn without_keys(&self, text: &str) -> String {
        let rows = self.data.iter().flat_map(|data| &data.rows);
        let known = rows
            .map(|row| &row.id)
            .chain(&self.open)
            .chain(&self.table.pinned);
        let keys: BTreeSet<&str> = known.map(|id| id.key.as_str()).collect();
        let words = text.split(' ').map(|word| {
            let bare = word.trim_end_matches([':', ',', '.', ';', '?']);
            match keys.get(bare) {
                Some(key) => word.replacen(key, &self.shown_key(key), 1),
                None => word.to_owned(),
            }
        });
        words.collect::<Vec<_>>().join(" ")
    }

    /// Returns why changes are not allowed, if they are not.
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

    /// Returns a visible row by its index.
    pub(crate) fn row(&self, index: usize) -> Option<&Row> {
        let row = self.table.visible.get(index)?;
        self.data.as_ref()?.rows.get(*row)
    }

    /// Returns the selected row of the Buckets screen.
    pub(crate) fn selected_row(&self) -> Option<&Row> {
        self.row(self.table.at).filter(|_| !self.table.is_missing)
    }

    /// Returns the selected line of a screen that is a plain list.
    pub(crate) fn selected(&self, screen: Screen) -> usize {
        self.selected.get(&screen).copied().unwrap_or(0)
    }

    /// Returns the row of the open bucket, if it still exists.
    pub(crate) fn open_row(&self) -> Option<&Row> {
        let id = self.open.as_ref()?;
        self.data.as_ref()?.rows.iter().find(|row| row.id == *id)
    }

    /// Returns a rule by its index.
    pub(crate) fn rule_view(&self, index: usize) -> Option<&RuleView> {
        self.data.as_ref()?.rules.rules.get(index)
    }

    /// Returns a rule by its name.
    pub(crate) fn rule_named(&self, name: &str) -> Option<&RuleView> {
        let rules = &self.data.as_ref()?.rules.rules;
        rules.iter().find(|rule| rule.name == name)
    }

    /// Returns a rule as last read, even if the screen is frozen.
    pub(crate) fn rule_read(&self, name: &str) -> Option<&RuleView> {
        self.rules_read().iter().find(|rule| rule.name == name)
    }

    /// Returns the rules as last read, even if the screen is frozen.
    pub(crate) fn rules_read(&self) -> &[RuleView] {
        let read = self.waiting().and_then(|waiting| waiting.rules.as_ref());
        let rules = read.or_else(|| self.data.as_ref().map(|data| &data.rules));
        rules.map_or(&[], |rules| &rules.rules)
    }

    /// Returns the total rates of all rules, or `None` before the second poll.
    pub(crate) fn total_rates(&self) -> Option<Rates> {
        let rules = &self.data.as_ref()?.status.rules;
        let admitting = admitting(rules);
        let rates = rules.iter().filter_map(|rule| {
            let rates = self.history.rules.get(&rule.name)?.rates()?;
            Some(if admitting(rule) {
                rates
            } else {
                Rates {
                    admitted: 0.0,
                    ..rates
                }
            })
        });
        rates.reduce(Rates::plus)
    }

    /// Shows a message for a few seconds. An earlier message with the same text is replaced.
    pub(crate) fn toast(&mut self, is_bad: bool, text: impl Into<String>) {
        const SHOWN: Nanos = Nanos::from_secs(6);
        const MAX_TOASTS: usize = 3;
        let mut text = text.into();
        if self.hides_keys {
            text = self.without_keys(&text);
        }
        self.toasts.retain(|toast| toast.text != text);
        if self.toasts.len() >= MAX_TOASTS {
            self.toasts.remove(0);
        }
        self.toasts.push(Toast {
            text,
            is_bad,
            until: self.now.saturating_add(SHOWN),
            is_hint: false,
        });
    }

    /// Explains why the pressed key does nothing. The next key press removes the message.
    pub(crate) fn hint(&mut self, text: impl Into<String>) {
        self.toast(true, text);
        if let Some(toast) = self.toasts.last_mut() {
            toast.is_hint = true;
        }
    }

    /// Removes the "sending" message once a change has been answered.
    pub(crate) fn sent(&mut self) {
        self.toasts.retain(|toast| toast.text != SENDING);
    }
}
