//! The output of one command at several Envoys as one list: each object and each record names its Envoy.

use std::io::{self, Write};

use super::options::Format;
use super::table::csv_field;
use loudou_words::text::json_safe;

/// The name of the field or column.
const ENVOY: &str = "envoy";

/// A list in the making, of JSON lines or of CSV.
pub(super) struct Joined {
    is_csv: bool,
    /// Whether the heading was printed, which is the same at all.
    has_heading: bool,
}

impl Joined {
    /// The list of a format that can name the Envoy in each line.
    pub(super) fn new(format: Format) -> Option<Self> {
        let is_csv = format == Format::Csv;
        (is_csv || format == Format::Jsonl).then_some(Self {
            is_csv,
            has_heading: false,
        })
    }

    /// Prints the output of an Envoy. Both formats escape the ends of lines within a value.
    pub(super) fn print(&mut self, text: &str, url: &str, out: &mut dyn Write) -> io::Result<()> {
        let mut lines = text.lines();
        if !self.is_csv {
            let url = json_safe(serde_json::to_string(url)?);
            return lines.try_for_each(|line| writeln!(out, "{}", with_field(line, &url)));
        }
        let heading = lines.next();
        if let Some(heading) = heading.filter(|_| !self.has_heading) {
            write!(out, "{ENVOY},{heading}\r\n")?;
            self.has_heading = true;
        }
        let url = csv_field(url);
        lines.try_for_each(|line| write!(out, "{url},{line}\r\n"))
    }
}

/// An object with the Envoy as its first field.
fn with_field(object: &str, url: &str) -> String {
    match object.strip_prefix('{') {
        Some("}") => format!("{{\"{ENVOY}\":{url}}}"),
        Some(fields) => format!("{{\"{ENVOY}\":{url},{fields}"),
        None => object.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(format: Format, outputs: &[(&str, &str)]) -> String {
        let mut joined = Joined::new(format).expect("a list");
        let mut out = Vec::new();
        for (url, text) in outputs {
            joined.print(text, url, &mut out).expect("writes");
        }
        String::from_utf8(out).expect("UTF-8")
    }

    #[test]
    fn each_object_names_its_envoy() {
        let outputs = [
            ("http://a", "{\"x\":1}\n{}\n"),
            ("b\"\u{1b}", "{\"x\":2}\n"),
            ("c", ""),
        ];
        assert_eq!(
            joined(Format::Jsonl, &outputs),
            "{\"envoy\":\"http://a\",\"x\":1}\n{\"envoy\":\"http://a\"}\n{\"envoy\":\"b\\\"\\u001b\",\"x\":2}\n"
        );
    }

    /// The first output may be empty, because that Envoy is away.
    #[test]
    fn records_have_one_heading() {
        let outputs = [
            ("a", ""),
            ("b", "x,y\r\n1,2\r\n"),
            ("c,d", "x,y\r\n3,4\r\n5,6\r\n"),
        ];
        assert_eq!(
            joined(Format::Csv, &outputs),
            "envoy,x,y\r\nb,1,2\r\n\"c,d\",3,4\r\n\"c,d\",5,6\r\n"
        );
    }

    #[test]
    fn other_formats_are_no_lists() {
        assert!(Joined::new(Format::Table).is_none() && Joined::new(Format::Json).is_none());
    }
}
