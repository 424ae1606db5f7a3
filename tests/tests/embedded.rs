//! The admin API on the data listener, answered by the data role, and edits without a body.

use std::env;
use std::net::SocketAddr;
use std::process::{Command, Output};

use anyhow::{Context as _, Result, ensure};
use loudou_tests::one_rule::{admitted, config, edit, put, user};
use loudou_tests::{
    EDIT_TOKEN, Envoy, Http, Request, Update, VIEW_TOKEN, expect, expect_problem, loudou_command,
};
use serde_json::json;

/// Path prefix of the API in these tests.
const AT: &str = "/.loudou";

/// Runs `loudou` against the API at this URL.
fn loudou(url: &str, args: &[&str]) -> Result<Output> {
    let mut command = loudou_command()?;
    let command = command.args(["--url", url]).args(args);
    command
        .env("LOUDOU_TOKEN", EDIT_TOKEN)
        .output()
        .context("cannot run loudou")
}

/// Returns standard output and standard error of `loudou`. Fails if the command failed.
fn printed(output: &Output) -> Result<(String, String)> {
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "{out}{err}");
    Ok((out, err))
}

/// Edits the capacity with `loudou set`.
fn set(url: &str, capacity: &str) -> Result<(String, String)> {
    let edit = [
        "set",
        "r",
        "--limit",
        "l",
        "--capacity",
        capacity,
        "--carry",
        "keep",
        "--reason",
        "漏斗",
    ];
    printed(&loudou(url, &edit)?)
}

#[test]
fn it_is_edited_through_the_data_listener() -> Result<()> {
    let envoy = Envoy::start(&config(2).concurrency(4).admin_at(AT))?;
    let url = format!("http://{}{AT}", envoy.data_address());
    let mut http = envoy.data();
    ensure!(admitted(&mut http, "alice")? == 2);
    let (out, err) = set(&url, "5")?;
    ensure!(
        out.contains('5') && err.contains("in a header"),
        "{out}{err}"
    );
    // The edit applies on every worker. Each connection may reach a different worker.
    for name in 0..32 {
        ensure!(admitted(&mut envoy.data(), &format!("user-{name}"))? == 5);
    }
    ensure!(admitted(&mut http, "alice")? == 3);
    let (out, _) = printed(&loudou(&url, &["explain", "-H", "x-user-id: alice"])?)?;
    ensure!(out.contains("refused"), "{out}");
    let (out, _) = printed(&loudou(&url, &["events"])?)?;
    ensure!(out.contains("漏斗"), "{out}");
    // The exported file lacks the section `admin`, because the API does not return it.
    let (_, err) = printed(&loudou(&url, &["export"])?)?;
    ensure!(err.contains("`admin` left out"), "{err}");
    // The API shows the same rules on both listeners.
    let rule = envoy
        .admin()
        .send(&Request::get("/v1/rules/r").token(VIEW_TOKEN))?;
    ensure!(
        expect(&rule, 200)?.pointer("/rule/limits/0/capacity") == Some(&json!(5)),
        "{rule:?}"
    );
    envoy.stop()
}

#[test]
fn a_call_with_a_body_is_told_where_to_put_it() -> Result<()> {
    let envoy = Envoy::start(&config(2).admin_at(AT))?;
    let mut http = envoy.data();
    let path = format!("{AT}/v1/rules/r");
    let detail = expect_problem(&http.send(&put(&path).json(&edit(7)))?, 400)?;
    ensure!(detail.contains("loudou-body"), "{detail}");
    // Rules do not apply to these requests, and only the token grants access.
    let detail = expect_problem(&envoy.data().send(&Request::get(&path))?, 401)?;
    ensure!(detail.contains("Bearer"), "{detail}");
    let viewer = Request::new("PUT", &path)
        .token(VIEW_TOKEN)
        .header("if-match", "*");
    let viewer = viewer.header("loudou-body", edit(7).to_string());
    expect_problem(&envoy.data().send(&viewer)?, 403)?;
    let edited = put(&path).header("loudou-body", edit(7).to_string());
    expect(&envoy.data().send(&edited)?, 200)?;
    ensure!(admitted(&mut envoy.data(), "alice")? == 7);
    envoy.stop()
}

#[test]
fn short_edits_need_no_body_on_the_admin_listener_either() -> Result<()> {
    let envoy = Envoy::start(&config(2).without_bodies())?;
    let (_, err) = set(&envoy.admin_url(), "4")?;
    ensure!(err.is_empty(), "{err}");
    ensure!(admitted(&mut envoy.data(), "alice")? == 4);
    envoy.stop()
}

