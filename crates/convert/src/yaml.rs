//! Cursors into YAML documents, which can report the place of each value.

use std::rc::Rc;

use loudou_check::document::{Document, Position, proto};
use loudou_rules::config::Path;
use serde_json::Value;

use crate::out::{Out, Place};

/// YAML's merge key, which adds the fields of other objects to an object.
const MERGE: &str = "<<";

static NULL: Value = Value::Null;

/// A value in a document, or the place where a missing value would be.
#[derive(Clone)]
pub(crate) struct At {
    file: Rc<str>,
    document: Rc<Document>,
    path: Path,
}

impl At {
    pub(crate) fn root(file: Rc<str>, document: Document) -> Self {
        Self {
            file,
            document: Rc::new(document),
            path: Path::root(),
        }
    }

    fn at(&self, path: Path) -> Self {
        Self {
            path,
            ..self.clone()
        }
    }

    pub(crate) fn value(&self) -> &Value {
        self.document.value_at(&self.path).unwrap_or(&NULL)
    }

    pub(crate) fn place(&self) -> Place {
        Place::new(&self.file, self.document.locate(&self.path, true))
    }

    pub(crate) fn exists(&self) -> bool {
        !self.value().is_null()
    }

    pub(crate) fn is_null(&self) -> bool {
        self.value().is_null()
    }

    /// Returns a field by its exact name. An object's own field takes precedence over a merged one.
    pub(crate) fn get(&self, name: &str) -> Self {
        let own = self.at(self.path.field(name));
        let has_own = self.value().get(name).is_some();
        let merged = (!has_own).then(|| self.merged()).into_iter().flatten();
        let mut merged = merged.map(|inner| inner.get(name));
        merged.find(Self::exists).unwrap_or(own)
    }

    /// Returns a field of a Protobuf message, under either its Protobuf name or its JSON name.
    pub(crate) fn proto(&self, name: &str) -> Self {
        let fields = self.value().as_object();
        let found = fields.and_then(|fields| proto::get(fields, name));
        if let Some((found, _)) = found {
            return self.get(found);
        }
        let mut merged = self.merged().into_iter().map(|inner| inner.proto(name));
        merged
            .find(Self::exists)
            .unwrap_or_else(|| self.at(self.path.field(name)))
    }

    /// Returns the objects that a `<<` key merges into this object. The document's maximum depth
    /// limits the recursion of the callers.
    fn merged(&self) -> Vec<Self> {
        let merge = self.at(self.path.field(MERGE));
        match merge.value() {
            Value::Object(_) => vec![merge],
            Value::Array(_) => merge.items(),
            _ => Vec::new(),
        }
    }

    /// Returns the elements of a list.
    pub(crate) fn items(&self) -> Vec<Self> {
        let many = self.value().as_array().map_or(0, Vec::len);
        (0..many).map(|i| self.at(self.path.index(i))).collect()
    }

    /// Returns the fields of an object with their names, including merged fields.
    pub(crate) fn fields(&self) -> Vec<(String, Self)> {
        let fields = self.value().as_object().into_iter().flatten();
        let own = fields.map(|(name, _)| name).filter(|name| *name != MERGE);
        let mut all: Vec<(String, Self)> = own.map(|name| (name.clone(), self.get(name))).collect();
        for merged in self.merged() {
            for (name, field) in merged.fields() {
                if !all.iter().any(|(known, _)| *known == name) {
                    all.push((name, field));
                }
            }
        }
        all
    }

    pub(crate) fn str(&self) -> Option<&str> {
        self.value().as_str()
    }

    /// Returns a string, number or boolean as a string.
    pub(crate) fn text(&self) -> Option<String> {
        match self.value() {
            Value::String(text) => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            Value::Bool(truth) => Some(truth.to_string()),
            _ => None,
        }
    }

    /// Returns a whole number, which may be written as a string.
    pub(crate) fn number(&self) -> Option<u64> {
        match self.value() {
            Value::Number(number) => number.as_u64(),
            Value::String(text) => text.trim().parse().ok(),
            _ => None,
        }
    }

    pub(crate) fn truth(&self) -> Option<bool> {
        match self.value() {
            Value::Bool(truth) => Some(*truth),
            Value::String(text) => text.trim().parse().ok(),
            _ => None,
        }
    }

    /// Returns the value as single-line JSON, for use in messages.
    pub(crate) fn json(&self) -> String {
        self.value().to_string()
    }
}

/// Warns about numbers such as `010`, which are octal in YAML 1.1 but decimal in YAML 1.2.
pub(crate) fn note_octal(file: &Rc<str>, text: &str, out: &mut Out) {
    for (line, text) in (1..).zip(text.lines()) {
        let text = text.split(" #").next().unwrap_or_default();
        for (start, _) in text.match_indices(": 0") {
            let at = start.saturating_add(2);
            let number = text.get(at..).unwrap_or_default();
            let end = number.find([' ', ',', '}', ']']).unwrap_or(number.len());
            let number = number.get(..end).unwrap_or_default();
            if number.len() > 1 && number.bytes().all(|byte| (b'0'..=b'7').contains(&byte)) {
                let column = text.get(..at).map_or(0, |before| before.chars().count());
                let column = column.saturating_add(1);
                let place = Place::new(file, Position { line, column });
                let octal = u64::from_str_radix(number, 8).unwrap_or(u64::MAX);
                let message = format!(
                    "`{number}` is read as a decimal number, and readers of YAML 1.1 such as Envoy's rate limit service read {octal}"
                );
                out.note(&place, &message);
            }
        }
    }
}
