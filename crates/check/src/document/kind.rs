//! Kinds of files: Loudou's own files, and files for Envoy or Kubernetes, which may use more of
//! YAML.

use saphyr_parser::{Event, Parser};

/// The kind of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// A rule file, an admin configuration or an edit: anything that JSON can express.
    #[default]
    Loudou,
    /// An Envoy configuration, read as Envoy reads it.
    Envoy,
    /// Kubernetes objects, in any number of documents. The value is the list of documents.
    Kubernetes,
}

/// Field that every Kubernetes object has, and no rule file or Envoy file.
const KUBERNETES: &str = "apiVersion";
/// Fields of a bootstrap, files of discovered resources, a config dump, and parts that are kept in
/// separate files. None of them is a field of a rule file.
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
    /// Detects the kind. Reads only the top-level names, and the names below `admin`, which two
    /// kinds have.
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
