//! A Loudou configuration inside an Envoy or Kubernetes file, with its place there.

use std::fmt;

use loudou_rules::config::Path;

use super::tree::{Document, Fault, Position};

/// The configuration that a filter passes to the module. Several filters may share it through an
/// alias.
#[derive(Clone, Debug)]
pub struct Configuration {
    /// Object, listener, filter and role of each filter with this configuration.
    pub title: String,
    /// Rule file or admin configuration, or the reason why it could not be read.
    pub document: Result<Document, Fault>,
    /// True if CORS preflights end at an earlier filter.
    pub is_without_preflights: bool,
    /// Place in the file.
    pub place: Place,
    /// Position of the configuration.
    pub(super) at: Position,
}

/// The place of a configuration.
#[derive(Clone, Debug, Default)]
pub struct Place {
    /// Kubernetes object that contains it.
    pub object: Option<Object>,
    /// Place of the plugin, which has the configuration as a field.
    pub plugin: Path,
    /// Place of the configuration.
    pub content: Path,
    /// Innermost listener that contains it.
    pub listener: Option<Path>,
}

/// A Kubernetes object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// `apiVersion` of the object.
    pub api: String,
    /// `kind` of the object.
    pub kind: String,
    /// `metadata.namespace` of the object.
    pub namespace: Option<String>,
    /// `metadata.name` of the object.
    pub name: String,
    /// Place in the file.
    pub path: Path,
}

impl fmt::Display for Object {
    /// Returns for example `WasmPlugin shop/loudou`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.kind)?;
        if let Some(namespace) = &self.namespace {
            write!(f, "{namespace}/")?;
        }
        f.write_str(&self.name)
    }
}
