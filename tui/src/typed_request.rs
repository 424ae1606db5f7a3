//! A request that the user describes to have it explained. The request can be converted to the
//! admin API's format, and to the equivalent command line.

use clap::Args;
use serde_json::{Map, Value, json};

use loudou_client::command_line::CommandLine;
use loudou_words::num::typed;

/// The request. If a part is absent, the default of the admin API applies.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TypedRequest {
    /// The method [default: GET]
    #[arg(short = 'X', long, value_name = "METHOD")]
    pub(crate) method: Option<String>,
    /// The path, including any query [default: /]
    #[arg(long, value_name = "PATH")]
    pub(crate) path: Option<String>,
    /// The host, including any port
    #[arg(long, value_name = "HOST")]
    pub(crate) host: Option<String>,
    /// A header, as for curl; repeat for more
    ///
    /// If a name is repeated, the first header counts
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE", value_parser = header)]
    pub(crate) headers: Vec<(String, String)>,
    /// The client address that Envoy trusts
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) source: Option<String>,
    /// Name of the Envoy route
    #[arg(long, value_name = "NAME")]
    pub(crate) route: Option<String>,
    /// Name of the Envoy cluster, the upstream
    #[arg(long, value_name = "NAME")]
    pub(crate) cluster: Option<String>,
    /// A value in Envoy's dynamic metadata
    ///
    /// Dots separate the segments of its path. Repeat the option for the elements of a list
    #[arg(long, value_name = "PATH=VALUE", value_parser = metadata)]
    pub(crate) metadata: Vec<(String, String)>,
    /// Name in the client certificate
    #[arg(long, visible_alias = "peer", value_name = "NAME")]
    pub(crate) client_cert: Option<String>,
    /// The cost of the request, instead of the rules'
    #[arg(long, value_name = "N", value_parser = typed::<u64>, allow_hyphen_values = true)]
    pub(crate) cost: Option<u64>,
}

/// Parses `NAME: VALUE`.
pub(crate) fn header(text: &str) -> Result<(String, String), String> {
    // A leading colon, as in `:scheme`, belongs to the name.
    let bare = text.strip_prefix(':').unwrap_or(text);
    let (name, value) = bare
        .split_once(':')
        .filter(|(name, _)| !name.is_empty())
        .ok_or_else(|| "invalid header; write it like 'x-user-id: alice'".to_owned())?;
    let colon = if bare.len() < text.len() { ":" } else { "" };
    Ok((format!("{colon}{}", name.trim()), value.trim().to_owned()))
}

/// Parses `PATH=VALUE`.
pub(crate) fn metadata(text: &str) -> Result<(String, String), String> {
    let (path, value) = text
        .split_once('=')
        .filter(|(path, _)| !path.is_empty())
        .ok_or_else(|| {
            "invalid metadata; write it like envoy.filters.http.jwt_authn.payload.sub=alice"
                .to_owned()
        })?;
    Ok((path.to_owned(), value.to_owned()))
}

impl TypedRequest {
    /// Returns the request in the admin API's format.
    pub(crate) fn json(&self) -> Value {
        let mut sample = Map::new();
        let mut headers = Map::new();
        let mut host = self.host.clone();
        for (name, value) in &self.headers {
            if name.eq_ignore_ascii_case("host") && host.is_none() {
                host = Some(value.clone());
                continue;
            }
            let values = headers.entry(name.clone()).or_insert_with(|| json!([]));
            if let Value::Array(values) = values {
                values.push(json!(value));
            }
        }
        let mut metadata = Map::new();
        for (path, value) in &self.metadata {
            let values = metadata.entry(path.clone()).or_insert_with(|| json!([]));
            if let Value::Array(values) = values {
                values.push(json!(value));
            }
        }
        for value in metadata.values_mut() {
            if let Value::Array(values) = value
                && let [only] = values.as_mut_slice()
            {
                *value = only.take();
            }
        }
        let texts = [
            ("method", &self.method),
            ("path", &self.path),
            ("host", &host),
            ("source", &self.source),
            ("route", &self.route),
            ("cluster", &self.cluster),
            ("client_cert", &self.client_cert),
        ];
        let texts = texts
            .into_iter()
            .filter_map(|(name, text)| Some((name, json!(text.as_ref()?))));
        let objects = [("headers", headers), ("metadata", metadata)]
            .into_iter()
            .filter(|(_, object)| !object.is_empty())
            .map(|(name, object)| (name, Value::Object(object)));
        let cost = self.cost.map(|cost| ("cost", json!(cost)));
        for (name, value) in texts.chain(objects).chain(cost) {
            sample.insert(name.to_owned(), value);
        }
        Value::Object(sample)
    }

    /// Returns the method and the path: `POST /reply`.
    pub(crate) fn title(&self) -> String {
        let method = self.method.as_deref().unwrap_or("GET");
        format!("{method} {}", self.path.as_deref().unwrap_or("/"))
    }

    /// Returns the command line that explains the request.
    pub(crate) fn command(&self, url: Option<&str>) -> String {
        let texts = [
            ("-X", &self.method),
            ("--path", &self.path),
            ("--host", &self.host),
            ("--source", &self.source),
            ("--route", &self.route),
            ("--cluster", &self.cluster),
            ("--client-cert", &self.client_cert),
        ];
        let mut line = CommandLine::new("explain");
        for (name, text) in texts {
            line = line.option(name, text.as_deref().unwrap_or_default());
        }
        for (name, value) in &self.headers {
            line = line.option("-H", &format!("{name}: {value}"));
        }
        for (path, value) in &self.metadata {
            line = line.option("--metadata", &format!("{path}={value}"));
        }
        let cost = self.cost.map(|cost| cost.to_string());
        line.option("--cost", &cost.unwrap_or_default())
            .at(url)
            .text()
    }
}
