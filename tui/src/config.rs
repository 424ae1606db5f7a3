//! Parses the user's config file, which names Envoys and sets the appearance of the screen. This
//! module does no I/O. `cli/config_file.rs` finds and reads the file.
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

/// Settings of a config file. All settings are optional.
#[derive(Clone, Debug, Default)]
pub(crate) struct Config {
    /// Addresses of Envoys and names of targets (`@NAME`), which apply if `--url` is not given.
    pub(crate) url: Vec<String>,
    /// Time limit of each call if `--timeout` is not given.
    pub(crate) timeout: Option<Nanos>,
    /// True if commands that make changes are refused.
    pub(crate) read_only: bool,
    /// Targets by name.
    pub(crate) targets: BTreeMap<String, NamedTarget>,
    /// Time between two updates of the screen if `--interval` is not given.
    pub(crate) interval: Option<Nanos>,
    pub(crate) theme: Option<Base>,
    /// True to draw with ASCII only, or `None` to decide by terminal and locale.
    pub(crate) ascii: Option<bool>,
}

/// One or more Envoys that are reached with the same settings. The paths are as written in the
/// config file.
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
    /// Parses the text of a config file, or returns all problems in it.
    pub(crate) fn read(text: &str) -> Result<Self, Vec<Located>> {
        let mut reader = Reader::new(text);
        let root = match reader::parse(text) {
            Ok(root) => root,
            Err(problem) => return Err(vec![*problem]),
        };
        let config = whole(&mut reader, &Node::root(&root));
        reader.finish().map(|()| config)
    }

    /// Returns true if the file contains a token.
    pub(crate) fn has_token(&self) -> bool {
        self.targets.values().any(|target| target.token.is_some())
    }

    /// Returns true if the file determines the Envoys to which tokens are sent.
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
