//! The layout of a page: the title and warnings are above the contents, and the rule files and
//! notes below.

use loudou_replay::input::{BadLine, InputIntake};
use loudou_replay::summary::Trace;

use super::markup::{Html, group, grouped};
use crate::replay::RuleText;
use crate::replay::over_time::CALENDAR_NS;
use crate::replay::view::bad_lines;
use crate::table::{Cell, Paint, Set, TextTable};
use loudou_words::text::{counted, date, humanise};

const STYLE: &str = include_str!("style.css");
/// Maximum number of input files that are listed.
const INPUTS: usize = 100;
/// Maximum number of characters of a rule file that are shown.
const FILE_CHARS: usize = 100_000;
/// Maximum number of lines of a rule file that is expanded initially. A longer file is collapsed
/// until the user clicks on it.
const FILE_LINES: usize = 60;

/// The parts of a page other than its main contents.
pub(crate) struct Page<'a> {
    pub(crate) kind: &'static str,
    /// Name of the trace.
    pub(crate) name: &'a str,
    pub(crate) facts: &'a [(&'static str, String)],
    pub(crate) inputs: &'a [InputIntake],
    pub(crate) warnings: &'a [String],
    pub(crate) notes: &'a [String],
    pub(crate) bad_lines: (u64, &'a [BadLine]),
    pub(crate) files: &'a [RuleText],
}

/// Returns the properties of a trace, as names and values.
pub(crate) fn facts(trace: &Trace) -> Vec<(&'static str, String)> {
    let mut facts = vec![("Requests", grouped(trace.requests))];
    facts.extend(times(trace.first_ns.zip(trace.last_ns)));
    facts.extend(trace.format.map(|format| ("Format", format.to_owned())));
    if trace.edits > 0 {
        facts.push(("Edits of rules", grouped(trace.edits)));
    }
    facts
}

/// Returns the start, end and duration of a trace, as names and values. `span_ns` contains the
/// times of the first and last request.
pub(crate) fn times(span_ns: Option<(u64, u64)>) -> Vec<(&'static str, String)> {
    let mut facts = Vec::new();
    if let Some((first, last)) = span_ns {
        if first >= CALENDAR_NS {
            facts.push(("From", date(first / 1_000_000)));
            facts.push(("To", date(last / 1_000_000)));
        }
        facts.push(("Time span", humanise(last.saturating_sub(first))));
    }
    facts
}

impl Page<'_> {
    /// Returns the complete page. `contents` adds its main contents.
    pub(crate) fn write(&self, contents: impl FnOnce(&mut Html)) -> String {
        let mut html = Html::default();
        html.raw("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
        html.raw("<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n");
        html.raw(
            "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta name=\"color-scheme\" content=\"light dark\">\n",
        );
        html.element("title", &[], &format!("{} · {}", self.name, self.kind));
        html.raw("<style>\n");
        html.raw(STYLE);
        html.raw("</style>\n</head>\n<body>\n");
        self.header(&mut html);
        html.raw("<main>\n");
        if !self.warnings.is_empty() {
            warnings(&mut html, self.warnings);
        }
        contents(&mut html);
        self.rule_files(&mut html);
        if !self.notes.is_empty() {
            section(&mut html, "Notes", |html| {
                texts(html, "note", self.notes.iter().map(String::as_str));
            });
        }
        self.invalid(&mut html);
        html.raw("</main>\n<footer>Written by <code>loudou replay --output html</code>. ");
        html.raw("This file loads nothing and runs no scripts.</footer>\n</body>\n</html>\n");
        html.finish()
    }

    fn header(&self, html: &mut Html) {
        html.within("header", &[], |html| {
            html.within("p", &[("class", "kind")], |html| {
                html.raw("<b>Loudou</b> ");
                html.text(self.kind);
            });
            html.element("h1", &[], self.name);
            html.within("dl", &[], |html| {
                for (name, value) in self.facts {
                    html.within("div", &[], |html| {
                        html.element("dt", &[], name);
                        html.element("dd", &[], value);
                    });
                }
            });
            if !self.inputs.is_empty() {
                inputs(html, self.inputs);
            }
        });
    }

    fn rule_files(&self, html: &mut Html) {
        if self.files.is_empty() {
            return;
        }
        let title = match self.files {
            [_] => "Rule file",
            _ => "Rule files",
        };
        section(html, title, |html| {
            for RuleText { name, text } in self.files {
                let lines = text.lines().count();
                let is_open = [("open", "")];
                let is_open = is_open.get(..usize::from(lines <= FILE_LINES));
                html.within("details", is_open.unwrap_or_default(), |html| {
                    let lines = counted(loudou_words::num::count(lines), "line");
                    html.element("summary", &[], &format!("{name} ({lines})"));
                    code(html, text);
                });
            }
        });
    }

    fn invalid(&self, html: &mut Html) {
        let (count, first) = self.bad_lines;
        if count == 0 {
            return;
        }
        section(html, "Invalid lines", |html| {
            html.element("p", &[], &bad_lines(count));
            html.within("ul", &[("class", "lines")], |html| {
                for bad in first {
                    html.within("li", &[], |html| {
                        html.text(&bad.to_string());
                        if !bad.text.is_empty() {
                            html.element("code", &[("class", "line")], &bad.text);
                        }
                    });
                }
            });
        });
    }
}

