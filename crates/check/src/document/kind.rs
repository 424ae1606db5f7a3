//! Kinds of input files: Loudou's own files, and files for Envoy or Kubernetes, which may use more
//! YAML features.

use saphyr_parser::{Event, Parser};

/// Kind of an input file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// A rule file, an admin configuration or an edit, restricted to what JSON can express.
    #[default]
    Loudou,
    /// An Envoy configuration, interpreted as Envoy does.
    Envoy,
    /// Kubernetes objects in any number of YAML documents. The parsed value is the list of
    /// documents.
    Kubernetes,
}

/// Field that identifies a Kubernetes object. Rule files and Envoy files never contain this field.
const KUBERNETES: &str = "apiVersion";
/// Fields that identify an Envoy file: a bootstrap, a file of discovered resources, a config dump,
/// or a fragment in a separate file. Rule files have none of these fields.
const ENVOY: &[&str] = &[
    "@type",
    "bootstrap_extensions",
    "configs",
    "dynamic_resources",
    "filter_chains",
    "http_filters",
    "layered_runtime",
    "node",
    "overload_manager",
    "resources",
    "static_resources",
    "stats_config",
    "typed_config",
    "dynamicResources",
    "filterChains",
    "httpFilters",
    "staticResources",
    "typedConfig",
];

impl Kind {
    /// Detects the kind of a file from its top-level field names. Both rule files and Envoy files
    /// can have the field `admin`, so the names directly below `admin` are examined as well.
    pub(super) fn of(text: &str) -> Self {
        let mut depth = 0_usize;
        let mut is_name = false;
        let mut in_admin = false;
        let mut parser = Parser::new_from_str(text);
        while let Some(Ok((event, _))) = parser.next_event() {
            match event {
                Event::MappingStart(..) => {
                    depth = depth.saturating_add(1);
                    is_name = true;
                }
                Event::SequenceStart(..) if depth == 0 => break,
                Event::SequenceStart(..) => depth = depth.saturating_add(1),
                Event::MappingEnd | Event::SequenceEnd => {
                    depth = depth.saturating_sub(1);
                    is_name = true;
                }
                Event::Scalar(name, ..) if depth == 1 && is_name => {
                    if name == KUBERNETES {
                        return Self::Kubernetes;
                    }
                    if ENVOY.contains(&&*name) {
                        return Self::Envoy;
                    }
                    in_admin = name == "admin";
                    is_name = false;
                }
                Event::Scalar(name, ..) if depth == 2 && is_name => {
                    if in_admin && name == "address" {
                        return Self::Envoy;
                    }
                    is_name = false;
                }
                Event::Scalar(..) | Event::Alias(_) => is_name = true,
                _ => {}
            }
        }
        Self::Loudou
    }
}
