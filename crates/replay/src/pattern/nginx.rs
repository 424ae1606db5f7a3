//! Compiles NGINX's notation: `$variable` or `${variable}`. All other text is literal.

use super::{Dialect, Field, Pattern, Token, Unit};

/// Compiles a format in NGINX's notation.
pub(crate) fn nginx(format: &str) -> Result<Pattern, String> {
    let dialect = Dialect {
        escapes: true,
        time_is_end: true,
    };
    Pattern::new(tokens(format, field)?, dialect)
}

/// Like [`nginx`], but for built-in formats, which use additional column names that are not NGINX
/// variables.
pub(crate) fn built_in(format: &str, time_is_end: bool) -> Result<Pattern, String> {
    let dialect = Dialect {
        escapes: true,
        time_is_end,
    };
    Pattern::new(tokens(format, own_field)?, dialect)
}

fn tokens(format: &str, field: fn(&str) -> Field) -> Result<Vec<Token>, String> {
    let mut tokens = Vec::new();
    let mut rest = format;
    while let Some((before, after)) = rest.split_once('$') {
        if !before.is_empty() {
            tokens.push(Token::Literal(before.into()));
        }
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let (name, tail) = if let Some(braced) = after.strip_prefix('{') {
            braced.split_once('}').ok_or("`${` without `}`")?
        } else {
            let end = after.find(|c| !is_name(c)).unwrap_or(after.len());
            after.split_at_checked(end).unwrap_or((after, ""))
        };
        if name.is_empty() || !name.chars().all(is_name) {
            return Err("`$` without the name of a variable".into());
        }
        tokens.push(Token::Column(field(name), format!("`${name}`").into()));
        rest = tail;
    }
    if !rest.is_empty() {
        tokens.push(Token::Literal(rest.into()));
    }
    Ok(tokens)
}

/// Returns the column type for a name in a [`built_in`] format.
fn own_field(name: &str) -> Field {
    match name {
        "client" => Field::Client,
        "known_client" => Field::KnownClient,
        "client_address" => Field::ClientAddress,
        "client_ident" => Field::Ident,
        "client_user" => Field::User,
        "virtual_host" => Field::VirtualHost,
        "port_of_host" => Field::Port,
        _ => field(name),
    }
}

fn field(name: &str) -> Field {
    match name {
        "time_local" | "time_iso8601" | "msec" => Field::Time,
        "request" => Field::Request,
        "request_method" => Field::Method,
        "request_uri" | "uri" | "document_uri" => Field::Path,
        "args" | "query_string" => Field::Query,
        "host" | "http_host" => Field::Host,
        "remote_addr" => Field::Source,
        "status" => Field::Status,
        "request_time" => Field::Duration(Unit::Seconds),
        "content_length" | "content_type" => Field::Header(name.replace('_', "-").into()),
        "proxy_add_x_forwarded_for" => Field::Header("x-forwarded-for".into()),
        "body_bytes_sent" | "bytes_sent" => Field::Digits,
        _ => {
            if let Some(header) = name.strip_prefix("http_") {
                Field::Header(header.to_ascii_lowercase().replace('_', "-").into())
            } else if let Some(cookie) = name.strip_prefix("cookie_") {
                Field::Cookie(cookie.into())
            } else {
                Field::Other
            }
        }
    }
}
