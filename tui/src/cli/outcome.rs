//! The outcomes of a command, and their exit codes.

use std::error::Error;
use std::io;

use super::world::Usage;
use loudou_client::ClientError;
use loudou_client::live::collect::Unread;

/// Outcome of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Done,
    Failed,
    Misused,
    /// The filter did not answer.
    Unconnected,
    /// The filter rejected the token, or requires one.
    Forbidden,
    /// The filter refused the request for another reason.
    Refused,
    /// Another change was made in the meantime.
    Conflict,
    /// The reader of the output closed the pipe.
    Unread,
}

/// Outcomes that a script may encounter, with their descriptions in the help and the manual page.
const MEANINGS: [(Outcome, &str); 7] = [
    (Outcome::Done, "success"),
    (
        Outcome::Failed,
        "problems found by check, nothing to convert, differences found by convert --prove, an import with failures, a screen left while changes wait, or any other failure",
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

    /// Returns the outcome of a command that failed with this error.
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

/// Returns the exit codes, one line each.
pub(super) fn exit_codes() -> String {
    let lines = MEANINGS.map(|(outcome, meaning)| format!("\n  {}  {meaning}", outcome.code()));
    format!("{HEADING}{}", lines.concat())
}

/// First line of [`exit_codes`].
pub(super) const HEADING: &str = "Exit codes:";
