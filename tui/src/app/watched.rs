//! The states of all watched Envoys. One Envoy is shown at a time.

use std::collections::BTreeSet;

use loudou_limiter::Nanos;

use super::broadcast::Broadcast;
use super::columns::Sort;
use super::effects::{Effect, Goal, Sending};
use super::filter::Filter;
use super::findings::{Weight, of_one};
use super::history::Scale;
use super::layout::table_height;
use super::merged::{Keys, Summed, merge};
use super::msg::Msg;
use super::rows::BucketName;
use super::screen::Screen;
use super::state::{Exit, Mode, State};
use super::targets::{TargetSummary, are_twins, in_force};
use super::update::{AGES, tick_after, update};
use super::{again, answers, ingest, undoing};
use loudou_client::live::Item;

/// The summaries that a message changes.
#[derive(Clone, Copy, Debug)]
enum Changed {
    Nothing,
    One,
    Time,
}

/// Maximum number of tracked broadcasts. If this many broadcasts are incomplete, no further
/// broadcast is sent.
const MAX_BROADCASTS: usize = 8;

/// The states of all watched Envoys.
#[derive(Debug)]
pub(crate) struct Watched {
    states: Vec<State>,
    at: usize,
    /// Envoys that the user marked. If there are any, broadcasts are sent only to the marked
    /// Envoys.
    marked: BTreeSet<usize>,
    /// The broadcasts, newest last.
    broadcasts: Vec<Broadcast>,
    /// Number of broadcasts so far.
    sent: u64,
    /// When the keys of all Envoys were last summed, or `None` while the Keys screen is not shown.
    summed_at: Option<Nanos>,
}

impl Watched {
    /// Creates the list of watched Envoys from their states, and shows the first one. If `states`
    /// is empty, a default state is added.
    pub(crate) fn new(mut states: Vec<State>) -> Self {
        if states.is_empty() {
            states.push(State::default());
        }
        let mut watched = Self {
            states,
            at: 0,
            marked: BTreeSet::new(),
            broadcasts: Vec::new(),
            sent: 0,
            summed_at: None,
        };
        watched.show(0);
        watched
    }

    /// Returns the shown state.
    pub(crate) fn shown(&self) -> &State {
        static NONE: std::sync::LazyLock<State> = std::sync::LazyLock::new(State::default);
        self.states.get(self.at).unwrap_or(&NONE)
    }

    /// Applies a message at the time `now`. `about` is the number of the Envoy that the message
    /// concerns, or `None` for the shown Envoy. Each effect is returned with the number of its
    /// Envoy.
    pub(crate) fn update(
        &mut self,
        about: Option<usize>,
        msg: Msg,
        now: Nanos,
    ) -> Vec<(usize, Effect)> {
        let number = about.unwrap_or(self.at);
        let mut effects = Vec::new();
        self.note_answer(number, &msg);
        let changed = match &msg {
            Msg::Polled(_) => Changed::One,
            Msg::Tick => Changed::Time,
            _ => Changed::Nothing,
        };
        // Ticks and resizes are applied to every state.
        let shared = match &msg {
            Msg::Tick => Some(Msg::Tick),
            Msg::Resize(columns, rows) => Some(Msg::Resize(*columns, *rows)),
            _ => None,
        };
        let mut own = Some(msg);
        for (other, state) in self.states.iter_mut().enumerate() {
            let msg = match &shared {
                Some(shared) => Some(shared.clone()),
                None if other == number => own.take(),
                None => None,
            };
            let of_one = msg.map(|msg| update(state, msg, now));
            let of_one = of_one.into_iter().flatten();
            effects.extend(of_one.map(|effect| (other, effect)));
        }
        let effects: Vec<(usize, Effect)> = effects
            .into_iter()
            .flat_map(|(other, effect)| match effect {
                Effect::ChangeAll(sending) => self.broadcast(other, *sending, now),
                effect => vec![(other, effect)],
            })
            .collect();
        let wanted = self.wanted();
        let shown = self.states.get_mut(self.at);
        if let Some(number) = shown.and_then(|state| state.marks.take()) {
            if !self.marked.remove(&number) {
                self.marked.insert(number);
            }
            self.note_targets();
        }
        if let Some((number, bucket)) = wanted {
            self.show(number);
            self.select(bucket);
        }
        self.ask_again();
        match changed {
            Changed::One => self.note_target(number),
            // Only the Targets screen shows the ages of all Envoys.
            Changed::Time if self.shows_ages() => self.note_targets(),
            Changed::Time | Changed::Nothing => {}
        }
        self.report();
        self.note_broadcasts();
        self.sum(now);
        effects
    }

