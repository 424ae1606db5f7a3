//! The time scale of charts.

/// The time that a chart shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Scale {
    #[default]
    Minute,
    FiveMinutes,
    QuarterHour,
    Hour,
}

impl Scale {
    const ALL: [Self; 4] = [
        Self::Minute,
        Self::FiveMinutes,
        Self::QuarterHour,
        Self::Hour,
    ];

    /// The time in nanoseconds.
    pub(crate) const fn span_ns(self) -> u64 {
        let minutes = match self {
            Self::Minute => 1,
            Self::FiveMinutes => 5,
            Self::QuarterHour => 15,
            Self::Hour => 60,
        };
        minutes * 60_000_000_000
    }

    /// The next longer one; `None` for the longest.
    pub(crate) fn longer(self) -> Option<Self> {
        let mut all = Self::ALL.into_iter();
        all.find(|other| other.span_ns() > self.span_ns())
    }

    /// The next shorter one; `None` for the shortest.
    pub(crate) fn shorter(self) -> Option<Self> {
        let mut all = Self::ALL.into_iter().rev();
        all.find(|other| other.span_ns() < self.span_ns())
    }
}
