//! The `loudou` command.
fn main() {}
