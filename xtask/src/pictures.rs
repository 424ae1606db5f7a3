//! Draws pictures that show which requests each algorithm admits; the pictures are computed by
//! running the algorithms.
//!
//! All pictures use the same requests: a burst of 12, then two per second for eight seconds, a
//! pause, and another burst of 12. The limits are as similar as the algorithms allow: six requests
//! at once, and one per second in the long run. `cargo xtask pictures` writes these pictures and
//! the pictures of the terminal app's screens. A test fails if a committed picture is out of date.

mod screen;
mod svg;

use std::collections::VecDeque;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result, anyhow};
use loudou_limiter::{BucketRequest, Limits, Nanos, Verdict};
use loudou_rules::config::parse_limits;
use loudou_tests::paths::workspace_root;
use serde_json::{Value, json};

/// End of the time axis, in milliseconds.
const END_MS: u64 = 26_000;
/// Duration of a request, for limits on concurrent requests.
const TAKES_MS: u64 = 3_000;

/// Outcome of one request; all times are in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// Admitted on arrival at this time.
    Passed(u64),
    /// Arrived at the first time and was admitted at the second.
    Waited(u64, u64),
    /// Refused on arrival at this time.
    Refused(u64),
}

/// Returns the limits to draw, each with the name of its picture file.
fn subjects() -> Vec<(&'static str, Value)> {
    vec![
        (
            "funnel",
            json!({ "algorithm": "funnel", "capacity": 6, "rate": "1/s" }),
        ),
        (
            "funnel-max-wait",
            json!({ "algorithm": "funnel", "capacity": 6, "rate": "1/s", "max_wait": "3s" }),
        ),
        (
            "token_bucket",
            json!({ "algorithm": "token_bucket", "capacity": 6, "rate": "1/s", "initial": 0 }),
        ),
        (
            "token_bucket-interval",
            json!({ "algorithm": "token_bucket", "capacity": 6, "rate": "3/3s", "refill": "interval" }),
        ),
        (
            "fixed_window",
            json!({ "algorithm": "fixed_window", "capacity": 6, "window": "6s" }),
        ),
        (
            "sliding_window",
            json!({ "algorithm": "sliding_window", "capacity": 6, "window": "6s", "slots": 3 }),
        ),
        (
            "sliding_log",
            json!({ "algorithm": "sliding_log", "capacity": 6, "window": "6s" }),
        ),
        (
            "sliding_log-count-refused",
            json!({ "algorithm": "sliding_log", "capacity": 6, "window": "6s", "count_refused": true }),
        ),
        (
            "sliding_counter",
            json!({ "algorithm": "sliding_counter", "capacity": 6, "window": "6s" }),
        ),
        (
            "leaky_queue",
            json!({ "algorithm": "leaky_queue", "capacity": 6, "rate": "1/s" }),
        ),
        (
            "leaky_queue-immediate",
            json!({ "algorithm": "leaky_queue", "capacity": 6, "rate": "1/s", "immediate": 3 }),
        ),
        (
            "smooth_bursty",
            json!({ "algorithm": "smooth_bursty", "rate": "1/s", "burst_seconds": 6 }),
        ),
        (
            "smooth_warmup",
            json!({ "algorithm": "smooth_warmup", "rate": "1/s", "warmup": "6s", "max_wait": "4s" }),
        ),
        (
            "concurrency",
            json!({ "algorithm": "concurrency", "capacity": 6 }),
        ),
    ]
}

/// Returns the arrival times of the requests, in milliseconds.
fn requests() -> Vec<u64> {
    let burst = |start: u64| (0..12).map(move |n| start.saturating_add(50_u64.saturating_mul(n)));
    let steady = (8..24).map(|n: u64| n.saturating_mul(500));
    burst(2_000).chain(steady).chain(burst(20_000)).collect()
}

