//! `loudou` over TLS, mutual TLS, a Unix socket and a proxy, against a real Envoy.

use std::fs::{self, Permissions};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Output;
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use anyhow::{Result, ensure};
use loudou_tests::paths::workspace_root;
use loudou_tests::{Config, Envoy, TempDir, VIEW_TOKEN, loudou_command};
use serde_json::{Value, json};

const TLS: &str =
    "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext";

/// Returns the path of a certificate, a key or a CA. The relay's tests describe how these files
/// were made.
fn file(name: &str) -> String {
    let file = workspace_root()
        .join("crates/relay/tests/relay/certs")
        .join(name);
    file.display().to_string()
}

/// Returns the TLS transport socket of a listener with this certificate. If `asks` is set, the
/// listener requires a client certificate.
fn tls(server: &str, asks: bool) -> Value {
    let mut common = json!({ "tls_certificates": [{
        "certificate_chain": { "filename": file(&format!("{server}.pem")) },
        "private_key": { "filename": file(&format!("{server}.key")) },
    }] });
    if asks {
        let ca = json!({ "trusted_ca": { "filename": file("ca.pem") } });
        if let Some(common) = common.as_object_mut() {
            common.insert("validation_context".to_owned(), ca);
        }
    }
    json!({
        "name": "tls",
        "typed_config": { "@type": TLS, "require_client_certificate": asks, "common_tls_context": common },
    })
}

fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

fn at(port: u16) -> Value {
    json!({ "socket_address": { "address": "127.0.0.1", "port_value": port } })
}

fn config() -> Config {
    Config::new(json!([{
        "name": "per-user",
        "key": [{ "header": "x-user-id" }],
        "limits": [{ "algorithm": "funnel", "capacity": 1, "rate": "1/d" }],
    }]))
}

/// Runs `loudou --url URL … rules`. Uses a proxy only if `env` names a proxy.
fn rules(url: &str, options: &[&str], env: &[(&str, &str)]) -> Result<(Option<i32>, String)> {
    let mut command = loudou_command()?;
    for name in [
        "https_proxy",
        "HTTPS_PROXY",
        "all_proxy",
        "ALL_PROXY",
        "no_proxy",
        "NO_PROXY",
    ] {
        command.env_remove(name);
    }
    command
        .env("LOUDOU_TOKEN", VIEW_TOKEN)
        .envs(env.iter().copied());
    let Output {
        status,
        stdout,
        stderr,
    } = command
        .args(["--url", url])
        .args(options)
        .arg("rules")
        .output()?;
    let all = [stdout, stderr].concat();
    Ok((status.code(), String::from_utf8_lossy(&all).into_owned()))
}

fn works(url: &str, options: &[&str]) -> Result<()> {
    let (code, text) = rules(url, options, &[])?;
    ensure!(
        code == Some(0) && text.contains("per-user"),
        "{url} {options:?}: {code:?} {text}"
    );
    Ok(())
}

/// The call must fail with the exit code for a missing connection, and its message must name a
/// remedy.
fn fails(url: &str, options: &[&str], remedy: &str) -> Result<()> {
    let (code, text) = rules(url, options, &[])?;
    ensure!(code == Some(3), "{url} {options:?}: {code:?} {text}");
    ensure!(text.contains(remedy), "{url} {options:?}: {text}");
    Ok(())
}

#[test]
fn tls_is_trusted_by_its_ca_and_its_name() -> Result<()> {
    let (plain, elsewhere) = (free_port()?, free_port()?);
    let config = config()
        .also_admin(at(plain), Some(tls("server", false)))
        .also_admin(at(elsewhere), Some(tls("elsewhere", false)));
    let envoy = Envoy::start(&config)?;
    let ca = file("ca.pem");
    for host in ["localhost", "127.0.0.1"] {
        works(&format!("https://{host}:{plain}"), &["--tls-ca", &ca])?;
    }
    let url = format!("https://127.0.0.1:{plain}");
    fails(&url, &[], "--tls-ca")?;
    fails(&url, &["--tls-ca", &file("other-ca.pem")], "--tls-ca")?;
    works(&url, &["--tls-ca", &ca, "--tls-name", "localhost"])?;
    fails(
        &url,
        &["--tls-ca", &ca, "--tls-name", "envoy.example.com"],
        "--tls-name",
    )?;
    // TLS to a plain listener fails, and plain HTTP to a TLS listener fails.
    fails(
        &format!("https://{}", envoy.admin_address()),
        &["--tls-ca", &ca],
        "TLS",
    )?;
    let (code, text) = rules(&format!("http://127.0.0.1:{plain}"), &[], &[])?;
    ensure!(code == Some(3), "{code:?} {text}");
    envoy.stop()
}

