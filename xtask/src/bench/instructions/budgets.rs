//! Budgets for the request costs of each scenario, stored in `budgets.json`, and the comparison of
//! measured costs with them.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result};
use serde_json::{Map, Value, json};

/// Path of the budget file, relative to the workspace root.
pub(super) const FILE: &str = "xtask/src/bench/instructions/budgets.json";
/// Tolerance above and below a budget, in percent. Changes of the compiler or of unrelated code
/// shift a count by some instructions.
const TOLERANCE_PERCENT: u64 = 2;

/// Request costs in a scenario.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cost {
    /// Number of instructions per request.
    pub(super) instructions: u64,
    /// Number of calls of each host function in all counted requests together, because some calls
    /// do not occur in every request.
    pub(super) calls: BTreeMap<String, u64>,
}

/// A scenario and its measured request costs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) scenario: String,
    pub(super) cost: Cost,
}

/// Budgets, keyed by scenario.
pub(super) type Budgets = BTreeMap<String, Cost>;

/// Returns the budgets from the budget file that was compiled into this program.
pub(super) fn read() -> Result<Budgets> {
    parse(include_str!("budgets.json")).context(FILE)
}

fn parse(text: &str) -> Result<Budgets> {
    let file: Map<String, Value> = serde_json::from_str(text)?;
    let budget = |(scenario, value): (String, Value)| {
        let cost = cost(&value).with_context(|| {
            format!(
                "{scenario:?} is {value}, but must have the form {}",
                r#"{"instructions": 4000, "calls_of_1000": {"clock_time_get": 1000}}"#
            )
        })?;
        Ok((scenario, cost))
    };
    file.into_iter().map(budget).collect()
}

fn cost(value: &Value) -> Option<Cost> {
    let calls = value.get("calls_of_1000")?.as_object()?.iter();
    let calls = calls.map(|(name, count)| Some((name.clone(), count.as_u64()?)));
    Some(Cost {
        instructions: value.get("instructions")?.as_u64()?,
        calls: calls.collect::<Option<_>>()?,
    })
}

/// Formats the measured costs as a budget file.
pub(super) fn as_file(found: &[Found]) -> Result<String> {
    let file: Map<String, Value> = found
        .iter()
        .map(|Found { scenario, cost }| {
            let (instructions, calls) = (cost.instructions, &cost.calls);
            let cost = json!({ "instructions": instructions, "calls_of_1000": calls });
            (scenario.clone(), cost)
        })
        .collect();
    Ok(format!("{}\n", serde_json::to_string_pretty(&file)?))
}

/// Describes the differences between measured costs and budgets. The list is empty if there are no
/// differences.
pub(super) fn problems(found: &[Found], budgets: &Budgets) -> Vec<String> {
    let mut problems = Vec::new();
    for Found { scenario, cost } in found {
        match budgets.get(scenario) {
            Some(budget) => {
                let differences = [instructions(cost, budget), calls(cost, budget)];
                let differences = differences.into_iter().flatten();
                problems.extend(differences.map(|text| format!("{scenario}: {text}")));
            }
            None => problems.push(format!("{scenario}: no budget; add it to {FILE}")),
        }
    }
    let stale = budgets.keys().filter(|scenario| {
        let mut found = found.iter();
        found.all(|found| found.scenario != **scenario)
    });
    problems.extend(stale.map(|scenario| {
        format!("{scenario}: a budget, but no such scenario; remove it from {FILE}")
    }));
    problems
}

fn instructions(found: &Cost, budget: &Cost) -> Option<String> {
    let (found, budget) = (found.instructions, budget.instructions);
    let tolerated = budget.saturating_mul(TOLERANCE_PERCENT).div_euclid(100);
    let text = format!("{found} instructions a request; the budget is {budget}");
    if found > budget.saturating_add(tolerated) {
        return Some(format!(
            "{text} and {TOLERANCE_PERCENT} %: spend less, or raise the budget to {found} and say in the commit \
             what that buys"
        ));
    }
    (found < budget.saturating_sub(tolerated)).then(|| {
        format!(
            "{text} less {TOLERANCE_PERCENT} %: lower the budget to {found}, so that it stays so"
        )
    })
}

