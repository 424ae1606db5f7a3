//! `loudou top`: the screen on a terminal, the list of buckets elsewhere.

use anyhow::Result;
use loudou_limiter::Nanos;

use super::args::{BucketsArgs, TopArgs};
use super::buckets;
use super::context::{Context, duration};
use crate::runtime;

const INTERVAL: Nanos = Nanos::from_secs(1);

pub(super) fn run(context: &mut Context<'_, '_>, args: Option<&TopArgs>) -> Result<()> {
    // Who names a form wants text, not a screen.
    if !context.io.out_terminal || context.global.output.is_some() {
        return buckets::run(context, &BucketsArgs::default());
    }
    let interval = args.map_or(INTERVAL, |args| args.interval);
    // A poll that takes longer than a second is worth showing as trouble, unless that was asked for.
    let client = context.client_within(interval.max(INTERVAL))?;
    runtime::run(runtime::Options {
        client,
        read_only: context.global.read_only,
        ascii: context.global.ascii,
        color: context.style.color,
        interval: duration(interval),
    })
}
