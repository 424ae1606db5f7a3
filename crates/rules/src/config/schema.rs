//! Generates the JSON Schema of rule files from the grammar.
//!
//! The schema accepts every file that the reader accepts. The reader also checks what a schema
//! cannot express: duplicate names, inconsistent numbers, and lengths in bytes rather than
//! characters.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use loudou_limiter::Nanos;
use serde_json::{Map, Value, json};

use super::grammar::{Field, Form, List, Names, Object, Text, alias_of};
use super::{RULE_FILE, STORE, WAITING, admin};
use super::{answers, cost, fleet, keys, limits, matches, overrides, rules, settlement};

/// Pattern of a rate with a non-zero amount and period.
const RATE: &str = "^0*[1-9][0-9]*/(0*[1-9][0-9]*)?(d|h|m|s|ms|us|ns)$";
/// Pattern of a string containing a number with a fraction, which is how Envoy parses such a number
/// from YAML.
const DECIMAL: &str = "^[0-9]+(\\.[0-9]{1,3})?$";
const DURATION: &str = "^[0-9]+(d|h|m|s|ms|us|ns)$";
/// Pattern of a non-zero duration.
const SOME_DURATION: &str = "^0*[1-9][0-9]*(d|h|m|s|ms|us|ns)$";

/// Definitions with their names. The algorithm definitions go between the two lists.
const DEFINITIONS: [&[Field]; 2] = [
    &[
        Field::required("rule_file", Form::Object(&RULE_FILE), ""),
        Field::required("store", Form::Object(&STORE), ""),
        Field::required("waiting", Form::Object(&WAITING), ""),
        Field::required("fleet", Form::Object(&fleet::FLEET), ""),
        Field::required("defaults", Form::Object(&rules::DEFAULTS), ""),
        Field::required("rule", Form::Object(&rules::RULE), ""),
        Field::required("when", Form::Object(&rules::WHEN), ""),
        Field::required("match", Form::Object(&matches::MATCH), ""),
        Field::required("path", Form::Object(&matches::PATH), ""),
        Field::required("host", Form::Object(&matches::HOST), ""),
        Field::required("header", Form::Object(&matches::HEADER), ""),
        Field::required("query", Form::Object(&matches::QUERY), ""),
        Field::required("cookie", Form::Object(&matches::COOKIE), ""),
        Field::required("route", Form::Object(&matches::ROUTE), ""),
        Field::required("metadata", Form::Object(&matches::METADATA), ""),
        Field::required("key", Form::List(&keys::KEY), "The parts of a key."),
        Field::required("key_path", Form::Object(&keys::PATH), ""),
        Field::required("key_source", Form::Object(&keys::SOURCE), ""),
        Field::required("overrides", Form::Map(&overrides::OVERRIDES), ""),
        Field::required("override", Form::Object(&overrides::OVERRIDE), ""),
        Field::required("penalty", Form::Object(&overrides::PENALTY), ""),
        Field::required("cost", Form::Object(&cost::COST), ""),
        Field::required("reserve", Form::Object(&settlement::RESERVE), ""),
        Field::required("usage", Form::Object(&settlement::USAGE), ""),
        Field::required("weights", Form::Object(&settlement::WEIGHTS), ""),
        Field::required(
            "model_weights",
            Form::Object(&settlement::MODEL_WEIGHTS),
            "",
        ),
        Field::required(
            "number_from_metadata",
            Form::Object(&limits::sources::NUMBER),
            "A number that comes with each request.",
        ),
        Field::required(
            "rate_from_metadata",
            Form::Object(&limits::sources::RATE),
            "A rate whose amount comes with each request.",
        ),
        Field::required(
            "starts",
            Form::Object(&limits::windows::STARTS),
            "The first day of a week, month or year.",
        ),
        Field::required(
            "limits",
            Form::List(&limits::LIMITS),
            "One to eight limits in one bucket.",
        ),
    ],
    &[
        Field::required("refuse", Form::Object(&answers::REFUSE), ""),
        Field::required("refuse_text", Form::Object(&answers::BODY), ""),
        Field::required("respond", Form::Object(&answers::RESPOND), ""),
        Field::required("admin_file", Form::Object(&admin::ADMIN_FILE), ""),
        Field::required("admin", Form::Object(&admin::ADMIN), ""),
        Field::required("embedded_admin", Form::Object(&admin::EMBEDDED), ""),
        Field::required("token", Form::Object(&admin::TOKEN), ""),
    ],
];

