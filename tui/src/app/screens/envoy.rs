//! The Envoy screen: the process, its store, held requests, and findings: what an engineer on call should look at.

use loudou_api::{Status, StoreStatus};
use loudou_limiter::Nanos;
use ratatui::style::Style;

use super::view::{About, View};
use crate::app::command::{c, tab};
use crate::app::findings::{SLOW, Weight, findings};
use crate::app::screen::Screen;
use crate::app::state::State;
use crate::draw::bars;
use crate::draw::pen::Pen;
use crate::draw::theme::Theme;
use crate::draw::words::{amount, percent, wrap};
use crate::num::fraction;
use crate::text::{date, humanise};

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

/// The process and findings.
pub(super) struct Envoy;

impl View for Envoy {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn draw(&self, pen: &mut Pen<'_>, state: &State) {
        let Some(data) = &state.data else { return };
        let y = facts(pen, &data.status, state);
        findings_below(pen, y.saturating_add(1), state);
    }
}

/// A label, a value, and the value's colour.
type Fact = (&'static str, String, Style);

/// Draws the facts, a line each; returns the line below them.
fn facts(pen: &mut Pen<'_>, status: &Status, state: &State) -> u16 {
    let theme = pen.theme;
    let store = &status.store;
    let used = fraction(store.used, store.buckets);
    pen.style_line(0, theme.head);
    pen.text(1, 0, "envoy", theme.head);
    let started = date(status.started_unix_ms);
    let up = humanise(status.uptime_ns / 1_000_000_000 * 1_000_000_000);
    let mut facts: Vec<Fact> = vec![
        ("address", state.settings.url.clone(), theme.plain),
        (
            "process",
            format!("{}, since {started} ({up})", status.instance),
            theme.plain,
        ),
        (
            "filter",
            format!(
                "{} ({}), generation {}",
                status.version, status.git, status.generation
            ),
            theme.plain,
        ),
    ];
    facts.extend(of_store(store, theme));
    facts.push(("held", held(status), theme.plain));
    if let Some((median, worst)) = state.polls.latency(state.now) {
        let is_slow = median >= SLOW;
        let style = if is_slow { theme.warn } else { theme.plain };
        facts.push(("admin role", answers_in(median, worst), style));
    }
    let mut y = 1_u16;
    for (label, value, style) in facts {
        pen.text(1, y, label, theme.dim);
        pen.text(12, y, &value, style);
        if label == "store" {
            let x = 13_u16.saturating_add(crate::draw::words::width(&value));
            let wide = pen.width().saturating_sub(x).min(20);
            bars::level(pen, x, y, wide, used, used);
        }
        y = y.saturating_add(1);
    }
    y
}

/// How fast the admin listener answers: rounded, for tenths would only flicker.
fn answers_in(median: Nanos, worst: Nanos) -> String {
    let rounded = |time: Nanos| humanise(time.get().div_ceil(100_000).saturating_mul(100_000));
    format!(
        "answers in {} (median of the last minute), at most {}",
        rounded(median),
        rounded(worst)
    )
}

/// Its fill, evictions and conflicts.
fn of_store(store: &StoreStatus, theme: &Theme) -> [Fact; 3] {
    let warns = |is: bool| if is { theme.warn } else { theme.plain };
    let used = fraction(store.used, store.buckets);
    let lost = [
        store.cas_give_ups,
        store.lost_counts,
        store.lost_returns,
        store.lost_responses,
    ];
    let is_lossy = lost.iter().any(|count| *count > 0);
    [
        ("store", filled(store), warns(used >= 0.9)),
        ("evicted", evicted(store), warns(store.evicted_lossy > 0)),
        ("conflicts", conflicts(store), warns(is_lossy)),
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
        "{} now; not held: {} for their deadline, {} for want of room",
        amount(status.waiting),
        amount(status.not_held_deadline),
        amount(status.not_held_full)
    )
}

fn findings_below(pen: &mut Pen<'_>, y: u16, state: &State) {
    let theme = pen.theme;
    pen.style_line(y, theme.head);
    pen.text(1, y, "findings", theme.head);
    let found = findings(state);
    let mut y = y.saturating_add(1);
    if found.is_empty() {
        pen.text(1, y, "nothing to look at", theme.good);
    }
    let wide = pen.width().saturating_sub(4);
    for finding in found {
        let (mark, style) = match finding.weight {
            Weight::Warning => (theme.pick('⚠', '!'), theme.warn),
            Weight::Note => (theme.pick('·', '-'), theme.plain),
        };
        pen.cell(1, i32::from(y), mark, style);
        for line in wrap(&finding.text, wide) {
            pen.text(3, y, &line, style);
            y = y.saturating_add(1);
        }
    }
}
