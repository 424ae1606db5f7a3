//! The animated drawing of the funnel.
//!
//! ```text
//!            · •  ·              drops of admitted requests
//!    •  ▔╲    •       ╱▔  •      refused ones run over the rim
//!      •  ╲          ╱  •
//!          ╲▂▃▂▂▃▂▂▃╱            the surface, where the level is
//!           ╲██████╱
//!            ╲████╱
//!             │  │               the leak, at the limit's rate
//!              ·
//! ```
//!
//! The position of a drop depends only on its number and the time, so that a frame depends only on
//! the state.

use loudou_api::LimitView;
use loudou_limiter::Nanos;

use ratatui::style::Style;
use ratatui::text::{Line, Span};

use crate::app::history::Rates;
use crate::draw::pen::Pen;
use crate::draw::widgets;
use crate::draw::words::{amount, percent, rate, text, width};
use loudou_print::bars::rising;
use loudou_words::num::{cells, float, whole};

/// Lines above the rim, for drops and labels.
const ABOVE: u16 = 3;
/// Lines below the cone, for the spout and the leaking drops.
const BELOW: u16 = 4;
/// Half the width of the spout.
const SPOUT: i32 = 1;
/// Minimum height of the cone.
const LEAST: u16 = 3;

/// Content of the funnel.
#[derive(Debug)]
pub(super) struct Water<'a> {
    pub(super) limit: &'a LimitView,
    pub(super) level: f64,
    /// Level as read. The level as read determines the colours, so that they change with polls, not
    /// with every frame.
    pub(super) tone: f64,
    pub(super) rates: Rates,
    /// Time that determines the positions of the drops.
    pub(super) time: Nanos,
}

/// Positions of the funnel's parts.
struct Shape {
    centre: i32,
    rim: i32,
    height: i32,
}

impl Shape {
    /// Returns half the inner width on line `y`.
    fn half(&self, y: i32) -> i32 {
        let below = y.saturating_sub(self.rim);
        self.height
            .saturating_sub(below)
            .max(0)
            .saturating_add(SPOUT)
    }
}

/// Draws the funnel as large as the area allows.
pub(super) fn draw(pen: &mut Pen<'_>, water: &Water<'_>) {
    let free = pen.area.height.saturating_sub(ABOVE.saturating_add(BELOW));
    let height = free.min(pen.area.width.saturating_sub(14) / 2);
    if height < LEAST {
        return;
    }
    let spare = free.saturating_sub(height) / 2;
    let shape = Shape {
        centre: i32::from(pen.area.width / 2),
        rim: i32::from(ABOVE.saturating_add(spare)),
        height: i32::from(height),
    };
    let surface = fill(pen, &shape, water);
    walls(pen, &shape);
    falling(pen, &shape, water, surface);
    overflow(pen, &shape, water);
    outflow(pen, &shape, water);
    labels(pen, &shape, water, surface);
}

fn walls(pen: &mut Pen<'_>, shape: &Shape) {
    let theme = pen.theme;
    let Shape {
        centre,
        rim,
        height,
    } = *shape;
    let mut both = |dx: i32, y: i32, [left, right]: [char; 2]| {
        pen.cell(centre.saturating_sub(dx), y, left, theme.wall);
        pen.cell(centre.saturating_add(dx), y, right, theme.wall);
    };
    let bottom = rim.saturating_add(height);
    for y in rim..bottom {
        both(shape.half(y), y, theme.pick(['╲', '╱'], ['\\', '/']));
    }
    for out in 1..=3 {
        let dx = shape.half(rim).saturating_add(out);
        both(dx, rim.saturating_sub(1), [theme.pick('▁', '_'); 2]);
    }
    for y in bottom..bottom.saturating_add(2) {
        both(SPOUT, y, [theme.pick('│', '|'); 2]);
    }
}

