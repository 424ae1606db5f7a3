//! Reads answers with several pages: the rules, and the rule file in effect.
//!
//! A cursor belongs to one generation of the rules. If they change between two pages, the filter
//! declines the next page, and reading starts from the beginning.

use loudou_api::Rules;
use loudou_rules::config::MAX_RULES;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::request::Path;
use super::{Client, ClientError};

/// Maximum number of attempts to read all pages at one generation.
const MAX_STARTS: u32 = 8;
/// Maximum number of pages. Each has at least one rule.
const MAX_PAGES: usize = MAX_RULES;
/// Status of a page whose generation is no longer current.
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

    /// Returns the effective rule file. Edits and overrides that end are left out, unless
    /// `with_temporary`.
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

    /// Returns all pages of a list, at one generation.
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
