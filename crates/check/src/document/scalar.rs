//! Resolves unquoted YAML scalars according to the YAML 1.2 core schema, and detects values that
//! JSON cannot express.

use serde_json::{Number, Value};

/// Value of an unquoted scalar.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Plain {
    /// A value that JSON can express.
    Is(Value),
    /// A string in YAML 1.2, but a boolean in YAML 1.1, which Envoy's parser follows.
    Ambiguous,
    /// A number that JSON cannot express.
    NotJson,
}

pub(super) fn plain(text: &str) -> Plain {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Plain::Is(Value::Null),
        "true" | "True" | "TRUE" => return Plain::Is(Value::Bool(true)),
        "false" | "False" | "FALSE" => return Plain::Is(Value::Bool(false)),
        _ => {}
    }
    let lower = text.to_ascii_lowercase();
    if matches!(lower.as_str(), "y" | "n" | "yes" | "no" | "on" | "off") {
        return Plain::Ambiguous;
    }
    let unsigned = lower.strip_prefix(['+', '-']).unwrap_or(&lower);
    if matches!(unsigned, ".inf") || lower == ".nan" {
        return Plain::NotJson;
    }
    number(&lower, unsigned).unwrap_or_else(|| Plain::Is(Value::from(text)))
}

/// Returns the value of `text` if it is a number. `unsigned` is `text` without its sign.
fn number(text: &str, unsigned: &str) -> Option<Plain> {
    let known = |number: Option<Number>| {
        Some(number.map_or(Plain::NotJson, |n| Plain::Is(Value::Number(n))))
    };
    for (prefix, radix) in [("0x", 16), ("0o", 8)] {
        if let Some(digits) = text.strip_prefix(prefix)
            && !digits.is_empty()
            && digits.chars().all(|c| c.is_digit(radix))
        {
            return known(u64::from_str_radix(digits, radix).ok().map(Number::from));
        }
    }
    if !is_decimal(unsigned) {
        return None;
    }
    let text = text.strip_prefix('+').unwrap_or(text);
    if let Ok(number) = text.parse::<u64>() {
        return known(Some(Number::from(number)));
    }
    if let Ok(number) = text.parse::<i64>() {
        return known(Some(Number::from(number)));
    }
    let number = text.parse::<f64>().ok();
    known(number.and_then(Number::from_f64))
}

/// `(\.[0-9]+|[0-9]+(\.[0-9]*)?)(e[-+]?[0-9]+)?`
fn is_decimal(text: &str) -> bool {
    let (number, exponent) = match text.split_once('e') {
        Some((number, exponent)) => (number, Some(exponent)),
        None => (text, None),
    };
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    let number_fits = match number.split_once('.') {
        Some(("", fraction)) => !fraction.is_empty() && digits(fraction),
        Some((whole, fraction)) => digits(whole) && digits(fraction),
        None => !number.is_empty() && digits(number),
    };
    let exponent_fits = exponent.is_none_or(|exponent| {
        let exponent = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        !exponent.is_empty() && digits(exponent)
    });
    number_fits && exponent_fits
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn words_of_the_core_schema() {
        for (text, value) in [
            ("", json!(null)),
            ("~", json!(null)),
            ("True", json!(true)),
            ("FALSE", json!(false)),
            ("15", json!(15)),
            ("+15", json!(15)),
            ("-3", json!(-3)),
            ("007", json!(7)),
            ("0x1F", json!(31)),
            ("0o17", json!(15)),
            ("1.5", json!(1.5)),
            ("1.", json!(1.0)),
            (".5", json!(0.5)),
            ("1e3", json!(1000.0)),
            ("18446744073709551616", json!(18_446_744_073_709_551_616.0)),
            ("30/60s", json!("30/60s")),
            ("1d", json!("1d")),
            ("e5", json!("e5")),
            ("1e", json!("1e")),
            (".", json!(".")),
            ("+", json!("+")),
            ("-", json!("-")),
            ("0x", json!("0x")),
            ("1_000", json!("1_000")),
            ("infinity", json!("infinity")),
            ("nan", json!("nan")),
        ] {
            assert_eq!(plain(text), Plain::Is(value), "{text}");
        }
        for text in [".inf", "-.Inf", ".NaN", "1e999", "0xfffffffffffffffff"] {
            assert_eq!(plain(text), Plain::NotJson, "{text}");
        }
        for text in ["off", "On", "YES", "n"] {
            assert_eq!(plain(text), Plain::Ambiguous, "{text}");
        }
    }
}
