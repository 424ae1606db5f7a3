//! The JSON Schema of rule files, from the tables that the readers go by.
//!
//! It never refuses what the reader accepts. What a schema cannot say (a name twice, numbers that do
//! not fit together, bytes instead of characters) only the reader refuses.

use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;

use serde_json::{Map, Value, json};

use super::{BUCKETS, MAX_RULES, STORE, TOP, admin, matches, rules};
use crate::algorithm::{Algorithm, MAX_AMOUNT};

mod answers;
mod form;
mod limits;

use form::or_null;
use limits::{limit, limits};

/// The JSON Schema (draft 2020-12) of a rule file, and of the admin role's configuration.
pub fn schema() -> Value {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Loudou rule file",
        "description": "Which requests Loudou limits, and how. With `admin`: the plugin \
                        configuration of the admin listener.",
        "type": "object",
        "if": { "required": ["admin"] },
        "then": { "$ref": "#/$defs/admin_file" },
        "else": { "$ref": "#/$defs/rule_file" },
        "$defs": definitions(),
    })
}

fn definitions() -> Value {
    let mut definitions = Map::new();
    let mut define = |name: &str, schema: Value| definitions.insert(name.to_string(), schema);
    define("rule_file", rule_file());
    define("store", object(STORE, &[], store));
    define("defaults", object(rules::DEFAULTABLE, &[], rule));
    define("rule", object(rules::FIELDS, &["name"], rule));
    define("match", object(matches::MATCH, &[], match_part));
    define("path", one_of(matches::PATH, matches::PATH, path));
    define("header", header());
    define("key", key());
    define("limits", limits());
    for name in Algorithm::NAMES {
        define(name, limit(name));
    }
    define(
        "refuse",
        object(super::answers::REFUSE, &[], answers::refuse),
    );
    define("refuse_text", answers::text());
    define(
        "respond",
        object(super::answers::RESPOND, &[], answers::respond),
    );
    define("admin_file", object(admin::TOP, &["admin"], admin_file));
    define("admin", object(admin::ADMIN, &["role"], admin_part));
    define("token", object(admin::TOKEN, admin::TOKEN, token));
    Value::Object(definitions)
}

/// An object with these fields and no others. JSON's null stands for an absent field.
fn object(names: &[&str], required: &[&str], field: impl Fn(&str) -> Value) -> Value {
    let mut properties = Map::new();
    for name in names {
        let schema = field(name);
        let schema = if required.contains(name) {
            schema
        } else {
            or_null(schema)
        };
        properties.insert((*name).to_string(), schema);
    }
    let mut object = json!({ "type": "object", "properties": properties });
    if let Some(object) = object.as_object_mut() {
        if !required.is_empty() {
            object.insert("required".to_string(), json!(required));
        }
        object.insert("additionalProperties".to_string(), Value::Bool(false));
    }
    object
}

/// An object that has exactly one of `choices`.
fn one_of(names: &[&str], choices: &[&str], field: impl Fn(&str) -> Value) -> Value {
    let others: Vec<&str> = names
        .iter()
        .copied()
        .filter(|n| !choices.contains(n))
        .collect();
    let mut object = object(names, &others, field);
    let is_there = |name: &&str| json!({ "required": [name], "properties": { *name: { "not": { "type": "null" } } } });
    let choices: Vec<Value> = choices.iter().map(is_there).collect();
    if let Some(object) = object.as_object_mut() {
        object.insert("oneOf".to_string(), Value::Array(choices));
    }
    object
}

fn reference(name: &str, description: &str) -> Value {
    json!({ "description": description, "$ref": format!("#/$defs/{name}") })
}

fn list(description: &str, most: usize, items: &Value) -> Value {
    json!({ "description": description, "type": "array", "maxItems": most, "items": items })
}

fn words<T>(description: &str, words: &[(&str, T)], default: Option<&str>) -> Value {
    let mut names: Vec<Value> = words.iter().map(|(word, _)| Value::from(*word)).collect();
    if names.iter().any(|name| name == "off") {
        // What YAML 1.1 makes of a bare `off`.
        names.push(Value::Bool(false));
    }
    let mut schema = json!({ "description": description, "enum": names });
    if let (Some(schema), Some(default)) = (schema.as_object_mut(), default) {
        schema.insert("default".to_string(), Value::from(default));
    }
    schema
}

fn version() -> Value {
    json!({ "description": "The version of this format.", "const": 1 })
}

fn rule_file() -> Value {
    let mut file = object(TOP, &["version", "rules"], |name| match name {
        "version" => version(),
        "store" => reference("store", "Where buckets live."),
        "defaults" => reference(
            "defaults",
            "Fields of rules, for rules that are silent about them.",
        ),
        "rules" => list(
            "The rules, in the order in which they are asked; every rule that matches has to admit.",
            MAX_RULES,
            &json!({ "$ref": "#/$defs/rule" }),
        ),
        _ => Value::Null,
    });
    let needed = ["key", "limits"].map(|name| {
        json!({
            "if": { "not": { "required": ["defaults"], "properties": { "defaults": {
                "type": "object", "required": [name],
            } } } },
            "then": { "properties": { "rules": { "items": {
                "required": [name], "properties": { name: { "type": "array" } },
            } } } },
        })
    });
    if let Some(file) = file.as_object_mut() {
        file.insert("allOf".to_string(), json!(needed));
    }
    file
}