/// Simulates the requests with one bucket. If the limit holds a slot until the request ends, the
/// slot is released after [`TAKES_MS`].
fn run(limits: &Limits) -> Vec<Outcome> {
    let at = Nanos::from_millis;
    let mut bucket = limits.start(Nanos::ZERO);
    let mut open: VecDeque<u64> = VecDeque::new();
    let mut outcomes = Vec::new();
    for now in requests() {
        while let Some(taken) = open.front().copied()
            && taken.saturating_add(TAKES_MS) <= now
        {
            open.pop_front();
            limits.release(
                &mut bucket,
                1,
                at(taken),
                at(taken.saturating_add(TAKES_MS)),
            );
        }
        let answer = limits.answer(&mut bucket, &BucketRequest::new(1, at(now)));
        outcomes.push(match answer.verdict() {
            Verdict::Admit => Outcome::Passed(now),
            Verdict::Hold => Outcome::Waited(now, now.saturating_add(answer.wait().millis_ceil())),
            Verdict::Refuse => Outcome::Refused(now),
        });
        if limits.holds_until_end() && !answer.is_refused() {
            open.push_back(now);
        }
    }
    outcomes
}

fn picture(limit: &Value) -> Result<String> {
    let limits = parse_limits(&json!([limit]));
    let limits = limits.map_err(|problems| anyhow!("{limit}: {problems:?}"))?;
    Ok(svg::draw(&title(limit), &run(&limits)))
}

/// Formats the limit as users write it in a rule file.
fn title(limit: &Value) -> String {
    let fields = limit.as_object().into_iter().flatten();
    let words = fields.map(|(name, value)| match (name.as_str(), value.as_str()) {
        ("algorithm", Some(text)) => text.to_owned(),
        (_, Some(text)) => format!("{name}: {text}"),
        (_, None) => format!("{name}: {value}"),
    });
    words.collect::<Vec<_>>().join(", ")
}

fn path(name: &str) -> PathBuf {
    workspace_root().join(format!("docs/reference/algorithms/{name}.svg"))
}

/// Writes all pictures.
pub(crate) fn run_all() -> Result<()> {
    for (name, limit) in subjects() {
        let path = path(name);
        fs::write(&path, picture(&limit)?)
            .with_context(|| format!("cannot write {}", path.display()))?;
        println!("docs/reference/algorithms/{name}.svg");
    }
    for (name, title) in screen::SCREENS {
        let path = screen_path(name);
        fs::write(&path, screen::picture(name, title)?)
            .with_context(|| format!("cannot write {}", path.display()))?;
        println!("docs/pictures/{name}.svg");
    }
    Ok(())
}

fn screen_path(name: &str) -> PathBuf {
    workspace_root().join(format!("docs/pictures/{name}.svg"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_show_the_current_algorithms() {
        for (name, limit) in subjects() {
            let drawn = picture(&limit).expect("a valid limit");
            let committed = fs::read_to_string(path(name)).unwrap_or_default();
            assert!(
                drawn == committed,
                "docs/reference/algorithms/{name}.svg is out of date: run `cargo xtask pictures`"
            );
        }
    }

    #[test]
    fn pictures_of_screens_show_the_snapshots() {
        for (name, title) in screen::SCREENS {
            let drawn = screen::picture(name, title).expect("a snapshot");
            let committed = fs::read_to_string(screen_path(name)).unwrap_or_default();
            assert!(
                drawn == committed,
                "docs/pictures/{name}.svg is out of date: run `cargo xtask pictures`"
            );
        }
    }

    /// Checks that the table of algorithms shows the right size for every algorithm with a
    /// fixed-size state.
    #[test]
    fn the_table_shows_the_size_of_states() {
        let table =
            fs::read_to_string(workspace_root().join("docs/reference/algorithms/README.md"));
        let table = table.expect("docs/reference/algorithms/README.md");
        for (name, limit) in subjects() {
            let link = format!("[`{name}`]({name}.md) |");
            let Some(row) = table.lines().find(|line| line.contains(&link)) else {
                continue;
            };
            let limits = parse_limits(&json!([limit])).expect("valid");
            let bytes = limits.iter().map(|limit| limit.algorithm().state_bytes());
            let size = format!("{link} {} bytes |", bytes.sum::<usize>());
            let per_part = ["bytes per unit", "bytes per slot"];
            let varies = per_part.iter().any(|part| row.contains(part));
            assert!(varies || row.contains(&size), "{row}: {size}");
        }
    }

    #[test]
    fn every_algorithm_has_a_page_and_a_picture() {
        for name in loudou_limiter::algorithm::Algorithm::NAMES {
            assert!(
                subjects().iter().any(|(subject, _)| subject == name),
                "{name}"
            );
            let page = workspace_root().join(format!("docs/reference/algorithms/{name}.md"));
            let text = fs::read_to_string(page).unwrap_or_default();
            assert!(text.contains(&format!("({name}.svg)")), "{name}.md");
        }
    }
}
