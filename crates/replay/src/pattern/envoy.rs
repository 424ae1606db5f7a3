//! Compiles Envoy's notation: `%OPERATOR(argument):length%`, and `%%` for a percent sign. All other
//! text is literal.

use super::{Dialect, Field, Pattern, Token, Unit};

/// Compiles a format in Envoy's notation.
pub(crate) fn envoy(format: &str) -> Result<Pattern, String> {
    let dialect = Dialect {
        escapes: false,
        time_is_end: false,
    };
    Pattern::new(tokens(format)?, dialect)
}

fn tokens(format: &str) -> Result<Vec<Token>, String> {
    let mut tokens = Vec::new();
    let mut literal = String::new();
    let mut rest = format;
    while let Some((before, after)) = rest.split_once('%') {
        literal.push_str(before);
        if let Some(tail) = after.strip_prefix('%') {
            literal.push('%');
            rest = tail;
            continue;
        }
        let (operator, tail) = operator(after)?;
        check_time(operator)?;
        if !literal.is_empty() {
            tokens.push(Token::Literal(std::mem::take(&mut literal).into_bytes()));
        }
        let name = format!("`%{operator}%`");
        tokens.push(Token::Column(field(operator), name.into()));
        rest = tail;
    }
    literal.push_str(rest);
    if !literal.is_empty() {
        tokens.push(Token::Literal(literal.into_bytes()));
    }
    Ok(tokens)
}

/// Splits `text` at the `%` that closes the operator. A percent sign inside parentheses does not
/// close the operator.
fn operator(text: &str) -> Result<(&str, &str), String> {
    let mut depth = 0_u32;
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            '%' if depth == 0 && at > 0 => {
                let (operator, tail) = text.split_at_checked(at).unwrap_or((text, ""));
                return Ok((operator, tail.strip_prefix('%').unwrap_or(tail)));
            }
            _ => {}
        }
    }
    Err("`%` without a closing `%`; write `%%` for a percent sign".into())
}

/// Returns an error for a timestamp format that this crate cannot parse, because otherwise every
/// line would fail later.
fn check_time(operator: &str) -> Result<(), String> {
    let Some(form) = operator.strip_prefix("START_TIME(") else {
        return Ok(());
    };
    let form = form.strip_suffix(')').unwrap_or(form);
    let mut plain = form.replace("%F", "%Y-%m-%d").replace("%T", "%H:%M:%S");
    for digit in 1..=9 {
        plain = plain.replace(&format!("%E{digit}S"), "%S");
        plain = plain.replace(&format!(".%{digit}f"), "");
    }
    let plain = plain.replace("%E*S", "%S").replace(".%f", "");
    let is_epoch = matches!(&*plain, "" | "%s" | "%s%3f" | "%s%6f" | "%s%9f");
    let zone = ["%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S"]
        .iter()
        .find_map(|start| plain.strip_prefix(start));
    let has_zone = matches!(zone, Some("Z" | "%z" | "%Ez"));
    if is_epoch || has_zone || plain == "%d/%b/%Y:%H:%M:%S %z" {
        return Ok(());
    }
    Err(format!(
        "`%START_TIME({form})%` cannot be read; forms that can are `%START_TIME%`, `%Y-%m-%dT%H:%M:%S.%3fZ` (or \
         `%z`), `%s.%3f` and `%d/%b/%Y:%H:%M:%S %z`"
    ))
}

fn field(operator: &str) -> Field {
    let (name, argument) = match operator.split_once('(') {
        None => (operator, ""),
        Some((name, rest)) => (name, rest.split_once(')').map_or(rest, |(inner, _)| inner)),
    };
    match name {
        "START_TIME" => Field::Time,
        "REQ" | "REQ_WITHOUT_QUERY" => request_header(argument),
        "DURATION" => Field::Duration(Unit::Milliseconds),
        "RESPONSE_CODE" => Field::Status,
        "RESPONSE_CODE_DETAILS" => Field::Cause,
        // Without `PLAIN`, Envoy would write the decisions in base64.
        "FILTER_STATE" if argument == "wasm.loudou:PLAIN" => Field::Decisions,
        "BYTES_RECEIVED" => Field::Received,
        "ROUTE_NAME" => Field::Route,
        "DOWNSTREAM_REMOTE_ADDRESS" | "DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT" => Field::Source,
        _ => Field::Other,
    }
}

/// Returns the column type for the header in `NAME` or `NAME?ALTERNATIVE`.
fn request_header(argument: &str) -> Field {
    let argument = argument.to_ascii_lowercase();
    let mut names = argument.split('?');
    let name = names.next().unwrap_or_default();
    match names.next().unwrap_or(name) {
        ":method" => Field::Method,
        ":path" => Field::Path,
        ":authority" | "host" => Field::Host,
        _ => Field::Header(name.into()),
    }
}
