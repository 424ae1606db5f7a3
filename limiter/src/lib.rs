//! The pure core of Loudou.
