//! The frame of every screen: the header with connection and totals, the status line, the footer.

use super::totals;
use crate::app::again;
use crate::app::command::{ALWAYS, Binding};
use crate::app::findings::of_filter;
use crate::app::form::Stage;
use crate::app::keys;
use crate::app::press::Spot;
use crate::app::screen::Screen;
use crate::app::screens::{self, About, SCREENS};
use crate::app::state::{Mode, State};
use crate::draw::pen::Pen;
use crate::draw::theme::Theme;
use crate::draw::words::{whole_seconds, width};
use crate::short_names::without_scheme;
use loudou_words::text::humanise;
use ratatui::style::Style;

/// The least cells of an address that does not fit.
const LEAST: u16 = 12;

/// Draws name, screens and connection, then totals.
pub(crate) fn header(pen: &mut Pen<'_>, state: &State) {
    let theme = pen.theme;
    let (text, style) = connection(pen, state);
    let several = state.targets.len() > 1;
    let tabs: Vec<_> = SCREENS
        .iter()
        .filter(|view| several || !view.about().screen.is_of_several())
        .map(|view| (tab(view.about()), view.about().screen))
        .collect();
    let wide: u16 = tabs
        .iter()
        .map(|(name, _)| width(name).saturating_add(3))
        .sum();
    // Where there is no room for both, the address is worth more than the name of the program.
    let name = theme.pick_text(" 漏斗 loudou ", " loudou ");
    let address = without_scheme(&state.settings.url);
    let whole = [name, text.as_str(), address].map(width);
    let is_tight = whole
        .iter()
        .fold(wide, |sum, part| sum.saturating_add(*part))
        >= pen.width();
    let name = if is_tight {
        theme.pick_text(" 漏斗 ", " loudou ")
    } else {
        name
    };
    let mut x = pen.text(0, 0, name, theme.name);
    let short = width(address).saturating_add(2).min(LEAST + 4);
    let least = width(&text).max(short).saturating_add(2);
    let all = x.saturating_add(wide).saturating_add(least) <= pen.width();
    for (name, screen) in tabs {
        let here = state.screen == screen;
        // The connection is always shown; the other tabs only if there is room.
        if !here && !all {
            continue;
        }
        let tab = if here { theme.selected } else { theme.dim };
        let from = x.saturating_add(1);
        x = pen.text(from, 0, &format!(" {name} "), tab);
        pen.spot(from, 0, x.saturating_sub(from), Spot::Tab(screen));
    }
    let room = pen.width().saturating_sub(x).saturating_sub(2);
    let text = place(state, &text, (room, theme));
    pen.right(x.saturating_add(1), 0, room, &text, style);
    // In place of numbers that begin at zero.
    if let Some(banner) = again::banner(state) {
        let mark = theme.pick('⚠', '!');
        pen.text(0, 1, &format!(" {mark} {banner} "), theme.alarm);
        pen.style_line(1, theme.alarm);
    } else {
        totals::draw(pen, state);
    }
}

/// The connection with the address of the Envoy, in the longest form that has room. That it is connected goes without
/// saying where its address is shown in the colour of a good connection.
fn place(state: &State, connection: &str, (room, theme): (u16, &Theme)) -> String {
    let url = &state.settings.url;
    let address = without_scheme(url);
    let number = state.number.saturating_add(1);
    let all = state.targets.len();
    // Not so many of them are connected.
    let [long, short] = match all {
        0..2 => [String::new(), String::new()],
        2.. => [format!("Envoy {number}/{all} "), format!("{number}/{all} ")],
    };
    let mut forms = vec![
        format!("{long}{connection} {url}"),
        format!("{short}{connection} {url}"),
        format!("{short}{connection} {address}"),
    ];
    let is_good = state.link.up == Some(true) && !state.is_stale();
    let mark = connection.split(' ').next().unwrap_or_default();
    if is_good {
        forms.push(format!("{short}{mark} {address}"));
    }
    let mut fitting = forms.into_iter().filter(|form| width(form) <= room);
    if let Some(form) = fitting.next() {
        return form;
    }
    // The beginning of a name tells Envoys of one domain apart.
    let begin = format!("{short}{mark} ");
    let left = room.saturating_sub(width(&begin));
    if is_good && left >= LEAST {
        return format!("{begin}{}", theme.fit(address, left));
    }
    format!("{short}{connection}")
}

/// The key and the name of a screen.
fn tab(about: &About) -> String {
    let key = about.tab.shown();
    format!("{key} {}", about.title).trim_start().to_owned()
}

