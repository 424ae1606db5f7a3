//! Reads the `envoy.ai.token_usage` message, in which Envoy's `ai_protocol_manager` filter counts the tokens of a
//! response.
//!
//! Each number is in a wrapper message, so that an unknown number can be distinguished from 0.
//! Unknown fields are skipped, and a malformed message is read up to the first error.

use crate::metadata::{Fields, Wire};

/// Field numbers of `TokenUsage`.
const MODEL: u64 = 2;
const INPUT: u64 = 3;
const OUTPUT: u64 = 4;
const INPUT_DETAILS: u64 = 6;
const EXTRACTION_STATUS: u64 = 9;
/// Field number in the input details.
const CACHED: u64 = 1;
/// Field number of the value in a wrapper message.
const VALUE: u64 = 1;
/// Status of a complete record.
const COMPLETE: u64 = 1;

/// Token counts of a request and its response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenUsage<'a> {
    /// Name of the model, as written by the upstream. It may contain arbitrary bytes.
    pub model: &'a [u8],
    /// Number of tokens in the request.
    pub input: u64,
    /// Number of tokens in the response.
    pub output: u64,
    /// Number of tokens in the request that the upstream read from its cache.
    pub cached: u64,
    /// True if Envoy has read the whole response.
    pub is_complete: bool,
}

impl<'a> TokenUsage<'a> {
    /// Parses a message. Returns `None` if it contains no token counts.
    pub fn parse(message: &'a [u8]) -> Option<Self> {
        let mut usage = Self::default();
        let mut is_known = false;
        for (field, wire) in Fields(message) {
            match (field, wire) {
                (MODEL, Wire::Bytes(model)) => usage.model = model,
                (INPUT, Wire::Bytes(wrapped)) => (usage.input, is_known) = (number(wrapped), true),
                (OUTPUT, Wire::Bytes(wrapped)) => {
                    (usage.output, is_known) = (number(wrapped), true);
                }
                (INPUT_DETAILS, Wire::Bytes(details)) => {
                    let cached = Fields(details).filter(|(field, _)| *field == CACHED).last();
                    if let Some((_, Wire::Bytes(wrapped))) = cached {
                        usage.cached = number(wrapped);
                    }
                }
                (EXTRACTION_STATUS, Wire::Number(status)) => usage.is_complete = status == COMPLETE,
                _ => {}
            }
        }
        is_known.then_some(usage)
    }
}

/// Returns the number in a wrapper message. Protobuf omits a value of 0.
fn number(wrapped: &[u8]) -> u64 {
    match Fields(wrapped).filter(|(field, _)| *field == VALUE).last() {
        Some((_, Wire::Number(number))) => number,
        _ => 0,
    }
}
