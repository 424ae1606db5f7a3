//! Determines the address, token, TLS settings and proxy of a command's calls from the options, the
//! environment and the config file.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, Metadata};
use std::io::{self, Read as _};
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Error, Result, bail};
use loudou_rules::config::nearest;

use super::options::ConnectArgs;
use super::world::{Env, Usage};
use crate::config::NamedTarget;
use loudou_client::{
    BAD_TOKEN, ClientError, PORTS, Pem, Target, Tls, check_address, is_in_the_clear, is_port,
    is_token,
};
use loudou_words::text::{escape, meant};

/// Maximum size of a file with a token, a key or certificates, in bytes.
const MAX_FILE: u64 = 1 << 20;
/// Permission bits of the group and of others.
const FOREIGN: u32 = 0o077;
const FOREIGN_WRITE: u32 = 0o022;

/// Returns the target for an address, and warnings if others may read its token or its private key.
pub(super) fn read(
    Address {
        url,
        server_name,
        named,
    }: &Address,
    args: &ConnectArgs,
    env: &Env,
) -> Result<(Target, Vec<String>)> {
    let mut warnings = Vec::new();
    // Options and the environment take precedence over the target in the config file.
    let named = named.as_ref();
    let or_named = |typed: &Option<PathBuf>, of: fn(&NamedTarget) -> &Option<PathBuf>| {
        typed
            .clone()
            .or_else(|| named.and_then(|named| of(named).clone()))
    };
    let tls_ca = or_named(&args.tls_ca, |named| &named.tls_ca);
    let tls_cert = or_named(&args.tls_cert, |named| &named.tls_cert);
    let tls_key = or_named(&args.tls_key, |named| &named.tls_key);
    let tls_name = args.tls_name.clone();
    let tls_name = tls_name.or_else(|| named.and_then(|named| named.tls_name.clone()));
    let client = match (&tls_cert, &tls_key) {
        (None, None) => None,
        (Some(cert), Some(key)) => Some((
            pem(cert, read_file(cert)?.0),
            pem(key, private(key, &mut warnings)?),
        )),
        (Some(_), None) => bail!(Usage("--tls-cert needs --tls-key".to_owned())),
        (None, Some(_)) => bail!(Usage("--tls-key needs --tls-cert".to_owned())),
    };
    let ca = tls_ca.as_deref();
    let ca = ca
        .map(|ca| Ok::<_, Error>(pem(ca, read_file(ca)?.0)))
        .transpose()?;
    let target = Target {
        url: url.clone(),
        token: token(args.token_file.as_deref(), named, env, &mut warnings)?,
        tls: Tls {
            ca,
            client,
            server_name: tls_name.or_else(|| server_name.clone()),
        },
        proxy: proxy(url, env),
    };
    if target.token.is_some() && is_in_the_clear(url) {
        warnings.push(format!(
            "the token goes over the network in the clear to {}; use https:// or unix:",
            escape(url)
        ));
    }
    Ok((target, warnings))
}

/// Address of an Envoy to watch.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Address {
    pub(super) url: String,
    /// Name in the server's certificate, if it is not the host of the URL.
    pub(super) server_name: Option<String>,
    /// Target in the config file to which the address belongs.
    pub(super) named: Option<NamedTarget>,
}

/// URL prefix that selects all addresses of the host name.
const ALL_OF: &str = "dns:";

