//! Finds and opens the traces of a replay, which are files, file name patterns, or standard input.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::BufRead;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use loudou_replay::Input;

use super::super::files::name_of;
use loudou_words::text::escape;

/// Paths of the traces, sorted by name so that the order of the arguments does not matter.
pub(in crate::cli) struct Traces(Vec<PathBuf>);

/// Expands the patterns in the arguments, and returns the files without duplicates.
pub(in crate::cli) fn expand(arguments: &[PathBuf]) -> Result<Traces> {
    let mut paths = Vec::new();
    for argument in arguments {
        let text = argument.to_string_lossy();
        let is_pattern = text.contains(['*', '?', '[']);
        // The name of an existing file may contain pattern characters.
        if argument == Path::new("-") || !is_pattern || argument.exists() {
            paths.push(argument.clone());
            continue;
        }
        let before = paths.len();
        let wrong = || format!("invalid pattern {}", escape(&text));
        for path in glob::glob(&text).with_context(wrong)? {
            let path = path.with_context(|| format!("cannot read {}", escape(&text)))?;
            if !path.is_dir() {
                paths.push(path);
            }
        }
        if paths.len() == before {
            bail!("no file matches {}", escape(&text));
        }
    }
    paths.sort();
    let mut seen = BTreeSet::new();
    // An unreadable file is reported when it is opened.
    paths.retain(|path| seen.insert(identity(path)));
    Ok(Traces(paths))
}

/// Returns the device and inode numbers, which are the same for all names of a file, including hard
/// links. Returns the path if the file's metadata cannot be read.
fn identity(path: &Path) -> Result<(u64, u64), PathBuf> {
    let about = fs::metadata(path).map_err(|_unreadable| path.to_owned())?;
    Ok((about.dev(), about.ino()))
}

impl Traces {
    /// Returns the name of the trace, or the number of files if there are several. The name is not
    /// escaped.
    pub(in crate::cli) fn name(&self) -> String {
        match self.0.as_slice() {
            [path] => name_of(path),
            paths => format!("{} files", paths.len()),
        }
    }

    /// Returns the inputs, and their total size in bytes, if known.
    pub(super) fn open<'a>(
        &'a self,
        stdin: &'a mut dyn BufRead,
    ) -> Result<(Vec<Input<'a>>, Option<u64>)> {
        let mut total = Some(0_u64);
        let mut inputs = Vec::new();
        let mut stdin = Some(stdin);
        for path in &self.0 {
            let name = name_of(path);
            if path == Path::new("-") {
                total = None;
                if let Some(stdin) = stdin.take() {
                    inputs.push(Input::new(&name, stdin));
                }
                continue;
            }
            let about = fs::metadata(path);
            let about = about.with_context(|| format!("cannot read {}", escape(&name)))?;
            total = total
                .filter(|_| about.is_file())
                .map(|total| total + about.len());
            inputs.push(Input {
                name,
                open: Box::new(move || Ok(Box::new(File::open(path)?))),
            });
        }
        Ok((inputs, total))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_and_repeats() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        for name in [
            "access.log",
            "access.log.1",
            "access.log.2.gz",
            "other",
            "a[1]",
        ] {
            fs::write(path(name), "").expect("writes");
        }
        fs::create_dir(path("access.log.d")).expect("creates");
        let names = |arguments: &[&str]| -> Vec<String> {
            let arguments: Vec<PathBuf> = arguments.iter().map(|name| path(name)).collect();
            let Traces(paths) = expand(&arguments).expect("expands");
            let names = paths.iter().filter_map(|path| path.file_name());
            names
                .map(|name| name.to_string_lossy().into_owned())
                .collect()
        };
        let three = ["access.log", "access.log.1", "access.log.2.gz"];
        assert_eq!(names(&["access.log*"]), three);
        assert_eq!(
            names(&["access.log.[12]*", "access.log", "./access.log"]),
            three
        );
        assert_eq!(names(&["other", "access.log"]), ["access.log", "other"]);
        fs::hard_link(path("other"), path("other.1")).expect("links");
        assert_eq!(names(&["other.1", "other"]), ["other"], "one file");
        assert_eq!(names(&["a[1]"]), ["a[1]"]);
        assert!(expand(&[path("no*")]).is_err());
        assert!(expand(&[path("[")]).is_err());
    }
}
