//! Finds Loudou configurations in an Envoy file: a bootstrap, a file of discovered resources, a
//! config dump, or a fragment of one of these.
//!
//! Each configuration becomes a separate [`Document`], whose positions refer to the whole file.

use loudou_rules::config::{self, Path};
use serde::de::IgnoredAny;
use serde_json::{Map, Value};

use super::configuration::{Configuration, Object, Place};
use super::kind::Kind;
use super::proto::{get, short, text, type_of};
use super::read_as;
use super::tree::{Document, Fault, Inside, Position};

/// Maximum length of a listener or filter name in a title, in characters.
const MAX_NAME: usize = 100;
/// Title size in bytes at which no further filter names are added.
const MAX_TITLE: usize = 1_000;
/// Type of an HTTP filter that runs a Wasm module.
const WASM: &str = "envoy.extensions.filters.http.wasm.v3.Wasm";
/// Type of an HTTP filter that runs a native (dynamic) module.
const MODULE: &str = "envoy.extensions.filters.http.dynamic_modules.v3.DynamicModuleFilter";
/// Types of HTTP filters that answer CORS preflights, or refuse them because preflights carry no
/// credentials.
const ANSWER_PREFLIGHTS: [&str; 3] = [
    "envoy.extensions.filters.http.cors.v3.Cors",
    "envoy.extensions.filters.http.api_key_auth.v3.ApiKeyAuth",
    "envoy.extensions.filters.http.basic_auth.v3.BasicAuth",
];
/// Types that wrap the fields of another type.
const TYPED_STRUCT: &[&str] = &["udpa.type.v1.TypedStruct", "xds.type.v3.TypedStruct"];
const STRUCT: &str = "google.protobuf.Struct";
const STRING: &str = "google.protobuf.StringValue";
/// Word that identifies a Loudou filter in a name, a `vm_id` or a module path.
const OURS: &str = "loudou";

/// Returns all Loudou configurations in an Envoy file, in file order, or an error if the file
/// contains none.
pub fn configurations(file: &Document) -> Result<Vec<Configuration>, Fault> {
    let mut search = Search::new(file);
    search.visit(&file.value, &Path::root(), Listener::default());
    if search.found.is_empty() {
        return Err(Fault::error(Position::default(), none(search.others)));
    }
    Ok(search.found)
}

fn none(others: usize) -> String {
    let others = match others {
        0 => String::new(),
        1 => "; the file has 1 other wasm filter".to_owned(),
        n => format!("; the file has {n} other wasm filters"),
    };
    format!(
        "no Loudou filter in this Envoy file: expected `typed_config` of type {WASM} or {MODULE} with `{OURS}` in its \
         name, its vm_id or the path of its module, or with rules in its configuration{others}"
    )
}

/// State of a search for Loudou configurations in a file.
pub(super) struct Search<'a> {
    pub(super) file: &'a Document,
    /// Kubernetes object that contains the part being searched.
    object: Option<Object>,
    pub(super) found: Vec<Configuration>,
    /// Number of Wasm filters other than Loudou.
    pub(super) others: usize,
    /// True if an earlier filter in the current list answers or refuses CORS preflights.
    is_without_preflights: bool,
}

/// Innermost listener that contains the value being searched.
#[derive(Clone, Copy, Default)]
struct Listener<'a> {
    name: Option<&'a str>,
    path: Option<&'a Path>,
}

impl<'a> Search<'a> {
    pub(super) const fn new(file: &'a Document) -> Self {
        Self {
            file,
            object: None,
            found: Vec::new(),
            others: 0,
            is_without_preflights: false,
        }
    }

    /// Searches a part of the Envoy configuration that a Kubernetes object patches in. The part can
    /// be anything from a listener to the rules alone.
    pub(super) fn patch(&mut self, object: &Object, value: &Value, path: &Path) {
        self.object = Some(object.clone());
        if let Some((config, inner)) = plugin(value, path) {
            self.filter(config, &inner, (Listener::default(), None));
        } else if looks_like_rules(value) {
            let content = path.clone();
            let plugin = Path::root();
            let place = self.place(content, plugin, Listener::default());
            let title = format!("{object}, {} role", role(Some(value)));
            self.keep(title, Ok(self.file.part(value, path)), place);
        } else {
            self.visit(value, path, Listener::default());
        }
        self.object = None;
    }

