//! Generates the JavaScript that connects the playground's page to its wasm module, and the form of the module that
//! this JavaScript loads. `cargo xtask playground` runs this program. It is a separate package, so that builds of the
//! other packages do not compile its dependencies.

use std::env::args_os;

use anyhow::{Context as _, Result};
use wasm_bindgen_cli_support::Bindgen;

/// Base name of both output files.
const NAME: &str = "loudou";

fn main() -> Result<()> {
    let mut arguments = args_os().skip(1);
    let module = arguments
        .next()
        .context("usage: loudou-bind MODULE FOLDER")?;
    let folder = arguments
        .next()
        .context("usage: loudou-bind MODULE FOLDER")?;
    let mut bindgen = Bindgen::new();
    bindgen.input_path(module).out_name(NAME).typescript(false);
    bindgen
        .remove_name_section(true)
        .remove_producers_section(true);
    bindgen.no_modules(true)?.generate(folder)
}
