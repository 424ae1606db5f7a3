//! The Targets screen: all watched Envoys with their rates, and the sums of the rates.

use loudou_words::num::{cells, count};
use loudou_words::text::{counted, humanise};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::Clear;

use super::view::{About, View};
use super::{copied, list};
use crate::app::broadcast::Delivery;
use crate::app::command::{Binding, Command as C, bind, c, k, tab};
use crate::app::history::Rates;
use crate::app::press::Code::Enter;
use crate::app::screen::{Places, Screen};
use crate::app::state::State;
use crate::app::targets::TargetSummary;
use crate::draw::pen::Pen;
use crate::draw::theme::Theme;
use crate::draw::widgets::{self, ColumnWidth};
use crate::draw::words::{rate, safe, text, width as width_of};
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

/// The Targets screen.
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

/// The columns, each with its title and its rank: columns with a low rank are fitted first. The
/// width of the first column depends on the names.
const COLUMNS: [(&str, u8); 7] = [
    ("envoy", 0),
    ("admitted/s", 1),
    ("refused/s", 2),
    ("generation", 5),
    ("version", 6),
    ("up", 4),
    ("warnings", 3),
];
/// Width of each column except the first.
const EACH: u16 = 10;
/// Width of the marks before a name.
const MARKS: u16 = 3;
/// Minimum width of a name.
const MIN_NAME: u16 = 12;
/// Maximum height of a body that is drawn without gaps.
const SMALL: u16 = 10;
/// Minimum width of a banner to the right of the rates.
const MIN_BANNER: u16 = 24;

