//! Forms for changes to a single key. This module defines the fields, and the terminal app draws
//! them.

use loudou_api::{BucketView, EditView, MAX_REASON, RuleView};
use loudou_limiter::{DURATION_FORM, Nanos};

/// The key affected by a change, with its rule and bucket if known.
#[derive(Clone, Debug, PartialEq)]
pub struct KeyPlace {
    /// The name of the rule.
    pub rule: String,
    /// The key, formatted as in the bucket list.
    pub key: String,
    /// The rule as of the last read, if known.
    pub seen: Option<Box<RuleView>>,
    /// The bucket as of the last read, if known.
    pub bucket: Option<Box<BucketView>>,
    /// The server's clock.
    pub now_ns: u64,
    /// Factor by which to raise the limits to meet the key's demand, if known. The override form is
    /// prefilled with this factor.
    pub scale: Option<String>,
}

/// Returns an edit's remaining lifetime, as the initial value of a form field. It is rounded up to
/// whole seconds (for up to 10 minutes), minutes (for up to 2 days) or hours. Empty if the edit
/// does not expire.
pub fn time_left(edit: &EditView, now_ns: u64) -> String {
    const SECOND: u64 = 1_000_000_000;
    let Some(until_ns) = edit.expires_at_ns else {
        return String::new();
    };
    let left = until_ns.saturating_sub(now_ns).div_ceil(SECOND).max(1);
    let step = match left {
        0..=600 => 1,
        601..=172_800 => 60,
        _ => 3_600,
    };
    Nanos::from_secs(left.next_multiple_of(step)).to_string()
}

/// Describes how the expiry in the form was changed, for example `expires after 20m → never`.
/// `None` if it was not changed.
pub fn other_end(before: &str, after: &str) -> Option<String> {
    if Nanos::parse(before) == Nanos::parse(after) {
        return None;
    }
    let [before, after] = [before, after].map(|end| if end.is_empty() { "never" } else { end });
    Some(format!("expires after {before} → {after}"))
}

/// One field of a form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prompt {
    /// Duration of a ban.
    Lasts,
    /// Kind of override.
    Gives,
    /// Scale factor of an override.
    Scale,
    /// Lifetime of an override.
    Expires,
    /// Reason for the change, as recorded in its event.
    Reason,
}

impl Prompt {
    /// Returns the field's label.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Lasts => "for",
            Self::Gives => "gives",
            Self::Scale => "scale",
            Self::Expires => "expires after",
            Self::Reason => "reason",
        }
    }

    /// Returns the field's hint.
    pub const fn hint(self) -> &'static str {
        match self {
            Self::Lasts => "such as 10m; empty: until unbanned",
            Self::Gives => "",
            Self::Scale => "times the rule's limits",
            Self::Expires => "such as 30m; empty: until Envoy restarts",
            Self::Reason => "recorded with the event",
        }
    }

    /// Returns an error message if the value is invalid for this field.
    pub fn problem(self, value: &str) -> Option<String> {
        match self {
            Self::Expires | Self::Lasts if value.is_empty() => None,
            Self::Expires | Self::Lasts => match Nanos::parse(value) {
                Some(span) if span > Nanos::ZERO => None,
                Some(_) => Some("must be longer than zero".to_owned()),
                None => Some(format!("invalid duration; write {DURATION_FORM}")),
            },
            Self::Reason if value.len() > MAX_REASON => {
                Some(format!("{} bytes; at most {MAX_REASON}", value.len()))
            }
            Self::Reason | Self::Gives | Self::Scale => None,
        }
    }
}

/// A form field with its initial value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The field.
    pub prompt: Prompt,
    /// Initial value of the field.
    pub value: String,
    /// Values to choose from. Empty for a text field.
    pub words: &'static [&'static str],
    /// True if typing replaces the initial value.
    pub selected: bool,
}

impl Asked {
    /// Creates a field for a duration. Its default value is replaced as soon as the user types.
    pub(super) fn time(prompt: Prompt, default: &str) -> Self {
        Self {
            value: default.to_owned(),
            selected: true,
            ..Self::text(prompt)
        }
    }

    /// Creates an empty text field.
    pub(super) const fn text(prompt: Prompt) -> Self {
        Self {
            prompt,
            value: String::new(),
            words: &[],
            selected: false,
        }
    }
}

/// The values typed or selected by the user.
#[derive(Clone, Debug, Default)]
pub struct Typed(pub Vec<(Prompt, String)>);

impl Typed {
    pub(super) fn get(&self, prompt: Prompt) -> &str {
        let found = self.0.iter().find(|(name, _)| *name == prompt);
        found.map_or("", |(_, value)| value)
    }
}

/// A validation error, and the field next to which it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// The field.
    pub prompt: Prompt,
    /// The error message.
    pub text: String,
}
