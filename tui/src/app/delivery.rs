//! The result of a change for all Envoys, or for those that are marked, at one of them.

/// How a change fares at one Envoy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// The change is not for this one.
    NotAsked,
    Sending,
    Done(String),
    Failed(String),
}

impl Delivery {
    /// In words.
    pub(crate) fn words(&self) -> String {
        match self {
            Self::NotAsked => "not asked".to_owned(),
            Self::Sending => "sending".to_owned(),
            Self::Done(text) => format!("done: {text}"),
            Self::Failed(why) => format!("FAILED: {why}"),
        }
    }
}
