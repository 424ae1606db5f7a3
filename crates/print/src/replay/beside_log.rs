//! Compares the decisions of a replay with the responses in the log.

use std::io::{self, Write};

use loudou_replay::summary::BesideLog;

use super::over_time::WIDEST;
use super::words::share;
use crate::cells::wrap;
use crate::style::Style;
use crate::table::{Cell, Set, TextTable};

/// Explains possible reasons for differences between the log and the replay.
pub(super) const WHY: &str = "They differ where other rules were in force, where several Envoys had a bucket each or kept older \
                   ones from before this log, where requests are not in it, and where such a status has another cause.";

pub(super) fn print(found: &BesideLog, out: &mut dyn Write, style: Style) -> io::Result<()> {
    writeln!(out, "\n{}", title(found))?;
    table(found).print(out, style)?;
    if differs(found) {
        let width = style.width.unwrap_or(WIDEST).min(WIDEST);
        for line in wrap(WHY, u16::try_from(width).unwrap_or(u16::MAX)) {
            writeln!(out, "{line}")?;
        }
    }
    Ok(())
}

/// Returns true if the log and the replay differ for any request.
pub(super) const fn differs(found: &BesideLog) -> bool {
    found.only_log_refused + found.only_replay_refused > 0
}

/// Describes, in two lines, for what share of the requests the log and the replay agree.
pub(super) fn title(found: &BesideLog) -> String {
    let statuses: Vec<String> = found.statuses.iter().map(u16::to_string).collect();
    let agree = found.both_refused + found.neither_refused;
    let all = agree + found.only_log_refused + found.only_replay_refused;
    let log = found.both_refused + found.only_log_refused;
    let log_refuses = if found.has_verdicts {
        "by the verdicts of Loudou in it".to_owned()
    } else {
        format!("where status {} is a refusal", statuses.join(" or "))
    };
    format!(
        "beside the log, {log_refuses}: {} of the requests agree,\n{} of the log's refusals",
        share(agree, all),
        share(found.both_refused, log),
    )
}

/// Returns a table of request counts by the log's response and the replay's verdict.
pub(super) fn table(found: &BesideLog) -> TextTable {
    let mut table = TextTable::new(&[
        (" ", Set::Left),
        ("LOG PASSED", Set::Right),
        ("LOG REFUSED", Set::Right),
    ]);
    let rows: [(&str, u64, u64); 2] = [
        (
            "replay passes",
            found.neither_refused,
            found.only_log_refused,
        ),
        (
            "replay refuses",
            found.only_replay_refused,
            found.both_refused,
        ),
    ];
    for (name, passed, refused) in rows {
        table.row(vec![Cell::new(name), passed.into(), refused.into()]);
    }
    table
}
