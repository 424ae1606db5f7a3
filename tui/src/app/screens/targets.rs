//! The Targets screen: all Envoys that are watched, with their sums.

use loudou_words::meaning::refusals;
use loudou_words::num::{cells, count};
use loudou_words::text::{counted, humanise};
use ratatui::style::Style;

use super::copied;
use super::view::{About, View};
use crate::app::broadcast::Delivery;
use crate::app::command::{Binding, Command as C, bind, c, k, tab};
use crate::app::history::Rates;
use crate::app::press::Code::Enter;
use crate::app::press::Spot;
use crate::app::screen::{Places, Screen};
use crate::app::state::State;
use crate::app::targets::TargetSummary;
use crate::draw::bars;
use crate::draw::pen::Pen;
use crate::draw::theme::Theme;
use crate::draw::words::{rate, safe, width as width_of};
use crate::short_names::short_names;

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

    fn copied(&self, state: &State) -> Option<String> {
        let target = state.targets.get(self.at(state))?;
        Some(target.url.clone())
    }

    fn copied_row(&self, state: &State) -> Option<String> {
        let target = state.targets.get(self.at(state))?;
        Some(in_a_line(target))
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

/// A column behind the address, with its priority: on a narrow screen the last ones are left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Column {
    Admitted,
    Refused,
    Warnings,
    Up,
    Generation,
    Version,
}

/// All columns, in their order on screen.
const COLUMNS: [(Column, &str); 6] = [
    (Column::Admitted, "admitted/s"),
    (Column::Refused, "refused/s"),
    (Column::Generation, "generation"),
    (Column::Version, "version"),
    (Column::Up, "up"),
    (Column::Warnings, "warnings"),
];
/// The width of a column, with the gap before it.
const EACH: u16 = 11;
/// The columns that matter more than whole addresses.
const MATTERING: u16 = 4;
/// The marks before an address.
const MARKS: u16 = 3;
/// The least width of the addresses.
const LEAST_NAME: u16 = 12;

/// The places of the columns, and the name of each Envoy.
struct Layout {
    names: Vec<String>,
    /// The width of marks and names.
    name: u16,
    columns: Vec<(Column, &'static str, u16)>,
}

impl Layout {
    /// As many columns as fit beside the addresses; short names where the addresses leave no room.
    fn new(width: u16, targets: &[TargetSummary]) -> Self {
        let urls: Vec<&str> = targets.iter().map(|target| target.url.as_str()).collect();
        let longest = |names: &[String]| {
            let widths = names.iter().map(|name| width_of(&safe(name)));
            widths
                .max()
                .unwrap_or(0)
                .max(LEAST_NAME)
                .saturating_add(MARKS)
        };
        let whole: Vec<String> = urls.iter().map(|url| (*url).to_owned()).collect();
        let most = EACH.saturating_mul(MATTERING);
        let (names, wide) = if longest(&whole).saturating_add(most) <= width {
            let wide = longest(&whole);
            (whole, wide)
        } else {
            let short = short_names(&urls);
            let wide = longest(&short);
            (short, wide)
        };
        // The rates matter more than the end of a long name.
        let rates = EACH.saturating_mul(2);
        let wide = wide.min(width.saturating_sub(rates).max(LEAST_NAME + MARKS));
        let fit = usize::from(width.saturating_sub(wide) / EACH);
        let mut by_priority: Vec<Column> = COLUMNS.iter().map(|(column, _)| *column).collect();
        by_priority.sort_unstable();
        by_priority.truncate(fit);
        let kept = COLUMNS
            .into_iter()
            .filter(|(column, _)| by_priority.contains(column));
        let kept: Vec<(Column, &str)> = kept.collect();
        // What the columns leave is room for names.
        let name = width.saturating_sub(EACH.saturating_mul(cells(kept.len())));
        let places = (name..).step_by(usize::from(EACH));
        let columns = kept.into_iter().zip(places);
        Self {
            names,
            name,
            columns: columns
                .map(|((column, title), x)| (column, title, x))
                .collect(),
        }
    }