/// Draws the Envoys and their sums and, below them, the results of changes for all Envoys.
fn draw(pen: &mut Pen<'_>, state: &State) {
    let theme = pen.theme;
    let all = state.targets.len();
    let height = pen.area.height.saturating_sub(2);
    // Up to half of the screen is reserved for results.
    let gap = u16::from(pen.area.height > SMALL);
    let results = results(theme, state, gap > 0);
    let kept = cells(results.len()).min(height / 2);
    let shown = usize::from(height.saturating_sub(kept)).min(all);
    let selected = state.selected(Screen::Targets).min(all.saturating_sub(1));
    let first = selected
        .saturating_sub(shown / 2)
        .min(all.saturating_sub(shown));
    let [list, below] = Layout::vertical([
        // One line each for the headings and the sums.
        Constraint::Length(cells(shown).saturating_add(2)),
        Constraint::Fill(1),
    ])
    .areas(pen.area);
    let [list, edge] = if shown < all {
        let [list, mut edge] = list::beside_scroll_bar(list);
        edge.height = cells(shown);
        [list, edge]
    } else {
        [list, Rect::default()]
    };
    let (names, widths) = places(list.width, &state.targets);
    let lines = state
        .targets
        .iter()
        .zip(&names)
        .enumerate()
        .skip(first)
        .take(shown);
    let lines: Vec<_> = lines.collect();
    let mut rows: Vec<(usize, Vec<Line<'static>>)> = lines
        .iter()
        .map(|(number, (target, name))| {
            (*number, row(theme, target, name, *number == state.number))
        })
        .collect();
    rows.push((usize::MAX, sums(theme, &state.targets)));
    let titles = COLUMNS.map(|(title, rank)| match rank {
        0 => (format!(" {title}"), false),
        _ => (title.to_owned(), true),
    });
    let heads = widgets::heads(titles, &widths);
    widgets::table(&mut pen.part(list), &heads, rows, Some(selected));
    let rates = widths
        .iter()
        .take(3)
        .map(|width| width.saturating_add(1))
        .sum();
    for ((_, (target, name)), place) in lines.iter().zip(list.rows().skip(1)) {
        over(
            pen,
            place,
            target,
            name,
            [
                widths.first().copied().unwrap_or(0).saturating_add(1),
                rates,
            ],
        );
    }
    widgets::scroll_bar(pen, edge, first, shown, all);
    let mut rest = results;
    let room = usize::from(below.height);
    if rest.len() > room && room > 2 {
        let left = rest.len().saturating_sub(room).saturating_add(1);
        rest.truncate(room.saturating_sub(1));
        rest.push((
            text(&format!("   and {left} more"), theme.dim).into(),
            false,
        ));
    }
    for ((line, is_head), place) in rest.into_iter().zip(below.rows()) {
        if is_head {
            pen.style(place, theme.head);
        }
        pen.line(place, line);
    }
}

/// Returns a name for each Envoy and the widths of the columns. The names are the addresses,
/// shortened if they leave too little room for other columns.
fn places(width: u16, targets: &[TargetSummary]) -> (Vec<String>, Vec<u16>) {
    let urls: Vec<&str> = targets.iter().map(|target| target.url.as_str()).collect();
    let longest = |names: &[String]| {
        let widths = names.iter().map(|name| width_of(&safe(name)));
        widths
            .max()
            .unwrap_or(0)
            .max(MIN_NAME)
            .saturating_add(MARKS)
    };
    let whole: Vec<String> = urls.iter().map(|url| (*url).to_owned()).collect();
    // The rates, the warnings and the uptime take precedence over unshortened addresses.
    let most = width.saturating_sub((EACH + 1) * 4);
    let names = if longest(&whole) <= most {
        whole
    } else {
        short_names(&urls)
    };
    // A long name is truncated to make room for the rates. The end of a long name takes precedence
    // over the other columns.
    let rates = (EACH + 1) * 2;
    let wide = longest(&names).min(width.saturating_sub(rates).max(MIN_NAME + MARKS));
    let wishes = COLUMNS.map(|(_, rank)| match rank {
        0 => ColumnWidth::growing(0, wide, wide, u16::MAX),
        rank => ColumnWidth::fixed(rank, EACH),
    });
    let widths = widgets::fit(width, &wishes);
    (names, widths)
}

/// Formats an Envoy as a line of text.
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

/// Returns the sums over all Envoys that answer. Envoys that do not answer are left out, because
/// their last rates are outdated.
fn sums(theme: &Theme, targets: &[TargetSummary]) -> Vec<Line<'static>> {
    let answers = |target: &&TargetSummary| target.up == Some(true) && !target.is_stale;
    let up = targets.iter().filter(answers);
    let each = up.clone().filter(|target| !target.is_twin);
    let sum = each.filter_map(|target| target.rates);
    let sum = sum.fold(Rates::default(), Rates::plus);
    let (up, all) = (up.count(), targets.len());
    let of = match all {
        all if up == all => format!("   sum of {all}"),
        all => format!("   sum of {up} of {all}"),
    };
    let mut cells = vec![text(&of, theme.strong).into()];
    cells.extend(rates(theme, Some(sum)));
    cells.resize(COLUMNS.len(), Line::default());
    cells
}

/// Returns the cells of an Envoy.
fn row(theme: &Theme, target: &TargetSummary, name: &str, is_shown: bool) -> Vec<Line<'static>> {
    let up = theme.pick("●", "*");
    let (mark, style) = match target.up {
        Some(true) if !target.is_stale => (up, theme.good),
        Some(true) | None => (up, theme.warn),
        Some(false) => (theme.pick("○", "o"), theme.bad),
    };
    let marked = if target.is_marked {
        theme.pick("✓", "x")
    } else {
        " "
    };
    let name_style = if is_shown { theme.name } else { theme.plain };
    let name = vec![
        text(&format!(" {mark}"), style),
        Span::styled(marked, theme.changed),
        text(name, name_style),
    ];
    let mut cells = vec![Line::from(name)];
    cells.extend(rates(theme, target.rates));
    let rest = [
        target.generation.to_string(),
        target.version.clone(),
        humanise(target.uptime_ns / 1_000_000_000 * 1_000_000_000),
        target.warnings.to_string(),
    ];
    cells.extend(rest.map(|value| Line::from(text(&value, theme.plain))));
    if target.is_stale {
        let numbers = cells.iter_mut().skip(1);
        numbers.for_each(|cell| *cell = std::mem::take(cell).patch_style(theme.stale));
    }
    cells
}

