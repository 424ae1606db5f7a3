//! The grammar of rule files, as data: every field with its form, bounds, default and meaning.
//!
//! The fields are defined next to the readers that use them. The JSON Schema, the table of fields
//! and the edit forms are generated from the same definitions.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::joined::joined;
use loudou_limiter::bounds::{MAX_AMOUNT, MAX_PERIOD};
use loudou_limiter::{DURATION_FORM, Decimal, Nanos, RATE_FORM};

/// Aliases for fields and words, with their canonical names. The reader accepts both.
pub(super) const ALIASES: [(&str, &str); 3] = [
    ("share", "namespace"),
    ("peer", "client_cert"),
    ("gcra", "funnel"),
];

/// Returns the canonical name of an alias.
pub(super) fn written_as(alias: &str) -> Option<&'static str> {
    let mut all = ALIASES.into_iter();
    all.find(|(other, _)| *other == alias).map(|(_, own)| own)
}

/// Returns the alias of a field or word.
pub(super) fn alias_of(name: &str) -> Option<&'static str> {
    let mut all = ALIASES.into_iter();
    all.find(|(_, own)| *own == name).map(|(alias, _)| alias)
}

/// A field of rule files, or an unnamed value such as a list element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Name of the field; empty for an unnamed value.
    pub name: &'static str,
    /// Form of the allowed values.
    pub form: Form,
    /// Default value, either as written in a file or described in words. Empty if the field is
    /// optional but has no default to show. `None` for a required field.
    pub default: Option<&'static str>,
    /// Meaning of the field, in one sentence.
    pub doc: Doc,
    /// If each request may supply the number, the name of the definition for the object that
    /// replaces it.
    pub sourced: Option<&'static str>,
}

impl Field {
    /// Creates a required field.
    pub(super) const fn required(name: &'static str, form: Form, doc: &'static str) -> Self {
        Self {
            name,
            form,
            default: None,
            doc: Doc::new(doc),
            sourced: None,
        }
    }

    /// Creates a field with a default.
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
            sourced: None,
        }
    }

    /// Creates an unnamed value.
    pub(super) const fn value(form: Form, doc: &'static str) -> Self {
        Self::required("", form, doc)
    }

    /// Allows an object with this definition in place of the number, and returns the field. Each
    /// request then supplies the number.
    pub(super) const fn or_sourced(self, definition: &'static str) -> Self {
        Self {
            sourced: Some(definition),
            ..self
        }
    }

    /// Returns the field with a different description.
    pub(super) const fn meaning(self, doc: &'static str) -> Self {
        Self {
            doc: Doc::new(doc),
            ..self
        }
    }
}

/// A documentation string. The string is empty in the filter, which never shows documentation and
/// must stay small.
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

    /// Returns the string, which is empty unless the Cargo feature `words` is enabled.
    pub const fn text(self) -> &'static str {
        #[cfg(feature = "words")]
        return self.text;
        #[cfg(not(feature = "words"))]
        ""
    }
}

/// Form of a field's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A whole number within these inclusive bounds.
    Integer(u32, u32),
    /// A number with up to three decimals within these inclusive bounds.
    Decimal(Decimal, Decimal),
    /// A rate, such as `30/60s`.
    Rate,
    /// A duration within these bounds, such as `60s`. The bounds are stored by reference to keep
    /// forms small.
    Duration(&'static [Nanos; 2]),
    /// One of these words.
    Word(&'static [&'static str]),
    /// `true` or `false`.
    Boolean,
    /// Exactly this number.
    Only(u32),
    /// A string.
    Text(Text),
    /// A list.
    List(&'static List),
    /// An object with arbitrary field names.
    Map(&'static Names),
    /// An object with these fields.
    Object(&'static Object),
    /// A value that conforms to the definition with this name.
    Defined(&'static str),
    /// A value of any of these forms.
    Or(&'static [Field]),
    /// A value of exactly one of these forms.
    OneOf(&'static [Field]),
    /// No value.
    Null,
}

/// Form of a string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Text {
    /// Regular expression that the string must match; empty if any string is allowed.
    pub pattern: Doc,
    /// True if the string must be non-empty.
    pub some: bool,
    /// Maximum length in bytes; 0 for no maximum.
    pub longest: usize,
}

impl Text {
    /// Creates a form for strings of at most `longest` bytes that match `pattern`. If `longest` is
    /// 0, the length is unlimited.
    pub(super) const fn like(pattern: &'static str, longest: usize) -> Self {
        Self {
            pattern: Doc::new(pattern),
            some: false,
            longest,
        }
    }

    /// Creates a form for arbitrary strings of 1 to `longest` bytes.
    pub(super) const fn any(longest: usize) -> Self {
        Self {
            pattern: Doc::new(""),
            some: true,
            longest,
        }
    }
}

/// Form of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct List {
    /// Minimum number of elements.
    pub fewest: usize,
    /// Maximum number of elements; 0 for no maximum.
    pub most: usize,
    /// Form of the elements.
    pub item: Field,
}

/// Form of an object with arbitrary field names and values of a common form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Names {
    /// Maximum number of fields.
    pub most: usize,
    /// Form of the field names.
    pub name: Text,
    /// Forbidden names and forbidden name prefixes, in lower case.
    pub not: [&'static [&'static str]; 2],
    /// Form of the values.
    pub value: Form,
}

/// Schema of an object with a fixed set of fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Object {
    /// The fields.
    pub fields: &'static [Field],
    /// Names of the fields.
    pub names: &'static [&'static str],
    /// Names of mutually exclusive fields, exactly one of which must be present. Each of these
    /// fields has a default, because any of them may be absent.
    pub choice: &'static [&'static str],
}

/// Creates an [`Object`] with these fields. The names are also stored in a separate list, so that
/// the filter contains just the names rather than the complete fields.
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

/// Returns the names of these fields.
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

/// Returns the words from these pairs of words and meanings.
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

/// Describes the allowed values of a number with at most three decimals.
pub(super) fn decimal_form(least: Decimal, most: Decimal) -> String {
    format!("a number from {least} to {most} with at most 3 decimals")
}

/// Describes the allowed values of a duration.
pub(super) fn duration_form([least, most]: [Nanos; 2]) -> String {
    format!("{DURATION_FORM}; from {least} to {most}")
}

impl Form {
    /// Describes the allowed values, for error messages.
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
            Self::Or(any) => {
                let each = any.iter().map(|one| one.form.allowed());
                let each: Vec<String> = each.filter(|words| !words.is_empty()).collect();
                joined(&each, "; or ")
            }
            Self::OneOf(_) | Self::Null => String::new(),
        }
    }

    /// Returns the bounds of a duration, if this form allows durations.
    pub fn duration(self) -> Option<[Nanos; 2]> {
        match self {
            Self::Duration(bounds) => Some(*bounds),
            Self::Or(any) => any.iter().find_map(|one| one.form.duration()),
            _ => None,
        }
    }

    /// Returns the allowed words.
    pub fn words(self) -> &'static [&'static str] {
        match self {
            Self::Word(words) => words,
            Self::Or(any) => {
                let mut words = any.iter().map(|one| one.form.words());
                words.find(|words| !words.is_empty()).unwrap_or(&[])
            }
            _ => &[],
        }
    }
}