    /// Returns true if the screen shows the ages of all Envoys, which change as time passes.
    fn shows_ages(&self) -> bool {
        self.shown().screen == Screen::Targets && self.shown().frozen.is_none()
    }

    /// Returns the Envoy to which the user wants to switch, and the bucket to show there.
    fn wanted(&mut self) -> Option<(usize, Option<BucketName>)> {
        let count = self.states.len();
        let shown = self.states.get_mut(self.at)?;
        let (number, bucket) = (shown.wants.take(), shown.wants_bucket.take());
        Some((number.filter(|number| *number < count)?, bucket))
    }

    /// Asks whether to apply the changes that are missing at the shown Envoy. If none are missing
    /// there, the next Envoy at which changes are missing is shown.
    fn ask_again(&mut self) {
        let at = self.at;
        let Some(state) = self.states.get_mut(at) else {
            return;
        };
        if !std::mem::take(&mut state.asks_again) {
            return;
        }
        let all = (at..self.states.len()).chain(0..at);
        let found = all.map(|number| (number, self.lacking(number)));
        let found = found.into_iter().find(|(_, lacking)| !lacking.is_empty());
        if let Some((number, _)) = found {
            self.show(number);
        }
        // An answer may have opened a dialog at that Envoy in the meantime, and this dialog must
        // stay open.
        let shown = self.states.get_mut(self.at);
        if let Some(state) = shown.filter(|state| matches!(state.mode, Mode::Browse)) {
            match found {
                Some((_, lacking)) => again::ask(state, lacking),
                None => state.hint(again::NOTHING),
            }
        }
    }

    /// Returns the changes that are missing at an Envoy: changes that it lost in a restart, and
    /// changes that are in effect at other connected Envoys. Empty if changes are not allowed.
    fn lacking(&self, number: usize) -> Vec<Item> {
        let state = self.states.get(number);
        let Some(state) = state.filter(|state| state.locked().is_none()) else {
            return Vec::new();
        };
        let others = self.states.iter().enumerate();
        let others =
            others.filter(|(other, state)| *other != number && state.link.up == Some(true));
        again::lacking(state, others.map(|(_, other)| other))
    }

    /// Broadcasts a change that the user confirmed at the Envoy `at`.
    fn broadcast(&mut self, at: usize, sending: Sending, now: Nanos) -> Vec<(usize, Effect)> {
        if self.broadcasts.len() >= MAX_BROADCASTS {
            let Some(over) = self.broadcasts.iter().position(Broadcast::is_over) else {
                let busy = Msg::Busy(Goal::Change(Box::new(sending)));
                let state = self.states.get_mut(at);
                let effects = state.map(|state| update(state, busy, now));
                let effects = effects.into_iter().flatten();
                return effects.map(|effect| (at, effect)).collect();
            };
            self.broadcasts.remove(over);
        }
        self.sent = self.sent.saturating_add(1);
        let undoes = sending.undoes;
        let mut earlier = self.broadcasts.iter();
        let undone = earlier.find(|earlier| undoes.is_some_and(|number| earlier.is_number(number)));
        let of = (self.states.len(), &self.marked);
        let mut broadcast = Broadcast::new(self.sent, (sending, undone), of, now);
        let sent = broadcast.begin(at, &self.states, &self.broadcasts);
        for (number, state) in self.states.iter_mut().enumerate() {
            if number == at && !broadcast.is_sending(at) {
                answers::not_sent_here(state, broadcast.sending(), &broadcast.outcome(at));
            } else if let Some(why) = broadcast.failure(number) {
                undoing::not_made(state, broadcast.sending(), why);
            }
        }
        self.broadcasts.push(broadcast);
        sent.into_iter().map(change).collect()
    }

    /// Records an Envoy's answer to a broadcast.
    fn note_answer(&mut self, number: usize, msg: &Msg) {
        for broadcast in &mut self.broadcasts {
            match msg {
                Msg::Changed(sending, result) => broadcast.answered(number, sending, result),
                Msg::Busy(Goal::Change(sending)) => broadcast.has_no_room(number, sending),
                _ => {}
            }
        }
    }