    /// Searches a value recursively. The parser limits the nesting depth of a document, which
    /// bounds the recursion.
    fn visit(&mut self, value: &Value, path: &Path, listener: Listener<'_>) {
        match value {
            Value::Array(values) => {
                let outside = self.is_without_preflights;
                for (index, value) in values.iter().enumerate() {
                    self.visit(value, &path.index(index), listener);
                    self.is_without_preflights |= ends_preflights(value);
                }
                self.is_without_preflights = outside;
            }
            Value::Object(fields) => {
                let name = text(fields, "name");
                let is_listener = ["filter_chains", "default_filter_chain"];
                let is_listener = is_listener.iter().any(|field| get(fields, field).is_some());
                let own = Listener {
                    name,
                    path: Some(path),
                };
                let listener = if is_listener { own } else { listener };
                if let Some((field, typed)) = get(fields, "typed_config")
                    && let Some((config, inner)) = plugin(typed, &path.field(field))
                {
                    self.filter(config, &inner, (listener, name));
                    return;
                }
                for (name, value) in fields {
                    self.visit(value, &path.field(name), listener);
                }
            }
            _ => {}
        }
    }

    /// Adds the configuration of a filter that runs a module, if that module is Loudou.
    fn filter(
        &mut self,
        config: &Map<String, Value>,
        path: &Path,
        (listener, name): (Listener<'_>, Option<&str>),
    ) {
        let payload = get(config, "configuration").or_else(|| get(config, "filter_config"));
        let content =
            payload.and_then(|(_, payload)| Some((payload, get(payload.as_object()?, "value")?.1)));
        let parsed = content.and_then(|(_, value)| match value {
            Value::String(text) => serde_json::from_str(text).ok(),
            value => Some(value.clone()),
        });
        let is_ours = places(config).into_iter().chain(name).any(is_our_name);
        if !is_ours && !parsed.as_ref().is_some_and(looks_like_rules) {
            self.others = self.others.saturating_add(1);
            return;
        }
        let role = role(parsed.as_ref());
        let short = |name: &str| -> String { name.chars().take(MAX_NAME).collect() };
        let object = self.object.as_ref();
        let parents = object.map(|object| format!("{object}, ")).into_iter();
        let parents = parents.chain(
            listener
                .name
                .map(|name| format!("listener {}, ", short(name))),
        );
        let title = format!(
            "{}filter {}, {role} role",
            parents.collect::<String>(),
            name.map_or_else(|| "without a name".to_owned(), short)
        );
        let inner = match (payload, content) {
            (Some((field, _)), Some(_)) => path.field(field).field("value"),
            (Some((field, _)), None) => path.field(field),
            (None, _) => path.clone(),
        };
        let at = self.file.locate(&inner, false);
        let document = self.document(content, &inner, at);
        let place = self.place(inner, path.clone(), listener);
        self.keep(title, document, place);
    }

    fn place(&self, content: Path, plugin: Path, listener: Listener<'_>) -> Place {
        Place {
            object: self.object.clone(),
            plugin,
            content,
            listener: listener.path.cloned(),
        }
    }

    /// Adds a configuration. A configuration that several filters share through YAML aliases is
    /// added only once.
    pub(super) fn keep(&mut self, title: String, document: Result<Document, Fault>, place: Place) {
        let at = self.file.locate(&place.content, false);
        let is_without_preflights = self.is_without_preflights;
        if let Some(same) = self.found.iter_mut().find(|found| found.at == at) {
            same.is_without_preflights &= is_without_preflights;
            // The size is limited, because each alias adds the name of another filter, and names
            // can be long.
            if same.title.len() < MAX_TITLE {
                same.title = format!("{} and {title}", same.title);
            }
            return;
        }
        self.found.push(Configuration {
            title,
            document,
            is_without_preflights,
            place,
            at,
        });
    }

    fn document(
        &self,
        content: Option<(&Value, &Value)>,
        path: &Path,
        at: Position,
    ) -> Result<Document, Fault> {
        let form = format!("write it as {STRUCT}, or as JSON in a {STRING}");
        let Some((payload, value)) = content else {
            return Err(Fault::error(
                at,
                format!("no `configuration` with a `value`; {form}"),
            ));
        };
        match (type_of(payload), value) {
            (Some(STRUCT), Value::Object(_)) => Ok(self.file.part(value, path)),
            (Some(STRING), Value::String(text)) => self.json(text, path, at),
            (kind, _) => {
                let kind = kind.unwrap_or("no type");
                Err(Fault::error(
                    at,
                    format!("a configuration of {kind} is not supported; {form}"),
                ))
            }
        }
    }

    /// Parses a JSON string that Envoy passes to the module unchanged.
    fn json(&self, text: &str, path: &Path, at: Position) -> Result<Document, Fault> {
        let node = self.file.node(path);
        // If the string is a YAML block scalar, a position in the string can be converted to a
        // position in the file. `at` is the position of the block's first non-empty line.
        let block = node.is_some_and(|node| matches!(node.inside, Inside::Block));
        let empty = text.chars().take_while(|c| *c == '\n').count();
        let place = |inner: Position| {
            if !block || inner.line <= empty {
                return at;
            }
            let below = inner.line.saturating_sub(empty).saturating_sub(1);
            Position {
                line: at.line.saturating_add(below),
                column: at.column.saturating_add(inner.column).saturating_sub(1),
            }
        };
        if let Err(error) = serde_json::from_str::<IgnoredAny>(text) {
            let inner = Position {
                line: error.line(),
                column: error.column(),
            };
            let error = error.to_string();
            let error = error.split(" at line ").next().unwrap_or_default();
            let message = format!(
                "invalid JSON, and Envoy passes a {STRING} to the filter unchanged: {error}"
            );
            return Err(Fault::error(place(inner), message));
        }
        let moved = |fault: Fault| Fault {
            position: place(fault.position),
            ..fault
        };
        let mut document = read_as(Kind::Loudou, text).map_err(moved)?;
        document.faults = document.faults.into_iter().map(moved).collect();
        document.root.move_by(&place);
        Ok(document)
    }
}

/// Returns the plugin fields of a `typed_config` that runs a module, and their path. For Wasm, these are the fields of
/// `config`. For a native module, these are the fields of the filter itself.
fn plugin<'a>(typed: &'a Value, path: &Path) -> Option<(&'a Map<String, Value>, Path)> {
    let kind = type_of(typed)?;
    let fields = typed.as_object()?;
    let (kind, fields, path) = if TYPED_STRUCT.contains(&kind) {
        let (_, carried) = get(fields, "type_url")?;
        let (field, value) = get(fields, "value")?;
        (
            short(carried.as_str()?),
            value.as_object()?,
            path.field(field),
        )
    } else {
        (kind, fields, path.clone())
    };
    match kind {
        WASM => Some((fields.get("config")?.as_object()?, path.field("config"))),
        MODULE => Some((fields, path)),
        _ => None,
    }
}

