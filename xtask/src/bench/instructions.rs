//! `cargo xtask bench instructions`: how many instructions of the guest a request takes, and how many calls of
//! the host; the same on every machine, so that CI can hold them to a budget.
//!
//! The real module runs in an interpreter (`wasmi`) that counts its fuel: one for each instruction of WebAssembly,
//! of which several become one of the processor, and one more for each 64 bytes that are copied. So it is what
//! ships that is counted, with the compiler's options for it, and no program is needed that `setup` cannot bring.
//! The count leaves out what the host's functions take, and that code which is not in the processor's caches
//! takes longer: `bench request` measures time.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use loudou_limiter::Nanos;
use loudou_tests::wasm_path;
use serde_json::json;

use super::request::rows::{Limits, Row, loudou};
use crate::filter;

mod guest;

use guest::Guest;

/// The requests before those that are counted, and those.
const BEFORE: u64 = 300;
const COUNTED: u64 = 200;
const USERS: u64 = 100;
/// The time between two requests.
const APART: Nanos = Nanos::new(50_000);
/// The part of a budget, in percent, by which a count may differ from it.
const TOLERANCE: u64 = 2;

/// What a request of a row may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Budget {
    row: &'static str,
    instructions: u64,
    /// Calls of the host, for a thousand requests.
    calls: u64,
}

const BUDGETS: &[Budget] = &[
    budget("Loudou, one rule, admitted", 39_246, 6_500),
    budget("Loudou, one rule, refused", 95_009, 9_500),
    budget("Loudou, no rule that matches", 17_371, 3_500),
    budget("Loudou, four limits", 50_136, 6_500),
    budget("Loudou, 10 rules, one applies", 46_315, 7_500),
    budget("Loudou, 10 rules, all apply", 260_338, 33_500),
    budget("Loudou, 256 rules, one applies", 75_434, 7_500),
    budget("Loudou, draft-11 headers on all", 57_433, 8_500),
    budget("Loudou, a limit that may hold", 39_240, 6_500),
    budget("Loudou, a regular expression", 47_551, 7_500),
];

const fn budget(row: &'static str, instructions: u64, calls: u64) -> Budget {
    Budget {
        row,
        instructions,
        calls,
    }
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Found {
    row: String,
    instructions: u64,
    calls: u64,
}

/// Builds the module and prints what requests take, as the budgets are written.
pub(super) fn run_all() -> Result<()> {
    for found in count(&filter::build()?)? {
        println!("    {},", found.as_budget());
    }
    Ok(())
}

/// Compares what requests take with the budgets.
pub(crate) fn check() -> Result<()> {
    let found = count(&wasm_path()?)?;
    let problems: Vec<String> = found
        .iter()
        .filter_map(|one| one.problem(BUDGETS))
        .collect();
    ensure!(
        problems.is_empty(),
        "{}\nthe budgets are in {}; `cargo xtask bench instructions` prints them anew",
        problems.join("\n"),
        file!()
    );
    println!("{} kinds of requests are within their budgets", found.len());
    Ok(())
}

impl Found {
    fn as_budget(&self) -> String {
        format!(
            "budget(\"{}\", {}, {})",
            self.row,
            literal(self.instructions),
            literal(self.calls)
        )
    }

    /// How it differs from its budget.
    fn problem(&self, budgets: &[Budget]) -> Option<String> {
        let row = &self.row;
        let Some(budget) = budgets.iter().find(|budget| budget.row == row) else {
            return Some(format!("{row}: no budget; add {}", self.as_budget()));
        };
        let (found, allowed) = (self.instructions, budget.instructions);
        let tolerated = allowed.saturating_mul(TOLERANCE).div_euclid(100);
        if self.calls != budget.calls {
            let (found, allowed) = (self.calls, budget.calls);
            return Some(format!(
                "{row}: {found} calls of the host for 1000 requests instead of {allowed}"
            ));
        }
        if found.abs_diff(allowed) <= tolerated {
            return None;
        }
        let advice = if found > allowed {
            "spend less, or raise the budget and say in the commit what it buys"
        } else {
            "lower the budget, so that it is not lost again"
        };
        Some(format!(
            "{row}: {found} instructions a request, and the budget is {allowed} (±{TOLERANCE} %): {advice}"
        ))
    }
}

/// A number as Rust has it.
fn literal(number: u64) -> String {
    let digits = number.to_string();
    let groups = digits.as_bytes().rchunks(3).rev();
    let groups: Vec<&str> = groups
        .map(|group| std::str::from_utf8(group).unwrap_or(""))
        .collect();
    groups.join("_")
}

fn count(wasm: &Path) -> Result<Vec<Found>> {
    let rows = loudou(&[]);
    rows.iter()
        .map(|row| count_row(wasm, row).with_context(|| row.name.clone()))
        .collect()
}

fn count_row(wasm: &Path, row: &Row) -> Result<Found> {
    let Limits::Loudou { rules, .. } = &row.limits else {
        anyhow::bail!("not a row of Loudou");
    };
    let store = json!({ "namespace": "loudou", "buckets": 65_536 });
    let mut guest = Guest::start(
        wasm,
        &json!({ "version": 1, "store": store, "rules": rules }),
    )?;
    let send = |guest: &mut Guest, number: u64| {
        let user = format!("user-{:07}", number % USERS);
        let headers = [
            (":method", "GET"),
            (":path", "/path7"),
            ("x-user-id", &user),
        ];
        guest.request(&headers, APART)
    };
    for number in 0..BEFORE {
        send(&mut guest, number)?;
    }
    let (spent, calls) = (guest.spent()?, guest.calls());
    for number in 0..COUNTED {
        let status = send(&mut guest, number)?.unwrap_or(200);
        ensure!(status == u64::from(row.status), "status {status}");
    }
    Ok(Found {
        row: row.name.clone(),
        instructions: (guest.spent()? - spent).div_euclid(COUNTED),
        calls: ((guest.calls() - calls) * 1_000).div_euclid(COUNTED),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUDGET: Budget = Budget {
        row: "plain",
        instructions: 1_000,
        calls: 6_500,
    };

    fn found(instructions: u64, calls: u64) -> Option<String> {
        let row = BUDGET.row.to_owned();
        let found = Found {
            row,
            instructions,
            calls,
        };
        found.problem(&[BUDGET])
    }

    #[test]
    fn two_percent_are_tolerated() {
        for instructions in [980, 1_000, 1_020] {
            assert_eq!(found(instructions, 6_500), None);
        }
        let more = found(1_021, 6_500).unwrap_or_default();
        assert!(
            more.contains("1021") && more.contains("spend less"),
            "{more}"
        );
        let less = found(979, 6_500).unwrap_or_default();
        assert!(less.contains("lower the budget"), "{less}");
        let call = found(1_000, 6_501).unwrap_or_default();
        assert!(call.contains("6501 calls"), "{call}");
    }

    #[test]
    fn literals_have_groups_of_three() {
        assert_eq!(
            [1, 999, 1_000, 291_458].map(literal),
            ["1", "999", "1_000", "291_458"]
        );
    }

    #[test]
    fn each_row_has_one_budget() {
        let rows = loudou(&[]);
        let names: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
        let budgets: Vec<&str> = BUDGETS.iter().map(|budget| budget.row).collect();
        assert_eq!(names, budgets);
    }
}
