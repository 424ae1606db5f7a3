//! What an edit would do to the keys that are seen: the core decides a minute of requests for each of them, at its rate
//! of now and evenly spread, under the numbers of before and of after.

use loudou_limiter::{Bucket, Carry, Clock, Limit, Limits, Nanos, Rate, convert, partly_used};

use crate::num::{count, float, whole};
use crate::text::{counted, escape};

/// The time that is played.
const SPAN: Nanos = Nanos::from_secs(60);
/// The most decisions of one preview: it runs between two frames.
const MOST_DECISIONS: u64 = 100_000;
/// How far above the rate of a limit a key is refused in the long run: rates are measured.
const ABOVE: f64 = 1.01;
/// The most keys that are named.
const NAMED: usize = 5;

/// A key that is seen.
#[derive(Clone, Debug)]
pub(crate) struct Key<'a> {
    pub(crate) name: &'a str,
    /// The units used of each limit, by the limit's name.
    pub(crate) used: Vec<(&'a str, u64)>,
    /// Requests per second, also those that are refused.
    pub(crate) per_second: f64,
}

/// Limits, if they are enforced.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Side<'a> {
    pub(crate) limits: &'a Limits,
    pub(crate) is_enforced: bool,
}

/// The effect of an edit on the keys that are seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Preview {
    /// How many keys were played.
    seen: usize,
    /// Keys that are refused after the edit and not before, those with most requests first.
    refused: Vec<String>,
    /// Keys that are refused before and not after.
    freed: Vec<String>,
    /// How many keys are refused before and after.
    still: usize,
}