/// Fills the cone up to the level, and returns the line of the surface.
fn fill(pen: &mut Pen<'_>, shape: &Shape, water: &Water<'_>) -> i32 {
    let theme = pen.theme;
    let height = cells(usize::try_from(shape.height).unwrap_or(0));
    let eighths = i32::from(widgets::filled_by_level(water.level, height));
    let bottom = shape.rim.saturating_add(shape.height).saturating_sub(1);
    let surface = bottom.saturating_sub((eighths.saturating_sub(1)).max(0) / 8);
    let depth = f64::from(height.max(1));
    for line in 0..shape.height {
        let y = bottom.saturating_sub(line);
        let here = eighths.saturating_sub(line.saturating_mul(8));
        if here <= 0 {
            break;
        }
        let half = shape.half(y).saturating_sub(1);
        let below = f64::from(y.saturating_sub(surface)) / depth;
        for dx in half.saturating_neg()..=half {
            let wave = if y == surface && water.level < 1.0 {
                ripple(dx, water.time)
            } else {
                0
            };
            let filled = here.saturating_add(wave).clamp(1, 8);
            let glyph = rising(u16::try_from(filled).unwrap_or(8), theme.ascii);
            pen.cell(
                shape.centre.saturating_add(dx),
                y,
                glyph,
                theme.water(water.tone, below),
            );
        }
    }
    surface
}

/// Returns the height, in eighths of a line, by which a moving ripple raises the surface at `x`.
fn ripple(x: i32, time: Nanos) -> i32 {
    const SHAPE: [i32; 10] = [0, 0, 1, 1, 2, 1, 1, 0, 0, 0];
    let step = i64::try_from(time.as_millis() / 160).unwrap_or(0);
    let at = i64::from(x).saturating_add(step).rem_euclid(10);
    usize::try_from(at)
        .ok()
        .and_then(|at| SHAPE.get(at))
        .copied()
        .unwrap_or(0)
}

/// Returns the number of drops that represent a rate. The number is at least one for any rate above
/// zero, and grows logarithmically with the rate.
fn drops(rate: f64, most: u64) -> u64 {
    if rate <= 0.0 {
        return 0;
    }
    whole((rate + 1.0).log2() * 2.0).clamp(1, most)
}

/// Returns the position of a drop on a path of `length` lines.
fn along(number: u64, time: Nanos, lines_per_second: u64, length: i32) -> i32 {
    let length = u64::try_from(length.max(1)).unwrap_or(1);
    // Start positions follow the golden ratio, which spreads drops evenly for any number of drops.
    let start = number.saturating_mul(618).saturating_mul(length) / 1000;
    let moved = time.as_millis().saturating_mul(lines_per_second) / 1000;
    let at = start.saturating_add(moved).checked_rem(length).unwrap_or(0);
    i32::try_from(at).unwrap_or(0)
}

fn falling(pen: &mut Pen<'_>, shape: &Shape, water: &Water<'_>, surface: i32) {
    let theme = pen.theme;
    let style = theme.water(0.0, 0.3);
    let top = shape.rim.saturating_sub(i32::from(ABOVE)).saturating_add(1);
    let spread = u64::try_from(shape.height).unwrap_or(1).max(1);
    let most = spread.saturating_mul(2);
    for number in 0..drops(water.rates.admitted, most) {
        let y = top.saturating_add(along(number, water.time, 9, surface.saturating_sub(top)));
        // The horizontal position depends on the drop's number, which scatters the drops around the
        // centre.
        let x = number.saturating_mul(7).checked_rem(spread).unwrap_or(0);
        let x = i32::try_from(x)
            .unwrap_or(0)
            .saturating_sub(shape.height / 2);
        if x.abs() < shape.half(y) && y < surface {
            pen.cell(
                shape.centre.saturating_add(x),
                y,
                theme.pick('•', 'o'),
                style,
            );
        }
    }
}

/// Draws refused requests running over the rim, alternately on both sides.
fn overflow(pen: &mut Pen<'_>, shape: &Shape, water: &Water<'_>) {
    let theme = pen.theme;
    let length = shape.height.saturating_add(2);
    for number in 0..drops(water.rates.refused, 16) {
        let at = along(number, water.time, 11, length);
        let y = shape.rim.saturating_sub(2).saturating_add(at);
        let wobble = i32::try_from(number % 3).unwrap_or(0);
        // Drops run down outside the wall, on a path that leans inwards less than the wall.
        let out = shape
            .half(shape.rim)
            .saturating_add(2)
            .saturating_add(wobble);
        let out = out.saturating_sub(at / 3);
        let x = if number % 2 == 0 {
            out
        } else {
            out.saturating_neg()
        };
        pen.cell(
            shape.centre.saturating_add(x),
            y,
            theme.pick('✖', 'x'),
            theme.bad,
        );
    }
}

