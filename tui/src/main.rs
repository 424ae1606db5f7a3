//! The `loudou` command; everything is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    loudou::cli::main()
}
