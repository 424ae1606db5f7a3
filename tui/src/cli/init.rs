//! Implements `loudou init`, which writes a first configuration with one rule, and prints the
//! commands that run it.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use clap::{Args, ValueEnum};
use rustix::rand::{GetRandomFlags, getrandom};
use sha2::{Digest as _, Sha256};

use super::context::Context;
use super::outcome::Outcome;
use loudou_client::command_line::quoted;
use loudou_words::text::escape;

const EXAMPLES: &str = "\
Examples:
  loudou init                                     envoy.yaml for an Envoy on this machine
  loudou init --for istio                         a WasmPlugin for an ingress gateway
  loudou init --for envoy-gateway --image ghcr.io/me/loudou/filter:0.1.0    a policy with your image";

/// File name of the module in releases.
pub(super) const MODULE: &str = "loudou_filter.wasm";
const IMAGE: &str = concat!(
    "registry.example.com/loudou/filter:",
    env!("CARGO_PKG_VERSION")
);
const RULES: &str = include_str!("init/rules.yaml");

#[derive(Debug, Args)]
#[command(before_long_help = EXAMPLES)]
pub(crate) struct InitArgs {
    /// envoy, istio or envoy-gateway [default: envoy]
    #[arg(
        long = "for",
        value_enum,
        default_value_t = Proxy::Envoy,
        value_name = "PROXY",
        hide_default_value = true,
        hide_possible_values = true
    )]
    pub(crate) proxy: Proxy,
    /// Path of the module for Envoy
    ///
    /// Envoy looks for it from the folder in which Envoy starts. The default is `loudou_filter.wasm`.
    #[arg(long, value_name = "FILE")]
    pub(crate) module: Option<String>,
    /// Image of the module for Istio and Envoy Gateway
    ///
    /// The default is a placeholder, because no image is published yet.
    #[arg(long, value_name = "IMAGE")]
    pub(crate) image: Option<String>,
    /// Replace an existing file
    #[arg(long)]
    pub(crate) force: bool,
    /// Folder of the file
    #[arg(default_value = ".", value_name = "DIR")]
    pub(crate) folder: PathBuf,
}

/// Kind of proxy for which the configuration is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Proxy {
    /// An Envoy with a configuration file
    Envoy,
    /// Istio, at an ingress gateway
    Istio,
    /// Envoy Gateway
    EnvoyGateway,
}

impl Proxy {
    const fn file(self) -> &'static str {
        match self {
            Self::Envoy => "envoy.yaml",
            Self::Istio | Self::EnvoyGateway => "loudou.yaml",
        }
    }

    pub(super) const fn template(self) -> &'static str {
        match self {
            Self::Envoy => include_str!("init/envoy.yaml"),
            Self::Istio => include_str!("init/istio.yaml"),
            Self::EnvoyGateway => include_str!("init/envoy-gateway.yaml"),
        }
    }

    /// Returns the number of columns by which the rules are indented in the file.
    const fn margin(self) -> usize {
        match self {
            Self::Envoy => 28,
            Self::Istio => 4,
            Self::EnvoyGateway => 8,
        }
    }

    /// Returns the text of the file with these rules.
    pub(super) fn configuration(self, rules: &str, module: &str, image: &str) -> String {
        self.filled(self.template(), rules, module, image)
    }

    /// Returns a template for this proxy with these rules.
    pub(super) fn filled(self, template: &str, rules: &str, module: &str, image: &str) -> String {
        let margin = " ".repeat(self.margin());
        let rules = rules.lines().map(|line| format!("{margin}{line}\n"));
        let text = template.replace("@MODULE@", module);
        let text = text.replace("@IMAGE@", image);
        text.replace("@RULES@\n", &rules.collect::<String>())
    }

    /// Returns the commands that apply the configuration file and open the screen.
    fn commands(self, file: &str, token: &str) -> [String; 3] {
        let screen =
            format!("LOUDOU_URL=http://127.0.0.1:8080/.loudou LOUDOU_TOKEN={token} loudou");
        match self {
            Self::Envoy => [
                format!("envoy --config-path {file}"),
                "curl -s -o /dev/null -w '%{http_code}\\n' 'http://127.0.0.1:8080/[1-20]'".to_owned(),
                screen,
            ],
            Self::Istio => [
                format!("kubectl apply -f {file}"),
                "kubectl -n ingress port-forward deploy/public-istio 8080:80".to_owned(),
                screen,
            ],
            Self::EnvoyGateway => [
                format!("kubectl apply -f {file}"),
                "kubectl -n envoy-gateway-system port-forward $(kubectl -n envoy-gateway-system get pod -o name -l \
                 gateway.envoyproxy.io/owning-gateway-name=public | head -1) 8080:10080"
                    .to_owned(),
                screen,
            ],
        }
    }

    /// Returns the steps that the user must take before the commands work.
    fn notes(self, module: &str, image: &str) -> Vec<String> {
        let mut notes = Vec::new();
        if self == Self::Envoy {
            // The printed command starts Envoy in the current folder, so a relative path is checked
            // from here.
            if !Path::new(module).is_file() {
                notes.push(format!(
                    "{} is missing: copy the module there, or name it with --module. `cargo xtask build` builds it",
                    escape(module)
                ));
            }
        } else {
            notes.push("set the namespace and the name of your gateway in the file".to_owned());
            if image.starts_with("registry.example.com/") {
                notes.push(format!("replace {image}: no image is published yet"));
            }
        }
        notes
    }
}