/// Draws an Envoy's most important message over its numbers: the error if the Envoy does not
/// answer, otherwise its banner. The message begins after the name or after the rates.
fn over(
    pen: &mut Pen<'_>,
    row: Rect,
    target: &TargetSummary,
    name: &str,
    [behind_name, behind_rates]: [u16; 2],
) {
    let theme = pen.theme;
    let (x, words) = if target.up == Some(false) {
        let error = target.error.as_deref().unwrap_or("unreachable");
        let error = error.lines().next().unwrap_or_default();
        // An Envoy that does not answer has no current numbers, so the error can begin right after
        // a short name.
        let name = width_of(&safe(name))
            .saturating_add(MARKS)
            .saturating_add(1);
        (behind_name.min(name), text(error, theme.bad))
    } else if let Some((banner, _)) = &target.banner {
        // If there is no room for the banner after the rates, the banner replaces them.
        let has_room = row.width.saturating_sub(behind_rates) >= MIN_BANNER;
        let x = if has_room { behind_rates } else { behind_name };
        (x, text(banner, theme.alarm))
    } else {
        return;
    };
    let place = Rect {
        x: row.x.saturating_add(x),
        width: row.width.saturating_sub(x),
        ..row
    };
    pen.draw(place, Clear);
    pen.line(place, words);
}

/// Formats the rates of admitted and of refused requests.
fn rates(theme: &Theme, rates: Option<Rates>) -> [Line<'static>; 2] {
    let admitted = rate(rates.map(|rates| rates.admitted));
    [
        text(&admitted, theme.good).into(),
        list::refused(theme, rates).into(),
    ]
}

/// Returns lines with the results of the last broadcasts, each broadcast under its title. Failures
/// come first, then pending results. The flag of a line is true for titles.
fn results(theme: &Theme, state: &State, has_gaps: bool) -> Vec<(Line<'static>, bool)> {
    let mut lines = Vec::new();
    // The results contain keys, so they are not shown while keys are hidden.
    if state.hides_keys {
        return lines;
    }
    let urls: Vec<&str> = state
        .targets
        .iter()
        .map(|target| target.url.as_str())
        .collect();
    let names = short_names(&urls);
    for (title, results) in &state.broadcasts {
        if has_gaps {
            lines.push((Line::default(), false));
        }
        lines.push((format!(" change for all: {}", safe(title)).into(), true));
        let asked = results
            .iter()
            .zip(&names)
            .filter(|(result, _)| **result != Delivery::NotAsked);
        let mut asked: Vec<_> = asked.collect();
        asked.sort_by_key(|(result, _)| urgency(result));
        lines.extend(
            asked
                .into_iter()
                .map(|(result, name)| (one(theme, name, result), false)),
        );
    }
    lines
}

/// Formats the result of a change at one Envoy.
fn one(theme: &Theme, name: &str, result: &Delivery) -> Line<'static> {
    let style = match result {
        Delivery::Sending | Delivery::NotAsked => theme.plain,
        Delivery::Done(_) => theme.good,
        Delivery::Failed(_) => theme.bad,
    };
    let words = result.words();
    let first = words.lines().next().unwrap_or_default();
    vec![
        text(&format!("   {name}  "), theme.plain),
        text(first, style),
    ]
    .into()
}

/// Returns the rank of a result in the sort order. Results that need attention come first.
const fn urgency(result: &Delivery) -> u8 {
    match result {
        Delivery::Failed(_) => 0,
        Delivery::Sending => 2,
        Delivery::Done(_) => 3,
        Delivery::NotAsked => 4,
    }
}