fn connection(pen: &Pen<'_>, state: &State) -> (String, Style) {
    let theme = pen.theme;
    let up = theme.pick('●', '*');
    let down = theme.pick('○', 'o');
    let age = humanise(whole_seconds(state.age().get()));
    match state.link.up {
        None => (format!("{down} connecting"), theme.warn),
        Some(true) if state.is_stale() => (format!("{up} connected, stale {age}"), theme.warn),
        Some(true) => (format!("{up} connected"), theme.good),
        Some(false) => {
            let wait = whole_seconds(state.link.due.since(state.now).get());
            let next = if state.link.in_flight.is_some() {
                "connecting".to_owned()
            } else {
                format!("retry in {}", humanise(wait))
            };
            let old = if state.data.is_some() {
                format!(", stale {age}")
            } else {
                String::new()
            };
            (format!("{down} {next}{old}"), theme.bad)
        }
    }
}

/// Draws the body before the first poll.
pub(crate) fn waiting(pen: &mut Pen<'_>, state: &State) {
    let theme = pen.theme;
    let y = pen.height() / 3;
    match &state.link.error {
        None => pen.middle(y, "waiting for the first poll", theme.dim),
        Some(error) => {
            let most = pen.width().saturating_sub(4);
            for (line, y) in crate::draw::words::wrap(error, most)
                .iter()
                .zip(y..pen.height())
            {
                pen.text(2, y, line, theme.bad);
            }
        }
    }
}

/// Draws the status line: the filter, a banner, an error, or the screen's text.
pub(crate) fn status(pen: &mut Pen<'_>, state: &State) {
    let theme = pen.theme;
    if let Mode::Filter(line, _) = &state.mode {
        let x = super::form::field(pen, 1, 0, "/", line, theme.plain);
        match screens::shown(state).filter_error(state) {
            Some(error) => pen.text(x.saturating_add(2), 0, error, theme.bad),
            None => pen.text(
                x.saturating_add(2),
                0,
                &screens::shown(state).status(state),
                theme.dim,
            ),
        };
    } else if state.frozen.is_some() {
        let since = state
            .frozen
            .as_ref()
            .map_or(0, |frozen| state.now.since(frozen.since).get());
        let age = humanise(whole_seconds(since));
        pen.style_line(0, theme.banner);
        pen.text(
            0,
            0,
            &format!(" FROZEN for {age} - space resumes "),
            theme.banner,
        );
    } else if let Some(error) = state.link.error.as_ref().filter(|_| state.data.is_some()) {
        pen.text(1, 0, error.lines().next().unwrap_or(""), theme.bad);
    } else if let Some(warning) = first_warning(state) {
        let x = pen
            .text(1, 0, &screens::shown(state).status(state), theme.dim)
            .saturating_add(2);
        let mark = theme.pick('⚠', '!');
        pen.text(x, 0, &format!("{mark} {warning}"), theme.warn);
    } else {
        pen.text(1, 0, &screens::shown(state).status(state), theme.dim);
    }
}

/// The warning on the home screen; the Events screen shows all.
fn first_warning(state: &State) -> Option<&String> {
    let data = state.data.as_ref().filter(|_| state.screen == Screen::HOME);
    of_filter(&data?.status).next()
}

/// Draws the keys of this place. A key that does not apply now is dimmed; pressing it shows why.
pub(crate) fn footer(pen: &mut Pen<'_>, state: &State) {
    let theme = pen.theme;
    let place = keys::place(state);
    let mut here: Vec<&Binding> = keys::all()
        .filter(|b| b.places & place != 0 && b.rank > 0 && keys::is_listed(state, b))
        .filter(|b| !b.keys.is_empty())
        .collect();
    here.sort_by_key(|binding| binding.rank);
    let (always, here): (Vec<_>, Vec<_>) = here.into_iter().partition(|b| b.rank == ALWAYS);
    let wide = |binding: &Binding| hint_width(binding);
    let ends = always.iter().map(|binding| wide(binding)).sum();
    let right = pen.width().saturating_sub(ends);
    let mut x = right.saturating_add(1);
    for binding in always {
        x = hint(pen, state, x, binding);
    }
    let sending = matches!(&state.mode, Mode::Edit(form) if form.stage == Stage::Sending);
    let mut x = 1;
    if sending {
        x = pen.text(x, 0, "sending  ", theme.warn);
    }
    for binding in here {
        if x.saturating_add(wide(binding)) > right.saturating_add(1) {
            break;
        }
        x = hint(pen, state, x, binding);
    }
}

/// The width of a key, its word and the gap after it.
fn hint_width(binding: &Binding) -> u16 {
    let key = width(&binding.shown());
    key.saturating_add(width(binding.short)).saturating_add(3)
}

fn hint(pen: &mut Pen<'_>, state: &State, x: u16, binding: &Binding) -> u16 {
    let theme = pen.theme;
    let (key_style, style) = match keys::obstacle(state, binding.command) {
        None => (theme.key, theme.plain),
        Some(_) => (theme.dim, theme.dim),
    };
    let end = pen.text(x, 0, &binding.shown(), key_style);
    let end = pen.text(end.saturating_add(1), 0, binding.short, style);
    if let Some(press) = binding.keys.first() {
        pen.spot(x, 0, end.saturating_sub(x), Spot::Key(*press));
    }
    end.saturating_add(2)
}
