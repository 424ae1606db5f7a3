//! Parses JSON text and rejects duplicate fields. A JSON tree keeps only the last of several fields
//! with the same name, so the others would be silently ignored.

use alloc::string::String;
use alloc::vec::Vec;

use serde_json::{Map, Value};

use super::problem::{Path, Problem, Step};

/// Maximum number of duplicate fields to report.
const MAX_DUPLICATES: usize = 16;

/// Reason for rejecting a JSON text.
#[derive(Debug)]
pub enum JsonError {
    /// The text is not valid JSON.
    Invalid(serde_json::Error),
    /// An object has several fields with the same name.
    Duplicates(Vec<Problem>),
}

/// Parses JSON. Fails if an object has several fields with the same name.
pub fn parse_json(text: &[u8]) -> Result<Value, JsonError> {
    let value: Value = serde_json::from_slice(text).map_err(JsonError::Invalid)?;
    // Outside strings, there is exactly one colon per field. Therefore, if the number of colons in
    // the text equals the number of fields in the tree, there are no duplicates.
    if colons(text) == fields(&value) {
        return Ok(value);
    }
    let mut scan = Scan {
        rest: text,
        path: Vec::new(),
        found: Vec::new(),
    };
    scan.value();
    Err(JsonError::Duplicates(scan.found))
}

/// Returns the number of colons outside strings.
fn colons(text: &[u8]) -> usize {
    let mut count = 0_usize;
    let (mut in_text, mut is_escaped) = (false, false);
    for byte in text {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' => in_text = !in_text,
            b':' if !in_text => count = count.saturating_add(1),
            _ => {}
        }
    }
    count
}

/// Returns the total number of fields in all objects of a tree. Recursion is safe, because the
/// parser limits the depth of the tree.
fn fields(value: &Value) -> usize {
    let within = |inner: &mut dyn Iterator<Item = &Value>| {
        inner.fold(0, |sum: usize, value| sum.saturating_add(fields(value)))
    };
    match value {
        Value::Array(list) => within(&mut list.iter()),
        Value::Object(map) => map.len().saturating_add(within(&mut map.values())),
        _ => 0,
    }
}

/// Searches valid JSON for duplicate fields.
struct Scan<'t> {
    rest: &'t [u8],
    path: Vec<Step>,
    found: Vec<Problem>,
}

