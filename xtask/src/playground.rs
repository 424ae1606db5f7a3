//! `cargo xtask playground`: builds the playground, a page in a single file that loads no other resources.
//!
//! The page contains the compressed wasm module, and the code of its web worker, as text. Its content security policy
//! lists the hash of each script and of the style sheet, so that no other script can run, whatever a rule file, a log
//! or a link contains.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use loudou_tests::paths::{target_dir, workspace_root};
use sha2::{Digest as _, Sha256};

use crate::command::{cargo, run};
use crate::filter;
use crate::setup::WASM_TARGET;

/// Scripts of the page, in execution order.
const SCRIPTS: [&str; 7] = [
    "engine.js",
    "editor.js",
    "explain.js",
    "chart.js",
    "burst.js",
    "replay.js",
    "main.js",
];

/// Builds the page and returns its path.
pub(crate) fn build() -> Result<PathBuf> {
    let mut compile = filter::compile_module("loudou-playground");
    // `loudou-bind` needs custom sections that stripping would remove, and removes all other unneeded sections itself.
    run(compile.env("CARGO_PROFILE_WASM_STRIP", "debuginfo"))?;
    let module = target_dir()
        .join(WASM_TARGET)
        .join("wasm/loudou_playground.wasm");
    let folder = target_dir().join("playground");
    let mut bind = cargo(&["run", "--quiet", "--package", "loudou-bind", "--"]);
    run(bind.arg(module).arg(&folder))?;
    let glue = fs::read_to_string(folder.join("loudou.js")).context("no glue")?;
    let module = fs::read(folder.join("loudou_bg.wasm")).context("no module")?;
    let page = page(&module, &glue)?;
    let path = folder.join("loudou.html");
    fs::write(&path, &page).with_context(|| format!("cannot write {}", path.display()))?;
    let (kib, of_module) = (page.len().div_ceil(1024), module.len().div_ceil(1024));
    println!(
        "{}: {kib} KiB, with a module of {of_module} KiB",
        path.display()
    );
    Ok(path)
}

/// Returns the page with all scripts, styles and the module inlined.
fn page(module: &[u8], glue: &str) -> Result<String> {
    let read = |name: &str| {
        let path = workspace_root().join("playground/page").join(name);
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    };
    let style = read("style.css")?;
    let worker = format!("{glue}\n{}", read("worker.js")?);
    let mut policy = "default-src 'none'; base-uri 'none'; form-action 'none'; worker-src blob:; \
                      script-src 'wasm-unsafe-eval'"
        .to_owned();
    let mut scripts = String::new();
    for name in SCRIPTS {
        let script = read(name)?;
        inert(name, &script)?;
        write!(policy, " {}", hash(&script))?;
        writeln!(scripts, "<script>{script}</script>")?;
    }
    inert("the worker", &worker)?;
    write!(policy, "; style-src {}", hash(&style))?;
    let mut packed = GzEncoder::new(Vec::new(), Compression::best());
    packed.write_all(module)?;
    let packed = STANDARD.encode(packed.finish()?);
    let mut page = read("index.html")?;
    for (name, text) in [
        ("policy", &policy),
        ("style", &style),
        ("module", &packed),
        ("worker", &worker),
        ("scripts", &scripts),
    ] {
        let place = format!("{{{{{name}}}}}");
        ensure!(page.matches(&place).count() == 1, "no place for {name}");
        page = page.replacen(&place, text, 1);
    }
    Ok(page)
}

/// Fails if the script contains text that HTML would read as the end of the script or as the start of a comment.
fn inert(name: &str, script: &str) -> Result<()> {
    let lower = script.to_ascii_lowercase();
    let has = ["</script", "<script", "<!--"]
        .into_iter()
        .find(|it| lower.contains(it));
    ensure!(
        has.is_none(),
        "{name} contains {has:?}, which HTML reads as markup"
    );
    Ok(())
}

/// Returns the hash of a script or style sheet in the syntax of a content security policy.
fn hash(text: &str) -> String {
    format!("'sha256-{}'", STANDARD.encode(Sha256::digest(text)))
}