/// Draws the leaking drops while the level is above zero. Limits whose level falls in steps, or
/// only when requests end, do not drip.
fn outflow(pen: &mut Pen<'_>, shape: &Shape, water: &Water<'_>) {
    if water.level <= 0.0 || !water.limit.drains {
        return;
    }
    let theme = pen.theme;
    let spout = shape.rim.saturating_add(shape.height);
    for number in 0..2 {
        let y = spout.saturating_add(along(number, water.time, 4, i32::from(BELOW) - 1));
        pen.cell(shape.centre, y, theme.pick('•', 'o'), theme.water(0.0, 0.6));
    }
}

fn labels(pen: &mut Pen<'_>, shape: &Shape, water: &Water<'_>, surface: i32) {
    let theme = pen.theme;
    let Water { limit, rates, .. } = water;
    let row = |pen: &Pen<'_>, y: i32| pen.row(u16::try_from(y).unwrap_or(0));
    let mut above = vec![text(
        &format!("admitted {}/s", rate(Some(rates.admitted))),
        theme.good,
    )];
    if rates.shadow > 0.0 {
        let would = format!("   would refuse {}/s", rate(Some(rates.shadow)));
        above.push(text(&would, theme.shadow));
    } else if rates.refused > 0.0 {
        above.push(text(
            &format!("   refused {}/s", rate(Some(rates.refused))),
            theme.bad,
        ));
    }
    let top = row(pen, shape.rim.saturating_sub(i32::from(ABOVE)));
    pen.line(top, Line::from(above).centered());
    let mut beside = |y: i32, words: Span<'static>| {
        let x = shape.centre.saturating_add(shape.half(y)).saturating_add(2);
        let mut place = row(pen, y);
        let x = u16::try_from(x).unwrap_or(u16::MAX).min(place.width);
        place.x = place.x.saturating_add(x);
        place.width = place.width.saturating_sub(x);
        pen.line(place, words);
    };
    beside(shape.rim, text(&amount(limit.capacity), theme.dim));
    if surface > shape.rim && water.level > 0.0 {
        let used = amount(whole((water.level * float(limit.capacity)).round()));
        let mark = theme.pick('◂', '<');
        beside(surface, text(&format!("{mark} {used}"), theme.plain));
    }
    number_in_water(pen, shape, water);
    let bottom = shape
        .rim
        .saturating_add(shape.height)
        .saturating_add(i32::from(BELOW) - 1);
    let bottom = row(pen, bottom);
    pen.line(
        bottom,
        Line::from(text(&way_out(limit), theme.dim)).centered(),
    );
}

/// Describes how used capacity becomes available again.
fn way_out(limit: &LimitView) -> String {
    let rate = &limit.rate;
    if rate.is_empty() {
        return "freed when requests end".to_owned();
    }
    match limit.algorithm.as_str() {
        "funnel" | "leaky_queue" => format!("leaks {rate}"),
        "token_bucket" => format!("refills {rate}"),
        "smooth_bursty" | "smooth_warmup" => format!("pays off {rate}"),
        _ => format!("lets {rate} through"),
    }
}

/// Draws the level as a percentage at the centre of the cone.
fn number_in_water(pen: &mut Pen<'_>, shape: &Shape, water: &Water<'_>) {
    let theme = pen.theme;
    let y = shape.rim.saturating_add(shape.height / 2);
    let text = format!(" {} ", percent(water.level));
    let half = i32::from(width(&text)) / 2;
    if half >= shape.half(y) {
        return;
    }
    let style: Style = theme.strong;
    for (dx, c) in (0_i32..).zip(text.chars()) {
        let x = shape.centre.saturating_sub(half).saturating_add(dx);
        pen.cell(x, y, c, style);
    }
}
