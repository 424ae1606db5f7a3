//! Errors that end a run early, and the observer of a run.

use std::{error, fmt, io};

use super::decisions::Decided;
use super::input::BadLine;

/// Receives the decisions and the progress of a run.
pub trait Observer {
    /// Receives a request and its outcome under the first rule file.
    fn decided(&mut self, decided: &Decided<'_>) -> io::Result<()>;
    /// Receives the progress every few thousand lines.
    fn progress(&mut self, progress: Progress) -> io::Result<()>;
}

/// Progress of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Reading phase. All lines are read before the first request is decided.
    Reading {
        /// Bytes read so far, before decompression.
        bytes: u64,
        /// Requests and edits read so far.
        records: u64,
    },
    /// Decision phase.
    Deciding {
        /// Requests decided so far.
        requests: u64,
        /// Total requests and edits to decide.
        records: u64,
    },
}

/// Reason why a run ended before the end of its input.
#[derive(Debug)]
pub enum Error {
    /// Cannot open or read the input with this name.
    Read(String, io::Error),
    /// Cannot sort the records on disk.
    Sort(io::Error),
    /// The [`Observer`] failed.
    Observer(io::Error),
    /// First bad line of a strict run.
    Bad(BadLine),
    /// Too many lines of an input and none in a known format, with the first bad line.
    Unknown(String, Option<BadLine>),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(name, _) => write!(f, "cannot read {name}"),
            Self::Sort(_) => f.write_str("cannot sort the requests on disk"),
            Self::Observer(error) => error.fmt(f),
            Self::Bad(line) => line.fmt(f),
            Self::Unknown(name, _) => write!(f, "the format of {name} is not recognised"),
        }
    }
}

impl error::Error for Error {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self {
            Self::Read(_, error) | Self::Sort(error) => Some(error),
            Self::Observer(error) => error.source(),
            Self::Bad(_) | Self::Unknown(..) => None,
        }
    }
}
