//! Formats durations for human readers. This format is used in events, the terminal UI and the
//! command line.

use alloc::borrow::ToOwned as _;
use alloc::format;
use alloc::string::String;

/// Formats nanoseconds with at most two digits and a unit, or with two units: `850ms`, `1.2s`,
/// `3m`, `2h5m`, `3d`. Rounds up, so that a wait is never shown as shorter than it is.
pub fn humanise(ns: u64) -> String {
    const US: u64 = 1_000;
    const MS: u64 = 1_000_000;
    const S: u64 = 1_000_000_000;
    const M: u64 = 60 * S;
    const H: u64 = 60 * M;
    // Each upper bound is the longest duration that does not round up into the next format.
    match ns {
        0 => "0s".to_owned(),
        1..US => format!("{ns}ns"),
        US..=999_000 => format!("{}us", ns.div_ceil(US)),
        999_001..=999_000_000 => format!("{}ms", ns.div_ceil(MS)),
        999_000_001..=9_900_000_000 => {
            let tenths = ns.div_ceil(S / 10);
            match tenths % 10 {
                0 => format!("{}s", tenths / 10),
                rest => format!("{}.{rest}s", tenths / 10),
            }
        }
        9_900_000_001..=59_000_000_000 => format!("{}s", ns.div_ceil(S)),
        59_000_000_001..=3_540_000_000_000 => two(ns.div_ceil(S), 60, "m", "s", 10),
        3_540_000_000_001..=82_800_000_000_000 => two(ns.div_ceil(M), 60, "h", "m", 10),
        _ => two(ns.div_ceil(H), 24, "d", "h", 10),
    }
}

/// Formats `total` small units as large units plus the remaining small units. From `most` large
/// units upwards, rounds up to whole large units.
fn two(total: u64, per: u64, large: &str, small: &str, most: u64) -> String {
    let whole = total.checked_div(per).unwrap_or(0);
    let rest = total.checked_rem(per).unwrap_or(0);
    if whole == 0 {
        format!("{rest}{small}")
    } else if rest == 0 {
        format!("{whole}{large}")
    } else if whole < most {
        format!("{whole}{large}{rest}{small}")
    } else {
        format!("{}{large}", whole.saturating_add(1))
    }
}
