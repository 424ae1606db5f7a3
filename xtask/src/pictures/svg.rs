//! Draws the picture of an algorithm as SVG. The picture shows when requests arrive and when they
//! are admitted, and how many have been admitted.

use std::fmt::Write as _;

use super::{END_MS, Outcome};

const WIDTH: u64 = 760;
const HEIGHT: u64 = 250;
const LEFT: u64 = 70;
const RIGHT: u64 = 20;
/// Vertical positions of the two rows of marks: arrivals and admissions.
const COME: u64 = 48;
const PASS: u64 = 78;
/// Vertical position of the plot's bottom edge, and height of the plot.
const BOTTOM: u64 = 222;
const PLOT: u64 = 120;

const STYLE: &str = "text{font:12px sans-serif;fill:#444}.t{font:600 14px sans-serif;fill:#111}\
    .come{stroke:#888;stroke-width:2}.pass{fill:#1a7f37}.wait{fill:#b26a00}\
    .hold{stroke:#b26a00;stroke-width:1;opacity:.5}.no{stroke:#cf222e;stroke-width:2}\
    .all{fill:none;stroke:#999;stroke-width:1.5;stroke-dasharray:4 3}\
    .out{fill:none;stroke:#1a7f37;stroke-width:2}.axis{stroke:#ccc}";

fn x(ms: u64) -> u64 {
    let width = WIDTH.saturating_sub(LEFT).saturating_sub(RIGHT);
    let ahead = ms.min(END_MS).saturating_mul(width).checked_div(END_MS);
    LEFT.saturating_add(ahead.unwrap_or(0))
}

fn y(count: usize, most: usize) -> u64 {
    let (count, most) = (u64::try_from(count), u64::try_from(most));
    let (count, most) = (count.unwrap_or(0), most.unwrap_or(1).max(1));
    let up = count.saturating_mul(PLOT).checked_div(most).unwrap_or(0);
    BOTTOM.saturating_sub(up)
}

/// Draws the picture.
pub(super) fn draw(title: &str, outcomes: &[Outcome]) -> String {
    let mut out = String::new();
    let mut line = |text: &str| {
        out.push_str(text);
        out.push('\n');
    };
    line(&format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\">"
    ));
    line(&format!(
        "<title>{}</title><style>{STYLE}</style>",
        escaped(title)
    ));
    line(&format!(
        "<rect width=\"{WIDTH}\" height=\"{HEIGHT}\" rx=\"6\" fill=\"#fff\"/>"
    ));
    line(&format!(
        "<text class=\"t\" x=\"{LEFT}\" y=\"22\">{}</text>",
        escaped(title)
    ));
    for (label, y) in [("come", COME), ("pass", PASS), ("in all", BOTTOM)] {
        let y = y.saturating_add(4);
        line(&format!("<text x=\"12\" y=\"{y}\">{label}</text>"));
    }
    line(&axis());
    line(&marks(outcomes));
    line(&curves(outcomes));
    line("</svg>");
    out
}

fn axis() -> String {
    let mut out = String::new();
    for s in (0..=END_MS.checked_div(1_000).unwrap_or(0)).step_by(2) {
        let x = x(s.saturating_mul(1_000));
        let (top, label) = (PASS.saturating_add(18), BOTTOM.saturating_add(18));
        let _written = write!(
            out,
            "<path class=\"axis\" d=\"M{x} {top}V{BOTTOM}\"/>\
             <text x=\"{x}\" y=\"{label}\" text-anchor=\"middle\">{s} s</text>"
        );
    }
    out
}

fn marks(outcomes: &[Outcome]) -> String {
    let mut out = String::new();
    let (top, end) = (COME.saturating_sub(6), COME.saturating_add(6));
    for outcome in outcomes {
        let (Outcome::Passed(came) | Outcome::Waited(came, _) | Outcome::Refused(came)) = *outcome;
        let from = x(came);
        let _written = write!(out, "<path class=\"come\" d=\"M{from} {top}V{end}\"/>");
        let _written = match *outcome {
            Outcome::Passed(_) => write!(
                out,
                "<circle class=\"pass\" cx=\"{from}\" cy=\"{PASS}\" r=\"4\"/>"
            ),
            Outcome::Waited(_, passed) => {
                let to = x(passed);
                write!(
                    out,
                    "<path class=\"hold\" d=\"M{from} {end}L{to} {PASS}\"/>\
                     <circle class=\"wait\" cx=\"{to}\" cy=\"{PASS}\" r=\"4\"/>"
                )
            }
            Outcome::Refused(_) => {
                let (a, b) = (from.saturating_sub(3), from.saturating_add(3));
                let (c, d) = (COME.saturating_add(12), COME.saturating_add(18));
                write!(
                    out,
                    "<path class=\"no\" d=\"M{a} {c}L{b} {d}M{a} {d}L{b} {c}\"/>"
                )
            }
        };
    }
    out
}

/// Draws the cumulative numbers of arrived and of admitted requests as curves.
fn curves(outcomes: &[Outcome]) -> String {
    let most = outcomes.len();
    let mut came: Vec<u64> = Vec::new();
    let mut passed: Vec<u64> = Vec::new();
    for outcome in outcomes {
        match *outcome {
            Outcome::Passed(at) => {
                came.push(at);
                passed.push(at);
            }
            Outcome::Waited(at, until) => {
                came.push(at);
                passed.push(until);
            }
            Outcome::Refused(at) => came.push(at),
        }
    }
    passed.sort_unstable();
    let out = format!(
        "{}{}",
        stairs("all", &came, most),
        stairs("out", &passed, most)
    );
    let shown = passed.iter().filter(|at| **at <= END_MS).count();
    let (x, y) = (
        WIDTH.saturating_sub(RIGHT),
        y(shown, most).saturating_sub(5),
    );
    format!("{out}<text x=\"{x}\" y=\"{y}\" text-anchor=\"end\">{shown} of {most}</text>")
}

fn stairs(class: &str, times: &[u64], most: usize) -> String {
    let mut path = format!("M{} {BOTTOM}", x(0));
    for (count, at) in (1..).zip(times.iter().filter(|at| **at <= END_MS)) {
        let _written = write!(path, "H{}V{}", x(*at), y(count, most));
    }
    format!("<path class=\"{class}\" d=\"{path}H{}\"/>", x(END_MS))
}

pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}
