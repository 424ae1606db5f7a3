//! Plots requests over time. Widths are percentages, so that lines and labels have the same size on
//! all screens.

use loudou_replay::summary::{TimelineSummary, VerdictCounts};

use super::axis::{self, Time};
use super::markup::{Html, grouped, percent};
use super::page;
use crate::replay::over_time::CALENDAR_NS;
use crate::table::{Set, TextTable};
use loudou_words::num::count;
use loudou_words::text::{date, humanise};

/// Heights of the two kinds of plots.
const TALL_PX: u64 = 180;
const LOW_PX: u64 = 90;

/// Selects a count of a time slot.
type Count = fn(&VerdictCounts) -> u64;
/// The parts of a column from bottom to top: the CSS class and the count of each.
type Parts = [(&'static str, Count)];

const ALL: [(&str, Count); 3] = [
    ("admitted", |slot| slot.admitted),
    ("held", |slot| slot.held),
    ("refused", |slot| slot.refused),
];
const REFUSED: [(&str, Count); 1] = [("refused", |slot| slot.refused)];

struct Plot<'a> {
    name: &'a str,
    line: &'a TimelineSummary,
    parts: &'a Parts,
    /// Value of the tallest column in all plots of the same kind, which share a scale.
    most: u64,
    height: u64,
}

/// Adds plots for the rule files. Plots of the same kind have the same scale.
pub(super) fn section(html: &mut Html, sides: &[(&str, &TimelineSummary)]) {
    if sides.iter().all(|(_, line)| line.slots.len() < 2) {
        return;
    }
    page::section(html, "Requests over time", |html| {
        key(html, sides);
        plots(html, sides, "Requests", &ALL, TALL_PX);
        if most(sides, &REFUSED) > 0 {
            plots(html, sides, "Refused requests alone", &REFUSED, LOW_PX);
        }
        for (name, line) in sides {
            let title = format!("The numbers{name}");
            html.within("details", &[], |html| {
                html.element("summary", &[], &title);
                page::table(html, &title, &numbers(line));
            });
        }
    });
}

fn total(slot: &VerdictCounts, parts: &Parts) -> u64 {
    parts.iter().map(|(_, count)| count(slot)).sum()
}

fn most(sides: &[(&str, &TimelineSummary)], parts: &Parts) -> u64 {
    let slots = sides.iter().flat_map(|(_, line)| &line.slots);
    slots.map(|slot| total(slot, parts)).max().unwrap_or(0)
}

/// Adds the colour legend.
fn key(html: &mut Html, sides: &[(&str, &TimelineSummary)]) {
    html.within("p", &[("class", "key")], |html| {
        for (class, count) in ALL {
            if most(sides, &[(class, count)]) > 0 {
                html.within("span", &[], |html| {
                    html.element("i", &[("class", &format!("fill {class}"))], "");
                    html.text(class);
                });
            }
        }
    });
    html.raw(
        "<svg class=\"patterns\" width=\"0\" height=\"0\" aria-hidden=\"true\"><defs>\
         <pattern id=\"hatch\" width=\"5\" height=\"5\" patternUnits=\"userSpaceOnUse\" \
         patternTransform=\"rotate(45)\"><rect class=\"paper\" width=\"5\" height=\"5\"/>\
         <rect class=\"ink\" width=\"3\" height=\"5\"/></pattern></defs></svg>\n",
    );
}

fn plots(
    html: &mut Html,
    sides: &[(&str, &TimelineSummary)],
    title: &str,
    parts: &Parts,
    height: u64,
) {
    let most = most(sides, parts);
    for (name, line) in sides {
        let name = format!("{title} per {}{name}", humanise(line.slot_ns));
        let plot = Plot {
            name: &name,
            line,
            parts,
            most,
            height,
        };
        plot.write(html);
    }
}

impl Plot<'_> {
    fn write(&self, html: &mut Html) {
        let slots = count(self.line.slots.len());
        let time = axis::time(self.line.start_ns, self.line.slot_ns.saturating_mul(slots));
        html.within("figure", &[], |html| {
            html.element("figcaption", &[], self.name);
            html.within("div", &[("class", "plot")], |html| {
                let height = self.height.to_string();
                let svg = [("role", "img"), ("width", "100%"), ("height", &height)];
                html.within("svg", &svg, |html| {
                    html.element("title", &[], &self.description());
                    let ticks = axis::counts(self.most);
                    counts(html, &ticks, self.height);
                    self.columns(html, ticks.last().copied().unwrap_or(1));
                    self.times(html, &time);
                });
            });
            html.element("p", &[("class", "axis")], &time.name);
        });
    }

    /// Describes the plot in one line, for screen readers.
    fn description(&self) -> String {
        let slots = self.line.slots.iter();
        let most = slots.map(|slot| total(slot, self.parts)).max();
        format!(
            "{}: at most {}, in {} columns",
            self.name,
            grouped(most.unwrap_or(0)),
            self.line.slots.len()
        )
    }

    fn columns(&self, html: &mut Html, top: u64) {
        let slots = count(self.line.slots.len());
        for (number, slot) in (0..).zip(&self.line.slots) {
            if total(slot, self.parts) == 0 {
                continue;
            }
            // Each column overlaps the next one slightly, so that the background is not visible
            // between them.
            let [x, width] = [(number, 0), (1, 1)].map(|(n, more)| {
                let hundredths = n * 10_000 / slots.max(1) + 2 * more;
                percent(hundredths, 10_000)
            });
            html.within("g", &[], |html| {
                html.element("title", &[], &self.tip(number, slot));
                let mut below = 0;
                for (class, count) in self.parts {
                    let n = count(slot);
                    let [from, to] = [below, below + n].map(|n| self.y(n, top));
                    below += n;
                    if n > 0 {
                        // A minimum height keeps even the smallest count visible.
                        let tall = from.saturating_sub(to).max(10);
                        let (y, height) = (tenths(from.saturating_sub(tall)), tenths(tall));
                        let rect = [
                            ("class", *class),
                            ("x", &x),
                            ("y", &y),
                            ("width", &width),
                            ("height", &height),
                        ];
                        html.element("rect", &rect, "");
                    }
                }
            });
        }
    }

    /// Returns the distance between a count and the top of the plot, in tenths of a pixel.
    fn y(&self, n: u64, top: u64) -> u64 {
        let height = u128::from(self.height * 10);
        let up = u128::from(n) * height / u128::from(top.max(1));
        u64::try_from(height.saturating_sub(up)).unwrap_or(0)
    }

    fn tip(&self, number: u64, slot: &VerdictCounts) -> String {
        let at = when(self.line, number);
        let counts = self.parts.iter().map(|(name, count)| (name, count(slot)));
        let counts = counts.filter(|(_, count)| *count > 0);
        let counts: Vec<String> = counts
            .map(|(name, count)| format!("{} {name}", grouped(count)))
            .collect();
        format!("{at}: {}", counts.join(", "))
    }

    fn times(&self, html: &mut Html, time: &Time) {
        let slots = count(self.line.slots.len());
        let span = self.line.slot_ns.saturating_mul(slots);
        let [bottom, end, label, day] = [0, 5, 19, 34].map(|px| (self.height + px).to_string());
        let mut narrow_day: Option<&str> = None;
        let mut wide_day: Option<&str> = None;
        for (number, tick) in time.ticks.iter().enumerate() {
            let x = percent(tick.at_ns, span);
            let line = [
                ("x1", x.as_str()),
                ("x2", &x),
                ("y1", &bottom),
                ("y2", &end),
            ];
            html.element("line", &line, "");
            // A narrow screen shows only every second label.
            let is_narrow = number.is_multiple_of(2);
            let class = if is_narrow { "time" } else { "time wide" };
            let text = |class| [("class", class), ("x", x.as_str()), ("y", label.as_str())];
            html.element("text", &text(class), &tick.label);
            wide_day = tick.day.as_deref().or(wide_day);
            let is_shown = tick.day.is_some();
            let is_new = is_narrow && wide_day != narrow_day;
            if is_narrow {
                narrow_day = wide_day;
            }
            let class = match (is_shown, is_new) {
                (true, true) => "time",
                (true, false) => "time wide",
                (false, true) => "time narrow",
                (false, false) => continue,
            };
            let text = [("class", class), ("x", x.as_str()), ("y", day.as_str())];
            html.element("text", &text, wide_day.unwrap_or_default());
        }
    }
}

