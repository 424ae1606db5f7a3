//! Charts of requests per second, over the time that the user has chosen.

use ratatui::style::Style;

use crate::app::history::{Rates, Track};
use crate::app::state::State;
use crate::draw::bars;
use crate::draw::pen::Pen;
use crate::draw::words::rate;
use loudou_words::text::humanise;

/// The most columns: a minute has one for each second.
const MOST: u16 = 60;

/// The least and the greatest height of a chart with its title, and the width from which two are side by side.
const HEIGHT: (u16, u16) = (4, 10);
const BESIDE: u16 = 60;

/// A chart's title, colour and numbers.
pub(super) type Charted = (&'static str, Style, fn(Rates) -> f64);

/// Draws one over the whole area: the title with the rate now, and columns below it.
pub(super) fn draw(pen: &mut Pen<'_>, state: &State, track: &Track, (name, style, pick): Charted) {
    let theme = pen.theme;
    let width = pen.width().min(MOST);
    let span_ns = state.scale.span_ns();
    let chart = track.chart(span_ns, state.charts_end_ns(), width);
    let values: Vec<_> = chart.iter().map(|rates| rates.map(pick)).collect();
    let top = bars::peak(&values);
    let now = track.rates().map(pick);
    let x = pen.text(0, 0, name, style);
    let x = pen.text(x.saturating_add(1), 0, &rate(now), theme.strong);
    let peak = format!("  peak {} in {}", rate(Some(top)), humanise(span_ns));
    pen.text(x, 0, &peak, theme.dim);
    let height = pen.height().saturating_sub(1);
    bars::columns(&mut pen.part(0, 1, width, height), &values, top, style);
}

/// The charts of requests that were admitted, and of those that were refused or, `in_shadow` mode, would have been.
pub(super) fn both(pen: &Pen<'_>, in_shadow: bool) -> [Charted; 2] {
    let theme = pen.theme;
    let refused: Charted = if in_shadow {
        ("would refuse/s", theme.shadow, |rates| rates.shadow)
    } else {
        ("refused/s", theme.bad, |rates| rates.refused)
    };
    [("admitted/s", theme.good, |rates| rates.admitted), refused]
}

/// Draws the charts of a rule and, if there is room, those of all rules below them.
pub(super) fn rule_and_total(pen: &mut Pen<'_>, state: &State, rule: &str, in_shadow: bool) {
    let total = Some(&state.history.total).filter(|_| pen.height() >= 2 * HEIGHT.0 + 2);
    let rows = if total.is_some() { 2 } else { 1 };
    let height = (pen.height() / rows).min(HEIGHT.1);
    if height < HEIGHT.0 {
        return;
    }
    let is_wide = pen.width() >= BESIDE;
    let width = pen.width() / if is_wide { 2 } else { 1 };
    let of_all = |[admitted, refused]: [Charted; 2]| {
        [
            ("total admitted/s", admitted.1, admitted.2),
            ("total refused/s", refused.1, refused.2),
        ]
    };
    let rows = [
        (state.history.rules.get(rule), both(pen, in_shadow)),
        (total, of_all(both(pen, false))),
    ];
    for ((track, charts), y) in rows.into_iter().zip((0..).step_by(height.into())) {
        let Some(track) = track else { continue };
        let charts = charts.into_iter().skip(usize::from(!is_wide));
        for (chart, x) in charts.zip((0..).step_by(width.into())) {
            let part = (width.saturating_sub(2), height.saturating_sub(1));
            draw(&mut pen.part(x, y, part.0, part.1), state, track, chart);
        }
    }
}
