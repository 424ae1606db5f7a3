//! A directory for one run. It is below the build directory, so `cargo clean` removes leftovers.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context as _, Result};

use crate::paths::target_dir;

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A new directory. It is removed with its content when it is dropped, unless [`TempDir::keep`] was
/// called.
#[derive(Debug)]
pub struct TempDir {
    path: PathBuf,
    keep: bool,
}

impl TempDir {
    /// Creates `target/e2e/NAME-PID-N`.
    pub fn new(name: &str) -> Result<Self> {
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let leaf = format!("{name}-{}-{n}", std::process::id());
        let path = target_dir().join("e2e").join(leaf);
        fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Self { path, keep: false })
    }

    /// Returns the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Keeps the directory, so that a failure can be investigated.
    pub const fn keep(&mut self) {
        self.keep = true;
    }

    /// Writes a file and creates its directories. A reader or watcher sees either the old or the
    /// new content, never a part.
    pub fn write(&self, name: &str, content: &str) -> Result<PathBuf> {
        let path = self.path.join(name);
        let parent = path.parent().unwrap_or(&self.path);
        let draft = parent.join(".draft");
        let written = fs::create_dir_all(parent)
            .and_then(|()| fs::write(&draft, content))
            .and_then(|()| fs::rename(&draft, &path));
        written.with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        if !self.keep {
            // If this fails, the leftover is harmless, because it is in the build directory.
            drop(fs::remove_dir_all(&self.path));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_removed_with_its_content() -> Result<()> {
        let dir = TempDir::new("temp-self-test")?;
        let file = dir.write("a.txt", "hello")?;
        assert_eq!(fs::read_to_string(&file)?, "hello");
        let path = dir.path().to_path_buf();
        drop(dir);
        assert!(!path.exists());
        Ok(())
    }
}
