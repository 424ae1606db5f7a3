//! match
