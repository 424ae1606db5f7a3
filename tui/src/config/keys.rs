//! The keys of a config file.

use super::reader::{Node, Reader};
use crate::app::keymap::Keymap;
use crate::app::keys::{clashes, words};
use crate::app::press::Press;

/// The names of keys, for messages.
const ALLOWED: &str = "a character, C-a to C-z without C-c, C-h, C-i, C-j, C-m and C-z, space, Enter, Tab, S-Tab, \
     Backspace, Del, Up, Down, Left, Right, Home, End, PgUp, PgDn";

pub(super) fn read(reader: &mut Reader<'_>, node: &Node<'_>) -> Keymap {
    let words = words();
    let fields = reader.fields(node, &words);
    let mut keymap = Keymap::default();
    for (word, node) in &fields {
        let mut keys: Vec<Press> = Vec::new();
        for (text, node) in reader.texts(node) {
            match Press::named(text) {
                Some(press) if keys.contains(&press) => {
                    reader.wrong(&node, "this key is named twice", |problem| problem);
                }
                Some(press) => keys.push(press),
                None => reader.wrong(&node, "no such key", |problem| problem.allowed(ALLOWED)),
            }
        }
        keymap.choose(word, keys);
    }
    for (press, one, other) in clashes(&keymap) {
        // At least one of them was chosen: the key table has no clash.
        let chosen = [one, other].iter().find_map(|word| fields.get(word));
        if let Some(node) = chosen {
            let message = format!("{press} is the key of both `{one}` and `{other}`");
            reader.wrong(node, message, |problem| {
                problem.allowed("another key, or another one for the other command")
            });
        }
    }
    keymap
}
