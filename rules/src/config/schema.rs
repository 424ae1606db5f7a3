//! The JSON Schema of rule files, from the tables that the readers go by.
//!
//! It never refuses what the reader accepts. What a schema cannot say (a name twice, numbers that do
//! not fit together, bytes instead of characters) only the reader refuses.

use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;

use loudou_limiter::algorithm::Algorithm;
use loudou_limiter::bounds::MAX_AMOUNT;
use serde_json::{Map, Value, json};

use super::{BUCKETS, Field, MAX_RULES, STORE, TOP, admin, cost, rules, when};

mod answers;
mod form;
mod limits;
mod overrides;
mod requests;

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
    define("when", fields(when::FIELDS));
    for (name, schema) in requests::definitions() {
        define(name, schema);
    }
    for (name, schema) in overrides::definitions() {
        define(name, schema);
    }
    define("cost", choose(object(cost::FIELDS, &[], cost), cost::KINDS));
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

/// An object with the fields of a table.
fn fields(table: &[Field]) -> Value {
    let names: Vec<&str> = table.iter().map(|field| field.name).collect();
    let needed = table.iter().filter(|field| field.default.is_none());
    let required: Vec<&str> = needed.map(|field| field.name).collect();
    object(&names, &required, |name| {
        let field = table.iter().find(|field| field.name == name);
        field.map_or(Value::Null, |field| form::form(*field))
    })
}

/// An object that has exactly one of `choices`.
fn one_of(names: &[&str], choices: &[&str], field: impl Fn(&str) -> Value) -> Value {
    let others: Vec<&str> = names
        .iter()
        .copied()
        .filter(|n| !choices.contains(n))
        .collect();
    choose(object(names, &others, field), choices)
}

/// The same object with exactly one of `choices`.
fn choose(mut object: Value, choices: &[&str]) -> Value {
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
        "when" => reference(
            "when",
            "Only while an upstream fails: the rule applies to requests for an upstream of whose latest \
             responses too large a share are errors. Without: always.",
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
            "description": "What a request takes, in cost units: a number, what a header says, or by the \
                            length of the body.",
            "anyOf": [
                { "type": "integer", "minimum": 1, "maximum": MAX_AMOUNT },
                { "$ref": "#/$defs/cost" },
            ],
            "default": 1,
        }),
        "mode" => words(
            "Whether refusals are carried out: enforce, shadow (only counted), or off (the rule is not asked).",
            &rules::MODES,
            Some("enforce"),
        ),
        "stop" => json!({
            "description": "Whether later rules are skipped for a request that this one is for, but for those in shadow mode. \
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
        name => keys_of_rule(name),
    }
}

/// The fields of a rule that tell some keys from others, and its pair.
fn keys_of_rule(name: &str) -> Value {
    match name {
        "shadows" => json!({
            "description": "The rule whose limits this one, in shadow mode, is to be compared with.",
            "type": "string", "pattern": "^[a-z0-9-]{1,63}$",
        }),
        "overrides" => reference(
            "overrides",
            "What some keys get instead of the limits. A key is written as the buckets show it; a * at its end \
             stands for anything.",
        ),
        "penalty" => reference(
            "penalty",
            "What becomes of keys that are refused too often: they are banned.",
        ),
        _ => Value::Null,
    }
}

fn cost(name: &str) -> Value {
    let amount = |description: &str| {
        json!({
            "description": description,
            "type": "integer", "minimum": 1, "maximum": MAX_AMOUNT,
        })
    };
    match name {
        "header" => requests::header_name("What this header says, a whole number from 1."),
        "default" => {
            amount("The cost without the header, or if it says no such number. Without: 1.")
        }
        "max" => amount("With `header`: more than this counts as this."),
        "request_bytes" => json!({
            "description": "One for each so many bytes of the body that are started, by the content \
                            length; at least one.",
            "type": "integer", "minimum": 1, "maximum": u32::MAX,
        }),
        _ => Value::Null,
    }
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