    /// Shows the summaries of broadcasts that have completed.
    fn report(&mut self) {
        for broadcast in &mut self.broadcasts {
            let news = broadcast.news(&self.states);
            if let (Some((text, is_bad)), Some(state)) = (news, self.states.get_mut(self.at)) {
                state.toast(is_bad, text);
            }
        }
    }

    /// Describes the broadcasts that may not be in effect at some Envoy, for the message that is
    /// printed when the app exits.
    pub(crate) fn unfinished(&self) -> Vec<String> {
        let broadcasts = self.broadcasts.iter();
        broadcasts
            .flat_map(|broadcast| broadcast.unfinished(&self.states))
            .collect()
    }

    /// Shows another Envoy, and keeps the screen and the user's choices.
    fn show(&mut self, at: usize) {
        let chosen = Chosen::of(self.shown());
        if let Some(state) = self.states.get_mut(at).filter(|_| at != self.at) {
            chosen.apply(state);
        }
        for (number, state) in self.states.iter_mut().enumerate() {
            state.is_hidden = number != at;
            if number == at {
                let now = state.now;
                state.link.hurry(now);
            }
        }
        self.at = at;
        self.note_targets();
    }

    fn note_targets(&mut self) {
        if self.states.len() < 2 {
            return;
        }
        let mut targets: Vec<TargetSummary> = self.states.iter().map(target).collect();
        for (number, target) in targets.iter_mut().enumerate() {
            target.is_marked = self.marked.contains(&number);
        }
        find_twins(&mut targets);
        let at = self.at;
        if let Some(state) = self.states.get_mut(at) {
            (state.targets, state.number) = (targets, at);
        }
        self.note_broadcasts();
    }

    /// Updates the summary of one Envoy. With many Envoys, updating all summaries for every message
    /// would take too long.
    fn note_target(&mut self, number: usize) {
        let is_complete = self.shown().targets.len() == self.states.len();
        let Some(target) = self.states.get(number).map(target).filter(|_| is_complete) else {
            return self.note_targets();
        };
        let Some(shown) = self.states.get_mut(self.at) else {
            return;
        };
        let is_frozen = shown.frozen.is_some();
        if let Some(place) = shown.targets.get_mut(number) {
            let before = std::mem::replace(place, target);
            place.is_marked = before.is_marked;
            if is_frozen {
                place.keep_numbers(before);
            }
            find_twins(&mut shown.targets);
        }
    }

    fn note_broadcasts(&mut self) {
        let lines = self.broadcasts.iter().rev().map(Broadcast::lines);
        if let Some(state) = self.states.get_mut(self.at) {
            state.broadcasts = lines.collect();
        }
    }

    /// Returns the time until the next [`Msg::Tick`].
    pub(crate) fn tick_after(&self) -> Nanos {
        let ticks = self.states.iter().map(tick_after);
        ticks.min().unwrap_or(AGES)
    }

    /// Returns how the app ends, or `None` if it continues.
    pub(crate) fn exit(&mut self) -> Option<Exit> {
        self.states.iter_mut().find_map(|state| state.exit.take())
    }
}

/// Returns the effect that sends a change.
fn change((number, sending): (usize, Sending)) -> (usize, Effect) {
    (number, Effect::Change(Box::new(sending)))
}

/// Marks the addresses that lead to the same Envoy as an earlier address.
fn find_twins(targets: &mut [TargetSummary]) {
    let twins = are_twins(targets.iter().map(|target| target.instance.as_str()));
    for (target, is_twin) in targets.iter_mut().zip(twins) {
        target.is_twin = is_twin;
    }
}

/// Returns the summary of an Envoy.
fn target(state: &State) -> TargetSummary {
    let found = of_one(state).into_iter();
    let status = state.data.as_ref().map(|data| &data.status);
    TargetSummary {
        url: state.settings.url.clone(),
        instance: status.map_or_else(String::new, |status| status.instance.clone()),
        up: state.link.up,
        is_stale: state.is_stale(),
        error: state.link.error.clone(),
        rates: state.total_rates(),
        generation: status.map_or(0, |status| status.generation),
        is_twin: false,
        is_marked: false,
        version: status.map_or_else(String::new, |status| status.version.clone()),
        rules: state
            .data
            .as_ref()
            .map(|data| in_force(&data.status.rules, &data.numbers)),
        uptime_ns: status.map_or(0, |status| status.uptime_ns),
        banner: again::banner(state).map(|banner| (banner, state.offers)),
        warnings: found
            .filter(|finding| finding.weight == Weight::Warning)
            .count(),
    }
}

