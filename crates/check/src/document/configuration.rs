//! A Loudou configuration inside a file for Envoy or Kubernetes, and its place there.

use std::fmt;

use loudou_rules::config::Path;

use super::tree::{Document, Fault, Position};

/// The configuration that one filter, or several through an alias, passes to the module.
#[derive(Clone, Debug)]
pub struct Configuration {
    /// Object, listener, filter and role of each filter with this configuration.
    pub title: String,
    /// The rule file or admin configuration, or the reason why there is none.
    pub document: Result<Document, Fault>,
    /// Whether CORS preflights end at an earlier filter.
    pub is_without_preflights: bool,
    /// Its place in the file.
    pub place: Place,
    /// The position of the configuration.
    pub(super) at: Position,
}

/// The place of a configuration.
#[derive(Clone, Debug, Default)]
pub struct Place {
    /// The object of Kubernetes that has it.
    pub object: Option<Object>,
    /// Where the plugin is described, with the configuration as one field.
    pub plugin: Path,
    /// The configuration itself.
    pub content: Path,
    /// The innermost listener around it.
    pub listener: Option<Path>,
}

/// An object of Kubernetes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// Its `apiVersion`.
    pub api: String,
    /// Its `kind`.
    pub kind: String,
    /// Its `metadata.namespace`.
    pub namespace: Option<String>,
    /// Its `metadata.name`.
    pub name: String,
    /// Its place in the file.
    pub path: Path,
}

impl fmt::Display for Object {
    /// `WasmPlugin shop/loudou`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.kind)?;
        if let Some(namespace) = &self.namespace {
            write!(f, "{namespace}/")?;
        }
        f.write_str(&self.name)
    }
}
