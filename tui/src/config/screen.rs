//! Reads the appearance of the screen from a config file.

use super::Config;
use super::reader::{Node, Reader};
use crate::draw::theme::Base;

pub(super) fn read(reader: &mut Reader<'_>, node: &Node<'_>, config: &mut Config) {
    let fields = reader.fields(node, &["interval", "theme", "ascii"]);
    if let Some(node) = fields.get("interval") {
        config.interval = reader.span(node);
    }
    if let Some(node) = fields.get("theme")
        && let Some(theme) = reader.text(node)
    {
        let known = Base::ALL.iter().find(|(name, _)| *name == theme);
        config.theme = known.map(|(_, base)| *base);
        if known.is_none() {
            reader.none_of(node, "no such theme", &Base::ALL.map(|(name, _)| name));
        }
    }
    if let Some(node) = fields.get("ascii") {
        config.ascii = reader.boolean(node);
    }
}