/// An update of the configuration moves the path of the API, and keeps the edits made through the
/// old path.
#[test]
fn an_update_of_the_configuration_moves_it() -> Result<()> {
    let envoy = Envoy::start(&config(2).admin_at(AT))?;
    let edited = put(&format!("{AT}/v1/rules/r")).header("loudou-body", edit(6).to_string());
    expect(&envoy.data().send(&edited)?, 200)?;
    ensure!(envoy.push(&config(2).admin_at("/elsewhere"))? == Update::Accepted);
    let status = |path: &str| -> Result<u16> {
        let request = Request::get(&format!("{path}/v1/status")).token(VIEW_TOKEN);
        Ok(envoy.data().send(&request)?.status)
    };
    ensure!(status("/elsewhere")? == 200);
    // The old path is an ordinary path again, so its requests reach the upstream.
    ensure!(envoy.data().send(&user("bob"))?.status == 200);
    ensure!(
        envoy
            .data()
            .send(&Request::get(&format!("{AT}/v1/status")).token(VIEW_TOKEN))?
            .body
            == b"ok\n"
    );
    ensure!(admitted(&mut envoy.data(), "alice")? == 6);
    ensure!(envoy.push(&config(2))? == Update::Accepted);
    ensure!(
        envoy
            .data()
            .send(&Request::get("/elsewhere/v1/status"))?
            .body
            == b"ok\n"
    );
    envoy.stop()
}

/// Adds a second, non-loopback address to the loopback interface of a new network namespace.
const ADDRESSES: &str = r#"
import fcntl, socket, struct
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
def interface(call, name, value):
    fcntl.ioctl(s, call, struct.pack("16s24s", name, value))
def address(text):
    return struct.pack("H2x4s", socket.AF_INET, socket.inet_aton(text))
UP, SET_ADDRESS, SET_FLAGS = struct.pack("H", 0x41), 0x8916, 0x8914
interface(SET_FLAGS, b"lo", UP)
interface(SET_ADDRESS, b"lo:1", address("10.9.9.9"))
"#;
/// Environment variable that is set inside the namespace.
const INSIDE: &str = "LOUDOU_TESTS_IN_NAMESPACE";

/// The API on the data listener must answer only requests to a loopback address. The test runs
/// itself again in a network namespace, which has another address on every machine.
#[test]
fn no_other_address_reaches_it() -> Result<()> {
    if env::var_os(INSIDE).is_some() {
        let output = Command::new("python3").args(["-c", ADDRESSES]).output();
        let output = output.context("cannot run python3")?;
        ensure!(output.status.success(), "{output:?}");
        return outside();
    }
    let own = env::current_exe().context("no name of this test")?;
    let mut inside = Command::new("unshare");
    inside.args(["--user", "--map-root-user", "--net"]).arg(own);
    inside.args([
        "--exact",
        "embedded::no_other_address_reaches_it",
        "--nocapture",
    ]);
    let output = inside
        .env(INSIDE, "1")
        .output()
        .context("cannot run unshare")?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    ensure!(
        output.status.success() && text.contains("1 passed"),
        "{text}"
    );
    Ok(())
}

fn outside() -> Result<()> {
    let envoy = Envoy::start(&config(2).admin_at(AT).data_on_all_addresses())?;
    let port = envoy.data_address().port();
    let at = |address: [u8; 4]| Http::new(SocketAddr::from((address, port)));
    let status = Request::get(&format!("{AT}/v1/status")).token(EDIT_TOKEN);
    expect(&at([127, 0, 0, 1]).send(&status)?, 200)?;
    let forged = [
        ("x-forwarded-for", "127.0.0.1"),
        ("x-envoy-external-address", "127.0.0.1"),
        ("forwarded", "for=127.0.0.1;host=127.0.0.1"),
        ("host", "127.0.0.1"),
        ("x-real-ip", "127.0.0.1"),
        ("x-envoy-original-dst-host", "127.0.0.1:1"),
    ];
    let mut requests = vec![status.clone()];
    requests.extend(forged.map(|(name, value)| status.clone().header(name, value)));
    let edited = put(&format!("{AT}/v1/rules/r")).header("loudou-body", edit(7).to_string());
    requests.push(edited);
    for request in requests {
        let answer = at([10, 9, 9, 9]).send(&request)?;
        ensure!(
            answer.status == 404 && answer.body.is_empty(),
            "{request:?}: {answer:?}"
        );
        ensure!(answer.header("loudou-body").is_none(), "{answer:?}");
    }
    ensure!(
        admitted(&mut at([10, 9, 9, 9]), "alice")? == 2,
        "rules hold there, too"
    );
    envoy.stop()
}
