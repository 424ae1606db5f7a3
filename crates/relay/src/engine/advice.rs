//! Advice for an engine that is not reached, or refuses scripts.

use std::path::Path;

use redis::{ErrorKind, RedisError, ServerErrorKind};

/// The advice for an error; `None` if it says all, as of a refused connection. `ca` is the file of `--engine-ca`.
///
/// A cluster's client hands on the text of such an error alone, so the text decides. It is not
/// shown, because a server's text may repeat a command and so a password.
pub(super) fn advice(error: &RedisError, ca: Option<&Path>) -> Option<String> {
    let text = error.to_string();
    let has = |part: &str| text.contains(part);
    let advice = match error.kind() {
        ErrorKind::AuthenticationFailed => USER,
        ErrorKind::MasterNameNotFoundBySentinel => {
            "the sentinels know no master of this name that answers: look at --sentinel-master"
        }
        ErrorKind::InvalidClientConfig if has("sentinel") => {
            "--engine names a server that is no sentinel: with --sentinel-master, name the sentinels"
        }
        ErrorKind::Parse => PLAIN,
        ErrorKind::Server(ServerErrorKind::Moved | ServerErrorKind::Ask) => {
            "the engine is a cluster: add --cluster"
        }
        _ if has("cluster support disabled") => "the engine is no cluster: leave --cluster out",
        ErrorKind::Server(ServerErrorKind::NoPerm) => {
            "the user of --engine-user may not do this: see docs/reference/relay.md for its rights"
        }
        _ if has("NOAUTH") || has("WRONGPASS") => USER,
        _ if has("UnknownIssuer") => return Some(unknown_issuer(ca)),
        _ if has("not valid for name") || has("NotValidForName") => {
            "the engine's certificate is for another host than --engine names: name one that it is for"
        }
        _ if has("invalid peer certificate") => "the engine's certificate is not valid: renew it",
        _ if has("received fatal alert") => {
            "the engine does not accept the relay's certificate: look at --engine-cert and --engine-key"
        }
        _ if has("InvalidContentType") => {
            "the engine does not speak TLS there: without TLS, the URL begins with redis://"
        }
        _ => return None,
    };
    Some(advice.to_owned())
}

const USER: &str = "the engine does not accept user and password: look at --engine-user and --engine-password-file; a \
                    sentinel's own are in its URL";
const PLAIN: &str =
    "the engine does not speak Redis's protocol there: with TLS, the URL begins with rediss://";

fn unknown_issuer(ca: Option<&Path>) -> String {
    let (whose, option) = ca.map_or_else(
        || {
            let system = "the system's certificates".to_owned();
            (system, " with --engine-ca")
        },
        |path| (format!("those of --engine-ca {}", path.display()), ""),
    );
    format!(
        "the engine's certificate is not signed by {whose}: name the file with the certificate of its \
         authority{option}"
    )
}
