//! `cargo xtask`: tasks for contributors, written in plain Rust, so that they run on every platform that Cargo
//! supports.
//!
//! `setup` installs Envoy, Valkey and Prometheus. `build` builds the filter, `image` writes an OCI image of it, and
//! `dist` builds a release. `demo` shows the filter and the terminal app in use. `playground` builds a page that
//! evaluates rules in a browser. `docs` builds a site from the documents. `update` regenerates all committed outputs.
//! `bench` measures. `soak` searches for requests that were admitted beyond their limits, and `fuzz` searches for
//! inputs that crash or hang the code. `test` must pass before a commit, and `ci` before a merge.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command line tool prints"
)]

mod bench;
mod checks;
mod clients;
mod command;
mod demo;
mod dist;
mod docs;
mod filter;
mod fuzz;
mod image;
mod manifests;
mod native;
mod oci;
mod pages;
mod pictures;
mod playground;
mod prose;
mod setup;
mod soak;
mod tools;
mod update;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(
    name = "cargo xtask",
    bin_name = "cargo xtask",
    about = "Build, try and check Loudou"
)]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Clone, Subcommand)]
enum Task {
    /// Install the wasm target, Envoy, Valkey, Prometheus and cargo-deny, if they are missing
    Setup,
    /// Build the filter, and check its size and imports
    Build {
        /// Build the filter that panics on request, for crash tests
        #[arg(long, conflicts_with = "without_admin")]
        trap: bool,
        /// Leave out the admin API, for an Envoy whose admin API runs in another Envoy: a fifth less code to load
        #[arg(long, conflicts_with = "native")]
        without_admin: bool,
        /// Build the native module for Envoy 1.39 and 1.40: target/native/libloudou.so
        #[arg(long)]
        native: bool,
    },
    /// Write the filter as an OCI image, for Istio and Envoy Gateway
    Image {
        /// Push the image to a registry, pull it back, and run its module in Envoy
        #[arg(long, conflicts_with = "native")]
        check: bool,
        /// Write an image of the native module for this machine's processor, which Kubernetes can mount as a volume
        #[arg(long)]
        native: bool,
    },
    /// Build a release: programs, packages, images, checksums
    Dist(dist::Arguments),
    /// Start Envoy with the filter and a dozen users, and open `loudou` to watch them
    Demo {
        /// Start three Envoys that share each user's bucket, with a relay and a Valkey
        #[arg(long)]
        fleet: bool,
        /// Run the native module in place of the Wasm filter
        #[arg(long)]
        native: bool,
    },
    /// Build the playground, a page that evaluates rules in a browser: target/playground/loudou.html
    Playground,
    /// Redraw the pictures in docs/reference/algorithms and docs/pictures
    Pictures,
    /// Regenerate all committed outputs: snapshots, schemas, tables of fields, pictures
    Update,
    /// Describe the admin API, check the links of all documents, and build a site from them with mdBook
    Docs {
        /// Only check the links, and that the description of the admin API is up to date
        #[arg(long)]
        check: bool,
    },
    /// Run a benchmark
    Bench {
        /// The benchmark
        what: bench::Bench,
        /// Take fewer measurements, in less than two minutes (core, fleet, request)
        #[arg(long)]
        quick: bool,
        /// Measure this build of the filter instead of a build of the current sources (fleet, instructions, request)
        #[arg(long, value_name = "FILE")]
        wasm: Option<PathBuf>,
        /// Also measure this build of the filter, in the same run (request)
        #[arg(long, value_name = "FILE")]
        compare: Option<PathBuf>,
    },
    /// Change all kinds of settings of an Envoy under load, and check the number of admitted requests for each key
    Soak {
        /// Duration in minutes
        #[arg(long, default_value_t = 2)]
        minutes: u64,
        /// Seed of an earlier soak that is to be repeated
        #[arg(long)]
        seed: Option<u64>,
        /// Actions to leave out, to find out which actions are needed for a violation
        #[arg(long, value_delimiter = ',', value_parser = loudou_tests::soak::plan::WORDS)]
        without: Vec<String>,
        /// Soak the native module, without crashes and rollbacks
        #[arg(long)]
        native: bool,
    },
    /// Fuzz all code that parses input, to find panics and inputs that take too much time or memory
    Fuzz(fuzz::Arguments),
    /// Check that HTTP and gRPC clients, such as got, urllib3, grpcio and curl, handle the filter's response headers
    Clients,
    /// Open the playground and the reports of `loudou replay --output html` in a headless Chromium
    Pages,
    /// Run all tests, including tests in a real Envoy, or only the tests whose names contain NAME
    ///
    /// `cargo xtask test bans::` runs the tests of one subject, which is a file in tests/tests, and
    /// `cargo xtask test a_name another_name` runs the tests with either name. With a NAME, only the
    /// setup and builds that the chosen tests need are run.
    #[command(verbatim_doc_comment)]
    Test {
        /// Part of the full name of a test, such as `bans::` or `fleet::bound`. Give several names to run more tests
        #[arg(value_name = "NAME")]
        names: Vec<String>,
    },
    /// Check formatting, lints and docs, and run `test`, cargo-deny, a short fuzz run and a short soak
    Ci {
        /// Fuzz each target for a minute and soak for ten minutes, as before a release
        #[arg(long)]
        long: bool,
    },
}

fn main() -> ExitCode {
    let done = match Arguments::parse().task {
        Task::Setup => setup::all(),
        Task::Build {
            native: true, trap, ..
        } => if trap {
            native::build_trap()
        } else {
            native::build()
        }
        .map(drop),
        Task::Build { trap: true, .. } => filter::build_trap().map(drop),
        Task::Build {
            without_admin: true,
            ..
        } => filter::build_without_admin().map(drop),
        Task::Build { .. } => filter::build().map(drop),
        Task::Dist(arguments) => dist::run(&arguments),
        Task::Image { check, native } => image::run(check, native),
        Task::Clients => checks::clients_alone(),
        Task::Pages => checks::pages_alone(),
        Task::Demo { fleet, native } => demo::run(fleet, native),
        Task::Playground => playground::build().map(drop),
        Task::Pictures => pictures::run_all(),
        Task::Update => update::run_all(),
        Task::Docs { check } => docs::run(check),
        Task::Bench {
            what,
            quick,
            wasm,
            compare,
        } => bench::bench(what, quick, wasm, compare),
        Task::Soak {
            minutes,
            seed,
            without,
            native,
        } => {
            if native {
                soak::run_native(minutes, seed, without)
            } else {
                soak::run(minutes, seed, without)
            }
        }
        Task::Fuzz(arguments) => fuzz::run(&arguments),
        Task::Test { names } => checks::test(&names),
        Task::Ci { long } => checks::ci(long),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
