//! Describes what a request costs.

use loudou_limiter::Decimal;
use loudou_rules::rule::Cost;
use loudou_rules::rule::settlement::{Reserve, Settlement, StatusCosts, Usage, Weights};

use crate::text::escape;

/// Describes the cost of a request in sentences. Returns no sentences if the cost is the default.
pub(super) fn cost(cost: &Cost) -> Vec<String> {
    let one = match cost {
        Cost::Fixed(1) => return Vec::new(),
        Cost::Settled(settlement) => return settled(settlement),
        Cost::Fixed(cost) => format!("a request takes {cost} units"),
        Cost::Header { name, default, max } => format!(
            "a request takes the units that its header {name} names, at most {max}, or {default} without it"
        ),
        Cost::Metadata { path, default, max } => format!(
            "a request takes the units that its metadata {} names, at most {max}, or {default} without it",
            path.join(".")
        ),
        Cost::RequestBytes(size) => {
            format!(
                "a request takes a unit for each {} of its body",
                bytes(*size)
            )
        }
    };
    vec![one]
}

/// Formats a number of bytes as a unit of measure: `byte`, `KiB` or `4 KiB`.
fn bytes(size: u32) -> String {
    match size {
        1 => "byte".to_owned(),
        1024 => "KiB".to_owned(),
        size if size % 1024 == 0 => format!("{} KiB", size / 1024),
        size => format!("{size} bytes"),
    }
}

fn settled(settlement: &Settlement) -> Vec<String> {
    let max = settlement.max;
    let mut reserve: Vec<String> = settlement.reserve.iter().map(reserve).collect();
    let is_fixed = |source: &Reserve| matches!(source, Reserve::Fixed(_));
    if !settlement.reserve.iter().any(is_fixed) {
        reserve.push(format!("{max} units"));
    }
    let most = match settlement.reserve.as_slice() {
        [Reserve::Fixed(_), ..] => String::new(),
        _ => format!("; at most {max}"),
    };
    let reserves = format!("a request reserves {}{most}", reserve.join(", or else "));
    let settle: Vec<String> = settlement
        .settle
        .iter()
        .map(|source| usage(source, &settlement.weights))
        .collect();
    let models = settlement.weights.models.iter();
    let models = models.map(|(name, weights)| {
        let is_prefix = name.ends_with('*');
        let models = if is_prefix {
            "models like"
        } else {
            "the model"
        };
        format!(
            "for {models} {}, it has cost {}",
            escape(name),
            tokens(weights)
        )
    });
    let mut notes = vec![reserves];
    if settlement.least() == 0 {
        notes.push(
            "a request that reserves nothing is admitted if a unit is available, so every request in flight may exceed \
             the limit by all that it costs"
                .to_owned(),
        );
    }
    notes.push(format!(
        "when it has ended, it has cost {}",
        settle.join(", or else ")
    ));
    notes.extend(models);
    if !matches!(settlement.reserve.as_slice(), [Reserve::Fixed(0), ..]) {
        notes.push(
            "what it reserved and did not need comes back, as far as it has not drained meanwhile"
                .to_owned(),
        );
    }
    if settlement.may_owe() {
        notes.push(
            "what it cost beyond its reservation is repaid before the next request is admitted"
                .to_owned(),
        );
    }
    let cut = match settlement.reserve.as_slice() {
        _ if settlement.beyond_reservation => "at least what it reserved",
        [Reserve::Fixed(0), ..] => {
            let free =
                "a request that ends without such a number costs nothing, even if its client left";
            notes.push(free.to_owned());
            return notes;
        }
        _ => "what it reserved",
    };
    notes.push(format!(
        "a request that ends without such a number costs {cut}, and nothing if no upstream received it or the \
         upstream answered with an error"
    ));
    notes
}

fn reserve(source: &Reserve) -> String {
    match source {
        Reserve::Fixed(1) => "1 unit".to_owned(),
        Reserve::Fixed(cost) => format!("{cost} units"),
        Reserve::Header(name) => format!("the units that its header {name} names"),
        Reserve::Metadata(path) => format!("the units that its metadata {} names", path.join(".")),
        Reserve::RequestBytes(size) => format!("a unit for each {} of its body", bytes(*size)),
    }
}

/// Describes the cost, in units, of a request's AI tokens.
fn tokens(weights: &Weights) -> String {
    let Weights {
        input,
        cached,
        output,
        models: _,
    } = weights;
    let one = Decimal::from_thousandths(1_000);
    if [input, cached, output].iter().all(|weight| **weight == one) {
        return "a unit for each token that Envoy has counted".to_owned();
    }
    let cached = if cached == input {
        String::new()
    } else {
        format!(", {cached} if it was cached")
    };
    format!(
        "{input} for each token of the request that Envoy has counted{cached}, and {output} for each token of the \
         response"
    )
}