/// Plays the keys, with requests of this cost; `None` if a limit depends on how long requests take, which is unknown.
pub(crate) fn preview(
    before: Side<'_>,
    after: Side<'_>,
    (carry, cost): (Carry, u64),
    keys: &mut [Key<'_>],
) -> Option<Preview> {
    if before.limits.holds_until_end() || after.limits.holds_until_end() {
        return None;
    }
    keys.sort_by(|one, other| other.per_second.total_cmp(&one.per_second));
    let share = MOST_DECISIONS / 2 / count(keys.len()).max(1);
    let mut preview = Preview {
        seen: keys.len(),
        ..Preview::default()
    };
    for key in keys.iter() {
        let clock = Clock::at(Nanos::ZERO);
        let used: Vec<u64> = before.limits.iter().map(|limit| used(key, limit)).collect();
        let live = partly_used(before.limits, &used, clock);
        let carried = convert(before.limits, after.limits, carry, &live, clock);
        let was =
            before.is_enforced && is_refused(before.limits, live, (key.per_second, cost), share);
        let will =
            after.is_enforced && is_refused(after.limits, carried, (key.per_second, cost), share);
        match (was, will) {
            (false, true) => preview.refused.push(key.name.to_owned()),
            (true, false) => preview.freed.push(key.name.to_owned()),
            (true, true) => preview.still = preview.still.saturating_add(1),
            (false, false) => {}
        }
    }
    Some(preview)
}

fn used(key: &Key<'_>, limit: &Limit) -> u64 {
    let mut used = key.used.iter();
    let of_limit = used.find(|(name, _)| *name == limit.name());
    of_limit.map_or(0, |(_, units)| *units)
}

/// Whether a key that goes on like this is refused within the span.
fn is_refused(
    limits: &Limits,
    mut bucket: Bucket,
    (requests_per_second, cost): (f64, u64),
    most: u64,
) -> bool {
    let Some(gap) = gap(requests_per_second) else {
        return false;
    };
    // In the long run, whatever the bursts.
    let demand = requests_per_second * float(cost);
    let is_faster = |limit: &Limit| {
        let rate = limit.algorithm().rate();
        rate.is_some_and(|rate| demand > per_second(rate) * ABOVE)
    };
    if limits.iter().any(is_faster) {
        return true;
    }
    let requests = (SPAN.get() / gap.get().max(1)).clamp(1, most.max(1));
    let mut at = Nanos::ZERO;
    for _ in 0..requests {
        at = at.saturating_add(gap);
        if limits.decide(&mut bucket, cost, at).is_refused() {
            return true;
        }
    }
    false
}

fn per_second(rate: Rate) -> f64 {
    f64::from(rate.amount()) * 1e9 / float(rate.period().get())
}

/// The time between two requests; `None` if there are none.
fn gap(per_second: f64) -> Option<Nanos> {
    let gap = 1e9 / per_second;
    (gap.is_finite() && gap >= 1.0).then(|| Nanos::new(whole(gap)))
}

impl Preview {
    /// The lines of a question.
    pub(crate) fn lines(&self) -> Vec<String> {
        if self.seen == 0 {
            return vec!["no key was seen for long enough to tell the effect".to_owned()];
        }
        let seen = counted(count(self.seen), "key");
        let mut lines = vec![format!("of {seen} seen, if they go on as in the last 10s:")];
        let mut effect = |keys: &[String], one: &str, many: &str| {
            if keys.is_empty() {
                return;
            }
            let words = if keys.len() == 1 { one } else { many };
            let mut names: Vec<String> = keys
                .iter()
                .take(NAMED)
                .map(|key| escape(key).into_owned())
                .collect();
            if keys.len() > NAMED {
                names.push("…".to_owned());
            }
            lines.push(format!("  {} {words}: {}", keys.len(), names.join(", ")));
        };
        effect(&self.refused, "becomes refused", "become refused");
        effect(&self.freed, "is freed", "are freed");
        if self.still > 0 {
            let words = if self.still == 1 { "stays" } else { "stay" };
            lines.push(format!("  {} {words} refused", self.still));
        }
        if lines.len() == 1 {
            lines.push("  none is refused, before and after".to_owned());
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use loudou_rules::config::parse_limits;
    use serde_json::json;

    use super::*;

    fn limits(capacity: u32, rate: &str) -> Limits {
        let limit = json!([{ "algorithm": "funnel", "capacity": capacity, "rate": rate }]);
        parse_limits(&limit).expect("valid")
    }

    fn keys() -> Vec<Key<'static>> {
        let key = |name, used, per_second| Key {
            name,
            used: vec![("funnel", used)],
            per_second,
        };
        vec![
            key("calm", 0, 0.1),
            key("busy", 3, 4.0),
            key("flood", 10, 50.0),
            key("gone", 10, 0.0),
        ]
    }

    fn lines(before: (&Limits, bool), after: (&Limits, bool), carry: Carry) -> Vec<String> {
        let side = |(limits, is_enforced)| Side {
            limits,
            is_enforced,
        };
        let preview = preview(side(before), side(after), (carry, 1), &mut keys());
        preview.expect("no concurrency").lines()
    }

    /// An outside model of a funnel: what leaves per second, and what fits.
    #[test]
    fn keys_are_played_under_both_numbers() {
        let old = limits(10, "10/s");
        let head = "of 4 keys seen, if they go on as in the last 10s:";
        // 4/s is more than 2/s, 0.1/s is not, and flood is refused by either.
        let stricter = limits(10, "2/s");
        assert_eq!(
            lines((&old, true), (&stricter, true), Carry::Keep),
            [head, "  1 becomes refused: busy", "  1 stays refused"]
        );
        let wider = limits(100, "100/s");
        assert_eq!(
            lines((&old, true), (&wider, true), Carry::Keep),
            [head, "  1 is freed: flood"]
        );
        let shadow = lines((&old, false), (&old, true), Carry::Keep);
        assert_eq!(shadow, [head, "  1 becomes refused: flood"]);
        let off = lines((&old, true), (&old, false), Carry::Keep);
        assert_eq!(off, [head, "  1 is freed: flood"]);
        let quiet = lines((&wider, true), (&wider, true), Carry::Keep);
        assert_eq!(quiet, [head, "  none is refused, before and after"]);
    }

    /// A level that does not fit the new numbers refuses at once, unless it is reset.
    #[test]
    fn the_level_counts() {
        let (old, new) = (limits(10, "1/m"), limits(3, "1/m"));
        let mut keys = [Key {
            name: "half",
            used: vec![("funnel", 5)],
            per_second: 1.0 / 60.0,
        }];
        let mut refused = |carry| {
            let side = |limits| Side {
                limits,
                is_enforced: true,
            };
            let preview = preview(side(&old), side(&new), (carry, 1), &mut keys);
            preview.map(|preview| preview.refused.len())
        };
        assert_eq!(refused(Carry::Keep), Some(1));
        assert_eq!(refused(Carry::Reset), Some(0));
    }
}