pub(super) fn run(context: &mut Context<'_, '_>, args: &InitArgs) -> Result<Outcome> {
    context.only_text()?;
    let is_envoy = args.proxy == Proxy::Envoy;
    let unused = if is_envoy {
        args.image
            .as_ref()
            .map(|_| "--image is for Istio and Envoy Gateway; Envoy takes --module")
    } else {
        args.module
            .as_ref()
            .map(|_| "--module is for Envoy; Istio and Envoy Gateway take --image")
    };
    if let Some(unused) = unused {
        bail!(super::world::Usage(unused.to_owned()));
    }
    let module = args.module.as_deref().unwrap_or(MODULE);
    let image = args.image.as_deref().unwrap_or(IMAGE);
    for (option, value) in [("--module", module), ("--image", image)] {
        no_escape(option, value)?;
    }
    if image.contains("://") || image.contains(char::is_whitespace) {
        bail!(super::world::Usage(format!(
            "--image: {:?}; allowed: an image without a scheme, such as registry.example.com/loudou/filter:0.1.0",
            escape(image)
        )));
    }
    let token = token()?;
    let rules = RULES.replace("@HASH@", &hash(&token));
    let text = args.proxy.configuration(&rules, module, image);
    let path = args.folder.join(args.proxy.file());
    write(&path, &text, args.force)?;
    let shown = escape(&path.display().to_string()).into_owned();
    let out = &mut context.io.out;
    writeln!(
        out,
        "wrote {shown}: 15 requests at once from each address, and then one every two seconds"
    )?;
    writeln!(
        out,
        "The token of the admin API is {token}. The file has only its hash."
    )?;
    for note in args.proxy.notes(module, image) {
        writeln!(out, "note: {note}")?;
    }
    writeln!(out)?;
    let file = quoted(&path.display().to_string());
    for command in args.proxy.commands(&file, &token) {
        writeln!(out, "  {command}")?;
    }
    Ok(Outcome::Done)
}

/// Fails for an empty value, or for one with characters that a string in YAML would need to escape.
pub(super) fn no_escape(option: &str, value: &str) -> Result<()> {
    if value.chars().any(|c| c.is_control() || "\"\\".contains(c)) {
        bail!(super::world::Usage(format!(
            "{option}: {:?} has a character that YAML would need to escape",
            escape(value)
        )));
    }
    if value.trim().is_empty() {
        bail!(super::world::Usage(format!("{option} is empty")));
    }
    Ok(())
}

/// Returns the SHA-256 of a token, as a rule file contains it.
pub(super) fn hash(token: &str) -> String {
    hex(&Sha256::digest(token))
}

/// Returns a token of 128 random bits, in hexadecimal.
pub(super) fn token() -> Result<String> {
    let mut bytes = [0; 16];
    let filled = getrandom(&mut bytes, GetRandomFlags::empty());
    let filled = filled.context("the system has no random bytes for a token")?;
    if filled < bytes.len() {
        bail!("the system has no random bytes for a token");
    }
    Ok(hex(&bytes))
}

fn hex(bytes: &[u8]) -> String {
    let digits = bytes.iter().map(|byte| format!("{byte:02x}"));
    digits.collect()
}

/// Writes a file that only its owner can modify. Replaces an existing file only if `force` is true.
fn write(path: &Path, text: &str, force: bool) -> Result<()> {
    let shown = escape(&path.display().to_string()).into_owned();
    let mut options = OpenOptions::new();
    options.write(true).mode(0o644);
    if force {
        options.create(true).truncate(true);
    } else {
        options.create_new(true);
    }
    let file = options.open(path);
    if file.is_err() && !force && fs::symlink_metadata(path).is_ok() {
        bail!("{shown} exists: name another folder, or replace it with --force");
    }
    let mut file = file.with_context(|| format!("cannot write {shown}"))?;
    file.write_all(text.as_bytes())
        .with_context(|| format!("cannot write {shown}"))
}