/// Returns the definition with this name.
pub(super) fn defined(name: &str) -> Option<Form> {
    let mut all = DEFINITIONS.into_iter().flatten();
    all.find(|field| field.name == name).map(|field| field.form)
}

/// Returns the JSON Schema (draft 2020-12) for rule files and for the admin role's configuration.
pub fn schema() -> Value {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Loudou rule file",
        "description": "The requests that Loudou limits, and their limits. With `admin` and without \
                        `rules`: the plugin configuration of the admin listener.",
        "type": "object",
        "if": { "required": ["admin"], "not": { "required": ["rules"] } },
        "then": { "$ref": "#/$defs/admin_file" },
        "else": { "$ref": "#/$defs/rule_file" },
        "$defs": definitions(),
    })
}

fn definitions() -> Value {
    let mut definitions = Map::new();
    let [before, after] = DEFINITIONS;
    let known = |field: &Field| (field.name.to_string(), Value::Object(described(field)));
    definitions.extend(before.iter().map(known));
    for (name, doc) in limits::docs() {
        definitions.insert(name.to_string(), limit(name, doc));
    }
    definitions.extend(after.iter().map(known));
    if let Some(Value::Object(file)) = definitions.get_mut("rule_file") {
        file.insert("allOf".to_string(), json!(needed()));
    }
    Value::Object(definitions)
}

/// Returns the schemas that require each rule to have `key` and `limits`, unless `defaults`
/// contains them.
fn needed() -> [Value; 2] {
    rules::NEEDED.map(|(name, _)| {
        json!({
            "if": { "not": { "required": ["defaults"], "properties": { "defaults": {
                "type": "object", "required": [name],
            } } } },
            "then": { "properties": { "rules": { "items": {
                "required": [name], "properties": { name: { "type": "array" } },
            } } } },
        })
    })
}

/// Returns the schema of a limit that uses one particular algorithm.
fn limit(algorithm: &str, doc: &str) -> Value {
    let mut properties = Map::new();
    let about = format!("Its name, unique in the rule. Without: {algorithm}.");
    let name = with(about, shape(Form::Text(limits::NAME)));
    properties.insert("name".to_string(), or_null(name));
    let only = match alias_of(algorithm) {
        None => json!({ "const": algorithm }),
        Some(alias) => json!({ "enum": [algorithm, alias] }),
    };
    properties.insert("algorithm".to_string(), only);
    let fields = limits::fields(algorithm);
    properties.extend(fields.iter().flat_map(property));
    let required = core::iter::once("algorithm").chain(required(fields));
    let closed = closed(properties, &required.collect::<Vec<_>>());
    Value::Object(with(doc.to_string(), closed))
}

/// Returns the schema of a field: its allowed values, description and default.
fn described(field: &Field) -> Map<String, Value> {
    let mut doc = field.doc.text().to_string();
    match field.form {
        Form::Decimal(..) => doc.push_str(" At most 3 decimals."),
        Form::Duration([least, most]) => doc.extend([format!(" From {least} to {most}.")]),
        _ => {}
    }
    let mut schema = shape(field.form);
    if let Some(definition) = field.sourced {
        let either = [
            Value::Object(schema),
            json!({ "$ref": format!("#/$defs/{definition}") }),
        ];
        schema = Map::from_iter([("anyOf".to_string(), json!(either))]);
    }
    match field
        .default
        .map(|text| (text, default_value(field.form, text)))
    {
        Some((_, Some(value))) => drop(schema.insert("default".to_string(), value)),
        Some((text, None)) if !text.is_empty() => doc.extend([format!(" Without: {text}.")]),
        _ => {}
    }
    with(doc.trim_start().to_string(), schema)
}

