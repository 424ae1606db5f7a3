//! `loudou top --play`: a recording on the screen.

use std::fs::File;
use std::path::Path;

use anyhow::{Context as _, Result, anyhow, bail};

use super::context::Context;
use super::world::Usage;
use crate::runtime;
use crate::tape::{Ending, Tape};
use crate::text::escape;

pub(super) fn run(context: &mut Context<'_, '_>, file: &Path) -> Result<()> {
    let name = escape(&file.display().to_string()).into_owned();
    // clap compares only options that are all after `top`.
    let connect = &context.global.connect;
    if connect.targets.is_some() || connect.targets_from.is_some() {
        bail!(Usage(
            "--play cannot be used with --targets or --targets-from".to_owned()
        ));
    }
    if file == Path::new("-") {
        bail!(Usage(
            "--play needs a file that it can go back in, not standard input".to_owned()
        ));
    }
    let opened = File::open(file).with_context(|| format!("cannot read {name}"))?;
    let is_file = opened.metadata().is_ok_and(|metadata| metadata.is_file());
    if !is_file {
        bail!(Usage(format!(
            "--play needs a file that it can go back in, and {name} is none"
        )));
    }
    let tape = Tape::open(Box::new(opened)).map_err(|bad| anyhow!("{name}: {bad}"))?;
    if !context.io.has_screen() || context.global.output.is_some() {
        bail!(Usage(
            "--play needs a terminal; the lines of a recording are JSON, for programs such as jq"
                .to_owned()
        ));
    }
    // The terminal shows this again after the screen.
    if let Ending::Damaged(bad) = &tape.ending {
        context.note(&format!("warning: {name}: {bad}; it is played up to there"))?;
    }
    runtime::play(tape, &context.appearance()?)
}