impl Scan<'_> {
    /// Skips whitespace and returns the next byte without consuming it.
    fn peek(&mut self) -> Option<u8> {
        self.rest = self.rest.trim_ascii_start();
        self.rest.first().copied()
    }

    fn skip(&mut self, count: usize) {
        self.rest = self.rest.get(count..).unwrap_or_default();
    }

    fn value(&mut self) {
        match self.peek() {
            Some(b'{') => self.object(),
            Some(b'[') => self.list(),
            Some(b'"') => {
                self.text();
            }
            _ => {
                let ends = |b: &u8| b",]}".contains(b) || b.is_ascii_whitespace();
                let end = self.rest.iter().position(ends);
                self.skip(end.unwrap_or(usize::MAX));
            }
        }
    }

    fn object(&mut self) {
        self.skip(1);
        let mut names: Map<String, Value> = Map::new();
        loop {
            match self.peek() {
                Some(b'"') => {
                    let name = self.text();
                    if self.peek() == Some(b':') {
                        self.skip(1);
                    }
                    self.path.push(Step::Field(name.clone()));
                    if names.insert(name, Value::Null).is_some() {
                        self.report();
                    }
                    self.value();
                    self.path.pop();
                }
                Some(b',') => self.skip(1),
                _ => return self.skip(1),
            }
        }
    }

    fn list(&mut self) {
        self.skip(1);
        let mut index = 0_usize;
        loop {
            match self.peek() {
                Some(b',') => self.skip(1),
                None | Some(b']' | b'}') => return self.skip(1),
                Some(_) => {
                    self.path.push(Step::Index(index));
                    self.value();
                    self.path.pop();
                    index = index.saturating_add(1);
                }
            }
        }
    }

    /// Reads a string and decodes its escapes.
    fn text(&mut self) -> String {
        let mut is_escaped = false;
        let ends = |byte: &u8| {
            let ends = *byte == b'"' && !is_escaped;
            is_escaped = *byte == b'\\' && !is_escaped;
            ends
        };
        let end = self.rest.iter().skip(1).position(ends);
        let len = end.map_or(usize::MAX, |end| end.saturating_add(2));
        let text = self.rest.get(..len).unwrap_or(self.rest);
        let value: Value = serde_json::from_slice(text).unwrap_or_default();
        self.skip(len);
        match value {
            Value::String(text) => text,
            _ => String::new(),
        }
    }

    fn report(&mut self) {
        if self.found.len() < MAX_DUPLICATES {
            let path = Path::from(self.path.clone());
            let problem = Problem::error(path, &Value::Null, "duplicate field");
            self.found.push(Problem {
                at_name: true,
                ..problem.allowed("each name once")
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;
    use alloc::string::ToString;

    use super::*;

    /// Returns the paths of the duplicate fields.
    fn duplicates(text: &str) -> Vec<String> {
        match parse_json(text.as_bytes()) {
            Ok(_) => Vec::new(),
            Err(JsonError::Duplicates(found)) => found
                .iter()
                .map(|problem| problem.path.to_string())
                .collect(),
            Err(JsonError::Invalid(error)) => panic!("{text}: {error}"),
        }
    }

    #[test]
    fn duplicates_are_found_at_any_depth() {
        for (text, places) in [
            (r#"{"a":1,"a":2}"#, &["a"][..]),
            (
                r#" { "a" : [ { "b" : 1 , "c" : { "d" : 1 , "d" : 1 } } ] } "#,
                &["a[0].c.d"],
            ),
            (r#"[{"a":1},{"a":1,"b":{},"a":{}}]"#, &["[1].a"]),
            // The second `a` replaces the first, including its nested fields.
            (r#"{"a":{"b":1,"c":2},"a":null}"#, &["a"]),
            (r#"{"a":null,"a":{"b":1,"b":2}}"#, &["a", "a.b"]),
            // Names that are equal once their escapes have been decoded.
            (r#"{"a":1,"\u0061":2}"#, &["a"]),
            (r#"{"\\":1,"\u005c":2}"#, &["\\"]),
            (r#"{"\"":1,"\"":2}"#, &["\""]),
            (r#"{"":1,"":2,"":3}"#, &["", ""]),
        ] {
            assert_eq!(duplicates(text), places, "{text}");
        }
    }

    #[test]
    fn other_texts_are_read() {
        for text in [
            r#"{"a":":","b":"\":\"","c":[":",{"a":1}],"d":{"a":{"a":{}}}}"#,
            r#"["a","a",1,1,null,true,-1.5e3]"#,
            r#"{"a\\":1,"a":2,"a\"":":"}"#,
            "{}",
            "\"a:b\"",
            "7",
        ] {
            let value: Value = serde_json::from_str(text).expect("JSON");
            assert_eq!(parse_json(text.as_bytes()).expect(text), value);
        }
        for text in ["", "{", "{\"a\":1,}", "{\"a\":1} x", "\u{fffd}"] {
            assert!(matches!(
                parse_json(text.as_bytes()),
                Err(JsonError::Invalid(_))
            ));
        }
    }

    #[test]
    fn the_report_is_short() {
        let many = format!("{{{}\"a\":0}}", "\"a\":0,".repeat(9_000));
        assert_eq!(duplicates(&many).len(), MAX_DUPLICATES);
        let deep = format!("{}{{\"a\":1,\"a\":1}}{}", "[".repeat(100), "]".repeat(100));
        assert_eq!(duplicates(&deep), ["[0]".repeat(100) + ".a"]);
    }
}