// The view settings that are kept when another Envoy is shown: the screen, and the user's choices
// on it.

/// The screen and the user's choices.
struct Chosen {
    screen: Screen,
    scale: Scale,
    sort: Sort,
    filter: (Filter, String),
    /// The selected bucket, which is kept so that the user can compare it with the key's bucket at
    /// the other Envoy.
    pinned: Option<BucketName>,
    open: Option<BucketName>,
    keys: Keys,
    event_filter: String,
}

impl Chosen {
    /// Returns the choices from a state.
    fn of(state: &State) -> Self {
        let table = &state.table;
        Self {
            screen: state.screen,
            scale: state.scale,
            sort: table.sort,
            filter: (table.filter.clone(), table.filter_text.clone()),
            pinned: table.pinned.clone(),
            open: state.open.clone(),
            keys: state.keys.clone(),
            event_filter: state.event_filter.clone(),
        }
    }

    /// Applies the choices to another state.
    fn apply(self, state: &mut State) {
        (state.screen, state.scale) = (self.screen, self.scale);
        (state.open, state.keys, state.event_filter) = (self.open, self.keys, self.event_filter);
        let table = &mut state.table;
        (table.sort, table.pinned) = (self.sort, self.pinned);
        (table.filter, table.filter_text) = self.filter;
        table.filter_error = None;
        table.rewind();
        ingest::arrange(state);
        if state.table.pinned.is_some() && !state.table.is_missing {
            state.table.scroll(table_height(state.size));
        }
    }
}

impl Watched {
    /// Selects a bucket of the shown Envoy.
    fn select(&mut self, bucket: Option<BucketName>) {
        let shown = self.states.get_mut(self.at);
        let Some((state, bucket)) = shown.zip(bucket) else {
            return;
        };
        ingest::filter_by(state, "");
        state.table.pinned = Some(bucket);
        ingest::arrange(state);
        state.table.scroll(table_height(state.size));
    }
}

// The sums of the keys of all Envoys, which are computed while the Keys screen is shown.

/// Time between two updates of the sums.
const EVERY: Nanos = Nanos::from_millis(250);

impl Watched {
    /// While the Keys screen is shown, sums the keys of all Envoys, and makes the polls of every
    /// Envoy read the keys on screen.
    fn sum(&mut self, now: Nanos) {
        let shown = self.shown();
        let is_seen = shown.screen == Screen::Keys && shown.frozen.is_none();
        if !is_seen {
            if self.summed_at.take().is_some() {
                self.states.iter_mut().for_each(|state| state.summed = None);
            }
            return;
        }
        let is_new = self.summed_at.is_none();
        if self.summed_at.is_some_and(|at| now.since(at) < EVERY) {
            return;
        }
        self.summed_at = Some(now);
        let instances = self.states.iter().map(|state| {
            let data = state.data.as_ref();
            data.map_or("", |data| data.status.instance.as_str())
        });
        let twins = are_twins(instances);
        let rows = self.states.iter().zip(twins).map(|(state, is_twin)| {
            let is_up = state.link.up == Some(true) && !is_twin;
            let data = state.data.as_ref().filter(|_| is_up);
            data.map(|data| (data.status.now_ns, data.rows.as_slice()))
        });
        let rows = merge(&rows.collect::<Vec<_>>());
        let Some(state) = self.states.get_mut(self.at) else {
            return;
        };
        let (keys, height) = (&mut state.keys, table_height(state.size));
        keys.rows = rows;
        if is_new {
            keys.since = now;
        }
        keys.arrange(height);
        let summed = Summed {
            shown: keys.on_screen(height),
            filter: keys.table.filter.clone(),
        };
        for state in &mut self.states {
            state.summed = Some(summed.clone());
            if is_new {
                state.link.hurry(now);
            }
        }
    }
}
