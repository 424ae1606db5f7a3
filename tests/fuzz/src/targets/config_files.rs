//! The config file of `loudou`.

use loudou::cli::fuzzing::{configured, unsafe_character};

use super::{Bounds, Target};

/// The examples of the documents.
const DOCUMENT: &str = include_str!("../../../../docs/reference/config.md");

pub(super) const CONFIG_FILE: Target = Target {
    name: "config-file",
    about: "the config file of loudou",
    run,
    seeds,
    words: &[
        b"\n",
        b" = ",
        b"[screen]\n",
        b"[targets.a]\n",
        b"url = \"",
        b"\"@a\"",
        b"token = ",
        b"unix:",
        b"theme = ",
        b"ascii = ",
        b"timeout = \"1s\"",
        b"\"\"\"",
        b"'''",
        b"{",
        b"[[",
        b"\\u202e",
        b"\\u0000",
        b"1979-05-27T07:32:00Z",
        b"0x_f",
        b"\xef\xbb\xbf",
    ],
    longest: 64 * 1024,
    bounds: Bounds {
        us: 20_000,
        ns_per_byte: 8_000,
        kib: 8 * 1024,
        bytes_per_byte: 2_000,
    },
};

fn run(input: &[u8]) {
    let printed = configured(input);
    let bad = unsafe_character(&printed);
    assert!(bad.is_none(), "prints {bad:?}: {printed:?}");
}

fn seeds() -> Vec<Vec<u8>> {
    let blocks = DOCUMENT.split("```toml\n").skip(1);
    let texts = blocks.filter_map(|block| block.split("```").next());
    let mut seeds: Vec<Vec<u8>> = texts.map(|text| text.as_bytes().to_vec()).collect();
    seeds.push(seeds.concat());
    seeds
}
