//! Builds the value tree and the position tree from the events of the YAML parser.
//!
//! The builder keeps its own stack instead of recursing, so a deeply nested file cannot overflow
//! the thread's stack.

use std::collections::BTreeMap;

use loudou_rules::config::Severity;
use saphyr_parser::{Event, ScalarStyle, Tag};
use serde_json::{Map, Value};

use super::kind::Kind;
use super::scalar::{self, Plain};
use super::tree::Size;
use super::tree::{Document, Fault, Inside, MAX_DEPTH, Node, Position};

/// Maximum number of faults to keep. If a file has more, they usually share one cause.
const MAX_FAULTS: usize = 100;

/// Maximum total size of all values that are copied for anchors and aliases, in bytes.
const MAX_COPIED: usize = 8 << 20;

/// A list or object whose end has not been parsed yet.
struct Frame {
    at: Position,
    /// ID of the anchor on this list or object, or 0 if it has none.
    anchor: usize,
    parts: Parts,
}

enum Parts {
    List(Vec<Value>, Vec<Node>),
    Object {
        values: Map<String, Value>,
        nodes: BTreeMap<String, (Position, Node)>,
        /// Name of the field whose value is parsed next.
        name: Option<Name>,
    },
}

struct Name {
    text: String,
    at: Position,
    /// True if Envoy ignores the field because the field only defines an anchor.
    ignored: bool,
}

/// A value with an anchor, kept for its aliases.
struct Anchored {
    value: Value,
    node: Node,
    size: Size,
}

#[derive(Default)]
pub(super) struct Builder {
    kind: Kind,
    anchors: BTreeMap<usize, Anchored>,
    copied: usize,
    stack: Vec<Frame>,
    /// Completely parsed documents. Only a Kubernetes manifest may contain more than one.
    values: Vec<Value>,
    nodes: Vec<Node>,
    documents: usize,
    faults: Vec<Fault>,
}

impl Builder {
    pub(super) fn new(kind: Kind) -> Self {
        Self {
            kind,
            ..Self::default()
        }
    }

    pub(super) fn event(&mut self, event: Event<'_>, at: Position) -> Result<(), Fault> {
        match event {
            Event::DocumentStart(_) => {
                self.documents = self.documents.saturating_add(1);
                if self.documents > 1 && self.kind != Kind::Kubernetes {
                    return Err(Fault::error(
                        at,
                        "a second document; a file must contain only one",
                    ));
                }
            }
            Event::Alias(anchor) => self.alias(anchor, at)?,
            Event::Scalar(text, style, anchor, tag) => {
                self.refuse_extras(anchor, tag.is_some(), at)?;
                self.scalar(&text, style, (anchor, tag.as_deref()), at)?;
            }
            Event::SequenceStart(anchor, tag) => {
                self.refuse_extras(anchor, tag.is_some(), at)?;
                self.open(at, anchor, Parts::List(Vec::new(), Vec::new()))?;
            }
            Event::MappingStart(anchor, tag) => {
                self.refuse_extras(anchor, tag.is_some(), at)?;
                let parts = Parts::Object {
                    values: Map::new(),
                    nodes: BTreeMap::new(),
                    name: None,
                };
                self.open(at, anchor, parts)?;
            }
            Event::SequenceEnd | Event::MappingEnd => self.close()?,
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => {}
        }
        Ok(())
    }

    fn refuse_extras(&self, anchor: usize, tagged: bool, at: Position) -> Result<(), Fault> {
        let refuse = |message: &str| Err(Fault::error(at, message));
        match self.kind {
            Kind::Loudou if anchor != 0 => refuse("anchors are not supported; repeat the value"),
            Kind::Loudou if tagged => refuse("tags are not supported; remove the `!`"),
            _ => Ok(()),
        }
    }

    pub(super) fn finish(self) -> Document {
        let (value, root) = if self.kind == Kind::Kubernetes {
            let inside = Inside::List(self.nodes);
            let at = Position::default();
            (Value::Array(self.values), Node { at, inside })
        } else {
            let value = self.values.into_iter().next();
            let root = self.nodes.into_iter().next();
            (value.unwrap_or_default(), root.unwrap_or_default())
        };
        Document {
            value,
            faults: self.faults,
            kind: self.kind,
            root,
        }
    }