/// Resolves a URL to the addresses of one or more Envoys. The host name of a `dns:` URL is looked
/// up now, and yields one Envoy for each IP address. `@NAME` yields the Envoys of a target in the
/// config file.
pub(super) fn resolved(url: &str, named: &BTreeMap<String, NamedTarget>) -> Result<Vec<Address>> {
    let one = |url: &str, server_name: Option<&str>| Address {
        url: url.to_owned(),
        server_name: server_name.map(ToOwned::to_owned),
        named: None,
    };
    if let Some(name) = url.strip_prefix('@') {
        let target = of_name(name, named)?;
        let mut all = Vec::new();
        for url in &target.url {
            // The URLs of a target may be `dns:` URLs, but cannot name other targets.
            all.extend(resolved(url, &BTreeMap::new())?);
        }
        for address in &mut all {
            address.named = Some(target.clone());
        }
        return Ok(all);
    }
    let Some(typed) = url.strip_prefix(ALL_OF) else {
        return Ok(vec![one(url, None)]);
    };
    let parts = typed
        .split_once("://")
        .filter(|(scheme, _)| ["http", "https"].contains(scheme));
    let Some((scheme, rest)) = parts else {
        bail!(Usage(format!(
            "invalid URL {}; write it like dns:http://envoys.example.com:9911",
            escape(url)
        )));
    };
    let (place, path) = rest.split_once('/').unwrap_or((rest, ""));
    let port: u16 = if scheme == "https" { 443 } else { 80 };
    let (host, port) = match place.rsplit_once(':') {
        Some((host, typed)) => match typed.parse() {
            Ok(port) if is_port(typed) => (host, port),
            _ => bail!(Usage(format!(
                "{} has the port {typed:?}, and {PORTS}",
                escape(url)
            ))),
        },
        None => (place, port),
    };
    let found = (host, port).to_socket_addrs();
    let found = found.map_err(|error| ClientError::Unreachable {
        url: url.to_owned(),
        cause: format!("cannot resolve {host}: {error}"),
    })?;
    let found: BTreeSet<SocketAddr> = found.collect();
    let slash = if path.is_empty() { "" } else { "/" };
    let all = found.iter().map(|address| {
        let url = format!("{scheme}://{address}{slash}{path}");
        one(&url, Some(host).filter(|_| scheme == "https"))
    });
    Ok(all.collect())
}

/// Returns the target with this name.
fn of_name<'a>(name: &str, named: &'a BTreeMap<String, NamedTarget>) -> Result<&'a NamedTarget> {
    if let Some(target) = named.get(name) {
        return Ok(target);
    }
    let allowed: Vec<String> = named.keys().map(|name| format!("@{name}")).collect();
    let known = if allowed.is_empty() {
        "the config file has none".to_owned()
    } else {
        format!("allowed: {}", allowed.join(", "))
    };
    let there: Vec<&str> = named.keys().map(String::as_str).collect();
    let meant = meant(nearest(name, &there).map(|near| format!("@{near}")));
    bail!(Usage(format!(
        "no target @{}; {known}{meant}",
        escape(name)
    )));
}

/// Rejects URLs to which no request can be sent. The host name of a `dns:` URL is not resolved.
pub(super) fn check(url: &str, named: &BTreeMap<String, NamedTarget>) -> Result<()> {
    match url.strip_prefix('@') {
        Some(name) => of_name(name, named).map(drop),
        None => Ok(check_address(url.strip_prefix(ALL_OF).unwrap_or(url))?),
    }
}

/// Returns all addresses in the order of the options, without duplicates.
pub(super) fn all(args: &ConnectArgs) -> Result<Vec<Address>> {
    let mut all: Vec<Address> = Vec::new();
    for url in &args.url {
        for address in resolved(url, &args.named)? {
            if !all.contains(&address) {
                all.push(address);
            }
        }
    }
    Ok(all)
}

/// Returns the token from the first of these sources that is set: the option, `LOUDOU_TOKEN`, the
/// file that `LOUDOU_TOKEN_FILE` names, and the target.
fn token(
    file: Option<&Path>,
    named: Option<&NamedTarget>,
    env: &Env,
    warnings: &mut Vec<String>,
) -> Result<Option<String>> {
    let file = match (file, &env.token) {
        (Some(file), _) => file,
        (None, Some(token)) => {
            return usable(&token.to_string_lossy(), "LOUDOU_TOKEN").map(Some);
        }
        (None, None) => match &env.token_file {
            Some(file) => Path::new(file),
            None => match named.and_then(|named| named.token_file.as_deref()) {
                Some(file) => file,
                None => return Ok(named.and_then(|named| named.token.clone())),
            },
        },
    };
    let text = private(file, warnings)?;
    let name = escape(&file.display().to_string()).into_owned();
    usable(String::from_utf8_lossy(&text).trim(), &name).map(Some)
}

