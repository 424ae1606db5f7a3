//! Converts user input to limit fields in rule files, based on the field table in `loudou-rules`.

use loudou_limiter::{Carry, Decimal, Later, Nanos, Rate};
use loudou_rules::config::{Field, Form, Problem, limit_fields, parse_limits};
use serde_json::{Map, Value, json};

use crate::text::{escape, humanise};

/// Input values of a Boolean field.
pub const BOOLEANS: [&str; 2] = ["false", "true"];

/// Returns the definition of the field `name` for limits that use the given algorithm.
pub fn field(algorithm: &str, name: &str) -> Option<&'static Field> {
    limit_fields(algorithm).iter().find(|f| f.name == name)
}

/// Formats a value as a user would type it.
pub fn text(value: &Value) -> String {
    let text = value.as_str().map(str::to_owned);
    text.unwrap_or_else(|| value.to_string())
}

/// Converts user input to a JSON value. Invalid input is converted to a JSON string, so that the rule parser reports
/// the problem.
///
/// Input starting with `{` is parsed as JSON, because limits can read a number from each request's metadata.
pub fn value(form: Form, typed: &str) -> Value {
    let object = typed.starts_with('{').then(|| serde_json::from_str(typed));
    if let Some(Ok(object)) = object {
        return object;
    }
    let value = match form {
        Form::Integer(..) => {
            let negative = || typed.parse::<i64>().ok().map(Value::from);
            typed.parse::<u64>().ok().map(Value::from).or_else(negative)
        }
        Form::Decimal(..) => Decimal::parse(typed).map(|decimal| json!(decimal)),
        Form::Boolean => typed.parse::<bool>().ok().map(Value::from),
        _ => None,
    };
    value.unwrap_or_else(|| Value::from(typed))
}

/// Returns true if two inputs for a field are equivalent. Empty input stands for the default value.
pub fn same(field: &Field, one: &str, two: &str) -> bool {
    let full = |text| match field.default {
        Some(default) if str::is_empty(text) => default,
        _ => text,
    };
    let (one, two) = (full(one), full(two));
    if one == two {
        return true;
    }
    match field.form {
        Form::Rate => Rate::parse(one).is_some_and(|rate| Rate::parse(two) == Some(rate)),
        Form::Decimal(..) => Decimal::parse(one).is_some_and(|n| Decimal::parse(two) == Some(n)),
        Form::Integer(..) => one.parse::<u64>().is_ok_and(|n| two.parse() == Ok(n)),
        form if form.duration().is_some() => {
            Nanos::parse(one).is_some_and(|span| Nanos::parse(two) == Some(span))
        }
        _ => false,
    }
}

/// Returns a line for each limit where the edit makes a fully used bucket take longer to refill.
pub fn full_later(before: &Value, after: &Value, carry: Carry) -> Vec<String> {
    let limits = |rule: &Value| parse_limits(rule.get("limits")?).ok();
    let (Some(before), Some(after)) = (limits(before), limits(after)) else {
        return Vec::new();
    };
    let later = loudou_limiter::full_later(&before, &after, carry).into_iter();
    let line = |later: Later| {
        let [before, after] = [later.before, later.after].map(|span| humanise(span.get()));
        let name = escape(&later.limit);
        format!("{name}: when used up, full again after {after} (was {before})")
    };
    later.map(line).collect()
}

/// Sets a field of a limit from user input. Empty input restores the default.
pub fn put(limit: &mut Map<String, Value>, field: &Field, typed: &str) {
    if typed.is_empty() && field.default.is_some() {
        limit.shift_remove(field.name);
    } else {
        limit.insert(field.name.to_owned(), value(field.form, typed));
    }
}

/// If setting the fields in `set` has made other fields invalid, resets those other fields to their defaults. For
/// example, `initial` is invalid if it exceeds the new capacity.
pub fn settle(limit: &mut Map<String, Value>, set: &[&str]) {
    let algorithm = limit.get("algorithm").and_then(Value::as_str);
    let table = limit_fields(algorithm.unwrap_or_default());
    let read = |limit: &Map<String, Value>| parse_limits(&json!([limit]));
    let Err(problems) = read(limit) else { return };
    let is_about = |problem: &Problem, field: &Field| {
        problem.path.to_string() == format!("[0].{}", field.name)
    };
    let mut settled = limit.clone();
    for field in table.iter().filter(|field| field.default.is_some()) {
        let wrong = problems.iter().any(|problem| is_about(problem, field));
        if wrong && !set.contains(&field.name) {
            settled.shift_remove(field.name);
        }
    }
    if read(&settled).is_ok() {
        *limit = settled;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(value: &Value) -> Map<String, Value> {
        value.as_object().expect("an object").clone()
    }

    #[test]
    fn typed_texts_become_values() {
        let of = |algorithm: &str, name: &str, typed: &str| {
            let field = field(algorithm, name).expect("a field");
            value(field.form, typed)
        };
        assert_eq!(of("funnel", "capacity", "15"), json!(15));
        assert_eq!(of("funnel", "capacity", "x"), json!("x"));
        assert_eq!(of("funnel", "rate", "15"), json!("15"));
        assert_eq!(of("smooth_bursty", "burst_seconds", "2.50"), json!(2.5));
        assert_eq!(of("smooth_bursty", "burst_seconds", "2"), json!(2));
        assert_eq!(of("sliding_log", "count_refused", "true"), json!(true));
        assert_eq!(of("sliding_log", "count_refused", "yes"), json!("yes"));
        assert_eq!(of("fixed_window", "align", "clock"), json!("clock"));
    }

    #[test]
    fn the_same_in_other_words() {
        let alike = |algorithm: &str, name: &str, one: &str, two: &str| {
            same(field(algorithm, name).expect("a field"), one, two)
        };
        assert!(alike("funnel", "rate", "30/m", "30/60s"));
        assert!(!alike("funnel", "rate", "30/m", "31/m"));
        assert!(!alike("funnel", "rate", "x", "y"));
        assert!(alike("funnel", "max_wait", "", "0ms"));
        assert!(alike("fixed_window", "window", "60s", "1m"));
        assert!(alike("smooth_warmup", "cold_factor", "3.0", ""));
        assert!(alike("funnel", "capacity", "015", "15"));
        assert!(!alike("token_bucket", "initial", "", "15"));
        assert!(alike("token_bucket", "refill", "", "greedy"));
    }

    #[test]
    fn values_that_no_longer_fit_return_to_defaults() {
        let bucket =
            json!({ "algorithm": "token_bucket", "capacity": 3, "rate": "1/s", "initial": 4 });
        let mut fits = limit(&bucket);
        settle(&mut fits, &["capacity"]);
        assert!(!fits.contains_key("initial"));
        let mut requested = limit(&bucket);
        settle(&mut requested, &["initial"]);
        assert_eq!(requested, limit(&bucket));
        let window = json!({ "algorithm": "sliding_window", "capacity": 99, "window": "1m",
            "slot_capacity": 4 });
        let mut window = limit(&window);
        settle(&mut window, &["capacity"]);
        assert!(!window.contains_key("slot_capacity"));
        let mut wrong = limit(
            &json!({ "algorithm": "token_bucket", "capacity": 0, "rate": "1/s", "initial": 4 }),
        );
        let before = wrong.clone();
        settle(&mut wrong, &["capacity"]);
        assert_eq!(wrong, before);
    }
}
