//! The outcomes of a command, and their exit codes.

use std::error::Error;
use std::io;

use super::world::Usage;
use loudou_client::ClientError;
use loudou_client::live::collect::Unread;

/// The outcome of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Done,
    Failed,
    Misused,
    /// There was no answer of the filter.
    Unconnected,
    /// The filter refused the token, or asked for one.
    Forbidden,
    /// The filter refused the request for another reason.
    Refused,
    /// Something else changed in the meantime.
    Conflict,
    /// Nobody reads the output any more.
    Unread,
}

/// Every outcome that a script can meet, with its meaning for the help and the manual page.
const MEANINGS: [(Outcome, &str); 7] = [
    (Outcome::Done, "success"),
    (
        Outcome::Failed,
        "problems found by check, an import with failures, a screen left while changes wait, or any other failure",
    ),
    (Outcome::Misused, "wrong usage; nothing was changed"),
    (
        Outcome::Unconnected,
        "no connection, no answer in time, or an answer that is not Loudou's",
    ),
    (
        Outcome::Forbidden,
        "no token, an unknown one, or one with too little access (401, 403)",
    ),
    (
        Outcome::Refused,
        "refused for another reason, such as an unknown rule or key (404) or a wrong value (422)",
    ),
    (
        Outcome::Conflict,
        "another change or a restart came first (409, 412, 428); read again before you repeat it",
    ),
];

impl Outcome {
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::Misused => 2,
            Self::Unconnected => 3,
            Self::Forbidden => 4,
            Self::Refused => 5,
            Self::Conflict => 6,
            // 128 + SIGPIPE, as shells report it.
            Self::Unread => 141,
        }
    }

    /// The outcome of a command that ended with this error.
    pub(crate) fn of(error: &anyhow::Error) -> Self {
        let broken_pipe = error.chain().any(|cause| {
            let io = cause.downcast_ref::<io::Error>();
            io.is_some_and(|io| io.kind() == io::ErrorKind::BrokenPipe)
        });
        if broken_pipe {
            return Self::Unread;
        }
        if error.is::<Usage>() {
            return Self::Misused;
        }
        let of_call = |cause: &(dyn Error + 'static)| match cause.downcast_ref() {
            Some(Unread::Call(error)) => Some(Self::of_client(error)),
            _ => cause.downcast_ref().map(Self::of_client),
        };
        error.chain().find_map(of_call).unwrap_or(Self::Failed)
    }

    const fn of_client(error: &ClientError) -> Self {
        match error {
            ClientError::Unreachable { .. }
            | ClientError::Untrusted { .. }
            | ClientError::TimedOut { .. }
            | ClientError::Unexpected { .. } => Self::Unconnected,
            ClientError::Problem {
                status: 401 | 403, ..
            } => Self::Forbidden,
            ClientError::Problem {
                status: 409 | 412 | 428,
                ..
            }
            | ClientError::Restarted { .. } => Self::Conflict,
            ClientError::Problem { .. } => Self::Refused,
            ClientError::BadTarget { .. } => Self::Misused,
        }
    }
}

/// The exit codes, one line each.
pub(super) fn exit_codes() -> String {
    let lines = MEANINGS.map(|(outcome, meaning)| format!("\n  {}  {meaning}", outcome.code()));
    format!("{HEADING}{}", lines.concat())
}

/// The beginning of [`exit_codes`].
pub(super) const HEADING: &str = "Exit codes:";
