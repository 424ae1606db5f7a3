//! A Loudou configuration embedded in an Envoy or Kubernetes file, and its location in that file.

use std::fmt;

use loudou_rules::config::Path;

use super::tree::{Document, Fault, Position};

/// A configuration that Envoy passes to the module. Several filters can share one configuration
/// through a YAML alias.
#[derive(Clone, Debug)]
pub struct Configuration {
    /// Title for messages, with the object, listener, filter and role of each filter that uses this
    /// configuration.
    pub title: String,
    /// Parsed rule file or admin configuration, or the fault that prevented parsing.
    pub document: Result<Document, Fault>,
    /// True if an earlier filter answers or refuses CORS preflights, so that they never reach
    /// Loudou.
    pub is_without_preflights: bool,
    /// Location in the file.
    pub place: Place,
    /// Position of the configuration in the file.
    pub(super) at: Position,
}

/// Location of a configuration in a file.
#[derive(Clone, Debug, Default)]
pub struct Place {
    /// Kubernetes object that contains the configuration.
    pub object: Option<Object>,
    /// Path of the plugin, which contains the configuration as a field.
    pub plugin: Path,
    /// Path of the configuration.
    pub content: Path,
    /// Path of the innermost listener that contains the configuration.
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
    /// Location in the file.
    pub path: Path,
}

impl fmt::Display for Object {
    /// Writes the kind, namespace and name, such as `WasmPlugin shop/loudou`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.kind)?;
        if let Some(namespace) = &self.namespace {
            write!(f, "{namespace}/")?;
        }
        f.write_str(&self.name)
    }
}
