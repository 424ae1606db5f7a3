//! From the parser's events to a tree of values and a tree of positions.
//!
//! Iterative, with its own stack, so that a deep text cannot exhaust the thread's.

use std::collections::BTreeMap;

use loudou_rules::config::Severity;
use saphyr_parser::{Event, ScalarStyle};
use serde_json::{Map, Value};

use super::scalar::{self, Plain};
use super::{Document, Fault, Inside, MAX_DEPTH, Node, Position};

/// The most faults that are kept; a text with more has one cause.
const MAX_FAULTS: usize = 100;

/// A list or object that is not complete yet.
struct Frame {
    at: Position,
    parts: Parts,
}

enum Parts {
    List(Vec<Value>, Vec<Node>),
    Object {
        values: Map<String, Value>,
        nodes: BTreeMap<String, (Position, Node)>,
        /// The name whose value comes next.
        name: Option<(String, Position)>,
    },
}

#[derive(Default)]
pub(super) struct Builder {
    stack: Vec<Frame>,
    root: Option<(Value, Node)>,
    documents: usize,
    faults: Vec<Fault>,
}

impl Builder {
    pub(super) fn event(&mut self, event: Event<'_>, at: Position) -> Result<(), Fault> {
        match event {
            Event::DocumentStart(_) => {
                self.documents = self.documents.saturating_add(1);
                if self.documents > 1 {
                    return Err(Fault::error(
                        at,
                        "a second document; one file is one document",
                    ));
                }
            }
            Event::Alias(_) => return Err(Fault::error(at, "aliases are not read; write it out")),
            Event::Scalar(text, style, anchor, tag) => {
                refuse_extras(anchor, tag.is_some(), at)?;
                self.scalar(&text, style, at)?;
            }
            Event::SequenceStart(anchor, tag) => {
                refuse_extras(anchor, tag.is_some(), at)?;
                self.open(at, Parts::List(Vec::new(), Vec::new()))?;
            }
            Event::MappingStart(anchor, tag) => {
                refuse_extras(anchor, tag.is_some(), at)?;
                let parts = Parts::Object {
                    values: Map::new(),
                    nodes: BTreeMap::new(),
                    name: None,
                };
                self.open(at, parts)?;
            }
            Event::SequenceEnd | Event::MappingEnd => self.close(),
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => {}
        }
        Ok(())
    }

    pub(super) fn finish(self) -> Document {
        let (value, root) = self.root.unwrap_or_default();
        Document {
            value,
            faults: self.faults,
            root,
        }
    }

    fn open(&mut self, at: Position, parts: Parts) -> Result<(), Fault> {
        if self.stack.len() >= MAX_DEPTH {
            let message = format!("nested deeper than {MAX_DEPTH}");
            return Err(Fault::error(at, message));
        }
        if self.expects_name() {
            return Err(Fault::error(
                at,
                "a list or object where a field's name belongs",
            ));
        }
        self.stack.push(Frame { at, parts });
        Ok(())
    }

    fn expects_name(&self) -> bool {
        matches!(
            self.stack.last(),
            Some(Frame {
                parts: Parts::Object { name: None, .. },
                ..
            })
        )
    }

    fn close(&mut self) {
        let Some(Frame { at, parts }) = self.stack.pop() else {
            return;
        };
        let (value, inside) = match parts {
            Parts::List(values, nodes) => (Value::Array(values), Inside::List(nodes)),
            Parts::Object { values, nodes, .. } => (Value::Object(values), Inside::Object(nodes)),
        };
        self.put(value, Node { at, inside });
    }

    fn scalar(&mut self, text: &str, style: ScalarStyle, at: Position) -> Result<(), Fault> {
        if let Some(Frame {
            parts: Parts::Object { name, .. },
            ..
        }) = self.stack.last_mut()
            && name.is_none()
        {
            *name = Some((text.to_owned(), at));
            return Ok(());
        }
        let value = if matches!(style, ScalarStyle::Plain) {
            match scalar::plain(text) {
                Plain::Is(value) => value,
                Plain::Ambiguous => {
                    // Envoy would hand the filter `false` for an unquoted `off` in envoy.yaml.
                    self.fault(Fault {
                        position: at,
                        severity: Severity::Warning,
                        message: format!(
                            "`{text}` without quotes is true or false to Envoy; write \"{text}\""
                        ),
                    });
                    Value::from(text)
                }
                Plain::NotJson => {
                    return Err(Fault::error(
                        at,
                        format!("`{text}` is not a number in JSON"),
                    ));
                }
            }
        } else {
            Value::from(text)
        };
        let inside = Inside::Nothing;
        self.put(value, Node { at, inside });
        Ok(())
    }

    fn put(&mut self, value: Value, node: Node) {
        let Some(frame) = self.stack.last_mut() else {
            self.root = Some((value, node));
            return;
        };
        match &mut frame.parts {
            Parts::List(values, nodes) => {
                values.push(value);
                nodes.push(node);
            }
            Parts::Object {
                values,
                nodes,
                name,
            } => {
                let Some((name, at)) = name.take() else {
                    return;
                };
                if let Some((first, _)) = nodes.get(&name) {
                    let line = first.line;
                    let message = format!("`{name}` is given twice, first in line {line}");
                    self.fault(Fault::error(at, message));
                } else {
                    values.insert(name.clone(), value);
                    nodes.insert(name, (at, node));
                }
            }
        }
    }

    fn fault(&mut self, fault: Fault) {
        if self.faults.len() < MAX_FAULTS {
            self.faults.push(fault);
        }
    }
}

fn refuse_extras(anchor: usize, tagged: bool, at: Position) -> Result<(), Fault> {
    if anchor != 0 {
        return Err(Fault::error(at, "anchors are not read; write it out"));
    }
    if tagged {
        return Err(Fault::error(at, "tags are not read; leave the `!` out"));
    }
    Ok(())
}
