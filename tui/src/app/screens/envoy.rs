//! The Envoy screen: the process, its store, held requests, and findings, which are conditions that
//! an engineer on call should look at.

use loudou_api::{Status, StoreStatus};
use loudou_limiter::Nanos;

use super::view::{About, View};
use crate::app::command::{c, tab};
use crate::app::findings::{SLOW, Weight, findings};
use crate::app::layout::body_height;
use crate::app::screen::Screen;
use crate::app::state::{Data, State};
use crate::draw::pen::Pen;
use crate::draw::theme::{Appearance, Theme};
use crate::draw::widgets;
use crate::draw::words::{amount, percent, text, wrap};
use loudou_words::num::{cells, fraction};
use loudou_words::text::{bytes, counted, date, humanise};
use ratatui::text::{Line, Span};

static ABOUT: About = About {
    screen: Screen::Envoy,
    title: "Envoy",
    tab: tab(
        Screen::Envoy,
        &[c('6')],
        14,
        "envoy",
        "show the process, its store, and findings",
    ),
    keys: &[],
    takes_turns: true,
    moves: false,
};

/// Column at which the values of the facts begin. `FINDING` is the column at which the findings
/// begin.
const VALUE: usize = 12;
const FINDING: usize = 3;

/// The Envoy screen.
pub(super) struct Envoy;

impl View for Envoy {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn draw(&self, pen: &mut Pen<'_>, state: &State) {
        let Some(data) = &state.data else { return };
        let lines = lines(pen.theme, state, data);
        let (area, shown) = (pen.area, usize::from(pen.area.height));
        let first = state.selected(Screen::Envoy);
        let first = first.min(lines.len().saturating_sub(shown));
        let all = lines.len();
        for ((line, is_head), row) in lines.into_iter().skip(first).zip(area.rows()) {
            if is_head {
                pen.style(row, pen.theme.head);
            }
            pen.line(row, line);
        }
        widgets::scroll_bar(pen, area, first, shown, all);
    }

    /// Returns the number of lines that can be scrolled to the top. Nothing is selected on this
    /// screen.
    fn lines(&self, state: &State) -> usize {
        let all = state.data.as_ref().map_or(0, |data| {
            lines(&Theme::of(&Appearance::default()), state, data).len()
        });
        let shown = usize::from(body_height(state.size));
        all.saturating_sub(shown).saturating_add(1)
    }
}

/// Colour of a line.
#[derive(Clone, Copy)]
enum Tone {
    Plain,
    Warn,
}

impl Tone {
    const fn of(is_wrong: bool) -> Self {
        if is_wrong { Self::Warn } else { Self::Plain }
    }
}

/// Returns all lines, wrapped to the width of the terminal, with a flag that is true for headings.
/// The last column of the terminal stays free for the scroll bar.
fn lines(theme: &Theme, state: &State, data: &Data) -> Vec<(Line<'static>, bool)> {
    let head = |title: &'static str| (Line::from(title), true);
    let style = |tone: Tone| match tone {
        Tone::Plain => theme.plain,
        Tone::Warn => theme.warn,
    };
    let room = |x: usize| state.size.0.saturating_sub(cells(x)).saturating_sub(1);
    let mut lines = vec![head(" envoy")];
    for (label, value, tone) in facts(state, data) {
        let texts = wrap(&value, room(VALUE));
        for (number, words) in texts.iter().enumerate() {
            let label = if number == 0 { label } else { "" };
            let label = format!(" {label:<wide$}", wide = VALUE.saturating_sub(1));
            lines.push((
                vec![text(&label, theme.dim), text(words, style(tone))].into(),
                false,
            ));
        }
        if label == "store"
            && let Some((last, _)) = lines.last_mut()
        {
            let used = fraction(data.status.store.used, data.status.store.buckets);
            let bar = room(last.width()).saturating_sub(1).min(20);
            last.push_span(Span::raw(" "));
            last.extend(widgets::level(theme, bar, used, theme.bar(used)));
        }
    }
    lines.extend([(Line::default(), false), head(" findings")]);
    let found = findings(state);
    if found.is_empty() {
        lines.push((text(" nothing to look at", theme.good).into(), false));
    }
    for finding in found {
        let is_warning = finding.weight == Weight::Warning;
        let mark = if is_warning {
            theme.pick('⚠', '!')
        } else {
            theme.pick('·', '-')
        };
        let texts = wrap(&finding.text, room(FINDING)).into_iter().enumerate();
        lines.extend(texts.map(|(number, words)| {
            let mark = if number == 0 { mark } else { ' ' };
            (
                text(&format!(" {mark} {words}"), style(Tone::of(is_warning))).into(),
                false,
            )
        }));
    }
    lines
}

