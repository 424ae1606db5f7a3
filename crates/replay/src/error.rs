//! Errors that end a run early, and the [`Observer`] trait for following a run.

use std::{error, fmt, io};

use super::decisions::Decided;
use super::input::BadLine;

/// Receives the decisions and the progress of a run.
pub trait Observer {
    /// Called for each request, with its outcome under the first rule file.
    fn decided(&mut self, decided: &Decided<'_>) -> io::Result<()>;
    /// Called every few thousand lines.
    fn progress(&mut self, progress: Progress) -> io::Result<()>;
}

/// Progress of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Reading phase, which ends before the first request is decided.
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
        /// Total number of requests and edits to process.
        records: u64,
    },
}

/// Reason why a run ended early.
#[derive(Debug)]
pub enum Error {
    /// The input with this name cannot be opened or read.
    Read(String, io::Error),
    /// The records cannot be sorted on disk.
    Sort(io::Error),
    /// The [`Observer`] returned an error.
    Observer(io::Error),
    /// A strict run found a bad line.
    Bad(BadLine),
    /// Too many lines of the named input were read without finding a known format. The first bad
    /// line is included.
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