fn warnings(html: &mut Html, warnings: &[String]) {
    let attributes = [("class", "warnings"), ("aria-label", "Warnings")];
    html.within("section", &attributes, |html| {
        let title = counted(loudou_words::num::count(warnings.len()), "warning");
        html.element("h2", &[], &format!("{title} that may change the answer"));
        texts(html, "warning", warnings.iter().map(String::as_str));
    });
}

fn inputs(html: &mut Html, files: &[InputIntake]) {
    let title = counted(loudou_words::num::count(files.len()), "file");
    html.within("details", &[], |html| {
        html.element("summary", &[], &title);
        let mut rows = TextTable::new(&[
            ("FILE", Set::Shrink),
            ("FORMAT", Set::Left),
            ("REQUESTS", Set::Right),
        ]);
        for file in files.iter().take(INPUTS) {
            let format = file.format.unwrap_or("no format");
            rows.row(vec![
                file.name.as_str().into(),
                format.into(),
                file.requests.into(),
            ]);
        }
        table(html, "Files", &rows);
        if files.len() > INPUTS {
            let more = format!("and {} more", files.len() - INPUTS);
            html.element("p", &[], &more);
        }
    });
}

/// Adds a section with a heading.
pub(crate) fn section(html: &mut Html, title: &str, contents: impl FnOnce(&mut Html)) {
    html.within("section", &[], |html| {
        html.element("h2", &[], title);
        contents(html);
    });
}

/// Adds a list of strings.
pub(crate) fn texts<'a>(
    html: &mut Html,
    class: &'static str,
    texts: impl Iterator<Item = &'a str>,
) {
    html.within("ul", &[("class", class)], |html| {
        for text in texts {
            html.element("li", &[], &capital(text));
        }
    });
}

/// Adds lines of code.
pub(crate) fn code(html: &mut Html, text: &str) {
    html.within("pre", &[("tabindex", "0")], |html| {
        let shown: String = text.chars().take(FILE_CHARS).collect();
        for line in shown.lines() {
            html.text(&line.replace('\t', "    "));
            html.raw("\n");
        }
        if shown.len() < text.len() {
            html.raw("… the rest is left out\n");
        }
    });
}

/// Adds a table. If the page is too narrow for the table, the table can be scrolled.
pub(crate) fn table(html: &mut Html, name: &str, table: &TextTable) {
    let columns = table.columns();
    let region = [
        ("class", "scroll"),
        ("role", "region"),
        ("tabindex", "0"),
        ("aria-label", name),
    ];
    html.within("div", &region, |html| {
        html.within("table", &[], |html| {
            html.within("thead", &[], |html| {
                html.within("tr", &[], |html| {
                    for (name, set) in columns {
                        let cell = [("scope", "col"), ("class", class_of(*set))];
                        match name.trim() {
                            "" => html.element("td", &[], ""),
                            name => html.element("th", &cell, &sentence(name)),
                        }
                    }
                });
            });
            html.within("tbody", &[], |html| {
                for cells in table.rows() {
                    html.within("tr", &[], |html| row(html, cells, columns));
                }
            });
        });
    });
}

/// Adds the cells of a row. The cell in the first column that may shrink is the row's heading.
fn row(html: &mut Html, cells: &[Cell], columns: &[(String, Set)]) {
    let heads = columns.iter().position(|(_, set)| *set == Set::Shrink);
    let empty = Cell::default();
    let cells = cells.iter().chain(std::iter::repeat(&empty));
    for (number, ((_, set), cell)) in columns.iter().zip(cells).enumerate() {
        let (text, paint) = cell.seen();
        let class = format!("{} {}", class_of(*set), paint_of(paint));
        let class = [("class", class.trim())];
        let head = [("scope", "row"), ("class", class_of(*set))];
        match set {
            _ if number == heads.unwrap_or(0) && !text.is_empty() => {
                html.element("th", &head, text);
            }
            Set::Right => html.element("td", &class, &group(text)),
            _ => html.element("td", &class, text),
        }
    }
}

const fn class_of(set: Set) -> &'static str {
    match set {
        Set::Left => "left",
        Set::Right => "right",
        Set::Shrink => "name",
    }
}

const fn paint_of(paint: Paint) -> &'static str {
    match paint {
        Paint::Plain => "",
        Paint::Heading => "strong",
        Paint::Bad => "bad",
        Paint::Warn => "warn",
        Paint::Dim => "dim",
    }
}

/// Converts the name of a column from upper case to sentence case. In HTML, headings are
/// recognisable without upper case, as in `KEYS REFUSED`.
fn sentence(name: &str) -> String {
    if name.len() < 2 || name.contains(char::is_lowercase) {
        return group(name);
    }
    capital(&name.to_lowercase())
}

/// Returns `text` with a capital first letter.
pub(crate) fn capital(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().map(char::to_uppercase);
    first.into_iter().flatten().chain(chars).collect()
}
