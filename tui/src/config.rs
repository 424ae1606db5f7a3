//! The config file of a user: Envoys by name, and how the screen looks. No I/O: the command line finds and reads it.
//!
//! ```toml
//! url = "@edge"
//!
//! [targets.edge]
//! url = ["https://edge-1:9911", "https://edge-2:9911"]
//! token_file = "edge.token"
//!
//! [screen]
//! interval = "500ms"
//! theme = "light"
//! ```

use std::collections::BTreeMap;
use std::path::PathBuf;

use loudou_limiter::Nanos;

use crate::draw::theme::Base;

mod reader;
mod screen;
mod targets;

pub(crate) use reader::Located;

use reader::{Node, Reader};

/// The settings of a file. All of them may be absent.
#[derive(Clone, Debug, Default)]
pub(crate) struct Config {
    /// The Envoys without `--url`: addresses, and names of targets with `@`.
    pub(crate) url: Vec<String>,
    /// The time limit of each call without `--timeout`.
    pub(crate) timeout: Option<Nanos>,
    /// Whether every command that would change something is refused.
    pub(crate) read_only: bool,
    /// Envoys by name.
    pub(crate) targets: BTreeMap<String, NamedTarget>,
    /// The time between two updates of the screen without `--interval`.
    pub(crate) interval: Option<Nanos>,
    pub(crate) theme: Option<Base>,
    /// Whether to draw with ASCII only; `None` to decide by terminal and locale.
    pub(crate) ascii: Option<bool>,
}

/// One or more Envoys that are reached alike. Paths are as written.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NamedTarget {
    pub(crate) url: Vec<String>,
    pub(crate) token: Option<String>,
    pub(crate) token_file: Option<PathBuf>,
    pub(crate) tls_ca: Option<PathBuf>,
    pub(crate) tls_cert: Option<PathBuf>,
    pub(crate) tls_key: Option<PathBuf>,
    pub(crate) tls_name: Option<String>,
}

impl Config {
    /// Reads the text of a file, or returns all of its problems.
    pub(crate) fn read(text: &str) -> Result<Self, Vec<Located>> {
        let mut reader = Reader::new(text);
        let root = match reader::parse(text) {
            Ok(root) => root,
            Err(problem) => return Err(vec![*problem]),
        };
        let config = whole(&mut reader, &Node::root(&root));
        reader.finish().map(|()| config)
    }

    /// Whether a token is in it.
    pub(crate) fn has_token(&self) -> bool {
        self.targets.values().any(|target| target.token.is_some())
    }

    /// Whether it decides where a token goes.
    pub(crate) fn directs_tokens(&self) -> bool {
        !self.url.is_empty() || !self.targets.is_empty()
    }
}

fn whole(reader: &mut Reader<'_>, root: &Node<'_>) -> Config {
    let names = ["url", "timeout", "read_only", "targets", "screen"];
    let mut fields = reader.fields(root, &names);
    let mut config = Config::default();
    if let Some(node) = fields.remove("timeout") {
        config.timeout = reader.span(&node);
    }
    if let Some(node) = fields.remove("read_only") {
        config.read_only = reader.boolean(&node).unwrap_or_default();
    }
    if let Some(node) = fields.remove("targets") {
        config.targets = targets::read(reader, &node);
    }
    if let Some(node) = fields.remove("url") {
        config.url = targets::urls(reader, &node, Some(&config.targets));
    }
    if let Some(node) = fields.remove("screen") {
        screen::read(reader, &node, &mut config);
    }
    config
}

#[cfg(test)]
mod tests;
