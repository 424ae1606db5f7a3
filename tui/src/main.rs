//! The `loudou` command. All of its code is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    loudou::cli::main()
}
