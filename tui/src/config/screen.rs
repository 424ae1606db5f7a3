//! The look of the screen in a config file: theme, columns, and the user's themes.

use std::collections::BTreeMap;

use loudou_rules::config::nearest;

use super::Config;
use super::reader::{Node, Reader};
use crate::app::columns::Column;
use crate::draw::theme::color::{UnknownWord, color, style};
use crate::draw::theme::{Base, Fill, Role, Scheme};

/// The most colours of a fill.
const MOST_SHADES: usize = 32;

/// The theme with this name.
pub(crate) fn scheme(name: &str, themes: &BTreeMap<String, Scheme>) -> Option<Scheme> {
    let built_in = Base::ALL.iter().find(|(other, _)| *other == name);
    let built_in = built_in.map(|(_, base)| Scheme {
        base: *base,
        ..Scheme::default()
    });
    built_in.or_else(|| themes.get(name).cloned())
}

/// The names that a theme can be chosen by.
pub(crate) fn theme_names(themes: &BTreeMap<String, Scheme>) -> Vec<&str> {
    let built_in = Base::ALL.iter().map(|(name, _)| *name);
    let mut names: Vec<&str> = built_in.collect();
    // The file may define one anew.
    let others = themes.keys().map(String::as_str);
    let others: Vec<&str> = others.filter(|name| !names.contains(name)).collect();
    names.extend(others);
    names
}

pub(super) fn read(reader: &mut Reader<'_>, node: &Node<'_>, config: &mut Config) {
    let fields = reader.fields(node, &["interval", "theme", "ascii", "columns"]);
    if let Some(node) = fields.get("interval") {
        config.interval = reader.span(node);
    }
    if let Some(node) = fields.get("theme")
        && let Some(theme) = reader.text(node)
    {
        let names = theme_names(&config.themes);
        if !names.contains(&theme) {
            reader.none_of(node, "no such theme", &names);
        }
        config.theme = Some(theme.to_owned());
    }
    if let Some(node) = fields.get("ascii") {
        config.ascii = reader.boolean(node).unwrap_or_default();
    }
    if let Some(node) = fields.get("columns") {
        config.columns = Some(columns(reader, node));
    }
}

fn columns(reader: &mut Reader<'_>, node: &Node<'_>) -> Vec<Column> {
    let words = Column::ALL.map(|(word, _)| word);
    let mut columns = Vec::new();
    for (text, node) in reader.texts(node) {
        let known = Column::ALL.iter().find(|(word, _)| *word == text);
        match known.map(|(_, column)| *column) {
            None => reader.none_of(&node, "no such column", &words),
            Some(column) if columns.contains(&column) => {
                reader.wrong(&node, "this column is named twice", |problem| problem);
            }
            Some(column) => columns.push(column),
        }
    }
    if !columns.contains(&Column::Key) {
        reader.wrong(
            node,
            "`key` is missing: without it, rows have no name",
            |problem| problem,
        );
    }
    columns
}

pub(super) fn themes(reader: &mut Reader<'_>, node: &Node<'_>) -> BTreeMap<String, Scheme> {
    let mut themes = BTreeMap::new();
    for (name, _, node) in reader.entries(node) {
        if Base::ALL.iter().any(|(built_in, _)| *built_in == name) {
            reader.wrong(
                &node,
                "a built-in theme has this name; choose another, with `base`",
                |problem| problem,
            );
        }
        themes.insert(name, theme(reader, &node));
    }
    themes
}

fn theme(reader: &mut Reader<'_>, node: &Node<'_>) -> Scheme {
    let roles = Role::ALL.iter().map(|(name, _)| *name);
    let fills = Fill::ALL.iter().map(|(name, _)| *name);
    let names: Vec<&'static str> = ["base"].into_iter().chain(roles).chain(fills).collect();
    let fields = reader.fields(node, &names);
    let mut scheme = Scheme::default();
    if let Some(node) = fields.get("base")
        && let Some(text) = reader.text(node)
    {
        if let Some((_, base)) = Base::ALL.iter().find(|(name, _)| *name == text) {
            scheme.base = *base;
        } else {
            let names = Base::ALL.map(|(name, _)| name);
            reader.none_of(node, "no such theme", &names);
        }
    }
    for (name, role) in Role::ALL {
        if let Some(node) = fields.get(name)
            && let Some(text) = reader.text(node)
        {
            match style(text) {
                Ok(style) => scheme.styles.push((role, style)),
                Err(unknown) => {
                    let allowed = format!(
                        "bold, dim, underlined, reversed, COLOUR, on COLOUR; colours are {}",
                        UnknownWord::ALLOWED
                    );
                    bad_color(reader, node, &unknown, allowed);
                }
            }
        }
    }
    for (name, fill) in Fill::ALL {
        if let Some(node) = fields.get(name) {
            let mut shades = Vec::new();
            for (text, node) in reader.texts(node).into_iter().take(MOST_SHADES) {
                match color(text) {
                    Ok(color) => shades.push(color),
                    Err(unknown) => {
                        bad_color(reader, &node, &unknown, UnknownWord::ALLOWED.to_owned());
                    }
                }
            }
            scheme.water.push((fill, shades));
        }
    }
    scheme
}

fn bad_color(reader: &mut Reader<'_>, node: &Node<'_>, unknown: &UnknownWord, allowed: String) {
    let names = UnknownWord::names();
    let near = nearest(&unknown.0, &names);
    reader.wrong(node, unknown.to_string(), |problem| {
        problem.allowed(allowed).suggest(near)
    });
}
