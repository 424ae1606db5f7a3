//! End-to-end tests of the command line: arguments, canned answers, and a snapshot of every printed
//! text.

use std::cell::Cell;
use std::ffi::OsString;
use std::io::BufReader;

use insta::assert_snapshot;
use loudou_limiter::Nanos;

use super::run;
use super::world::{Env, Io};
use loudou_client::fake::{Answer, Fake};
use loudou_words::text::is_unsafe;

mod at_each;
mod calibrations;
mod canned;
mod caveats;
mod checks;
mod comparisons;
mod configured;
mod conflicts;
mod converts;
mod edits;
mod exits;
mod explains;
mod exports;
mod fleets;
mod follows;
mod inits;
mod leases;
mod live;
mod manifests;
mod of_keys;
mod replays;
mod reports;
mod suggests;
mod targets;
mod tops;
mod typing;
mod usage;
mod views;
mod watches;

thread_local! {
    /// True if the run of this test would exit with success on Ctrl-C.
    static SUCCEEDS_ON_INTERRUPT: Cell<bool> = const { Cell::new(false) };
}

/// A run of the command.
#[derive(Default)]
struct Loudou<'a> {
    answers: Vec<Answer>,
    input: &'a str,
    /// Input that may be invalid text. Used instead of `input`.
    bytes: &'a [u8],
    terminal: Option<usize>,
    env: Env,
    /// Maximum time that `--follow` and `--watch` wait for Envoy to answer again.
    patience: Nanos,
}

/// Outcome of a run.
struct Ran {
    code: u8,
    out: String,
    err: String,
    requests: Vec<String>,
}

impl Loudou<'_> {
    fn answers(answers: Vec<Answer>) -> Self {
        Self {
            answers,
            ..Self::default()
        }
    }

    /// Runs `loudou` with the words of `line` as arguments.
    fn run(self, line: &str) -> Ran {
        let expected = self.answers.len();
        let fake = Fake::new(self.answers);
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let input = if self.bytes.is_empty() {
            self.input.as_bytes()
        } else {
            self.bytes
        };
        let mut io = Io {
            out: &mut out,
            err: &mut err,
            input: &mut BufReader::new(input),
            out_terminal: self.terminal.is_some(),
            width: self.terminal,
            err_terminal: false,
            input_terminal: self.terminal.is_some(),
            env: self.env,
            patience: self.patience,
            pause: |_| Ok(()),
            size: || None,
            // 2026-11-28 12:00 UTC.
            wall: || Nanos::from_secs(1_795_867_200),
            succeed_on_interrupt: || {
                SUCCEEDS_ON_INTERRUPT.set(true);
                Ok(())
            },
        };
        let url = if line.contains("--url") || line.contains("--targets") {
            [].as_slice()
        } else {
            &["--url", &fake.url]
        };
        let program = std::iter::once("loudou");
        let args = program.chain(url.iter().copied());
        let args = args.chain(line.split_whitespace());
        let code = run(args.map(OsString::from), &mut io).code();
        let text = |bytes: Vec<u8>| {
            let text = String::from_utf8(bytes).expect("UTF-8");
            text.replace(&fake.url, "http://127.0.0.1:9911")
        };
        Ran {
            code,
            out: text(out),
            err: text(err),
            requests: (0..expected).map_while(|_| fake.try_request()).collect(),
        }
    }
}

impl Ran {
    /// Returns all visible results of a run.
    fn seen(&self) -> String {
        let mut seen = self.out.clone();
        if !self.err.is_empty() {
            seen.push_str("--- standard error\n");
            seen.push_str(&self.err);
        }
        format!("{seen}--- exit code {}\n", self.code)
    }

    /// Returns the first line of each request.
    fn lines(&self) -> Vec<&str> {
        self.requests
            .iter()
            .filter_map(|request| request.lines().next())
            .collect()
    }
}
