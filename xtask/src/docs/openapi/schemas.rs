//! Collects the schemas of responses from their Rust types, and the schemas of rules from the rule
//! file grammar.

use std::borrow::Cow;

use anyhow::{Context as _, Result};
use loudou_api::ProblemAnswer;
use loudou_rules::config::{self, EDIT_FIELDS, SAMPLE_FIELDS};
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

/// Location of schemas in the `OpenAPI` document.
const PLACE: &str = "#/components/schemas/";
/// Prefix for the names of definitions that come from the schema of rule files.
const FILE: &str = "file.";

/// Schemas that the document has used so far.
#[derive(Debug)]
pub(super) struct Schemas {
    generator: SchemaGenerator,
    /// Definitions in the schema of rule files.
    file: Map<String, Value>,
}

/// Schema name: request body of a rule edit.
pub(super) const EDIT: &str = "RuleEdit";
/// Schema name: request body of an override edit.
pub(super) const OVERRIDE: &str = "Override";
/// Schema name: request body of an explain call.
pub(super) const SAMPLE: &str = "Sample";
/// Active rules.
pub(super) const EXPORT: &str = "Export";

/// Returns a reference to the schema with this name in the document.
pub(super) fn at(name: &str) -> Value {
    json!({ "$ref": format!("{PLACE}{name}") })
}

/// Defines a Rust type that refers to another schema in the document.
macro_rules! stands_for {
    ($(#[$about:meta])* $name:ident, $place:expr) => {
        $(#[$about])*
        #[derive(Debug)]
        pub(super) struct $name;

        impl JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                Schema::new_ref(format!("{PLACE}{}", $place))
            }
        }
    };
}

stands_for! {
    /// Stands for a rule in the format of rule files.
    RuleJson, "file.rule"
}
stands_for! {
    /// Stands for the body of a rule edit.
    EditJson, EDIT
}

impl Schemas {
    pub(super) fn new() -> Self {
        let settings = SchemaSettings::draft2020_12().for_serialize();
        let settings = settings.with(|settings| {
            settings.definitions_path = "/components/schemas".into();
            settings.meta_schema = None;
        });
        let file = config::schema().pointer("/$defs").cloned();
        Self {
            generator: settings.into_generator(),
            file: file
                .and_then(|all| all.as_object().cloned())
                .unwrap_or_default(),
        }
    }

    /// Returns the schema of a Rust type.
    pub(super) fn of<T: JsonSchema>(&mut self) -> Value {
        self.generator.subschema_for::<T>().to_value()
    }

    pub(super) fn problem(&mut self) -> Value {
        self.of::<ProblemAnswer<RuleJson, EditJson>>()
    }

    /// Returns all schemas to which the document refers.
    pub(super) fn into_definitions(mut self) -> Result<Map<String, Value>> {
        let mut all = self.generator.take_definitions(true);
        let edit = self.edit_schema()?;
        all.extend([
            (EDIT.to_owned(), edit),
            (OVERRIDE.to_owned(), self.override_schema()?),
            (SAMPLE.to_owned(), sample_schema()),
            (EXPORT.to_owned(), export_schema()),
        ]);
        for schema in all.values_mut() {
            tidy(schema);
        }
        for (name, mut schema) in self.file {
            move_refs(&mut schema);
            all.insert(format!("{FILE}{name}"), schema);
        }
        remove_unused(&mut all);
        all.sort_keys();
        Ok(all)
    }

    /// Returns the schema of a rule edit, with the fields of a rule that an edit may replace.
    fn edit_schema(&self) -> Result<Value> {
        let rule = self.file.get("rule").context("no schema of a rule")?;
        let mut properties = Map::new();
        for name in EDIT_FIELDS {
            let field = rule.pointer(&format!("/properties/{name}"));
            let mut field = field
                .cloned()
                .with_context(|| format!("a rule has no {name}"))?;
            move_refs(&mut field);
            properties.insert((*name).to_owned(), field);
        }
        Ok(json!({
            "description": "The parts of a rule to replace, at least one.",
            "type": "object", "properties": properties,
            "minProperties": 1, "additionalProperties": false,
        }))
    }

    fn override_schema(&self) -> Result<Value> {
        let all = self.file.get("overrides").context("no overrides")?;
        let mut one = all.pointer("/additionalProperties").cloned();
        let one = one.as_mut().context("no schema of an override")?;
        move_refs(one);
        Ok(one.take())
    }
}

/// Returns the schema of a request to explain; every field is optional.
fn sample_schema() -> Value {
    let text = json!({ "type": "string" });
    let field = |name: &&str| {
        let schema = match *name {
            "headers" => json!({ "type": "object", "additionalProperties": {
                "anyOf": [text, { "type": "array", "items": text }],
            } }),
            "metadata" => json!({ "type": "object" }),
            "cost" => json!({ "type": "integer", "minimum": 0 }),
            _ => text.clone(),
        };
        ((*name).to_owned(), schema)
    };
    let properties: Map<String, Value> = SAMPLE_FIELDS.iter().map(field).collect();
    json!({
        "description": "A request; without a field, one like `GET /`.",
        "type": "object", "properties": properties, "additionalProperties": false,
    })
}

/// Returns the schema of an export: a complete rule file or one page of it. A page has the field
/// `next_cursor`, so that no reader mistakes a page for the whole file.
fn export_schema() -> Value {
    json!({
        "description": "The rules in force as a rule file, or a page of it, which has a `next_cursor`.",
        "type": "object",
        "properties": {
            "version": { "const": 1 },
            "store": at("file.store"),
            "rules": { "type": "array", "items": at("file.rule") },
            "next_cursor": { "type": "string" },
        },
        "required": ["version", "store", "rules"],
    })
}

/// Puts each description on one line without doc links, and removes Rust's integer formats such as
/// `uint32`.
fn tidy(schema: &mut Value) {
    if let Some(fields) = schema.as_object_mut() {
        let is_of_rust = |format: &Value| format.as_str().is_some_and(|it| it.starts_with("uint"));
        if fields.get("format").is_some_and(is_of_rust) {
            fields.shift_remove("format");
        }
        if let Some(Value::String(text)) = fields.get_mut("description") {
            *text = text
                .replace('\n', " ")
                .replace("[`crate::", "`")
                .replace("`]", "`")
                .replace("[`", "`");
        }
    }
    each(schema, &mut tidy);
}

/// Changes references within a rule file schema to the names of the definitions in this document.
fn move_refs(schema: &mut Value) {
    if let Some(Value::String(place)) = schema.get_mut("$ref") {
        *place = place.replace("#/$defs/", &format!("{PLACE}{FILE}"));
    }
    each(schema, &mut move_refs);
}

fn each(value: &mut Value, act: &mut impl FnMut(&mut Value)) {
    match value {
        Value::Array(list) => list.iter_mut().for_each(act),
        Value::Object(fields) => fields.values_mut().for_each(act),
        _ => {}
    }
}

/// Removes definitions of rule files to which nothing refers.
fn remove_unused(all: &mut Map<String, Value>) {
    loop {
        let text = Value::Object(all.clone()).to_string();
        let before = all.len();
        all.retain(|name, _| {
            !name.starts_with(FILE) || text.contains(&format!("\"{PLACE}{name}\""))
        });
        if all.len() == before {
            return;
        }
    }
}
