//! The schema of what a rule asks of a request: its match and its key.

use alloc::format;
use alloc::vec::Vec;

use serde_json::{Value, json};

use super::form::describe;
use super::{list, object, one_of, reference};
use crate::config::keys;
use crate::config::matches::{self, MAX_DEPTH, MAX_METADATA, MAX_NAME, MAX_NETWORKS, MAX_PARTS};
use crate::rule::SourcePrefix;
use crate::rule::pattern::MAX_PATTERN;

/// Names and what they stand for.
pub(super) fn definitions() -> Vec<(&'static str, Value)> {
    let named = |form: fn(&str) -> Value| {
        one_of(matches::NAMED, matches::TESTS, move |name| match name {
            "name" => form("Its name."),
            _ => test(name, "value"),
        })
    };
    let metadata = one_of(matches::METADATA, matches::TESTS, |name| match name {
        "path" => metadata_path("The name space, and the keys below it."),
        _ => test(name, "value"),
    });
    Vec::from([
        ("match", object(matches::MATCH, &[], match_part)),
        ("path", one_of(matches::PATH, matches::PATH, path)),
        (
            "host",
            one_of(matches::HOST, matches::HOST, |name| {
                test(name, "host without its port")
            }),
        ),
        ("header", named(header_name)),
        ("query", named(query_name)),
        ("cookie", named(cookie_name)),
        (
            "route",
            one_of(matches::ROUTE, matches::ROUTE, |name| {
                test(name, "route's name")
            }),
        ),
        ("metadata", metadata),
        ("key", key()),
        ("key_path", object(keys::PATH, &[], key_path)),
        ("key_source", object(keys::SOURCE, &[], key_source)),
    ])
}

fn match_part(name: &str) -> Value {
    let tests = |what: &str, of: &str| {
        let items = json!({ "$ref": format!("#/$defs/{of}") });
        list(
            &format!("Tests of {what}; all must hold."),
            MAX_PARTS,
            &items,
        )
    };
    match name {
        "methods" => list(
            "Any of these methods. Without: all.",
            MAX_PARTS,
            &json!({ "type": "string", "pattern": "^[A-Z_-]+$", "maxLength": matches::MAX_METHOD }),
        ),
        "path" => reference("path", "The path without its query."),
        "host" => reference("host", "The host that the client names, without its port."),
        "headers" => tests("headers", "header"),
        "query" => tests("query parameters", "query"),
        "cookies" => tests("cookies", "cookie"),
        "source" => list(
            "Any of these networks has the client's address, as Envoy trusts it. Without: all.",
            MAX_NETWORKS,
            &json!({ "type": "string", "pattern": "^[0-9A-Fa-f.:]+(/[0-9]{1,3})?$" }),
        ),
        "route" => reference("route", "The name of Envoy's route."),
        "metadata" => tests(
            "texts in the dynamic metadata of filters before this one",
            "metadata",
        ),
        "not" => reference(
            "match",
            &format!("This must not hold. At most {MAX_DEPTH} in one another."),
        ),
        _ => Value::Null,
    }
}

/// A test of a value.
fn test(kind: &str, what: &str) -> Value {
    let description = match kind {
        "present" => "Whether it is there.".into(),
        "exact" => format!("The {what} is this text."),
        "prefix" => format!("The {what} starts with this text."),
        "suffix" => format!("The {what} ends with this text."),
        "regex" => format!(
            "All of the {what} matches this regular expression, in the syntax of the crate regex-lite."
        ),
        _ => return Value::Null,
    };
    let mut schema = match kind {
        "present" => json!({ "type": "boolean" }),
        "regex" => json!({ "type": "string", "minLength": 1, "maxLength": MAX_PATTERN }),
        _ => json!({ "type": "string", "minLength": 1, "maxLength": matches::MAX_TEXT }),
    };
    describe(&mut schema, &description);
    schema
}

fn path(name: &str) -> Value {
    let (description, pattern) = match name {
        "prefix" => (
            "It starts with this text, on whole segments: /reply is for /reply and /reply/7, not for \
             /replyall.",
            "^/[^?#]*$",
        ),
        "exact" => ("It is this text.", "^/[^?#]*$"),
        "suffix" => ("It ends with this text.", "^[^?#]+$"),
        "template" => (
            "It has these segments; {name} is any one: /users/{id} is for /users/7, not for \
             /users/7/posts.",
            "^/[^?#]*$",
        ),
        _ => return test(name, "path"),
    };
    json!({
        "description": description,
        "type": "string", "pattern": pattern, "maxLength": matches::MAX_TEXT,
    })
}

fn name(description: &str, pattern: &str) -> Value {
    json!({
        "description": description,
        "type": "string", "pattern": pattern, "maxLength": MAX_NAME,
    })
}

pub(super) fn header_name(description: &str) -> Value {
    name(description, "^[A-Za-z0-9!#$%&'*+.^_`|~:-]+$")
}

fn query_name(description: &str) -> Value {
    name(description, "^[^\\u0000-\\u001f\\u007f-\\u009f]+$")
}

fn cookie_name(description: &str) -> Value {
    name(description, "^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")
}

fn metadata_path(description: &str) -> Value {
    let mut steps = list(description, MAX_METADATA, &query_name("One step."));
    if let Some(steps) = steps.as_object_mut() {
        steps.insert("minItems".into(), Value::from(2));
    }
    steps
}

fn key() -> Value {
    let word = json!({
        "description": "source: the trusted client address, of IPv6 the first 64 bits. path: the path \
                        without its query. route: the name of Envoy's route. host: without its port. \
                        peer: the first URI or DNS name of the client's certificate.",
        "enum": keys::WORDS,
    });
    let part = one_of(keys::PARTS, keys::PARTS, |name| match name {
        "header" => header_name("The first value of this header."),
        "query" => query_name("The first value of this query parameter, decoded."),
        "cookie" => cookie_name("The value of this cookie, without quotes around it."),
        "literal" => json!({
            "description": "A fixed text.",
            "type": "string", "minLength": 1, "maxLength": keys::MAX_LITERAL,
        }),
        "metadata" => metadata_path(
            "A text in the dynamic metadata of filters before this one: the name space, and the keys \
             below it.",
        ),
        "path" => reference(
            "key_path",
            "The path without its query, or the start of it.",
        ),
        "source" => reference("key_source", "The network of the trusted client address."),
        _ => Value::Null,
    });
    let parts = json!({ "oneOf": [word, part] });
    list("The parts of a key.", MAX_PARTS, &parts)
}

fn key_path(name: &str) -> Value {
    match name {
        "segments" => json!({
            "description": "Only so many segments, from the first. Without: all.",
            "type": "integer", "minimum": 1, "maximum": keys::MAX_SEGMENTS,
        }),
        _ => Value::Null,
    }
}

fn key_source(name: &str) -> Value {
    let bits = |description: &str, most: u8, default: u8| {
        json!({
            "description": description,
            "type": "integer", "minimum": 0, "maximum": most, "default": default,
        })
    };
    let default = SourcePrefix::default();
    match name {
        "v4_prefix" => bits("So many bits of an IPv4 address.", 32, default.v4),
        "v6_prefix" => bits("So many bits of an IPv6 address.", 128, default.v6),
        _ => Value::Null,
    }
}