    /// The place behind the rates.
    fn behind_rates(&self) -> u16 {
        self.name.saturating_add(EACH.saturating_mul(2))
    }
}

fn draw(pen: &mut Pen<'_>, state: &State) {
    let theme = pen.theme;
    let all = state.targets.len();
    let height = pen.height().saturating_sub(2);
    let results = Results::new(state);
    // Half of the screen is left to results.
    let gap = u16::from(pen.height() > SMALL);
    let kept = results.height(gap).min(height / 2);
    let rows = usize::from(height.saturating_sub(kept)).min(all);
    let selected = state.selected(Screen::Targets).min(all.saturating_sub(1));
    let first = selected
        .saturating_sub(rows / 2)
        .min(all.saturating_sub(rows));
    let is_whole = rows >= all;
    let bar = u16::from(!is_whole);
    let layout = Layout::new(pen.width().saturating_sub(bar), &state.targets);
    pen.style_line(0, theme.head);
    pen.text(1, 0, "envoy", theme.head);
    for (_, title, x) in &layout.columns {
        pen.right(*x, 0, EACH - 1, title, theme.head);
    }
    let lines = state.targets.iter().zip(&layout.names).enumerate();
    for ((number, (target, name)), y) in lines.skip(first).take(rows).zip(1..) {
        line(pen, y, &layout, (target, name, number == state.number));
        pen.spot(0, y, pen.width(), Spot::Line(number));
        if number == selected {
            pen.select_line(y);
        }
    }
    if !is_whole {
        let (x, height) = (pen.width().saturating_sub(bar), cells(rows));
        bars::scroll(&mut pen.part(x, 1, bar, height), (first, rows, all));
    }
    let y = cells(rows).saturating_add(1);
    sums(pen, y, &layout, &state.targets);
    let below = y.saturating_add(1).saturating_add(gap);
    results.draw(pen, below, gap, &layout.names);
}

/// An Envoy as a line of text.
fn in_a_line(target: &TargetSummary) -> String {
    if target.up == Some(false) {
        let error = target.error.as_deref().unwrap_or("unreachable");
        return copied::line(&target.url, &[error.to_owned()]);
    }
    let rates = target.rates.map(|rates| {
        let [admitted, refused] = [rates.admitted, rates.refused].map(|of| rate(Some(of)));
        format!("admitted {admitted}/s, refused {refused}/s")
    });
    let up = humanise(target.uptime_ns / 1_000_000_000 * 1_000_000_000);
    let rest = [
        format!("generation {}", target.generation),
        format!("version {}", target.version),
        format!("up {up}"),
        counted(count(target.warnings), "warning"),
    ];
    let parts: Vec<String> = rates
        .into_iter()
        .chain(target.banner.clone().map(|(banner, _)| banner))
        .chain(rest)
        .collect();
    copied::line(&target.url, &parts)
}

/// The sums over all Envoys that answer: the last numbers of one that is away are not those of now.
fn sums(pen: &mut Pen<'_>, y: u16, layout: &Layout, targets: &[TargetSummary]) {
    let theme = pen.theme;
    let answers = |target: &&TargetSummary| target.up == Some(true) && !target.is_stale;
    let up = targets.iter().filter(answers);
    let each = up.clone().filter(|target| !target.is_twin);
    let sum = each.filter_map(|target| target.rates);
    let sum = sum.fold(Rates::default(), Rates::plus);
    let (up, all) = (up.count(), targets.len());
    let of = match all {
        all if up == all => format!("sum of {all}"),
        all => format!("sum of {up} of {all}"),
    };
    pen.within(
        MARKS,
        y,
        layout.name.saturating_sub(MARKS),
        &of,
        theme.strong,
    );
    rates(pen, y, layout, Some(sum));
}

fn line(
    pen: &mut Pen<'_>,
    y: u16,
    layout: &Layout,
    (target, name, is_shown): (&TargetSummary, &str, bool),
) {
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
    let style = if is_shown { theme.name } else { theme.plain };
    let end = pen.within(MARKS, y, layout.name.saturating_sub(MARKS), name, style);
    if target.up == Some(false) {
        let error = target.error.as_deref().unwrap_or("unreachable");
        let error = error.lines().next().unwrap_or_default();
        // No column follows, so that a long error has the room behind a short name.
        pen.text(end.min(layout.name).saturating_add(1), y, error, theme.bad);
        return;
    }
    rates(pen, y, layout, target.rates);
    if target.is_stale {
        let width = pen.width().saturating_sub(layout.name);
        pen.part(layout.name, y, width, 1).dim_all();
    }
    if let Some((banner, _)) = &target.banner {
        // It matters more than the rates where there is no room for both.
        let behind = layout.behind_rates();
        let x = if pen.width().saturating_sub(behind) < LEAST_BANNER {
            layout.name
        } else {
            behind
        };
        let width = pen.width().saturating_sub(x);
        pen.part(x, y, width, 1).clear();
        pen.text(x.saturating_add(1), y, banner, theme.alarm);
        return;
    }
    for (column, _, x) in &layout.columns {
        let text = match column {
            Column::Admitted | Column::Refused => continue,
            Column::Generation => target.generation.to_string(),
            Column::Version => target.version.clone(),
            Column::Up => humanise(target.uptime_ns / 1_000_000_000 * 1_000_000_000),
            Column::Warnings => target.warnings.to_string(),
        };
        pen.right(*x, y, EACH - 1, &text, theme.plain);
    }
}

/// The height of a body that has no room for gaps.
const SMALL: u16 = 10;
/// The least room for a banner behind the rates.
const LEAST_BANNER: u16 = 24;

fn rates(pen: &mut Pen<'_>, y: u16, layout: &Layout, rates: Option<Rates>) {
    let theme = pen.theme;
    for (column, _, x) in &layout.columns {
        let (text, style) = match column {
            Column::Admitted => (rate(rates.map(|rates| rates.admitted)), theme.good),
            Column::Refused => refused(theme, rates),
            _ => continue,
        };
        pen.right(*x, y, EACH - 1, &text, style);
    }
}

/// What is refused, and in parentheses what rules in shadow mode would refuse.
fn refused(theme: &Theme, rates: Option<Rates>) -> (String, Style) {
    let refused = rates.map(|rates| rates.refused);
    let would = rates.filter(|rates| rates.shadow > 0.0);
    let would = would.map(|rates| refusals(rate(Some(rates.shadow)), true));
    let style = if refused.unwrap_or(0.0) > 0.0 {
        theme.bad
    } else {
        theme.dim
    };
    let text = [Some(rate(refused)), would].into_iter().flatten();
    (text.collect::<Vec<_>>().join(" "), style)
}

// The results of changes for all Envoys, below the list of these.

/// The results of the last changes for all.
struct Results<'a> {
    /// The title of each change, and its result at each Envoy that it is for: failures first, then what is open.
    changes: Vec<(&'a str, Vec<(usize, &'a Delivery)>)>,
}

