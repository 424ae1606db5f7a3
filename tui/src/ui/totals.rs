//! The second line of the head: requests per second and warnings in as many words as have room, then the rest.

use loudou_api::Status;
use ratatui::style::Style;

use crate::app::findings::{Finding, Weight, apart, of_one};
use crate::app::state::{Data, State};
use crate::app::targets;
use crate::draw::pen::Pen;
use crate::draw::theme::Theme;
use crate::draw::words::{amount, percent, rate, safe, whole_seconds, width};
use loudou_words::meaning::leased;
use loudou_words::num::{count, fraction};
use loudou_words::text::{counted, humanise};

/// Words and values, each with its colour.
type Part = Vec<(String, Style)>;

/// The cells between two parts in full words, and in few.
const GAPS: [u16; 2] = [3, 2];

/// The room for totals beside the words about another Envoy.
const BESIDE: u16 = 44;

/// Draws them: refusals, those of rules in shadow mode, and the number of warnings are never left out. Another Envoy that
/// is watched and lost something, or is away, comes first: nobody may be looking at it.
pub(super) fn draw(pen: &mut Pen<'_>, state: &State) {
    let theme = pen.theme;
    let Some(data) = &state.data else { return };
    let from = elsewhere(pen, state);
    let pen = &mut pen.part(from, 1, pen.width().saturating_sub(from), 1);
    let (room, [wide, narrow]) = (pen.width(), GAPS);
    let down = data.status.fleet.as_ref().and_then(leased::down);
    let down = down.map(|down| part(theme, "fleet: ", down, theme.warn));
    let full = full_words(state, down.clone(), theme);
    let few = few_words(state, theme);
    let (mut parts, gap) = if end(&full, wide) <= room {
        (full, wide)
    } else {
        // Without the requests that were admitted, if need be.
        let left_out = usize::from(end(&few, narrow) > room);
        (few.into_iter().skip(left_out).chain(down).collect(), narrow)
    };
    parts.extend(rest(state, data, theme));
    // Numbers that are too old are dim like the body below them; warnings are not.
    if state.is_stale() {
        let live = parts
            .iter_mut()
            .flatten()
            .filter(|(_, style)| *style != theme.warn);
        live.for_each(|(_, style)| *style = theme.stale);
    }
    let mut x = 1;
    for part in parts {
        if span(&part).saturating_add(x) > room {
            break;
        }
        let spans: Vec<(&str, Style)> = part
            .iter()
            .map(|(text, style)| (text.as_str(), *style))
            .collect();
        x = pen.spans(x, 0, &spans).saturating_add(gap);
    }
}

/// Draws which of the other Envoys need attention; returns the end.
fn elsewhere(pen: &mut Pen<'_>, state: &State) -> u16 {
    let theme = pen.theme;
    let Some((full, short)) = targets::troubles(&state.targets, state.number) else {
        return 0;
    };
    let mark = theme.pick('⚠', '!');
    let [full, short] = [full, short].map(|text| format!(" {mark} {} ", safe(&text)));
    let has_room = width(&full).saturating_add(BESIDE) <= pen.width();
    let text = if has_room { full } else { short };
    pen.text(0, 1, &text, theme.alarm).saturating_add(1)
}

fn span(part: &Part) -> u16 {
    let widths = part.iter().map(|(text, _)| width(text));
    widths.fold(0, u16::saturating_add)
}

/// The end of these parts in a line.
fn end(parts: &[Part], gap: u16) -> u16 {
    let widths = parts.iter().map(span);
    let sum = widths.fold(1_u16, |sum, width| {
        sum.saturating_add(width).saturating_add(gap)
    });
    sum.saturating_sub(gap)
}

fn part(theme: &Theme, label: &str, value: String, style: Style) -> Part {
    vec![(label.to_owned(), theme.dim), (value, style)]
}