/// Host calls have no tolerance: each call is deliberate, and costs more than many instructions.
fn calls(found: &Cost, budget: &Cost) -> Option<String> {
    if found.calls == budget.calls {
        return None;
    }
    let of = |cost: &Cost, name| cost.calls.get(name).copied().unwrap_or(0);
    let names: BTreeSet<&String> = found.calls.keys().chain(budget.calls.keys()).collect();
    let differences: Vec<String> = names
        .into_iter()
        .map(|name| (of(found, name), of(budget, name), name))
        .filter(|(found, budget, _)| found != budget)
        .map(|(found, budget, name)| format!("{found} {name}, the budget is {budget}"))
        .collect();
    let all: (u64, u64) = (found.calls.values().sum(), budget.calls.values().sum());
    let advice = if all.0 < all.1 {
        "lower the budget, so that it stays so"
    } else {
        "make no more of them, or change the budget and say in the commit what that buys"
    };
    Some(format!(
        "{} calls of the host in 1000 requests; the budget is {} ({}): {advice}",
        all.0,
        all.1,
        differences.join("; ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(instructions: u64, calls: &[(&str, u64)]) -> Vec<Found> {
        let calls = calls.iter().map(|(name, n)| ((*name).to_owned(), *n));
        let calls = calls.collect();
        vec![Found {
            scenario: "plain".to_owned(),
            cost: Cost {
                instructions,
                calls,
            },
        }]
    }

    /// Compares these costs with a budget of 1 000 instructions and one call of each of two
    /// functions per request.
    fn compared(instructions: u64, calls: &[(&str, u64)]) -> String {
        let of = found(1_000, &[("clock", 1_000), ("get", 1_000)]);
        let budgets = of.into_iter().map(|found| (found.scenario, found.cost));
        problems(&found(instructions, calls), &budgets.collect()).join("\n")
    }

    const SAME: &[(&str, u64)] = &[("clock", 1_000), ("get", 1_000)];

    #[test]
    fn two_percent_more_or_less_are_within_the_budget() {
        for instructions in [980, 1_000, 1_020] {
            assert_eq!(compared(instructions, SAME), "");
        }
    }

    #[test]
    fn more_is_to_be_saved_or_explained() {
        assert_eq!(
            compared(1_021, SAME),
            "plain: 1021 instructions a request; the budget is 1000 and 2 %: spend less, or raise the \
             budget to 1021 and say in the commit what that buys"
        );
    }

    #[test]
    fn less_lowers_the_budget() {
        assert_eq!(
            compared(979, SAME),
            "plain: 979 instructions a request; the budget is 1000 less 2 %: lower the budget to 979, \
             so that it stays so"
        );
    }

    #[test]
    fn one_call_more_or_less_is_named() {
        let more = compared(1_000, &[("clock", 1_000), ("get", 1_001), ("set", 1)]);
        assert_eq!(
            more,
            "plain: 2002 calls of the host in 1000 requests; the budget is 2000 (1001 get, the budget \
             is 1000; 1 set, the budget is 0): make no more of them, or change the budget and say in \
             the commit what that buys"
        );
        let less = compared(1_000, &[("clock", 1_000)]);
        assert!(
            less.contains("(0 get, the budget is 1000): lower"),
            "{less}"
        );
        let other = compared(1_000, &[("clock", 1_000), ("set", 1_000)]);
        assert!(other.contains("1000 set, the budget is 0"), "{other}");
    }

    #[test]
    fn each_scenario_has_a_budget_and_each_budget_a_scenario() {
        let missing = problems(&found(1, &[]), &Budgets::new());
        assert_eq!(missing, [format!("plain: no budget; add it to {FILE}")]);
        let budget = found(1, &[]).into_iter();
        let budgets = budget.map(|found| (found.scenario, found.cost)).collect();
        let stale = problems(&[], &budgets);
        assert!(stale.concat().contains("remove it"), "{stale:?}");
    }

    #[test]
    fn what_is_printed_can_be_the_file() -> Result<()> {
        let found = found(1_000, SAME);
        let read = parse(&as_file(&found)?)?;
        assert_eq!(problems(&found, &read), Vec::<String>::new());
        Ok(())
    }

    #[test]
    fn a_budget_that_cannot_be_read_is_named() -> Result<()> {
        let error = parse(r#"{"plain": {"instructions": -1}}"#).expect_err("not a cost");
        let error = error.to_string();
        assert!(
            error.contains("\"plain\"") && error.contains("calls_of_1000"),
            "{error}"
        );
        read().map(drop)
    }
}
