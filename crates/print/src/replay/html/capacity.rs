//! Plots the capacity that keys need at each rate. Both axes are logarithmic.

use super::markup::{Html, percent};
use super::{axis, timeline::tenths};
use loudou_words::num::{float, whole};

const HEIGHT_PX: u64 = 260;
/// Length of the rate axis, in units.
const UNITS: u64 = 10_000;
/// Minimum distance between two labels, in units. Labels that are closer together are omitted.
const LABEL_UNITS: u64 = 700;

/// A rate and its label on the axis.
pub(crate) struct Rate {
    pub(crate) per_second: f64,
    pub(crate) label: String,
}

/// A line of the plot: one capacity for each rate.
pub(crate) struct Series {
    pub(crate) name: &'static str,
    pub(crate) class: &'static str,
    pub(crate) capacities: Vec<u32>,
}

/// The plot. `knee` is the index of the recommended rate. The last series contains the recommended
/// capacities.
pub(crate) struct Plot<'a> {
    pub(crate) name: &'a str,
    pub(crate) rates: &'a [Rate],
    pub(crate) series: &'a [Series],
    pub(crate) knee: Option<usize>,
}

impl Plot<'_> {
    pub(crate) fn write(&self, html: &mut Html) {
        let decades = self.decades();
        html.within("p", &[("class", "key")], |html| {
            for series in self.series {
                html.within("span", &[], |html| {
                    let svg = [("width", "28"), ("height", "10"), ("aria-hidden", "true")];
                    html.within("svg", &svg, |html| {
                        let line = [("x1", "0"), ("x2", "28"), ("y1", "5"), ("y2", "5")];
                        let line = [[("class", series.class)].as_slice(), &line].concat();
                        html.element("line", &line, "");
                    });
                    html.text(series.name);
                });
            }
        });
        html.within("figure", &[], |html| {
            let knee = self.knee().map(|(_, capacity, rate)| {
                let rate = &rate.label;
                format!("; at the knee {capacity}, with a rate of {rate}")
            });
            let caption = format!("Capacity that keys need{}", knee.unwrap_or_default());
            html.element("figcaption", &[], &caption);
            html.within("div", &[("class", "plot loglog")], |html| {
                let height = HEIGHT_PX.to_string();
                let svg = [("role", "img"), ("width", "100%"), ("height", &height)];
                html.within("svg", &svg, |html| {
                    html.element("title", &[], self.name);
                    capacity_axis(html, decades);
                    self.rate_axis(html);
                    for series in self.series {
                        self.line(html, series, decades);
                    }
                    self.mark(html, decades);
                });
            });
            let name = "rate of the limit (both axes are logarithmic)";
            html.element("p", &[("class", "axis")], name);
        });
    }

    /// Returns the number of decades of the capacity axis, at least one.
    fn decades(&self) -> u32 {
        let capacities = self.series.iter().flat_map(|series| &series.capacities);
        let most = capacities.copied().max().unwrap_or(1).max(1);
        let mut decades = (1..10).filter(|decades| 10_u32.pow(*decades) >= most);
        decades.next().unwrap_or(10)
    }

    fn x(&self, number: usize) -> u64 {
        let log = |rate: &Rate| rate.per_second.ln();
        let logs: Vec<f64> = self.rates.iter().map(log).collect();
        let (Some(first), Some(last), Some(at)) = (logs.first(), logs.last(), logs.get(number))
        else {
            return 0;
        };
        if last <= first {
            return UNITS / 2;
        }
        whole((at - first) / (last - first) * float(UNITS)).min(UNITS)
    }

    fn rate_axis(&self, html: &mut Html) {
        let [bottom, end, label] = [0, 5, 19].map(|px| (HEIGHT_PX + px).to_string());
        let (mut wide, mut narrow): (Option<u64>, Option<u64>) = (None, None);
        for (number, rate) in self.rates.iter().enumerate() {
            let at = self.x(number);
            let x = percent(at, UNITS);
            let line = [
                ("x1", x.as_str()),
                ("x2", &x),
                ("y1", &bottom),
                ("y2", &end),
            ];
            html.element("line", &line, "");
            let has_room = |last: Option<u64>, gap| last.is_none_or(|last| at >= last + gap);
            if !has_room(wide, LABEL_UNITS) {
                continue;
            }
            wide = Some(at);
            let is_narrow = has_room(narrow, 2 * LABEL_UNITS);
            if is_narrow {
                narrow = Some(at);
            }
            let class = if is_narrow { "time" } else { "time wide" };
            let text = [("class", class), ("x", &x), ("y", &label)];
            html.element("text", &text, &rate.label);
        }
    }

    fn line(&self, html: &mut Html, series: &Series, decades: u32) {
        let points = series.capacities.iter().enumerate();
        let points: Vec<(String, String)> = points
            .map(|(number, capacity)| {
                (
                    percent(self.x(number), UNITS),
                    tenths(y(*capacity, decades)),
                )
            })
            .collect();
        for ((x1, y1), (x2, y2)) in points.iter().zip(points.iter().skip(1)) {
            let line = [
                ("class", series.class),
                ("x1", x1),
                ("y1", y1),
                ("x2", x2),
                ("y2", y2),
            ];
            html.element("line", &line, "");
        }
        for ((x, y), (rate, capacity)) in
            points.iter().zip(self.rates.iter().zip(&series.capacities))
        {
            let class = format!("dot {}", series.class);
            let dot = [
                ("class", class.as_str()),
                ("cx", x),
                ("cy", y),
                ("r", "2.5"),
            ];
            html.within("circle", &dot, |html| {
                let tip = format!("{} at {}: {capacity}", series.name, rate.label);
                html.element("title", &[], &tip);
            });
        }
    }

    /// Returns the position on the axis, the capacity and the rate of the knee.
    fn knee(&self) -> Option<(u64, u32, &Rate)> {
        let knee = self.knee?;
        let capacity = self.series.last()?.capacities.get(knee)?;
        Some((self.x(knee), *capacity, self.rates.get(knee)?))
    }

    /// Marks the knee with a ring and a label.
    fn mark(&self, html: &mut Html, decades: u32) {
        let Some((at, capacity, _)) = self.knee() else {
            return;
        };
        let (x, above) = (percent(at, UNITS), y(capacity, decades));
        let cy = tenths(above);
        html.element(
            "circle",
            &[("class", "knee"), ("cx", &x), ("cy", &cy), ("r", "7")],
            "",
        );
        // The label is to the right of the knee, because the lines descend from left to right. Near
        // the right edge it is to the left.
        let (class, dx) = match at {
            0..8_500 => ("knee start", "10"),
            _ => ("knee end", "-8"),
        };
        let y = tenths(above.saturating_sub(150));
        let label = [("class", class), ("x", x.as_str()), ("dx", dx), ("y", &y)];
        html.element("text", &label, "knee");
    }
}

