//! Passes all requests through a run, in chronological order.

use super::decisions::Decided;
use super::error::{Error, Observer, Progress};
use super::input::{Input, Intake};
use super::read::{Reading, read};
use super::record::LogLine;
use super::recording::Recording;
use super::run::Run;

/// Number of requests between progress reports.
const PROGRESS_REQUESTS: u64 = 4_096;

/// Reads all inputs, and passes their requests through `run`.
pub fn replay(
    inputs: Vec<Input<'_>>,
    reading: &Reading<'_>,
    run: &mut Run,
    observer: &mut dyn Observer,
) -> Result<Intake, Error> {
    let mut recording = read(inputs, reading, observer)?;
    play(&mut recording, reading.strict, run, observer)?;
    Ok(recording.intake)
}

/// Passes the requests of a recording through `run`.
fn play(
    recording: &mut Recording,
    strict: bool,
    run: &mut Run,
    observer: &mut dyn Observer,
) -> Result<(), Error> {
    let records = recording.intake.records;
    let inputs = recording.intake.inputs.iter();
    let mut files: Vec<String> = inputs.map(|input| input.name.clone()).collect();
    if files.len() == 1 {
        files.clear();
    }
    loop {
        let Some((place, line)) = recording.next().map_err(Error::Sort)? else {
            return Ok(());
        };
        match line {
            LogLine::Request(mut record) => {
                let file = usize::try_from(place.input).ok();
                let file = file.and_then(|file| files.get(file)).map(String::as_str);
                let decided = run.request(&mut record, |request, reported| {
                    observer.decided(&Decided {
                        file,
                        line: place.line,
                        request,
                        reported,
                    })
                });
                decided.map_err(Error::Observer)?;
                let requests = run.requests();
                if requests.is_multiple_of(PROGRESS_REQUESTS) {
                    let progress = Progress::Deciding { requests, records };
                    observer.progress(progress).map_err(Error::Observer)?;
                }
            }
            LogLine::Edit(set) => {
                if let Err(wrong) = run.set(&set) {
                    let text = recording.edit().to_vec();
                    let line = recording.intake.bad_edit(place, wrong, &text);
                    if strict {
                        return Err(Error::Bad(line));
                    }
                }
            }
        }
    }
}