/// Returns true if a filter answers or refuses CORS preflights.
fn ends_preflights(filter: &Value) -> bool {
    let typed = filter
        .as_object()
        .and_then(|fields| get(fields, "typed_config"));
    let kind = typed.and_then(|(_, typed)| type_of(typed));
    kind.is_some_and(|kind| ANSWER_PREFLIGHTS.contains(&kind))
}

/// Returns the strings in a filter's configuration that can identify Loudou, such as the file name of the module.
fn places(config: &Map<String, Value>) -> Vec<&str> {
    let vm = get(config, "vm_config").and_then(|(_, vm)| vm.as_object());
    let code = vm.and_then(|vm| vm.get("code")?.as_object());
    let local = code.and_then(|code| code.get("local")?.get("filename")?.as_str());
    let remote = code.and_then(|code| {
        let remote = code.get("remote")?.as_object()?;
        get(remote, "http_uri")?.1.get("uri")?.as_str()
    });
    let module = get(config, "dynamic_module_config").and_then(|(_, module)| module.as_object());
    let file = module.and_then(|module| {
        module
            .get("module")?
            .get("local")?
            .get("filename")?
            .as_str()
    });
    let texts = [
        text(config, "filter_name"),
        module.and_then(|module| text(module, "name")),
        file,
        text(config, "name"),
        text(config, "root_id"),
        vm.and_then(|vm| text(vm, "vm_id")),
        local,
        remote,
    ];
    texts.into_iter().flatten().collect()
}

/// Returns true if `name` contains `loudou`, regardless of case.
pub(super) fn is_our_name(name: &str) -> bool {
    name.to_ascii_lowercase().contains(OURS)
}

/// Returns the name of the role that a configuration selects. Without a parsed configuration, this
/// is the data role.
pub(super) fn role(content: Option<&Value>) -> &'static str {
    if content.is_some_and(config::is_admin) {
        "admin"
    } else {
        "data"
    }
}

pub(super) fn looks_like_rules(value: &Value) -> bool {
    let has = |field: &str| value.get(field).is_some();
    has("version") && has("rules")
        || value
            .get("admin")
            .is_some_and(|admin| admin.get("role").is_some())
}
