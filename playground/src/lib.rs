//! Functions that the playground's page calls. Each function takes a JSON string and returns a JSON
//! string.
//!
//! All decisions and texts come from the crates that the filter and the `loudou` command also use. This crate only
//! makes them available to the page. It uses no clock and no network: the page passes times as arguments, or they come
//! from a log.

use loudou_replay::decisions::Decided;
use loudou_replay::{Observer, Progress};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use wasm_bindgen::prelude::wasm_bindgen;

mod burst;
mod copied;
mod edit;
mod explain;
mod replay;

#[wasm_bindgen]
extern "C" {
    /// Implemented by the page: shows how many bytes of the log a replay has read, or how many requests it has decided.
    fn progress(bytes: f64, requests: f64);
}

/// Checks the rules, and explains how they apply to a request. Takes [`explain::Question`].
#[wasm_bindgen]
pub fn explain(input: &str) -> String {
    answer(input, explain::answer)
}

/// Simulates a burst under a limit and under the other algorithms. Takes [`burst::Question`].
#[wasm_bindgen]
pub fn burst(input: &str) -> String {
    answer(input, burst::answer)
}

/// Replaces a number of a limit in the text of the rules. Takes [`edit::Question`].
#[wasm_bindgen]
pub fn edit(input: &str) -> String {
    answer(input, edit::answer)
}

/// Returns the rules as a manifest. Takes [`copied::Question`].
#[wasm_bindgen]
pub fn copied(input: &str) -> String {
    answer(input, |question| Ok(copied::answer(question)))
}

/// Replays a log. Takes [`replay::Question`] and the bytes of the log, optionally compressed.
#[wasm_bindgen]
pub fn replay(input: &str, log: &[u8]) -> String {
    answer(input, |question| replay::answer(question, log, &mut Page))
}

/// Reports the progress of a replay to the page.
struct Page;

impl Observer for Page {
    fn decided(&mut self, _: &Decided<'_>) -> std::io::Result<()> {
        Ok(())
    }

    fn progress(&mut self, done: Progress) -> std::io::Result<()> {
        let float = loudou_words::num::float;
        match done {
            Progress::Reading { bytes, .. } => progress(float(bytes), 0.0),
            Progress::Deciding { requests, .. } => progress(0.0, float(requests)),
        }
        Ok(())
    }
}

/// Parses a question, and returns its answer as JSON; on failure, returns an object with an `error` field.
fn answer<Q: DeserializeOwned, A: Serialize>(
    input: &str,
    answer: impl FnOnce(&Q) -> Result<A, String>,
) -> String {
    let question = serde_json::from_str(input).map_err(|error| error.to_string());
    let answer = question.and_then(|question| answer(&question));
    let answer = answer.and_then(|it| serde_json::to_value(it).map_err(|error| error.to_string()));
    let answer: Value = answer.unwrap_or_else(|error| json!({ "error": error }));
    answer.to_string()
}