/// Returns the token if it is valid, or an error that names the token's source.
fn usable(token: &str, source: &str) -> Result<String> {
    if is_token(token) {
        Ok(token.to_owned())
    } else {
        bail!(Usage(format!("{source}: {BAD_TOKEN}")))
    }
}

/// Reads a file that only its owner should be able to read. A file that others can write is
/// rejected, because they could choose the token. A file that others can read only causes a
/// warning, because Kubernetes mounts secrets that way.
fn private(file: &Path, warnings: &mut Vec<String>) -> Result<Vec<u8>> {
    let (bytes, metadata) = read_file(file)?;
    let name = escape(&file.display().to_string()).into_owned();
    check_mode(&name, &metadata, warnings)?;
    Ok(bytes)
}

/// Rejects a file that others can write, and warns about a file that others can read.
pub(super) fn check_mode(
    name: &str,
    metadata: &Metadata,
    warnings: &mut Vec<String>,
) -> Result<()> {
    let mode = metadata.mode() & 0o777;
    if metadata.is_file() && mode & FOREIGN_WRITE != 0 {
        bail!(Usage(format!(
            "others may write {name} (mode {mode:04o}), so it is not used; run chmod 600 {name}"
        )));
    }
    if metadata.is_file() && mode & FOREIGN != 0 {
        warnings.push(format!(
            "others may read {name} (mode {mode:04o}); run chmod 600 {name}"
        ));
    }
    Ok(())
}

fn pem(file: &Path, bytes: Vec<u8>) -> Pem {
    Pem {
        file: escape(&file.display().to_string()).into_owned(),
        bytes,
    }
}

/// Reads a file that an option names. A failure is a usage error.
pub(super) fn read_file(file: &Path) -> Result<(Vec<u8>, Metadata)> {
    let read = || -> io::Result<(Vec<u8>, Metadata)> {
        let mut bytes = Vec::new();
        // Opening a named pipe blocks until another process writes to it, which may never happen.
        // The pipes of `<(…)` are in `/dev` or `/proc`, and are allowed.
        let is_open = ["/dev", "/proc"]
            .iter()
            .any(|folder| file.starts_with(folder));
        if !is_open && file.metadata()?.file_type().is_fifo() {
            return Err(io::Error::other(
                "a pipe; write a file, /dev/stdin or <(COMMAND)",
            ));
        }
        let open = File::open(file)?;
        let metadata = open.metadata()?;
        open.take(MAX_FILE.saturating_add(1))
            .read_to_end(&mut bytes)?;
        if bytes.len() > usize::try_from(MAX_FILE).unwrap_or(usize::MAX) {
            let why = format!("larger than {} MiB", MAX_FILE >> 20);
            return Err(io::Error::other(why));
        }
        Ok((bytes, metadata))
    };
    let name = file.display().to_string();
    read().map_err(|error| Usage(format!("cannot read {}: {error}", escape(&name))).into())
}