fn usage(source: &Usage, weights: &Weights) -> String {
    match source {
        Usage::TokenUsage => tokens(weights),
        Usage::Metadata(path) => format!("what the metadata {} names", path.join(".")),
        Usage::ResponseHeader(name) => format!("what the header {name} of the response names"),
        Usage::ResponseBytes(size) => format!("a unit for each {} of the response", bytes(*size)),
        Usage::Duration(span) => format!("a unit for each {span} that it took"),
        Usage::Status(costs) => statuses(costs),
    }
}

/// Describes a table of costs by status: `1 for 401, 0 for 2xx`.
fn statuses(costs: &StatusCosts) -> String {
    let codes = costs
        .codes
        .iter()
        .map(|(code, cost)| format!("{cost} for {code}"));
    let classes = costs
        .classes
        .iter()
        .map(|(class, cost)| format!("{cost} for {class}xx"));
    codes.chain(classes).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use loudou_rules::config::parse_rule;
    use serde_json::{Value, json};

    fn notes(cost: &Value) -> Vec<String> {
        let limits = json!([{ "algorithm": "funnel", "capacity": 10_000, "rate": "1/s" }]);
        let rule = json!({ "name": "r", "key": [], "limits": limits, "cost": cost });
        super::cost(&parse_rule(&rule).expect("valid").cost)
    }

    #[test]
    fn a_settled_cost_is_told_from_beginning_to_end() {
        let returns =
            "what it reserved and did not need comes back, as far as it has not drained meanwhile";
        let debt =
            "what it cost beyond its reservation is repaid before the next request is admitted";
        let without = |costs: &str| {
            format!(
                "a request that ends without such a number costs {costs}, and nothing if no upstream received it or the \
                 upstream answered with an error"
            )
        };
        let llm = json!({
            "reserve": [{ "metadata": ["llm", "max_tokens"] }, { "request_bytes": 1024 }],
            "settle": ["token_usage", { "response_header": "x-cost" }],
            "weights": {
                "output": 4, "cached": 0.1,
                "models": { "gpt-4o*": { "input": 2.5, "output": 10 }, "tiny": {} },
            },
            "max": 4_000,
        });
        assert_eq!(
            notes(&llm),
            [
                "a request reserves the units that its metadata llm.max_tokens names, or else a unit for each KiB of its \
                 body, or else 4000 units; at most 4000",
                "when it has ended, it has cost 1 for each token of the request that Envoy has counted, 0.1 if it was \
                 cached, and 4 for each token of the response, or else what the header x-cost of the response names",
                "for models like gpt-4o*, it has cost 2.5 for each token of the request that Envoy has counted, and 10 for \
                 each token of the response",
                "for the model tiny, it has cost a unit for each token that Envoy has counted",
                returns,
                debt,
                &without("what it reserved"),
            ]
        );
        assert_eq!(
            notes(&json!("llm_tokens")),
            [
                "a request reserves the units that its metadata llm.max_tokens names, or else 500 units; at most 4000",
                "when it has ended, it has cost a unit for each token that Envoy has counted",
                returns,
                debt,
                &without("what it reserved"),
            ]
        );
        let login =
            json!({ "reserve": 1, "settle": { "status": { "401": 1, "2xx": 0 } }, "max": 1 });
        assert_eq!(
            notes(&login),
            [
                "a request reserves 1 unit",
                "when it has ended, it has cost 1 for 401, 0 for 2xx",
                returns,
                &without("what it reserved"),
            ]
        );
        let at_end = json!({ "reserve": 0, "settle": "token_usage", "max": 1 });
        assert_eq!(
            notes(&at_end),
            [
                "a request reserves 0 units",
                "a request that reserves nothing is admitted if a unit is available, so every request in flight may exceed \
                 the limit by all that it costs",
                "when it has ended, it has cost a unit for each token that Envoy has counted",
                debt,
                "a request that ends without such a number costs nothing, even if its client left",
            ]
        );
        let beyond = json!({ "reserve": 5, "settle": [{ "duration": "1s" }, "token_usage"], "max": 9, "beyond_reservation": true });
        let beyond = notes(&beyond);
        assert_eq!(beyond[0], "a request reserves 5 units");
        assert_eq!(
            beyond[1],
            "when it has ended, it has cost a unit for each 1s that it took, or else a unit for each token that Envoy has \
             counted"
        );
        assert_eq!(beyond[4], without("at least what it reserved"));
    }
}
