//! Recordings, as `loudou top --play` reads them.

use loudou::cli::fuzzing::unsafe_character;
use loudou::runtime::fuzzing::played;

use super::{Bounds, Target};

/// Two answers of the demo, with a few of their buckets.
const PLAIN: &[u8] = include_bytes!("../recording.jsonl");
const COMPRESSED: &[u8] = include_bytes!("../../../../tui/src/ui/tests/demo.jsonl.gz");

pub(super) const RECORDING: Target = Target {
    name: "recording",
    about: "recordings of `loudou record`, plain or compressed",
    run,
    seeds,
    words: &[
        b"\n",
        b"{\"loudou_recording\":1",
        b"\"at_ns\":",
        b"\"now_ns\":",
        b"\"url\":\"http://127.0.0.1:9911\"",
        b"\"urls\":[",
        b"\"failed\":\"\"",
        b"\"end\":\"done\"",
        b"\"snapshot\":{",
        b"\"key\":\"",
        b"\"capacity\":0",
        b"\"reported\":9",
        b"\"limits\":[]",
        b"\"instance\":\"x\"",
        b"18446744073709551615",
        b"\\u202e",
        b"\\u0000",
        b"[[[[[[[[",
        b"\x1f\x8b",
    ],
    longest: 64 * 1024,
    bounds: Bounds {
        us: 400_000,
        ns_per_byte: 50_000,
        kib: 64 * 1024,
        bytes_per_byte: 2_000,
    },
};

fn run(input: &[u8]) {
    let shown = played(input);
    let bad = unsafe_character(&shown);
    assert!(bad.is_none(), "shows {bad:?}: {shown:?}");
}

fn seeds() -> Vec<Vec<u8>> {
    let cut = PLAIN.get(..PLAIN.len() / 2).unwrap_or_default();
    vec![PLAIN.to_vec(), cut.to_vec(), COMPRESSED.to_vec()]
}
