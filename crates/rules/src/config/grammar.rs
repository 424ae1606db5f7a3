//! The grammar of rule files as data: every field with its form, bounds, default and meaning.
//!
//! The rows stand beside the readers that use them. The JSON Schema, the table of fields and edit forms
//! are made of the same rows.

use alloc::format;
use alloc::string::{String, ToString};

use crate::joined::joined;
use loudou_limiter::bounds::{MAX_AMOUNT, MAX_PERIOD};
use loudou_limiter::{DURATION_FORM, Decimal, Nanos, RATE_FORM};

/// Aliases of fields and words, and their canonical names. Both are read.
pub(super) const ALIASES: [(&str, &str); 3] = [
    ("share", "namespace"),
    ("peer", "client_cert"),
    ("gcra", "funnel"),
];

/// The canonical name of an alias.
pub(super) fn written_as(alias: &str) -> Option<&'static str> {
    let mut all = ALIASES.into_iter();
    all.find(|(other, _)| *other == alias).map(|(_, own)| own)
}

/// The alias of a field or a word.
pub(super) fn alias_of(name: &str) -> Option<&'static str> {
    let mut all = ALIASES.into_iter();
    all.find(|(_, own)| *own == name).map(|(alias, _)| alias)
}

/// One field of rule files. Without a name: a value in another place, such as a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name.
    pub name: &'static str,
    /// The allowed values.
    pub form: Form,
    /// The default, as it would be written or in words, empty if there is nothing to write; `None` for a
    /// required field.
    pub default: Option<&'static str>,
    /// The meaning, in one sentence.
    pub doc: Doc,
}

impl Field {
    /// A required field.
    pub(super) const fn required(name: &'static str, form: Form, doc: &'static str) -> Self {
        Self {
            name,
            form,
            default: None,
            doc: Doc::new(doc),
        }
    }

    /// A field with a default.
    pub(super) const fn optional(
        name: &'static str,
        form: Form,
        default: &'static str,
        doc: &'static str,
    ) -> Self {
        Self {
            name,
            form,
            default: Some(default),
            doc: Doc::new(doc),
        }
    }

    /// A value without a field name.
    pub(super) const fn value(form: Form, doc: &'static str) -> Self {
        Self::required("", form, doc)
    }

    /// The same field with another meaning.
    pub(super) const fn meaning(self, doc: &'static str) -> Self {
        Self {
            doc: Doc::new(doc),
            ..self
        }
    }
}

/// A text for people. The filter never shows it, and its module has to be small: there it is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Doc {
    #[cfg(feature = "words")]
    text: &'static str,
}

impl Doc {
    #[cfg(feature = "words")]
    pub(super) const fn new(text: &'static str) -> Self {
        Self { text }
    }

    #[cfg(not(feature = "words"))]
    pub(super) const fn new(_text: &'static str) -> Self {
        Self {}
    }

    /// The text; empty without the feature `words`.
    pub const fn text(self) -> &'static str {
        #[cfg(feature = "words")]
        return self.text;
        #[cfg(not(feature = "words"))]
        ""
    }
}