fn store(name: &str) -> Value {
    match name {
        "buckets" => json!({
            "description": "The hard bound on live buckets; memory follows from it. Fixed when Envoy starts.",
            "type": "integer", "minimum": BUCKETS.start(), "maximum": BUCKETS.end(), "default": 65_536,
        }),
        "share" => json!({
            "description": "The prefix of all keys in Envoy's shared data and of all metrics: one share is \
                            one rule set.",
            "type": "string", "pattern": "^[a-z0-9_-]{1,12}$", "default": "loudou",
        }),
        _ => Value::Null,
    }
}

fn rule(name: &str) -> Value {
    match name {
        "name" => json!({
            "description": "Its name, unique in the file.",
            "type": "string", "pattern": "^[a-z0-9-]{1,63}$",
        }),
        "match" => reference(
            "match",
            "Which requests it is for; all given parts must hold. Without: all.",
        ),
        "key" => reference(
            "key",
            "Which bucket a request goes to: one for each combination of these parts. []: one bucket for all.",
        ),
        "on_missing_key" => words(
            "What a request gets that lacks a part of the key: skip this rule, refuse, or share one \
             bucket with all such requests.",
            &rules::MISSING,
            Some("skip"),
        ),
        "limits" => reference(
            "limits",
            "What a bucket holds. A request passes all limits or takes from none.",
        ),
        "cost" => json!({
            "description": "What a request takes, in cost units.",
            "type": "integer", "minimum": 1, "maximum": MAX_AMOUNT, "default": 1,
        }),
        "mode" => words(
            "Whether refusals are carried out: enforce, shadow (only counted), or off (the rule is not asked).",
            &rules::MODES,
            Some("enforce"),
        ),
        "stop" => json!({
            "description": "Whether the rules behind this one are not asked about a request that it is for. \
                            In shadow mode it has no effect.",
            "type": "boolean", "default": false,
        }),
        "on_error" => words(
            "What a request gets when the store gives up; counted either way.",
            &rules::ERRORS,
            Some("admit"),
        ),
        "refuse" => reference("refuse", "What refused requests are answered."),
        "respond" => reference("respond", "What responses carry."),
        _ => Value::Null,
    }
}

fn match_part(name: &str) -> Value {
    match name {
        "methods" => list(
            "Any of these methods. Without: all.",
            matches::MAX_PARTS,
            &json!({ "type": "string", "pattern": "^[A-Z_-]+$", "maxLength": matches::MAX_METHOD }),
        ),
        "path" => reference("path", "The path without its query."),
        "headers" => list(
            "Tests of headers; all must hold.",
            matches::MAX_PARTS,
            &json!({ "$ref": "#/$defs/header" }),
        ),
        _ => Value::Null,
    }
}

fn path(name: &str) -> Value {
    let description = match name {
        "prefix" => {
            "It starts with this text, on whole segments: /reply is for /reply and /reply/7, not for /replyall."
        }
        "exact" => "It is this text.",
        _ => return Value::Null,
    };
    json!({
        "description": description,
        "type": "string", "pattern": "^/[^?#]*$", "maxLength": matches::MAX_TEXT,
    })
}

fn header_name(description: &str) -> Value {
    json!({
        "description": description,
        "type": "string",
        "pattern": "^[A-Za-z0-9!#$%&'*+.^_`|~:-]+$",
        "maxLength": matches::MAX_HEADER_NAME,
    })
}

fn header() -> Value {
    one_of(matches::HEADER, matches::HEADER_TESTS, |name| match name {
        "name" => header_name("The header's name."),
        "present" => json!({ "description": "Whether it is there.", "type": "boolean" }),
        "exact" => json!({
            "description": "Its first value is this text.",
            "type": "string", "minLength": 1, "maxLength": matches::MAX_TEXT,
        }),
        _ => Value::Null,
    })
}

fn key() -> Value {
    let word = json!({
        "description": "source: the trusted client address. path: the path without its query. route: \
                        the name of Envoy's route.",
        "enum": matches::KEY_WORDS,
    });
    let text = one_of(matches::KEY_TEXTS, matches::KEY_TEXTS, |name| match name {
        "header" => header_name("The first value of this header."),
        "literal" => json!({
            "description": "A fixed text.",
            "type": "string", "minLength": 1, "maxLength": matches::MAX_LITERAL,
        }),
        _ => Value::Null,
    });
    let parts = json!({ "oneOf": [word, text] });
    list("The parts of a key.", matches::MAX_PARTS, &parts)
}

fn admin_file(name: &str) -> Value {
    match name {
        "version" => version(),
        "store" => reference("store", "The same share as the rule file has."),
        "admin" => reference("admin", "The admin role."),
        _ => Value::Null,
    }
}

fn admin_part(name: &str) -> Value {
    match name {
        "role" => words("What this plugin is.", &admin::ROLES, None),
        "tokens" => json!({
            "description": "Who may do what. Without: peers on the loopback may do everything, others nothing.",
            "type": "array", "items": { "$ref": "#/$defs/token" },
        }),
        _ => Value::Null,
    }
}

fn token(name: &str) -> Value {
    match name {
        "name" => json!({
            "description": "What events call whoever has it.",
            "type": "string", "pattern": "^[!-~]+$", "maxLength": admin::MAX_NAME,
        }),
        "sha256" => json!({
            "description": "The SHA-256 of the token, as `printf %s TOKEN | sha256sum` prints it.",
            "type": "string", "pattern": "^[0-9A-Fa-f]{64}$",
        }),
        "may" => words(
            "What it may do: look, or look and change.",
            &admin::ACCESS,
            None,
        ),
        _ => Value::Null,
    }
}
