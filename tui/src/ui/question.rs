//! The question before an action that is hard to undo.

use crate::app::press::{Code, Press, Spot};
use crate::app::question::{Action, Pending};
use crate::app::state::State;
use crate::change::Change;
use crate::draw::panel;
use crate::draw::pen::Pen;
use crate::draw::words::wrap;
use crate::meaning::leased;
use crate::num::cells;

/// Draws the question.
pub(crate) fn draw(pen: &mut Pen<'_>, state: &State, pending: &Pending) {
    let theme = pen.theme;
    let width = pen.width().saturating_sub(4).min(64);
    let inside = width.saturating_sub(4);
    let question = wrap(&pending.question, inside);
    let arrow = theme.pick_text("→", "->");
    let detail: Vec<String> = pending
        .detail
        .iter()
        .flat_map(|line| wrap(&line.replace('→', arrow), inside))
        .collect();
    let mut command = command_lines(pending.command.as_deref(), inside);
    let change = match &pending.action {
        Action::Change(sending) => Some(&sending.change),
        Action::Again(_) => None,
    };
    let fleet = change.and_then(|change| one_is_enough(state, change));
    let fleet = fleet.map_or_else(Vec::new, |text| wrap(&text, inside));
    let detail = [detail, fleet].concat();
    let above = cells(question.len().saturating_add(detail.len()));
    // The question and its keys come first.
    if above.saturating_add(cells(command.len())).saturating_add(4) > pen.height() {
        command.clear();
    }
    let lines = question.len().saturating_add(detail.len());
    let lines = cells(lines.saturating_add(command.len()));
    let mut pen = panel::open(pen, "", width, lines.saturating_add(5));
    let mut y = 0;
    for line in &question {
        y = y.max(pen_line(&mut pen, y, line, theme.strong));
    }
    for line in &detail {
        y = y.max(pen_line(&mut pen, y, line, theme.plain));
    }
    for line in &command {
        y = y.max(pen_line(&mut pen, y, line, theme.dim));
    }
    let y = y.saturating_add(1).min(pen.height().saturating_sub(1));
    let all = pending.suits_all().then(|| to_all(state)).flatten();
    let all = all.map(|all| format!("{all}  "));
    buttons(&mut pen, y, "yes  ", all.as_deref(), "no");
}

/// Draws what the keys do, which can also be clicked.
pub(super) fn buttons(pen: &mut Pen<'_>, y: u16, yes: &str, all: Option<&str>, no: &str) {
    let theme = pen.theme;
    let yes = ("Enter", yes, Press::plain(Code::Enter));
    let all = all.map(|all| ("a", all, Press::char('a')));
    let no = ("Esc", no, Press::plain(Code::Esc));
    let mut x = 1;
    for (key, word, press) in [Some(yes), all, Some(no)].into_iter().flatten() {
        let gap = (" ", theme.plain);
        let end = pen.spans(x, y, &[(key, theme.key), gap, (word, theme.plain)]);
        pen.spot(x, y, end.saturating_sub(x), Spot::Key(press));
        x = end.saturating_add(1);
    }
}

/// The answer that sends a change to all Envoys that are watched, or to those that are marked, of which the one on the
/// screen may be none: `yes, at all 2`; `None` for one.
pub(super) fn to_all(state: &State) -> Option<String> {
    let all = state.targets.len();
    let marked = state.targets.iter().filter(|target| target.is_marked);
    let shown = state.targets.get(state.number);
    let here = match shown {
        Some(shown) if !shown.is_marked => " (not here)",
        Some(_) | None => "",
    };
    (all > 1).then(|| match marked.count() {
        0 => format!("yes, at all {all}"),
        some => format!("yes, at the {some} marked{here}"),
    })
}

/// That a fleet carries a change to its other Envoys, if it does.
pub(super) fn one_is_enough(state: &State, change: &Change) -> Option<String> {
    let fleet = state.data.as_ref()?.status.fleet.as_ref()?;
    let is_shared = !matches!(change, Change::Reset(_));
    is_shared.then(|| {
        let envoys = leased::envoys(fleet);
        format!("It travels to the fleet ({envoys}) from one of them.")
    })
}

/// A command line below an empty line, cut to the width; nothing without one.
pub(super) fn command_lines(command: Option<&str>, wide: u16) -> Vec<String> {
    let lines = command.map(|command| wrap(command, wide));
    let lines = lines.into_iter().flatten();
    let mut lines: Vec<String> = lines.collect();
    if !lines.is_empty() {
        lines.insert(0, String::new());
    }
    lines
}

fn pen_line(pen: &mut Pen<'_>, y: u16, line: &str, style: ratatui::style::Style) -> u16 {
    pen.text(1, y, line, style);
    y.saturating_add(1)
}