#[test]
fn a_client_shows_its_certificate() -> Result<()> {
    let port = free_port()?;
    let envoy = Envoy::start(&config().also_admin(at(port), Some(tls("server", true))))?;
    let url = format!("https://localhost:{port}");
    let (ca, cert, key) = (file("ca.pem"), file("client.pem"), file("client.key"));
    works(
        &url,
        &["--tls-ca", &ca, "--tls-cert", &cert, "--tls-key", &key],
    )?;
    fails(&url, &["--tls-ca", &ca], "--tls-cert and --tls-key")?;
    for (options, remedy) in [
        (
            ["--tls-ca", &ca, "--tls-cert", &cert],
            "--tls-cert needs --tls-key",
        ),
        (
            ["--tls-ca", &ca, "--tls-key", &key],
            "--tls-key needs --tls-cert",
        ),
    ] {
        let (code, text) = rules(&url, &options, &[])?;
        ensure!(code == Some(2) && text.contains(remedy), "{code:?} {text}");
    }
    let (code, text) = rules(&url, &["--tls-ca", &key], &[])?;
    ensure!(
        code == Some(2) && text.contains("no certificate in PEM"),
        "{code:?} {text}"
    );
    envoy.stop()
}

#[test]
fn a_unix_socket_needs_no_port() -> Result<()> {
    let dir = TempDir::new("sock")?;
    let socket = dir.path().join("a.sock").display().to_string();
    let pipe = json!({ "pipe": { "path": socket } });
    let envoy = Envoy::start(&config().also_admin(pipe, None))?;
    works(&format!("unix:{socket}"), &[])?;
    works(&format!("unix://{socket}"), &[])?;
    fails(&format!("unix:{socket}.none"), &[], "cannot reach")?;
    envoy.stop()?;
    // Envoy may leave the socket file behind when it exits.
    fails(&format!("unix:{socket}"), &[], "cannot reach")
}

/// Starts a proxy for one connection. Returns its URL and a channel that receives the request line.
fn proxy() -> Result<(String, Receiver<String>)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let (sender, asked) = channel();
    thread::spawn(move || -> io::Result<()> {
        let (mut client, _) = listener.accept()?;
        let mut lines = BufReader::new(client.try_clone()?).lines();
        let first = lines.next().transpose()?.unwrap_or_default();
        while lines
            .next()
            .transpose()?
            .is_some_and(|line| !line.is_empty())
        {}
        let to = first
            .split(' ')
            .nth(1)
            .unwrap_or_default()
            .replace("elsewhere.example", "127.0.0.1");
        let mut server = TcpStream::connect(to)?;
        let _gone = sender.send(first);
        client.write_all(b"HTTP/1.1 200 OK\r\n\r\n")?;
        let (mut from, mut back) = (server.try_clone()?, client.try_clone()?);
        thread::spawn(move || io::copy(&mut from, &mut back));
        io::copy(&mut client, &mut server).map(drop)
    });
    Ok((format!("http://{address}"), asked))
}

#[test]
fn a_proxy_tunnels_tls_alone() -> Result<()> {
    let port = free_port()?;
    let config = config().also_admin(at(port), Some(tls("elsewhere", false)));
    let envoy = Envoy::start(&config)?;
    let (address, asked) = proxy()?;
    // Only the proxy resolves this name.
    let url = format!("https://elsewhere.example:{port}");
    let ca = file("other-ca.pem");
    let env = [("https_proxy", address.as_str())];
    let named = ["--tls-ca", &ca, "--tls-name", "elsewhere.example"];
    let (code, text) = rules(&url, &named, &env)?;
    ensure!(
        code == Some(2) && text.contains("no_proxy"),
        "{code:?} {text}"
    );
    let (code, text) = rules(&url, &["--tls-ca", &ca], &env)?;
    ensure!(
        code == Some(0) && text.contains("per-user"),
        "{code:?} {text}"
    );
    let asked = asked.try_recv()?;
    ensure!(
        asked.starts_with("CONNECT ") && !asked.contains(VIEW_TOKEN),
        "{asked}"
    );
    envoy.stop()
}

#[test]
fn the_token_file_belongs_to_its_owner() -> Result<()> {
    let envoy = Envoy::start(&config())?;
    let dir = TempDir::new("token")?;
    let token = dir.path().join("token");
    fs::write(&token, VIEW_TOKEN)?;
    let path = token.display().to_string();
    for (mode, expected, says) in [
        (0o600, 0, ""),
        (0o644, 0, "others may read"),
        (0o622, 2, "others may write"),
    ] {
        fs::set_permissions(&token, Permissions::from_mode(mode))?;
        let (code, text) = rules(&envoy.admin_url(), &["--token-file", &path], &[])?;
        ensure!(
            code == Some(expected) && text.contains(says),
            "{mode:o}: {code:?} {text}"
        );
        ensure!(text.contains("chmod 600") == (mode != 0o600), "{text}");
    }
    envoy.stop()
}
