//! Reads responses that consist of several pages: the list of rules, and the effective rule file.
//!
//! A cursor is valid for only one generation of the rules. If the rules change between two pages,
//! the filter rejects the cursor, and the client starts over from the first page.

use loudou_api::Rules;
use loudou_rules::config::MAX_RULES;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::request::Path;
use super::{Client, ClientError};

/// Maximum number of attempts to read all pages from the same generation.
const MAX_STARTS: u32 = 8;
/// Maximum number of pages. Each page contains at least one rule.
const MAX_PAGES: usize = MAX_RULES;
/// HTTP status returned by the filter if the cursor's generation is no longer current.
const CHANGED: u16 = 409;

impl Client {
    /// Returns all rules.
    pub fn rules(&self) -> Result<Rules, ClientError> {
        let next = |page: &mut Rules| page.next_cursor.take();
        let mut pages = self.pages("rules", &[], next)?.into_iter();
        let mut all = pages.next().unwrap_or_default();
        for page in pages {
            if page.instance != all.instance {
                return Err(self.restarted());
            }
            all.rules.extend(page.rules);
        }
        Ok(all)
    }

    /// Returns the effective rule file. Temporary edits and overrides are included only if
    /// `with_temporary` is true.
    pub fn export(&self, with_temporary: bool) -> Result<Value, ClientError> {
        let next = |page: &mut Value| {
            let cursor = page.as_object_mut()?.remove("next_cursor")?;
            cursor.as_str().map(ToOwned::to_owned)
        };
        let with: &[_] = if with_temporary {
            &[("with_temporary", "true")]
        } else {
            &[]
        };
        let mut pages = self.pages("export", with, next)?.into_iter();
        let mut all = pages.next().unwrap_or_default();
        for mut page in pages {
            let rules = all.get_mut("rules").and_then(Value::as_array_mut);
            let more = page.get_mut("rules").and_then(Value::as_array_mut);
            if let (Some(rules), Some(more)) = (rules, more) {
                rules.append(more);
            }
        }
        Ok(all)
    }

    /// Returns all pages of a list. They all belong to the same generation.
    fn pages<T: DeserializeOwned>(
        &self,
        list: &str,
        with: &[(&str, &str)],
        next: impl Fn(&mut T) -> Option<String>,
    ) -> Result<Vec<T>, ClientError> {
        let mut starts = 1;
        let mut pages = Vec::new();
        let first = || {
            let mut path = Path::new(&[list]);
            for (name, value) in with {
                path.query(name, value);
            }
            path
        };
        let mut path = first();
        loop {
            match self.get::<T>(&path.text) {
                Ok(mut page) => {
                    let cursor = next(&mut page);
                    pages.push(page);
                    let Some(cursor) = cursor else {
                        return Ok(pages);
                    };
                    if pages.len() > MAX_PAGES {
                        return Err(self.unexpected(format!("more than {MAX_PAGES} pages")));
                    }
                    path = first();
                    path.query("cursor", &cursor);
                }
                Err(ClientError::Problem { status, .. })
                    if status == CHANGED && !pages.is_empty() && starts < MAX_STARTS =>
                {
                    starts += 1;
                    pages.clear();
                    path = first();
                }
                Err(error) => return Err(error),
            }
        }
    }
}
