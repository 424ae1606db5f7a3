//! Advice that the relay logs when it cannot connect to the engine or when the engine rejects a script.

use std::path::Path;

use redis::{ErrorKind, RedisError, ServerErrorKind};

/// Returns advice on an error, or `None` if the error is self-explanatory, such as a refused connection. `ca` is the
/// value of `--engine-ca`.
///
/// This function searches the error text, because the Redis client reports some errors only as text. The text itself is
/// not logged, because it may echo the command, including a password.
pub(super) fn advice(error: &RedisError, ca: Option<&Path>) -> Option<String> {
    let text = error.to_string();
    let has = |part: &str| text.contains(part);
    let advice = match error.kind() {
        ErrorKind::AuthenticationFailed => USER,
        ErrorKind::MasterNameNotFoundBySentinel => {
            "no sentinel reports a reachable master of this name; check --sentinel-master"
        }
        ErrorKind::InvalidClientConfig if has("sentinel") => {
            "a server in --engine is not a sentinel; with --sentinel-master, list only sentinels"
        }
        ErrorKind::Parse => PLAIN,
        ErrorKind::Server(ServerErrorKind::Moved | ServerErrorKind::Ask) => {
            "the engine is a cluster; add --cluster"
        }
        _ if has("cluster support disabled") => "the engine is not a cluster; remove --cluster",
        ErrorKind::Server(ServerErrorKind::NoPerm) => {
            "the user of --engine-user lacks a permission; see docs/reference/relay.md for the ACL"
        }
        _ if has("NOAUTH") || has("WRONGPASS") => USER,
        _ if has("UnknownIssuer") => return Some(unknown_issuer(ca)),
        _ if has("not valid for name") || has("NotValidForName") => {
            "the engine's certificate is not valid for the host in --engine; use a host that it names"
        }
        _ if has("invalid peer certificate") => "the engine's certificate is not valid; renew it",
        _ if has("received fatal alert") => {
            "the engine rejected the relay's certificate; check --engine-cert and --engine-key"
        }
        _ if has("InvalidContentType") => {
            "the server does not use TLS; without TLS, the URL begins with redis://"
        }
        _ => return None,
    };
    Some(advice.to_owned())
}

const USER: &str = "the engine rejected the user or the password; check --engine-user and --engine-password-file, or \
                    for a sentinel, its URL";
const PLAIN: &str =
    "the server does not answer in the Redis protocol; with TLS, the URL begins with rediss://";

fn unknown_issuer(ca: Option<&Path>) -> String {
    let (whose, option) = ca.map_or_else(
        || {
            let system = "the system's CA certificates".to_owned();
            (system, " in --engine-ca")
        },
        |path| (format!("a CA in --engine-ca {}", path.display()), ""),
    );
    format!(
        "the engine's certificate is not signed by {whose}; pass the file with its CA \
         certificate{option}"
    )
}