/// Returns the proxy that the environment names for an `https://` address, by the same rules as
/// curl. Unencrypted calls use no proxy, because the proxy would see the token.
fn proxy(url: &str, env: &Env) -> Option<String> {
    // Host names are case-insensitive.
    let url = url.to_ascii_lowercase();
    let host = url.strip_prefix("https://")?.split('/').next()?;
    let host = match host.strip_prefix('[') {
        Some(six) => six.split(']').next()?,
        None => host.split(':').next()?,
    };
    let is_here = host == "localhost" || host.starts_with("127.") || host == "::1";
    let text = |name: &Option<std::ffi::OsString>| name.as_ref()?.to_str().map(ToOwned::to_owned);
    let none = text(&env.no_proxy).unwrap_or_default().to_ascii_lowercase();
    let mut none = none
        .split(',')
        .map(|entry| entry.trim().trim_start_matches("*."));
    let is_excluded = none.any(|entry| {
        let entry = entry.trim_start_matches('.');
        let is_below = |rest: &str| rest.ends_with('.');
        entry == "*"
            || !entry.is_empty()
                && host
                    .strip_suffix(entry)
                    .is_some_and(|rest| rest.is_empty() || is_below(rest))
    });
    let proxy = text(&env.https_proxy).or_else(|| text(&env.all_proxy));
    proxy.filter(|_| !is_here && !is_excluded)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each IP address of a host name counts as one Envoy. A URL without the prefix `dns:` stays
    /// unchanged.
    #[test]
    fn a_name_with_several_addresses_is_several_envoys() {
        let urls = |url: &str| -> Vec<String> {
            let all = resolved(url, &BTreeMap::new()).expect(url).into_iter();
            all.map(|address| address.url).collect()
        };
        assert_eq!(urls("http://127.0.0.1:1"), ["http://127.0.0.1:1"]);
        assert_eq!(urls("dns:http://127.0.0.1:1/x"), ["http://127.0.0.1:1/x"]);
        assert_eq!(urls("dns:http://127.0.0.1"), ["http://127.0.0.1:80"]);
        let here = urls("dns:http://localhost:9911");
        assert!(
            here.contains(&"http://127.0.0.1:9911".to_owned()),
            "{here:?}"
        );
        let secure = resolved("dns:https://localhost", &BTreeMap::new()).expect("resolved");
        let named = |address: &Address| address.server_name.as_deref() == Some("localhost");
        assert!(secure.iter().all(named), "{secure:?}");
        for (url, why) in [
            ("dns:localhost:1", "invalid URL"),
            ("dns:unix:/x", "invalid URL"),
            (
                "dns:http://localhost:x",
                "a port is a number from 1 to 65535",
            ),
            (
                "dns:http://localhost:0",
                "a port is a number from 1 to 65535",
            ),
            ("dns:http://localhost:99999", "has the port \"99999\""),
            ("dns:http://no.such.name.invalid:1", "cannot resolve"),
        ] {
            let error = resolved(url, &BTreeMap::new()).expect_err(url).to_string();
            assert!(error.contains(why), "{url}: {error}");
        }
    }

    #[test]
    fn a_proxy_is_for_https_and_not_for_everybody() {
        let env = |none: &str| Env {
            https_proxy: Some("http://proxy:3128".into()),
            no_proxy: Some(none.into()),
            ..Env::default()
        };
        for (url, none, is_used) in [
            ("https://envoy.example.com:9911", "", true),
            (
                "https://envoy.example.com/x",
                "other.com,.example.org",
                true,
            ),
            ("https://envoy.example.com", "example.com", false),
            ("https://envoy.example.com", " .example.com ,x", false),
            ("https://Envoy.Example.com", "example.COM", false),
            ("https://LOCALHOST", "", false),
            ("https://envoy.example.com", "*.example.com", false),
            ("https://notexample.com", "example.com", true),
            ("https://envoy.example.com", "*", false),
            ("https://127.0.0.1:1", "", false),
            ("https://[::1]:1", "", false),
            ("https://localhost", "", false),
            ("http://envoy.example.com", "", false),
            ("unix:/run/x.sock", "", false),
        ] {
            assert_eq!(proxy(url, &env(none)).is_some(), is_used, "{url} {none}");
        }
        let all = Env {
            all_proxy: Some("http://all:1".into()),
            ..Env::default()
        };
        assert_eq!(proxy("https://a.b", &all).as_deref(), Some("http://all:1"));
    }
}
