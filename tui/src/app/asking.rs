//! Builds the question that the user confirms: its text, the effect of the change, the equivalent
//! command line, and the possible answers.

use std::collections::BTreeSet;

use loudou_api::RuleView;

use super::command::Command;
use super::form::{Form, Kind, Stage};
use super::motion::moved;
use super::press::{Code, Press};
use super::question::{Action, Pending};
use super::sheet::{Answer, Content, Part, Sheet, Tone};
use super::state::{Mode, State};
use crate::short_names::{short_names, without_scheme};
use loudou_client::change::Change;
use loudou_client::change::form::Prompt;
use loudou_limiter::Carry;
use loudou_print::cells::{safe, width};
use loudou_rules::rule::tried;
use loudou_words::limit_edit;
use loudou_words::meaning::leased;

/// Maximum width of an Envoy's name in an answer, in cells. `NAMED` is the minimum terminal width
/// at which answers name the Envoy.
const NAME: u16 = 24;
const NAMED: u16 = 60;

/// Returns true if a question is open.
pub(crate) const fn is_open(mode: &Mode) -> bool {
    match mode {
        Mode::Confirm(_) => true,
        Mode::Edit(form) => !matches!(form.stage, Stage::Editing),
        _ => false,
    }
}

/// Returns the open question, laid out for the terminal, or `None` if no question is open.
pub(crate) fn sheet(state: &State) -> Option<Sheet> {
    let content = match &state.mode {
        Mode::Confirm(pending) => of_pending(state, pending),
        Mode::Edit(form) => match &form.stage {
            Stage::Editing => return None,
            Stage::Confirm | Stage::Sending => of_form(state, form),
            Stage::Conflict(theirs) => of_conflict(form, theirs),
        },
        _ => return None,
    };
    Some(Sheet::new(content, state.size))
}

/// Scrolls the text of the question. Returns false if no question is open.
pub(crate) fn scroll(state: &mut State, motion: Command) -> bool {
    let Some(sheet) = sheet(state) else {
        return false;
    };
    let to = moved(sheet.top, sheet.places(), sheet.shown, motion);
    match &mut state.mode {
        Mode::Confirm(pending) => pending.top = to,
        Mode::Edit(form) => form.top = to,
        _ => {}
    }
    true
}

fn of_pending(state: &State, pending: &Pending) -> Content {
    let mut parts = vec![Part::text(Tone::Strong, &pending.question)];
    let detail = pending.detail.iter();
    parts.extend(detail.map(|line| Part::text(Tone::Plain, line)));
    let change = match &pending.action {
        Action::Change(sending) => Some(&sending.change),
        Action::Again(_) => None,
    };
    parts.extend(change.and_then(|change| one_is_enough(state, change)));
    if let Action::Change(_) = pending.action {
        parts.extend(place(state));
    }
    let url = state.settings.named_url();
    parts.extend(command_line(pending.command(url).as_deref()));
    Content {
        title: String::new(),
        parts,
        answers: answers(
            &at_shown(state, "yes"),
            to_all(state).filter(|_| pending.of_one().is_none()),
            "no",
        ),
        widths: (64, 64),
        top: pending.top,
    }
}

fn of_form(state: &State, form: &Form) -> Content {
    let changes = form.change_lines().into_iter();
    let mut parts: Vec<Part> = changes
        .map(|line| Part::text(Tone::Changed, line))
        .collect();
    let later = limit_edit::full_later(&form.base.rule, &form.body(), form.carry());
    parts.extend(later.into_iter().map(|line| Part::text(Tone::Warn, line)));
    let is_same = parts.is_empty();
    let effect = form.effect.iter();
    parts.extend(effect.map(|line| Part::text(Tone::Plain, line)));
    if is_same {
        let same = "the same values, with a new expiry";
        parts.push(Part::text(Tone::Changed, same));
    }
    let (target, begins) = (form.target(), form.is_trial() && form.tried.is_none());
    let ended = if form.is_trial() {
        "trial ends"
    } else {
        "configuration applies again"
    };
    if let Some(rule) = tried(&target).filter(|_| begins) {
        let text = format!("in shadow mode: no request is refused, and {rule} stays as it is");
        parts.push(Part::text(Tone::Plain, text));
    }
    parts.push(Part::Gap);
    parts.extend(form.fields.iter().filter_map(|field| {
        let value = field.value();
        let text = match field.kind {
            // A new trial starts with new buckets, so there are no levels to carry over.
            Kind::Carry if begins && form.running.is_none() => return None,
            Kind::Carry => match form.carry() {
                Carry::Keep => "buckets keep the units that are used",
                Carry::Proportional | Carry::Stepped => "buckets keep their share of use",
                Carry::Reset => "buckets are reset",
            }
            .to_owned(),
            Kind::Asked(Prompt::Expires) if value.is_empty() => {
                let what = if form.is_trial() { "trial" } else { "edit" };
                format!("until Envoy restarts or the {what} is dropped")
            }
            Kind::Asked(Prompt::Expires) => {
                format!("for {value}, then the {ended}")
            }
            Kind::Asked(Prompt::Reason) if !value.is_empty() => format!("reason: {value}"),
            _ => return None,
        };
        Some(Part::text(Tone::Plain, text))
    }));
    parts.extend(one_is_enough(state, &Change::Edit(form.edit())));
    parts.extend(place(state));
    let url = state.settings.named_url();
    parts.extend(command_line(form.command(url).as_deref()));
    let answers = match form.stage {
        Stage::Sending => Vec::new(),
        _ => answers(&at_shown(state, "send"), to_all(state), "back"),
    };
    Content {
        title: match tried(&target).filter(|_| begins) {
            Some(rule) => format!("try limits beside {rule}"),
            None => format!("edit {target}"),
        },
        parts,
        answers,
        widths: (46, 74),
        top: form.top,
    }
}