/// Adds the grid lines and labels of the capacity axis at powers of ten.
fn capacity_axis(html: &mut Html, decades: u32) {
    for decade in 0..=decades {
        let capacity = 10_u64.saturating_pow(decade);
        let at = y_of_decade(decade, decades);
        let (line, text) = (tenths(at), tenths(at + 40));
        let class = if decade == 0 { "base" } else { "grid" };
        let grid = [
            ("class", class),
            ("x1", "0"),
            ("x2", "100%"),
            ("y1", line.as_str()),
            ("y2", line.as_str()),
        ];
        html.element("line", &grid, "");
        let label = axis::label(capacity);
        let at = [("class", "count"), ("x", "-8"), ("y", text.as_str())];
        html.element("text", &at, &label);
    }
}

/// Like [`y`], but for a capacity that is a power of ten.
fn y_of_decade(decade: u32, decades: u32) -> u64 {
    let height = HEIGHT_PX * 10;
    height.saturating_sub(height * u64::from(decade) / u64::from(decades.max(1)))
}

/// Returns the distance between a capacity and the top of the plot, in tenths of a pixel.
fn y(capacity: u32, decades: u32) -> u64 {
    let height = float(HEIGHT_PX * 10);
    let part = f64::from(capacity.max(1)).log10() / f64::from(decades.max(1));
    whole(height * (1.0 - part.clamp(0.0, 1.0)))
}

/// Converts a rate to units per second.
pub(crate) fn per_second(amount: u64, period_ns: u64) -> f64 {
    float(amount) * 1e9 / float(period_ns.max(1))
}
