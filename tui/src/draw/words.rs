//! Converts untrusted text to spans, and formats numbers and ages.

pub(crate) use loudou_print::cells::{safe, width, wrap};
use loudou_words::num::float;
use loudou_words::text::humanise;
use ratatui::style::Style;
use ratatui::text::Span;

/// Returns a span of untrusted text in a style, without characters that the terminal would
/// interpret.
pub(crate) fn text(text: &str, style: Style) -> Span<'static> {
    Span::styled(safe(text).into_owned(), style)
}

/// Formats a rate in at most six cells: `0`, `0.4`, `96`, `1.2k`. An unknown rate is `-`.
pub(crate) fn rate(rate: Option<f64>) -> String {
    match rate {
        None => "-".to_owned(),
        Some(rate) if rate < 0.005 => "0".to_owned(),
        Some(rate) if rate < 0.1 => format!("{rate:.2}"),
        Some(rate) if rate < 9.95 => format!("{rate:.1}"),
        Some(rate) => scaled(rate),
    }
}

/// Formats a count in at most five cells.
pub(crate) fn amount(n: u64) -> String {
    if n < 10_000 {
        n.to_string()
    } else {
        scaled(float(n))
    }
}

fn scaled(n: f64) -> String {
    const UNITS: [(f64, &str); 3] = [(1e9, "G"), (1e6, "M"), (1e3, "k")];
    for (unit, name) in UNITS {
        if n >= unit * 0.9995 {
            let n = n / unit;
            return if n < 99.95 {
                format!("{n:.1}{name}")
            } else {
                format!("{n:.0}{name}")
            };
        }
    }
    format!("{n:.0}")
}

/// Formats a share in percent. A share above 0 and below 1 % is `<1%`, and a share below 1 is at
/// most 99 %.
pub(crate) fn percent(share: f64) -> String {
    let rounded = (share * 100.0).round();
    let shown = if share <= 0.0 {
        0.0
    } else if share < 0.01 {
        return "<1%".to_owned();
    } else if share >= 1.0 {
        100.0
    } else {
        rounded.clamp(1.0, 99.0)
    };
    format!("{shown:.0}%")
}

/// Rounds a duration up to whole seconds, because tenths of a second would flicker on the screen.
pub(crate) const fn whole_seconds(ns: u64) -> u64 {
    ns.div_ceil(1_000_000_000).saturating_mul(1_000_000_000)
}

/// Formats an age in whole seconds, because tenths of a second would flicker on the screen.
pub(crate) fn seen(ns: u64) -> String {
    const SECOND: u64 = 1_000_000_000;
    if ns < SECOND {
        return "now".to_owned();
    }
    humanise((ns / SECOND).saturating_mul(SECOND))
}

/// Formats an age with the word `ago`, or as `just now`.
pub(crate) fn ago(ns: u64) -> String {
    match seen(ns) {
        now if now == "now" => "just now".to_owned(),
        age => format!("{age} ago"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stay_short() {
        for (value, text) in [
            (0.0, "0"),
            (0.04, "0.04"),
            (0.42, "0.4"),
            (9.96, "10"),
            (96.4, "96"),
            (999.4, "999"),
            (999.9, "1.0k"),
            (12_345.0, "12.3k"),
            (456_789.0, "457k"),
            (2e9, "2.0G"),
        ] {
            assert_eq!(rate(Some(value)), text);
        }
        assert_eq!(rate(None), "-");
        assert_eq!(amount(9_999), "9999");
        assert_eq!(amount(65_536), "65.5k");
    }

    #[test]
    fn a_share_is_never_rounded_to_nothing_or_all() {
        assert_eq!(percent(0.0), "0%");
        assert_eq!(percent(16.0 / 65_536.0), "<1%");
        assert_eq!(percent(0.0099), "<1%");
        assert_eq!(percent(0.01), "1%");
        assert_eq!(percent(0.999), "99%");
        assert_eq!(percent(1.0), "100%");
    }
}
