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

/// Draws a chart over the whole area, with a line at the rate `limit`, if any.
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

/// Draws the requests of the last minute in one line. A column of `eighths` of a cell is the rate
/// `per`. The highest column leaves a gap below the next row. The colour, or a pattern on terminals
/// without colour, shows if some or most of the requests were refused.
pub(super) fn requests(
    theme: &Theme,
    series: &[Option<Rates>],
    per: f64,
    eighths: f64,
) -> Line<'static> {
    const MOST: u64 = 7;
    let column = |rates: &Option<Rates>| {
        let Some(rates) = rates else {
            return Span::styled(theme.pick("·", " "), theme.track);
        };
        let all = rates.all();
        if all <= 0.0 {
            return Span::styled(theme.pick("▁", "_"), theme.track);
        }
        let refused = rates.refused + rates.shadow;
        let height = whole((all / per * eighths).ceil()).clamp(1, MOST);
        let glyph = rising(u16::try_from(height).unwrap_or(1), theme.ascii);
        let (bad, pattern) = if refused <= 0.0 {
            (theme.good, None)
        } else if refused * 2.0 < all {
            (theme.warn, Some(theme.pick('▒', '%')))
        } else {
            (theme.bad, Some(theme.pick('▓', '#')))
        };
        let style = if rates.shadow > 0.0 {
            theme.shadow
        } else {
            bad
        };
        let pattern = pattern.filter(|_| !theme.has_colours());
        text(&pattern.unwrap_or(glyph).to_string(), style)
    };
    series.iter().map(column).collect()
}

/// Returns the highest rate of all requests.
pub(super) fn peak(series: &[Option<Rates>]) -> f64 {
    series.iter().flatten().map(Rates::all).fold(0.0, f64::max)
}
