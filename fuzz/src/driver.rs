//! Runs one target for some time.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use crate::coverage::Coverage;
use crate::mutate::mutated;
use crate::random::Random;
use crate::targets::Target;
use crate::trial;

/// The most inputs that are kept for mutation.
const MOST_KEPT: usize = 20_000;
/// The inputs between two looks at the clock.
const BATCH: u64 = 16;
/// The time to make a failing input smaller.
const CUTTING: Duration = Duration::from_secs(10);

/// The settings of a run.
#[derive(Debug)]
pub struct Settings {
    /// The time in seconds.
    pub seconds: u64,
    /// The seed of the mutations.
    pub seed: u64,
    /// The file that has the current input, for a process that watches this one.
    pub current: Option<PathBuf>,
}

/// What a run did.
#[derive(Debug)]
pub struct Report {
    /// The number of inputs.
    pub inputs: u64,
    /// The number of inputs that reached new code.
    pub kept: usize,
    /// The number of counters reached.
    pub reached: usize,
    /// A failing input, and what is wrong with it.
    pub failure: Option<(Vec<u8>, String)>,
}

/// Runs a target until the time is over, or an input fails.
pub fn run(target: &Target, settings: &Settings) -> Result<Report> {
    let current = settings.current.as_deref().map(Current::create);
    let mut run = Run {
        target,
        current: current.transpose()?,
        coverage: Coverage::default(),
        random: Random::new(settings.seed),
        kept: Vec::new(),
        inputs: 0,
    };
    let end = now().checked_add(Duration::from_secs(settings.seconds));
    let failure = run.until(|| end.is_some_and(|end| now() >= end))?;
    let failure = match failure {
        Some((input, _)) => Some(run.smaller(input)?),
        None => None,
    };
    Ok(Report {
        inputs: run.inputs,
        kept: run.kept.len(),
        reached: run.coverage.reached(),
        failure,
    })
}

#[expect(clippy::disallowed_methods, reason = "a fuzzer runs for some time")]
fn now() -> Instant {
    Instant::now()
}

/// The seeds of a target: its own, and those in the repository.
pub fn seeds(target: &Target) -> Result<Vec<Vec<u8>>> {
    let mut seeds = (target.seeds)();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("corpus")
        .join(target.name);
    if folder.is_dir() {
        let files = fs::read_dir(&folder)?.collect::<Result<Vec<_>, _>>()?;
        let mut paths: Vec<PathBuf> = files.iter().map(fs::DirEntry::path).collect();
        paths.sort();
        for path in paths {
            seeds.push(fs::read(&path).with_context(|| path.display().to_string())?);
        }
    }
    Ok(seeds)
}

struct Run<'a> {
    target: &'a Target,
    current: Option<Current>,
    coverage: Coverage,
    random: Random,
    kept: Vec<Vec<u8>>,
    inputs: u64,
}

type Failure = (Vec<u8>, String);

impl Run<'_> {
    fn until(&mut self, is_over: impl Fn() -> bool) -> Result<Option<Failure>> {
        for seed in seeds(self.target)? {
            if let Err(wrong) = self.attempt(&seed)? {
                return Ok(Some((seed, wrong)));
            }
            self.coverage.learn();
            self.kept.push(seed);
        }
        loop {
            if self.inputs.is_multiple_of(BATCH) && is_over() {
                return Ok(None);
            }
            let input = self.next();
            if let Err(wrong) = self.attempt(&input)? {
                return Ok(Some((input, wrong)));
            }
            if self.coverage.learn() && self.kept.len() < MOST_KEPT {
                self.kept.push(input);
            }
        }
    }

    fn next(&mut self) -> Vec<u8> {
        // Recent discoveries are mutated more often.
        let all = self.kept.len();
        let from = if self.random.below(2) == 0 {
            all.saturating_sub(50)
        } else {
            0
        };
        let recent = self.kept.get(from..).unwrap_or_default();
        let input = self.random.pick(recent).cloned().unwrap_or_default();
        let other = self.random.pick(&self.kept).cloned().unwrap_or_default();
        let (words, longest) = (self.target.words, self.target.longest);
        mutated(&mut self.random, &input, &other, words, longest)
    }

    fn attempt(&mut self, input: &[u8]) -> Result<Result<(), String>> {
        self.inputs = self.inputs.saturating_add(1);
        if let Some(current) = &self.current {
            current.write(self.inputs, input)?;
        }
        Ok(trial::run(self.target, input))
    }

    /// Cuts parts out of a failing input as long as it fails.
    fn smaller(&mut self, mut input: Vec<u8>) -> Result<Failure> {
        let mut wrong = self.attempt(&input)?.err();
        let mut part = input.len() / 2;
        let mut at: usize = 0;
        let end = now().checked_add(CUTTING);
        while part > 0 && end.is_some_and(|end| now() < end) {
            let mut cut = input.clone();
            let end = at.saturating_add(part).min(cut.len());
            cut.drain(at.min(end)..end);
            match self.attempt(&cut)? {
                Err(found) => (input, wrong) = (cut, Some(found)),
                Ok(()) => at = end,
            }
            if at >= input.len() {
                (at, part) = (0, part / 2);
            }
        }
        Ok((
            input,
            wrong.unwrap_or_else(|| "fails, but not always".to_owned()),
        ))
    }
}

/// The current input in a file: its number, its length, itself.
struct Current(File);

impl Current {
    fn create(path: &Path) -> Result<Self> {
        let file = File::create(path).with_context(|| path.display().to_string())?;
        Ok(Self(file))
    }

    fn write(&self, number: u64, input: &[u8]) -> Result<()> {
        let length = u64::try_from(input.len()).unwrap_or(u64::MAX);
        let bytes = [&number.to_le_bytes(), &length.to_le_bytes(), input].concat();
        self.0.write_all_at(&bytes, 0)?;
        Ok(())
    }
}
