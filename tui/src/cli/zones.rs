//! Handles the time zones of calendar windows in `loudou check`. Suggests the rule to write instead of a zone's name,
//! and prints when the next windows start.
//!
//! Envoy's sandbox has no time zone database, so a rule file contains the rule of a zone and not its name. The rule is
//! looked up in the time zone database of this machine. Each file of the database ends with the rule that applies after
//! the last recorded change.

use std::fs::File;
use std::io::{self, Read as _, Write};
use std::path::PathBuf;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use loudou_check::Content;
use loudou_limiter::Nanos;
use loudou_limiter::algorithm::Algorithm;
use loudou_limiter::calendar::{Calendar, Zone};

use super::world::Env;

/// Folder of the database, unless `TZDIR` names another.
const DATABASE: &str = "/usr/share/zoneinfo";
/// Maximum size of a file in the database. The largest file has less than 4 KiB.
const MAX_FILE: u64 = 64 * 1024;
/// Number of years, from now on, for which a zone must follow its rule.
const YEARS: i64 = 10;
const HOUR: i64 = 3_600;

/// The time zone database of this machine.
pub(super) struct Zones {
    folder: PathBuf,
    now: i64,
}

impl Zones {
    /// Returns the database that the environment names.
    pub(super) fn new(env: &Env, wall: Nanos) -> Self {
        let folder = env.time_zones.clone();
        Self {
            folder: folder.map_or_else(|| PathBuf::from(DATABASE), PathBuf::from),
            now: i64::try_from(wall.get() / 1_000_000_000).unwrap_or(0),
        }
    }

    /// Returns the rule to write instead of `value`, if `path` leads to a field `zone` and `value` is the name of a
    /// zone.
    pub(super) fn suggested(&self, path: &str, value: &str) -> Option<String> {
        let name: String = serde_json::from_str(value).ok()?;
        let field = path.rsplit('.').next();
        (field == Some("zone")).then(|| self.rule(&name)).flatten()
    }

    /// Returns the rule of a zone, or `None` if the zone is unknown or its clocks will not follow the rule. For
    /// example, Morocco changes its clocks by the Islamic calendar.
    fn rule(&self, name: &str) -> Option<String> {
        let is_part = |part: &str| {
            let fits = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'+');
            !part.is_empty() && part.bytes().all(fits)
        };
        if !name.split('/').all(is_part) {
            return None;
        }
        let mut bytes = Vec::new();
        let file = File::open(self.folder.join(name)).ok()?;
        file.take(MAX_FILE).read_to_end(&mut bytes).ok()?;
        let recorded = TimeZone::tzif(name, &bytes).ok()?;
        let rule = bytes.strip_suffix(b"\n")?.rsplit(|b| *b == b'\n').next()?;
        let rule = str::from_utf8(rule).ok()?;
        let zone = Zone::parse(rule)?;
        let end = self
            .now
            .saturating_add(YEARS.saturating_mul(366 * 24 * HOUR));
        let mut at = self.now;
        while at < end {
            let offset = recorded.to_offset(Timestamp::from_second(at).ok()?);
            if i64::from(offset.seconds()) != zone.offset(at) {
                return None;
            }
            at = at.saturating_add(HOUR);
        }
        Some(rule.to_owned())
    }
}

/// Prints when the next three windows start, for each limit with calendar windows.
pub(super) fn next_windows(content: &Content, wall: Nanos, out: &mut dyn Write) -> io::Result<()> {
    let Content::Rules(file, _) = content else {
        return Ok(());
    };
    let mut is_first = true;
    for rule in &file.rules {
        for limit in &rule.limits {
            let Algorithm::FixedWindow(window) = limit.algorithm() else {
                continue;
            };
            let Some(calendar) = window.calendar() else {
                continue;
            };
            if is_first {
                writeln!(out, "\n  next windows, on the clocks of their zones:")?;
                is_first = false;
            }
            let starts = next_starts(calendar, wall).join(", ");
            writeln!(out, "    {}.{}: {starts}", rule.name, limit.name())?;
        }
    }
    Ok(())
}

fn next_starts(calendar: &Calendar, wall: Nanos) -> Vec<String> {
    let mut at = wall;
    let next = || {
        let span = calendar.span(at);
        at = span.end();
        Some(calendar.local(span.end))
    };
    std::iter::from_fn(next).take(3).collect()
}
