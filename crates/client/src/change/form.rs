//! Forms of changes for one key, as data for the screen to draw.

use loudou_api::{BucketView, EditView, MAX_REASON, RuleView};
use loudou_limiter::{DURATION_FORM, Nanos};

/// The key of a change, with its rule and bucket if known.
#[derive(Clone, Debug, PartialEq)]
pub struct KeyPlace {
    /// The name of the rule.
    pub rule: String,
    /// The key, in the form of the bucket list.
    pub key: String,
    /// The rule as read.
    pub seen: Option<Box<RuleView>>,
    /// The bucket as read.
    pub bucket: Option<Box<BucketView>>,
    /// The server's clock.
    pub now_ns: u64,
    /// Limit factor that the key requests, if known. An override form starts with it.
    pub scale: Option<String>,
}

/// Returns the time left of an edit, for a field that a user may change. It is rounded up, less
/// coarsely the sooner the edit ends. Empty without an end.
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

/// Returns the difference between two typed ends, for example `expires after 20m → never`. `None`
/// if they are equal.
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
    /// The duration of a ban.
    Lasts,
    /// The kind of an override.
    Gives,
    /// The factor of an override.
    Scale,
    /// The lifetime of an override.
    Expires,
    /// The reason, recorded with the event.
    Reason,
}

impl Prompt {
    /// Returns the label of the field.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Lasts => "for",
            Self::Gives => "gives",
            Self::Scale => "scale",
            Self::Expires => "expires after",
            Self::Reason => "reason",
        }
    }

    /// Returns the hint of the field.
    pub const fn hint(self) -> &'static str {
        match self {
            Self::Lasts => "such as 10m; empty: until unbanned",
            Self::Gives => "",
            Self::Scale => "times the rule's limits",
            Self::Expires => "such as 30m; empty: until Envoy restarts",
            Self::Reason => "recorded with the event",
        }
    }

    /// Returns the problem with a single value.
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

/// A prompt with its initial value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The prompt.
    pub prompt: Prompt,
    /// Its initial value.
    pub value: String,
    /// Values to choose from. Empty if text is typed.
    pub words: &'static [&'static str],
    /// True if typing replaces the initial value.
    pub selected: bool,
}

impl Asked {
    /// Creates a prompt for a time, with a default that typing replaces.
    pub(super) fn time(prompt: Prompt, default: &str) -> Self {
        Self {
            value: default.to_owned(),
            selected: true,
            ..Self::text(prompt)
        }
    }

    /// Creates a prompt for text, empty at first.
    pub(super) const fn text(prompt: Prompt) -> Self {
        Self {
            prompt,
            value: String::new(),
            words: &[],
            selected: false,
        }
    }
}

/// The values as typed and chosen.
#[derive(Clone, Debug, Default)]
pub struct Typed(pub Vec<(Prompt, String)>);

impl Typed {
    pub(super) fn get(&self, prompt: Prompt) -> &str {
        let found = self.0.iter().find(|(name, _)| *name == prompt);
        found.map_or("", |(_, value)| value)
    }
}

/// A problem with the values, and the prompt at which it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// The prompt.
    pub prompt: Prompt,
    /// The problem in words.
    pub text: String,
}
