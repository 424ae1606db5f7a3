//! The reasons for which a run ends before its input, and what watches it.

use std::{error, fmt, io};

use super::decisions::Decided;
use super::input::BadLine;

/// Receives the decisions and the progress of a run.
pub trait Observer {
    /// A request, and its outcome under the first rule file.
    fn decided(&mut self, decided: &Decided<'_>) -> io::Result<()>;
    /// Called every few thousand lines.
    fn progress(&mut self, progress: Progress) -> io::Result<()>;
}

/// How far a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// All lines are read before the first is decided.
    Reading {
        /// The bytes so far, before decompression.
        bytes: u64,
        /// The requests and edits so far.
        records: u64,
    },
    /// Requests are decided.
    Deciding {
        /// The requests so far.
        requests: u64,
        /// The requests and edits to decide.
        records: u64,
    },
}

/// The reason for which a run ended before its input.
#[derive(Debug)]
pub enum Error {
    /// An input, by its name, could not be opened or read.
    Read(String, io::Error),
    /// The records could not be sorted on disk.
    Sort(io::Error),
    /// The [`Observer`] failed.
    Observer(io::Error),
    /// The first bad line of a strict run.
    Bad(BadLine),
    /// Too many lines of an input, none in a known format; the first of them.
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