/// A label, a value, and its colour.
type Fact = (&'static str, String, Tone);

fn facts(state: &State, data: &Data) -> Vec<Fact> {
    let status = &data.status;
    let started = date(status.started_unix_ms);
    let up = humanise(status.uptime_ns / 1_000_000_000 * 1_000_000_000);
    let process = format!("{}, since {started} ({up})", status.instance);
    let filter = format!(
        "{} ({}), generation {}",
        status.version, status.git, status.generation
    );
    let mut facts = vec![
        ("address", state.settings.url.clone(), Tone::Plain),
        ("process", process, Tone::Plain),
        ("filter", filter, Tone::Plain),
    ];
    facts.extend(of_store(&status.store));
    facts.extend(memory(data));
    facts.push(("held", held(status), Tone::Plain));
    let reloads = status.store.reloads;
    facts.push(("reloads", reloaded(reloads), Tone::of(reloads > 0)));
    if let Some((median, worst)) = state.polls.latency(state.now) {
        let text = answers_in(median, worst);
        facts.push(("admin role", text, Tone::of(median >= SLOW)));
    }
    facts
}

/// Returns an estimate of the memory that all workers share, computed as in `loudou check`.
fn memory(data: &Data) -> Option<Fact> {
    let estimate = data.running.estimate(&data.rules.rules, &data.status)?;
    let (now, most) = (bytes(estimate.now), bytes(estimate.most));
    let text = format!("an estimate: {now} in use now, at most {most}, rules included");
    Some(("memory", text, Tone::Plain))
}

fn reloaded(reloads: u64) -> String {
    match counted(reloads, "time") {
        _ if reloads == 0 => "0".to_owned(),
        times => format!("{times} a sandbox of a worker died and was loaded again"),
    }
}

/// Describes how fast the admin listener answers. The times are rounded up to tenths of a
/// millisecond, because more digits would only flicker.
fn answers_in(median: Nanos, worst: Nanos) -> String {
    let rounded = |time: Nanos| humanise(time.get().div_ceil(100_000).saturating_mul(100_000));
    format!(
        "answers in {} (median of the last minute), at most {}",
        rounded(median),
        rounded(worst)
    )
}

/// Returns the store's fill level, evictions and conflicts.
fn of_store(store: &StoreStatus) -> [Fact; 3] {
    let used = fraction(store.used, store.buckets);
    let lost = [
        store.cas_give_ups,
        store.lost_counts,
        store.lost_returns,
        store.lost_responses,
    ];
    let is_lossy = lost.iter().any(|count| *count > 0);
    [
        ("store", filled(store), Tone::of(used >= 0.9)),
        ("evicted", evicted(store), Tone::of(store.evicted_lossy > 0)),
        ("conflicts", conflicts(store), Tone::of(is_lossy)),
    ]
}
fn filled(store: &StoreStatus) -> String {
    let used = fraction(store.used, store.buckets);
    let idle = match store.sampled {
        0 => String::new(),
        sampled => format!(
            ", {} of them idle",
            percent(fraction(store.sampled_idle, sampled))
        ),
    };
    format!(
        "{} of {} buckets, {}{idle}",
        amount(store.used),
        amount(store.buckets),
        percent(used)
    )
}

fn evicted(store: &StoreStatus) -> String {
    format!(
        "{} idle, {} in use",
        amount(store.evicted_lossless),
        amount(store.evicted_lossy)
    )
}

fn conflicts(store: &StoreStatus) -> String {
    format!(
        "{} retries, {} decisions given up; lost: {} counts, {} returns, {} responses",
        amount(store.cas_retries),
        amount(store.cas_give_ups),
        amount(store.lost_counts),
        amount(store.lost_returns),
        amount(store.lost_responses)
    )
}

fn held(status: &Status) -> String {
    format!(
        "{} now; not held: {} by deadline, {} because the worker was full",
        amount(status.waiting),
        amount(status.not_held_deadline),
        amount(status.not_held_full)
    )
}