/// Adds the description, unless it is empty, as the first field of a schema.
fn with(doc: String, schema: Map<String, Value>) -> Map<String, Value> {
    if doc.is_empty() {
        return schema;
    }
    let mut described = Map::new();
    described.insert("description".to_string(), Value::from(doc));
    described.extend(schema);
    described
}

/// Returns a default as a JSON value, or `None` if it is only described in words.
pub(super) fn default_value(form: Form, text: &str) -> Option<Value> {
    match form {
        _ if text.is_empty() => None,
        Form::Integer(..) | Form::Decimal(..) => text.parse::<u32>().ok().map(Value::from),
        Form::Duration(..) => Nanos::parse(text).map(|_| Value::from(text)),
        Form::Word(words) => words.contains(&text).then(|| Value::from(text)),
        Form::Boolean => text.parse::<bool>().ok().map(Value::from),
        Form::Text(_) => Some(Value::from(text)),
        Form::Or(any) => any.iter().find_map(|one| default_value(one.form, text)),
        _ => None,
    }
}

/// Returns the schema of a form.
fn shape(form: Form) -> Map<String, Value> {
    let all = |of: &[Field]| of.iter().map(described).collect::<Vec<_>>();
    let schema = match form {
        Form::Integer(least, most) => {
            json!({ "type": "integer", "minimum": least, "maximum": most })
        }
        Form::Decimal(least, most) => {
            json!({ "type": ["number", "string"], "minimum": least, "maximum": most, "pattern": DECIMAL })
        }
        Form::Rate => {
            let examples = ["30/60s", "10/s", "5/m", "1000/d", "1/250ms"];
            json!({ "type": "string", "pattern": RATE, "examples": examples })
        }
        Form::Duration([least, _]) => {
            let is_some = *least > Nanos::ZERO;
            let pattern = if is_some { SOME_DURATION } else { DURATION };
            json!({ "type": "string", "pattern": pattern, "examples": ["250ms", "60s", "1d"] })
        }
        Form::Word(words) => json!({ "enum": enumerated(words) }),
        Form::Boolean => json!({ "type": "boolean" }),
        Form::Only(number) => json!({ "const": number }),
        Form::Text(text) => return self::text(text, true),
        Form::List(list) => return self::list(list),
        Form::Map(names) => return self::names(names),
        Form::Object(object) => return self::object(object),
        Form::Defined(name) => json!({ "$ref": format!("#/$defs/{name}") }),
        Form::Or(any) => json!({ "anyOf": all(any) }),
        Form::OneOf(one) => json!({ "oneOf": all(one) }),
        Form::Null => json!({ "type": "null" }),
    };
    match schema {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

fn enumerated(words: &[&str]) -> Vec<Value> {
    let aliases = words.iter().filter_map(|word| alias_of(word));
    let all = words.iter().copied().chain(aliases);
    let mut all: Vec<Value> = all.map(Value::from).collect();
    if words.contains(&"off") {
        // YAML 1.1 parsers read an unquoted `off` as `false`.
        all.push(Value::Bool(false));
    }
    all
}

fn text(text: Text, typed: bool) -> Map<String, Value> {
    let mut schema = Map::new();
    let mut put = |name: &str, value| drop(schema.insert(name.to_string(), value));
    if typed {
        put("type", Value::from("string"));
    }
    let pattern = text.pattern.text();
    if !pattern.is_empty() {
        put("pattern", Value::from(pattern));
    }
    if text.some {
        put("minLength", Value::from(1));
    }
    if text.longest > 0 {
        put("maxLength", Value::from(text.longest));
    }
    schema
}

fn list(list: &List) -> Map<String, Value> {
    let mut schema = Map::new();
    let mut put = |name: &str, value| drop(schema.insert(name.to_string(), value));
    put("type", Value::from("array"));
    if list.most > 0 {
        put("maxItems", Value::from(list.most));
    }
    put("items", Value::Object(described(&list.item)));
    if list.fewest > 0 {
        put("minItems", Value::from(list.fewest));
    }
    schema
}

fn names(names: &Names) -> Map<String, Value> {
    let mut name = text(names.name, false);
    let [not, starts] = names.not.map(|names| names.join("|"));
    if !not.is_empty() {
        let pattern = format!("^(({not})$|{starts})");
        name.insert("not".to_string(), json!({ "pattern": pattern }));
    }
    let mut schema = Map::new();
    let mut put = |name: &str, value| drop(schema.insert(name.to_string(), value));
    put("type", Value::from("object"));
    put("maxProperties", Value::from(names.most));
    put("propertyNames", Value::Object(name));
    let value = Value::Object(shape(names.value));
    match names.value {
        Form::Text(_) => put("patternProperties", json!({ "": value })),
        _ => put("additionalProperties", value),
    }
    schema
}

fn object(object: &Object) -> Map<String, Value> {
    let properties = object.fields.iter().flat_map(property).collect();
    let mut schema = closed(properties, &required(object.fields).collect::<Vec<_>>());
    if !object.choice.is_empty() {
        let is_there = |name: &&str| json!({ "required": [name], "properties": { *name: { "not": { "type": "null" } } } });
        let choices: Vec<Value> = object.choice.iter().map(is_there).collect();
        schema.insert("oneOf".to_string(), Value::Array(choices));
    }
    schema
}

fn required(fields: &[Field]) -> impl Iterator<Item = &'static str> {
    let required = fields.iter().filter(|field| field.default.is_none());
    required.map(|field| field.name)
}

/// Returns the schemas of a field and its alias. A JSON null counts as an absent field.
fn property(field: &Field) -> impl Iterator<Item = (String, Value)> {
    let schema = described(field);
    let alias = alias_of(field.name).map(|alias| {
        let mut schema = shape(field.form);
        schema.insert("deprecated".to_string(), Value::Bool(true));
        let doc = format!("Alias of `{}`.", field.name);
        (alias.to_string(), or_null(with(doc, schema)))
    });
    let schema = match field.default {
        None => Value::Object(schema),
        Some(_) => or_null(schema),
    };
    core::iter::once((field.name.to_string(), schema)).chain(alias)
}

/// Returns the schema of an object with only these properties.
fn closed(properties: Map<String, Value>, required: &[&str]) -> Map<String, Value> {
    let mut object = Map::new();
    object.insert("type".to_string(), Value::from("object"));
    object.insert("properties".to_string(), Value::Object(properties));
    if !required.is_empty() {
        object.insert("required".to_string(), json!(required));
    }
    object.insert("additionalProperties".to_string(), Value::Bool(false));
    object
}

/// Removes a field and returns its value. Preserves the order of the remaining fields if the map is
/// ordered.
fn take(fields: &mut Map<String, Value>, name: &str) -> Option<Value> {
    let taken = fields.get(name).cloned();
    fields.retain(|own, _| own != name);
    taken
}

/// Extends a schema to also allow null.
fn or_null(mut fields: Map<String, Value>) -> Value {
    if let Some(Value::String(kind)) = fields.get("type") {
        let kinds = json!([kind, "null"]);
        fields.insert("type".to_string(), kinds);
    } else if let Some(Value::Array(kinds)) = fields.get_mut("type") {
        kinds.push(json!("null"));
    } else if let Some(Value::Array(words)) = fields.get_mut("enum") {
        words.push(Value::Null);
    } else if let Some(Value::Array(any)) = fields.get_mut("anyOf") {
        any.push(json!({ "type": "null" }));
    } else if let Some(reference) = take(&mut fields, "$ref") {
        let either = [json!({ "$ref": reference }), json!({ "type": "null" })];
        fields.insert("anyOf".to_string(), json!(either));
    } else if let Some(only) = take(&mut fields, "const") {
        // A null counts as an absent field, so it is also allowed in place of a constant.
        fields.insert("enum".to_string(), json!([only, null]));
    }
    Value::Object(fields)
}