/// Requests per second, those of rules in shadow mode apart, the workers without a fleet, and warnings.
fn full_words(state: &State, down: Option<Part>, theme: &Theme) -> Vec<Part> {
    let rates = Shown::of(state);
    let refused = part(theme, "refused ", rates.refused.clone(), rates.style(theme));
    let mut parts = vec![
        part(theme, "admitted ", rates.admitted, theme.good),
        refused,
    ];
    if let Some(would) = rates.would {
        let would = format!("{would}/s");
        parts.push(part(theme, "would refuse ", would, theme.shadow));
    }
    parts.extend(down);
    let mark = theme.pick('⚠', '!');
    parts.extend(warnings(state).map(|(own, apart)| {
        let own = (own > 0).then(|| counted(count(own), "warning"));
        let apart = (apart > 0).then(|| format!("{apart} between Envoys"));
        let text: Vec<String> = own.into_iter().chain(apart).collect();
        vec![(format!("{mark} {}", text.join(", ")), theme.warn)]
    }));
    parts
}

/// The same for narrow terminals: what rules in shadow mode would refuse is in parentheses, as in tables.
fn few_words(state: &State, theme: &Theme) -> Vec<Part> {
    let rates = Shown::of(state);
    let mut refused = part(theme, "refuse ", rates.refused.clone(), rates.style(theme));
    let would = rates.would.map(|would| format!(" ({would})"));
    refused.extend(would.map(|would| (would, theme.shadow)));
    let mut parts = vec![part(theme, "admit ", rates.admitted, theme.good), refused];
    let mark = theme.pick('⚠', '!');
    parts.extend(warnings(state).map(|(own, apart)| {
        let apart = Some(apart).filter(|apart| *apart > 0);
        let apart = apart.map_or_else(String::new, |apart| format!("+{apart}"));
        vec![(format!("{mark} {own}{apart}"), theme.warn)]
    }));
    parts
}

/// Requests per second in words.
struct Shown {
    admitted: String,
    refused: String,
    /// What rules in shadow mode would refuse, if anything.
    would: Option<String>,
    refuses: bool,
}

impl Shown {
    fn of(state: &State) -> Self {
        let rates = state.total_rates();
        let refused = rates.map(|rates| rates.refused);
        let would = rates.map(|rates| rates.shadow).filter(|would| *would > 0.0);
        Self {
            admitted: format!("{}/s", rate(rates.map(|rates| rates.admitted))),
            refused: format!("{}/s", rate(refused)),
            would: would.map(|would| rate(Some(would))),
            refuses: refused.unwrap_or(0.0) > 0.0,
        }
    }

    const fn style(&self, theme: &Theme) -> Style {
        if self.refuses { theme.bad } else { theme.plain }
    }
}

/// The number of warnings of the Envoy that is shown, as on Targets, and the number of differences between Envoys; `None`
/// if there are none.
fn warnings(state: &State) -> Option<(usize, usize)> {
    let warnings = |found: Vec<Finding>| {
        let found = found.into_iter();
        found
            .filter(|finding| finding.weight == Weight::Warning)
            .count()
    };
    let (own, apart) = (warnings(of_one(state)), warnings(apart(state)));
    (own > 0 || apart > 0).then_some((own, apart))
}

/// What is shown as far as there is room.
fn rest(state: &State, data: &Data, theme: &Theme) -> Vec<Part> {
    let status = &data.status;
    let store = &status.store;
    let generation = status.generation.to_string();
    let mut parts = vec![part(theme, "generation ", generation, theme.plain)];
    let used = fraction(store.used, store.buckets);
    let fill = format!(
        "{}/{} {}",
        amount(store.used),
        amount(store.buckets),
        percent(used)
    );
    let style = if used >= 0.9 { theme.warn } else { theme.plain };
    parts.push(part(theme, "store ", fill, style));
    parts.extend(calm_fleet(status, theme));
    if store.evicted_lossy > 0 {
        let evicted = amount(store.evicted_lossy);
        parts.push(part(theme, "evicted in use ", evicted, theme.warn));
    }
    if state.locked().is_some() {
        parts.push(vec![("read-only".to_owned(), theme.warn)]);
    }
    let up = humanise(whole_seconds(status.uptime_ns));
    parts.push(part(theme, "up ", up, theme.dim));
    parts.push(part(theme, "version ", status.version.clone(), theme.dim));
    parts
}

/// The Envoys of a fleet that no worker is without.
fn calm_fleet(status: &Status, theme: &Theme) -> Option<Part> {
    let fleet = status.fleet.as_ref()?;
    let envoys = leased::envoys(fleet);
    (fleet.workers_down == 0).then(|| part(theme, "fleet ", envoys, theme.plain))
}
