//! The Targets screen: all Envoys that are watched, with their sums.

use super::view::{About, View};
use crate::app::command::Command as C;
use crate::app::command::{Binding, bind, c, k, tab};
use crate::app::delivery::Delivery;
use crate::app::history::Rates;
use crate::app::press::Code::Enter;
use crate::app::press::Spot;
use crate::app::screen::{Places, Screen};
use crate::app::state::{State, TargetSummary};
use crate::draw::pen::Pen;
use crate::draw::words::rate;
use crate::meaning::refusals;
use crate::num::cells;
use crate::text::humanise;

const HERE: Places = Screen::Targets.place();

static ABOUT: About = About {
    screen: Screen::Targets,
    title: "Targets",
    tab: tab(
        Screen::Targets,
        &[c('7')],
        15,
        "targets",
        "show all Envoys that are watched",
    ),
    keys: KEYS,
    takes_turns: false,
    moves: false,
};

#[rustfmt::skip]
const KEYS: &[Binding] = &[
    bind((C::Drill, &[k(Enter)], HERE, 1, "watch", "show the selected Envoy")),
    bind((C::Mark, &[c('m')], HERE, 2, "mark", "mark the Envoys that a change with a is for; without marks it is for all")),
];

/// All Envoys that are watched.
pub(super) struct Targets;

impl View for Targets {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn draw(&self, pen: &mut Pen<'_>, state: &State) {
        draw(pen, state);
    }

    fn lines(&self, state: &State) -> usize {
        state.targets.len()
    }

    fn closed(&self, state: &State) -> Option<String> {
        let is_alone = state.targets.len() < 2;
        is_alone.then(|| "one Envoy is watched; repeat --url to watch more".to_owned())
    }

    fn run(&self, state: &mut State, command: C) {
        match command {
            C::Drill => {
                state.wants = Some(self.at(state));
                state.screen = Screen::HOME;
            }
            C::Mark => state.marks = Some(self.at(state)),
            _ => {}
        }
    }
}

/// The columns behind the address.
const TITLES: [&str; 6] = [
    "admitted/s",
    "refused/s",
    "generation",
    "version",
    "up",
    "warnings",
];
const EACH: u16 = 11;

fn draw(pen: &mut Pen<'_>, state: &State) {
    let theme = pen.theme;
    pen.style_line(0, theme.head);
    pen.text(1, 0, "envoy", theme.head);
    let wide = cells(TITLES.len()).saturating_mul(EACH);
    let url = pen.width().saturating_sub(wide).max(24);
    for (title, x) in TITLES.iter().zip((url..).step_by(usize::from(EACH))) {
        pen.right(x, 0, EACH - 1, title, theme.head);
    }
    let selected = state.selected(Screen::Targets);
    let mut sum = Rates::default();
    for ((number, target), y) in state.targets.iter().enumerate().zip(1..pen.height()) {
        // The last numbers of one that is away are not those of now.
        let rates = target.rates.filter(|_| target.up == Some(true));
        sum = sum.plus(rates.unwrap_or_default());
        line(pen, y, url, (target, number == state.number));
        pen.spot(0, y, pen.width(), Spot::Line(number));
        if number == selected {
            pen.select_line(y);
        }
    }
    let y = cells(state.targets.len()).saturating_add(1);
    let (all, up) = (
        state.targets.len(),
        state
            .targets
            .iter()
            .filter(|target| target.up == Some(true))
            .count(),
    );
    let of = if up == all {
        "all".to_owned()
    } else {
        format!("{up} of {all} answer")
    };
    pen.text(3, y, &of, theme.strong);
    numbers(pen, y, url, Some(sum));
    let mut y = y.saturating_add(2);
    for (title, results) in &state.broadcasts {
        let results = results.iter().zip(&state.targets);
        let asked = results.filter(|(result, _)| **result != Delivery::NotAsked);
        let results: Vec<_> = asked.collect();
        y = broadcast(pen, y, title, &results).saturating_add(1);
    }
}

/// A change for all Envoys, with its result at each; returns the line below.
fn broadcast(
    pen: &mut Pen<'_>,
    y: u16,
    title: &str,
    results: &[(&Delivery, &TargetSummary)],
) -> u16 {
    let theme = pen.theme;
    let below = y.saturating_add(1).saturating_add(cells(results.len()));
    if y >= pen.height() {
        return below;
    }
    pen.style_line(y, theme.head);
    pen.text(1, y, &format!("change for all: {title}"), theme.head);
    for ((result, target), y) in results.iter().zip(y.saturating_add(1)..pen.height()) {
        let style = match result {
            Delivery::Sending | Delivery::NotAsked => theme.plain,
            Delivery::Waits(_) => theme.warn,
            Delivery::Done(_) => theme.good,
            Delivery::Failed(_) => theme.bad,
        };
        let x = pen.within(3, y, pen.width() / 2, &target.url, theme.plain);
        let words = result.words();
        let line = words.lines().next().unwrap_or_default();
        pen.text(x.saturating_add(2), y, line, style);
    }
    below
}

fn line(pen: &mut Pen<'_>, y: u16, url: u16, (target, is_shown): (&TargetSummary, bool)) {
    let theme = pen.theme;
    let (mark, style) = match target.up {
        Some(true) if !target.is_stale => (theme.pick('●', '*'), theme.good),
        Some(true) | None => (theme.pick('●', '*'), theme.warn),
        Some(false) => (theme.pick('○', 'o'), theme.bad),
    };
    pen.cell(1, i32::from(y), mark, style);
    if target.is_marked {
        pen.cell(2, i32::from(y), theme.pick('✓', 'x'), theme.changed);
    }
    let name = if is_shown { theme.name } else { theme.plain };
    pen.within(3, y, url.saturating_sub(4), &target.url, name);
    if target.up == Some(false) {
        let error = target.error.as_deref().unwrap_or("unreachable");
        pen.text(url, y, error.lines().next().unwrap_or_default(), theme.bad);
        return;
    }
    numbers(pen, y, url, target.rates);
    if let Some(banner) = &target.banner {
        let x = url.saturating_add(EACH).saturating_add(EACH);
        pen.text(x.saturating_add(1), y, banner, theme.alarm);
        return;
    }
    let up = humanise(target.uptime_ns / 1_000_000_000 * 1_000_000_000);
    let texts = [
        target.generation.to_string(),
        target.version.clone(),
        up,
        target.warnings.to_string(),
    ];
    let first = url.saturating_add(EACH).saturating_add(EACH);
    for (text, x) in texts.iter().zip((first..).step_by(usize::from(EACH))) {
        pen.right(x, y, EACH - 1, text, theme.plain);
    }
}

fn numbers(pen: &mut Pen<'_>, y: u16, x: u16, rates: Option<Rates>) {
    let theme = pen.theme;
    pen.right(x, y, EACH - 1, &rate(rates.map(|r| r.admitted)), theme.good);
    let refused = rates.map(|rates| rates.refused);
    let would = rates.filter(|rates| rates.shadow > 0.0);
    let would = would.map(|rates| refusals(rate(Some(rates.shadow)), true));
    let style = if refused.unwrap_or(0.0) > 0.0 {
        theme.bad
    } else {
        theme.dim
    };
    let text = format!("{}{}", rate(refused), would.unwrap_or_default());
    pen.right(x.saturating_add(EACH), y, EACH - 1, &text, style);
}