/// Adds the grid lines and labels of a count axis.
fn counts(html: &mut Html, ticks: &[u64], height: u64) {
    let last = ticks.last().copied().unwrap_or(1).max(1);
    for tick in ticks {
        let part = u128::from(*tick) * u128::from(height * 10) / u128::from(last);
        let y = (height * 10).saturating_sub(u64::try_from(part).unwrap_or(0));
        let (line, text) = (tenths(y), tenths(y + 40));
        let class = if *tick == 0 { "base" } else { "grid" };
        let grid = [
            ("class", class),
            ("x1", "0"),
            ("x2", "100%"),
            ("y1", line.as_str()),
            ("y2", line.as_str()),
        ];
        html.element("line", &grid, "");
        let at = [("class", "count"), ("x", "-8"), ("y", text.as_str())];
        html.element("text", &at, &axis::label(*tick));
    }
}

/// Formats tenths of a pixel as an SVG length.
pub(super) fn tenths(n: u64) -> String {
    match (n / 10, n % 10) {
        (whole, 0) => whole.to_string(),
        (whole, tenth) => format!("{whole}.{tenth}"),
    }
}

/// Formats the start time of a time slot.
fn when(line: &TimelineSummary, number: u64) -> String {
    let offset = line.slot_ns.saturating_mul(number);
    if line.start_ns < CALENDAR_NS {
        return humanise(offset);
    }
    date(line.start_ns.saturating_add(offset) / 1_000_000)
}

/// Returns the data of the plot as a table.
fn numbers(line: &TimelineSummary) -> TextTable {
    let mut table = TextTable::new(&[
        ("FROM", Set::Left),
        ("ADMITTED", Set::Right),
        ("HELD", Set::Right),
        ("REFUSED", Set::Right),
    ]);
    for (number, slot) in (0..).zip(&line.slots) {
        table.row(vec![
            when(line, number).into(),
            slot.admitted.into(),
            slot.held.into(),
            slot.refused.into(),
        ]);
    }
    table
}