impl<'a> Results<'a> {
    fn new(state: &'a State) -> Self {
        let changes = state.broadcasts.iter().map(|(title, results)| {
            let results = results.iter().enumerate();
            let asked = results.filter(|(_, result)| **result != Delivery::NotAsked);
            let mut asked: Vec<(usize, &Delivery)> = asked.collect();
            asked.sort_by_key(|(_, result)| urgency(result));
            (title.as_str(), asked)
        });
        Self {
            changes: changes.collect(),
        }
    }

    /// The lines that all would take, each change with a gap above it.
    fn height(&self, gap: u16) -> u16 {
        let lines = self.changes.iter().map(|(_, results)| {
            let lines = cells(results.len()).saturating_add(1);
            lines.saturating_add(gap)
        });
        lines.fold(0, u16::saturating_add)
    }

    fn draw(&self, pen: &mut Pen<'_>, mut y: u16, gap: u16, names: &[String]) {
        let theme = pen.theme;
        for (title, results) in &self.changes {
            if y >= pen.height() {
                return;
            }
            pen.style_line(y, theme.head);
            pen.text(1, y, &format!("change for all: {title}"), theme.head);
            y = y.saturating_add(1);
            for (at, (number, result)) in results.iter().enumerate() {
                let left = results.len().saturating_sub(at);
                // On the last line, the number of those that have no line.
                if y.saturating_add(1) >= pen.height() && left > 1 && at > 0 {
                    pen.text(MARKS, y, &format!("and {left} more"), theme.dim);
                    return;
                }
                let name = names.get(*number).map_or("", String::as_str);
                one(pen, y, name, result);
                y = y.saturating_add(1);
            }
            y = y.saturating_add(gap);
        }
    }
}

/// The order of results: what needs attention comes first.
const fn urgency(result: &Delivery) -> u8 {
    match result {
        Delivery::Failed(_) => 0,
        Delivery::Sending => 2,
        Delivery::Done(_) => 3,
        Delivery::NotAsked => 4,
    }
}

/// The result of a change at one Envoy.
fn one(pen: &mut Pen<'_>, y: u16, name: &str, result: &Delivery) {
    let theme = pen.theme;
    let style = match result {
        Delivery::Sending | Delivery::NotAsked => theme.plain,
        Delivery::Done(_) => theme.good,
        Delivery::Failed(_) => theme.bad,
    };
    let x = pen.within(MARKS, y, pen.width() / 2, name, theme.plain);
    let words = result.words();
    let line = words.lines().next().unwrap_or_default();
    pen.text(x.saturating_add(2), y, line, style);
}