/// The form of a field's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A whole number from the first to the second.
    Integer(u32, u32),
    /// A number with up to three decimals, from the first to the second.
    Decimal(Decimal, Decimal),
    /// A rate: `30/60s`.
    Rate,
    /// A duration from the first to the second: `60s`. By reference, so that a form stays small.
    Duration(&'static [Nanos; 2]),
    /// One of these words.
    Word(&'static [&'static str]),
    /// `true` or `false`.
    Boolean,
    /// This number.
    Only(u32),
    /// A text.
    Text(Text),
    /// A list.
    List(&'static List),
    /// An object with arbitrary names.
    Map(&'static Names),
    /// An object with these fields.
    Object(&'static Object),
    /// The definition of this name.
    Defined(&'static str),
    /// Any of these.
    Or(&'static [Field]),
    /// Exactly one of these.
    OneOf(&'static [Field]),
    /// Nothing.
    Null,
}

/// A text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Text {
    /// A regular expression that the text matches, unless empty.
    pub pattern: Doc,
    /// Whether the text has to be non-empty.
    pub some: bool,
    /// The maximum length, unless 0.
    pub longest: usize,
}

impl Text {
    /// A text that matches `pattern`, of at most `longest` bytes, unless that is 0.
    pub(super) const fn like(pattern: &'static str, longest: usize) -> Self {
        Self {
            pattern: Doc::new(pattern),
            some: false,
            longest,
        }
    }

    /// Any text of 1 to `longest` bytes.
    pub(super) const fn any(longest: usize) -> Self {
        Self {
            pattern: Doc::new(""),
            some: true,
            longest,
        }
    }
}

/// A list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct List {
    /// The fewest elements.
    pub fewest: usize,
    /// The most elements, unless 0.
    pub most: usize,
    /// The form of each element.
    pub item: Field,
}

/// An object with arbitrary names, each with a value of the same form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Names {
    /// The most names.
    pub most: usize,
    /// The form of a name.
    pub name: Text,
    /// Names that are not allowed, in lower case, and beginnings of such names.
    pub not: [&'static [&'static str]; 2],
    /// The form of each value.
    pub value: Form,
}

/// An object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Object {
    /// Its fields.
    pub fields: &'static [Field],
    /// Their names.
    pub names: &'static [&'static str],
    /// The names of which exactly one is present; the fields of these names have defaults.
    pub choice: &'static [&'static str],
}

/// An [`Object`] of these fields. The names are a list of their own, so that the filter has only these.
macro_rules! object {
    ($fields:expr) => {
        $crate::config::grammar::object!($fields, &[])
    };
    ($fields:expr, $choice:expr) => {
        $crate::config::grammar::Object {
            fields: &$fields,
            names: &$crate::config::grammar::names(&$fields),
            choice: $choice,
        }
    };
}
pub(super) use object;

/// The names of fields.
pub(super) const fn names<const N: usize>(fields: &[Field; N]) -> [&'static str; N] {
    let mut names = [""; N];
    let mut from: &[Field] = fields;
    let mut to: &mut [&'static str] = &mut names;
    while let (Some((field, rest)), Some((name, others))) =
        (from.split_first(), { to }.split_first_mut())
    {
        *name = field.name;
        from = rest;
        to = others;
    }
    names
}

/// The words of a list of words with their meanings.
pub(super) const fn words<T, const N: usize>(pairs: &[(&'static str, T); N]) -> [&'static str; N] {
    let mut words = [""; N];
    let mut from: &[(&'static str, T)] = pairs;
    let mut to: &mut [&'static str] = &mut words;
    while let (Some(((word, _), rest)), Some((own, others))) =
        (from.split_first(), { to }.split_first_mut())
    {
        *own = word;
        from = rest;
        to = others;
    }
    words
}

/// The allowed values of a number with at most three decimals.
pub(super) fn decimal_form(least: Decimal, most: Decimal) -> String {
    format!("a number from {least} to {most} with at most 3 decimals")
}

/// The allowed values of a duration.
pub(super) fn duration_form([least, most]: [Nanos; 2]) -> String {
    format!("{DURATION_FORM}; from {least} to {most}")
}

impl Form {
    /// In words, for error messages.
    pub fn allowed(self) -> String {
        match self {
            Self::Integer(least, most) => format!("a whole number from {least} to {most}"),
            Self::Decimal(least, most) => decimal_form(least, most),
            Self::Rate => format!("{RATE_FORM}; at most {MAX_AMOUNT} per {MAX_PERIOD}"),
            Self::Duration(bounds) => duration_form(*bounds),
            Self::Word(words) => joined(words, ", "),
            Self::Boolean => "true, false".to_string(),
            Self::Only(number) => number.to_string(),
            Self::Text(text) if text.some => format!("a text of 1 to {} bytes", text.longest),
            Self::Text(_) => "a text".to_string(),
            Self::List(_) => "a list".to_string(),
            Self::Object(object) => format!("an object with {}", joined(object.names, ", ")),
            Self::Map(_) | Self::Defined(_) => "an object".to_string(),
            Self::Or(_) | Self::OneOf(_) | Self::Null => String::new(),
        }
    }
}