    fn open(&mut self, at: Position, anchor: usize, parts: Parts) -> Result<(), Fault> {
        if self.stack.len() >= MAX_DEPTH {
            return Err(too_deep(at));
        }
        if self.expects_name() {
            return Err(no_name(at));
        }
        self.stack.push(Frame { at, anchor, parts });
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

    fn close(&mut self) -> Result<(), Fault> {
        let Some(Frame { at, anchor, parts }) = self.stack.pop() else {
            return Ok(());
        };
        let (value, inside) = match parts {
            Parts::List(values, nodes) => (Value::Array(values), Inside::List(nodes)),
            Parts::Object { values, nodes, .. } => (Value::Object(values), Inside::Object(nodes)),
        };
        let node = Node { at, inside };
        self.keep(anchor, &value, &node)?;
        self.put(value, node);
        Ok(())
    }

    /// Stores a copy of a value that has an anchor, so that aliases can refer to it.
    fn keep(&mut self, anchor: usize, value: &Value, node: &Node) -> Result<(), Fault> {
        if anchor == 0 {
            return Ok(());
        }
        let size = Size::of(value);
        self.copy(size, node.at)?;
        let (value, node) = (value.clone(), node.clone());
        self.anchors.insert(anchor, Anchored { value, node, size });
        Ok(())
    }

    fn copy(&mut self, size: Size, at: Position) -> Result<(), Fault> {
        self.copied = self.copied.saturating_add(size.bytes);
        if self.copied > MAX_COPIED {
            let message = format!("aliases expand to more than {} MiB", MAX_COPIED >> 20);
            return Err(Fault::error(at, message));
        }
        Ok(())
    }

    /// Inserts a copy of the value that an alias refers to. The copy keeps the positions of the
    /// anchored value, so problems point there.
    fn alias(&mut self, anchor: usize, at: Position) -> Result<(), Fault> {
        if self.kind == Kind::Loudou {
            let message = "aliases are not supported; repeat the value";
            return Err(Fault::error(at, message));
        }
        let Some(size) = self.anchors.get(&anchor).map(|anchored| anchored.size) else {
            return Err(Fault::error(at, "an alias inside its own anchor"));
        };
        self.copy(size, at)?;
        if self.stack.len().saturating_add(size.depth) > MAX_DEPTH {
            return Err(too_deep(at));
        }
        let Some(Anchored { value, node, .. }) = self.anchors.get(&anchor) else {
            return Ok(());
        };
        let (value, node) = (value.clone(), node.clone());
        if self.expects_name() {
            let Value::String(name) = value else {
                return Err(no_name(at));
            };
            self.name(&name, at, false);
            return Ok(());
        }
        self.put(value, node);
        Ok(())
    }

    fn name(&mut self, text: &str, at: Position, ignored: bool) {
        if let Some(Frame {
            parts: Parts::Object { name, .. },
            ..
        }) = self.stack.last_mut()
        {
            *name = Some(Name {
                text: text.to_owned(),
                at,
                ignored,
            });
        }
    }

    fn scalar(
        &mut self,
        text: &str,
        style: ScalarStyle,
        (anchor, tag): (usize, Option<&Tag>),
        at: Position,
    ) -> Result<(), Fault> {
        let is = |suffix: &str| tag.is_some_and(|tag| tag.handle == "!" && tag.suffix == suffix);
        if self.expects_name() {
            let node = Node {
                at,
                ..Node::default()
            };
            self.keep(anchor, &Value::from(text), &node)?;
            self.name(text, at, is("ignore"));
            return Ok(());
        }
        let plain = matches!(style, ScalarStyle::Plain);
        let value = match self.kind {
            _ if !plain => Value::from(text),
            Kind::Loudou => self.as_loudou(text, at)?,
            Kind::Envoy => self.as_envoy(text, at),
            Kind::Kubernetes => self.as_kubernetes(text, at),
        };
        let inside = match style {
            ScalarStyle::Literal => Inside::Block,
            _ => Inside::Nothing,
        };
        let node = Node { at, inside };
        self.keep(anchor, &value, &node)?;
        self.put(value, node);
        Ok(())
    }

    /// Returns the value of an unquoted scalar in a Loudou file.
    fn as_loudou(&mut self, text: &str, at: Position) -> Result<Value, Fault> {
        match scalar::plain(text) {
            Plain::Is(value) => Ok(value),
            Plain::Ambiguous => {
                // Warn because in an Envoy file, Envoy would convert an unquoted `off` to `false`
                // and pass that to the filter.
                self.warn_of_bool(text, at);
                Ok(Value::from(text))
            }
            Plain::NotJson => Err(Fault::error(
                at,
                format!("`{text}` is not a number in JSON"),
            )),
        }
    }

    /// Returns the value of an unquoted scalar as Envoy interprets it. Envoy also treats words such
    /// as `yes` and `off` as booleans, and reads integers that do not fit into 32 bits as strings.
    fn as_envoy(&mut self, text: &str, at: Position) -> Value {
        match scalar::plain(text) {
            Plain::Is(Value::Number(number)) => {
                let small = number.as_i64().map(i32::try_from);
                if number.is_f64() || small.is_some_and(|small| small.is_ok()) {
                    return Value::Number(number);
                }
                self.warn(
                    at,
                    format!(
                        "Envoy reads `{text}` as a string, like each number above {}",
                        i32::MAX
                    ),
                );
                Value::from(number.to_string())
            }
            Plain::Is(value) => value,
            Plain::Ambiguous => self.as_bool(text, at),
            Plain::NotJson => Value::from(text),
        }
    }

    /// Returns the value of an unquoted scalar as `kubectl` interprets it.
    fn as_kubernetes(&mut self, text: &str, at: Position) -> Value {
        match scalar::plain(text) {
            Plain::Is(value) => value,
            Plain::Ambiguous => self.as_bool(text, at),
            Plain::NotJson => Value::from(text),
        }
    }

    /// Converts a word such as `yes` or `off`, which is a boolean in YAML 1.1.
    fn as_bool(&mut self, text: &str, at: Position) -> Value {
        self.warn_of_bool(text, at);
        let lower = text.to_ascii_lowercase();
        Value::from(matches!(lower.as_str(), "y" | "yes" | "on"))
    }

    fn warn_of_bool(&mut self, text: &str, at: Position) {
        let reader = match self.kind {
            Kind::Kubernetes => "Kubernetes",
            Kind::Loudou | Kind::Envoy => "Envoy",
        };
        self.warn(
            at,
            format!("`{text}` without quotes is true or false to {reader}; write \"{text}\""),
        );
    }

    fn warn(&mut self, position: Position, message: String) {
        self.fault(Fault {
            position,
            severity: Severity::Warning,
            message,
        });
    }

    fn put(&mut self, value: Value, node: Node) {
        let Some(frame) = self.stack.last_mut() else {
            self.values.push(value);
            self.nodes.push(node);
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
                let Some(Name { text, at, ignored }) = name.take() else {
                    return;
                };
                if ignored {
                    return;
                }
                let first = nodes.get(&text).map(|(first, _)| first.line);
                let merges = self.kind == Kind::Envoy && text == "<<";
                // If a field is duplicated, Envoy uses the last value.
                if first.is_none() || self.kind == Kind::Envoy {
                    values.insert(text.clone(), value);
                    nodes.insert(text.clone(), (at, node));
                }
                if let Some(line) = first {
                    let message = format!("duplicate `{text}`, first in line {line}");
                    self.fault(Fault::error(at, message));
                }
                if merges {
                    let message = "Envoy does not support `<<` merges; repeat the fields";
                    self.warn(at, message.to_owned());
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

fn too_deep(at: Position) -> Fault {
    Fault::error(at, format!("nested deeper than {MAX_DEPTH}"))
}

fn no_name(at: Position) -> Fault {
    Fault::error(at, "expected a field name, found a list or object")
}
