//! Charts of requests over the time span that the user chose, and of a row's last minute.

use ratatui::layout::{Constraint, Layout};
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use loudou_print::bars::rising;
use loudou_words::num::whole;

use crate::app::history::{Rates, Track};
use crate::app::state::State;
use crate::draw::pen::Pen;
use crate::draw::theme::Theme;
use crate::draw::widgets::{self, AXIS, Chart};
use crate::draw::words::text;

/// Maximum number of columns. A chart of a minute has one column for each second.
const MOST: u16 = 60;

/// Minimum and maximum height of a chart with its title. `BESIDE` is the width from which two
/// charts are drawn side by side.
const HEIGHT: (u16, u16) = (4, 10);
const BESIDE: u16 = 60;

/// Title, colour and values of a chart.
pub(super) type Charted = (&'static str, Style, fn(Rates) -> f64);

/// Returns the charts of admitted requests and of refused requests. If `in_shadow`, the second
/// chart shows the requests that would have been refused.
pub(super) fn both(theme: &Theme, in_shadow: bool) -> [Charted; 2] {
    let refused: Charted = if in_shadow {
        ("would refuse/s", theme.shadow, |rates| rates.shadow)
    } else {
        ("refused/s", theme.bad, |rates| rates.refused)
    };
    [("admitted/s", theme.good, |rates| rates.admitted), refused]
}

/// Draws a chart over the whole area, with a line at the rate `limit`.
pub(super) fn draw(
    pen: &mut Pen<'_>,
    state: &State,
    track: &Track,
    (name, style, pick): Charted,
    limit: Option<f64>,
) {
    let span_ns = state.scale.span_ns();
    let columns = pen.area.width.saturating_sub(AXIS).min(MOST);
    let chart = track.chart(span_ns, state.charts_end_ns(), columns);
    let chart = Chart {
        name,
        style,
        values: chart.into_iter().map(|rates| rates.map(pick)).collect(),
        now: track.rates().map(pick),
        span_ns,
        limit,
    };
    widgets::chart(pen, &chart);
}

/// Draws the charts of a rule and, if there is room, the charts of all rules below them.
pub(super) fn rule_and_total(pen: &mut Pen<'_>, state: &State, rule: &str, in_shadow: bool) {
    let area = pen.area;
    let has_total = area.height >= 2 * HEIGHT.0 + 2;
    let height = (area.height / if has_total { 2 } else { 1 }).min(HEIGHT.1);
    if height < HEIGHT.0 {
        return;
    }
    let rows: [_; 2] =
        Layout::vertical([Constraint::Length(height), Constraint::Length(height)]).areas(area);
    let theme = pen.theme;
    let [of_all, in_total] = both(theme, false);
    let total = [
        ("total admitted/s", of_all.1, of_all.2),
        ("total refused/s", in_total.1, in_total.2),
    ];
    let total_track = has_total.then_some(&state.history.total);
    let rule = (state.history.rules.get(rule), both(theme, in_shadow));
    for ((track, charts), row) in [rule, (total_track, total)].into_iter().zip(rows) {
        let Some(track) = track else { continue };
        let is_wide = area.width >= BESIDE;
        let columns = if is_wide { 2 } else { 1 };
        let places = Layout::horizontal(vec![Constraint::Fill(1); columns])
            .spacing(2)
            .split(row);
        let charts = charts.into_iter().skip(usize::from(!is_wide));
        for (chart, place) in charts.zip(places.iter()) {
            let mut place = *place;
            place.height = place.height.saturating_sub(1);
            draw(&mut pen.part(place), state, track, chart, None);
        }
    }
}

/// Draws the requests of the last minute in one line, scaled to the highest column. Columns with
/// refusals have the colour of refusals.
pub(super) fn requests(theme: &Theme, track: &Track, columns: u16) -> Line<'static> {
    const MOST: f64 = 7.0;
    let series = track.series(columns);
    let peak = series.iter().flatten().map(Rates::all).fold(0.0, f64::max);
    let column = |rates: &Option<Rates>| match rates {
        None => Span::styled(theme.pick_text("·", " "), theme.track),
        Some(rates) if rates.all() <= 0.0 => Span::styled(theme.pick_text("▁", "_"), theme.track),
        Some(rates) => {
            let style = if rates.refused > 0.0 {
                theme.bad
            } else if rates.shadow > 0.0 {
                theme.shadow
            } else {
                theme.good
            };
            let eighths = whole((rates.all() / peak * MOST).ceil());
            text(
                &rising(u16::try_from(eighths).unwrap_or(1), theme.ascii).to_string(),
                style,
            )
        }
    };
    series.iter().map(column).collect()
}
