//! Whether a test passes: yes, no, or open because the value is longer than the test reads.

/// The result of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Truth {
    /// It passes.
    Yes,
    /// It fails.
    No,
    /// The value is longer than a regular expression tests, and its beginning decides nothing.
    TooLong,
}

impl From<bool> for Truth {
    fn from(holds: bool) -> Self {
        if holds { Self::Yes } else { Self::No }
    }
}