/// Lays out a conflict in four columns: the field, its original value, the other user's value, and
/// this user's value.
fn of_conflict(form: &Form, theirs: &RuleView) -> Content {
    let change = match &theirs.edit {
        None => "No edit is in effect".to_owned(),
        Some(edit) if edit.reason.is_empty() => format!("{} edited it", edit.by),
        Some(edit) => format!("{} edited it: {}", edit.by, edit.reason),
    };
    let change = format!("{change} (generation {})", theirs.generation);
    let heads = Part::Heads(["", "before", "theirs", "yours"]);
    let mut parts = vec![Part::text(Tone::Warn, change), Part::Gap, heads];
    parts.extend(form.versus(theirs).into_iter().map(Part::Row));
    Content {
        title: format!("{} was changed meanwhile", form.base.name),
        parts,
        answers: answers("merge into theirs", None, "back"),
        widths: (76, 76),
        top: form.top,
    }
}

fn answers(yes: &str, all: Option<String>, no: &str) -> Vec<Answer> {
    let answer = |press, key, word: &str| Answer {
        press,
        key,
        word: word.to_owned(),
    };
    let all = all.map(|all| answer(Press::char('a'), "a", &all));
    let yes = answer(Press::plain(Code::Enter), "Enter", yes);
    let no = answer(Press::plain(Code::Esc), "Esc", no);
    [Some(yes), all, Some(no)].into_iter().flatten().collect()
}

/// Returns the label of the answer that confirms the change for the Envoy on the screen. The label
/// names the Envoy if several are watched and the terminal is wide enough: `yes, at 10.0.0.1:9911`.
fn at_shown(state: &State, word: &str) -> String {
    if state.targets.len() < 2 || state.size.0 < NAMED {
        return word.to_owned();
    }
    let urls = state.targets.iter().map(|target| target.url.as_str());
    let urls: Vec<&str> = urls.collect();
    let bare: Vec<&str> = urls.iter().map(|url| without_scheme(url)).collect();
    let are_apart = bare.iter().collect::<BTreeSet<_>>().len() == bare.len();
    let whole = bare.get(state.number).filter(|_| are_apart);
    let whole = whole.map(|name| (*name).to_owned());
    let short = short_names(&urls).into_iter().nth(state.number);
    let mut names = whole.into_iter().chain(short);
    let name = names.find(|name| width(&safe(name)) <= NAME);
    let number = state.number.saturating_add(1);
    let name = name.unwrap_or_else(|| format!("Envoy {number} of {}", urls.len()));
    format!("{word}, at {name}")
}

/// Returns a line with the Envoy's address, unless the answer's label already names the Envoy.
fn place(state: &State) -> Option<Part> {
    let is_named = state.targets.len() > 1 && state.size.0 >= NAMED;
    let at = format!("at {}", state.settings.url);
    (!is_named).then(|| Part::text(Tone::Plain, at))
}

/// Returns the label of the answer that sends a change to all watched Envoys or, if some are
/// marked, to the marked ones: `yes, at all 2`. If some Envoys are marked, but not the one on the
/// screen, the label ends in `(not here)`. `None` if only one Envoy is watched.
fn to_all(state: &State) -> Option<String> {
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

/// If the fleet forwards the change to its other Envoys, returns a line that says so.
fn one_is_enough(state: &State, change: &Change) -> Option<Part> {
    let fleet = state.data.as_ref()?.status.fleet.as_ref()?;
    let is_shared = !matches!(change, Change::Reset(_));
    is_shared.then(|| {
        let envoys = leased::envoys(fleet);
        let text = format!("The fleet ({envoys}) shares it: one Envoy is enough.");
        Part::text(Tone::Plain, text)
    })
}

/// Returns a gap followed by the command line, or nothing if `command` is `None`.
fn command_line(command: Option<&str>) -> impl Iterator<Item = Part> {
    let line = command.map(|command| [Part::Gap, Part::text(Tone::Dim, command)]);
    line.into_iter().flatten()
}
