//! The names of the screens, and the places in which a key can work.

/// A screen. The table in `screens.rs` lists the implementations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Screen {
    /// All buckets.
    #[default]
    Buckets,
    /// One bucket.
    Bucket,
    /// All rules.
    Rules,
    /// Edits and warnings.
    Events,
    /// The process, its store, and findings.
    Envoy,
    /// All watched Envoys.
    Targets,
    /// The keys of all watched Envoys, with the sums of their rates.
    Keys,
}

/// A set of places where a key works.
pub(crate) type Places = u32;
pub(crate) const FILTER: Places = 1;
pub(crate) const SORT: Places = 1 << 1;
pub(crate) const HELP: Places = 1 << 2;
pub(crate) const PALETTE: Places = 1 << 3;
pub(crate) const CONFIRM: Places = 1 << 4;
pub(crate) const FORM: Places = 1 << 5;
pub(crate) const FORM_CONFIRM: Places = 1 << 6;
pub(crate) const FORM_SENDING: Places = 1 << 7;
pub(crate) const FORM_CONFLICT: Places = 1 << 8;
pub(crate) const KEY_FORM: Places = 1 << 9;
pub(crate) const EXPLAIN: Places = 1 << 10;
pub(crate) const EXPLAINED: Places = 1 << 11;
pub(crate) const EVENT: Places = 1 << 12;
/// All screens, while no dialog is open.
pub(crate) const BROWSE: Places = Places::MAX << FIRST_SCREEN;
/// Bit number of the first screen's place.
const FIRST_SCREEN: u32 = 13;
/// Screens on which a bucket can be selected.
pub(crate) const A_BUCKET: Places = Screen::Buckets.place() | Screen::Bucket.place();
/// Screens on which a rule can be selected.
pub(crate) const A_RULE: Places = A_BUCKET | Screen::Rules.place();

impl Screen {
    /// The first screen, to which `Esc` returns.
    pub(crate) const HOME: Self = Self::Buckets;

    /// Returns true if the screen shows several Envoys.
    pub(crate) const fn is_of_several(self) -> bool {
        matches!(self, Self::Targets | Self::Keys)
    }

    /// Returns the screen's place in the key table.
    pub(crate) const fn place(self) -> Places {
        let number = match self {
            Self::Buckets => 0,
            Self::Bucket => 1,
            Self::Rules => 2,
            Self::Events => 3,
            Self::Envoy => 4,
            Self::Targets => 5,
            Self::Keys => 6,
        };
        1 << (FIRST_SCREEN + number)
    }
}
