//! Validates addresses before anything is sent to them. The URI parser alone is not sufficient,
//! because it silently replaces an invalid port with the default one.

use std::borrow::Cow;
use std::path::Path;

use loudou_rules::config::nearest;
use ureq::http::Uri;

use super::ClientError;
use loudou_words::text::shortened;

/// Scheme of a Unix socket address.
const UNIX: &str = "unix:";
/// Maximum length of a Unix socket path, in bytes.
const MAX_PATH: usize = if cfg!(target_os = "linux") { 107 } else { 103 };
/// Maximum number of characters of an address shown in an error message.
const MAX_SHOWN: usize = 120;

/// Returns an error if this address cannot be called.
pub fn check(url: &str) -> Result<(), ClientError> {
    socket(url).map_or_else(|| base(url).map(drop), |path| path.map(drop))
}

/// Returns the socket path if the address is a Unix socket.
pub(super) fn socket(url: &str) -> Option<Result<&Path, ClientError>> {
    let path = url.strip_prefix(UNIX)?;
    // `unix:///run/x.sock` is equivalent to `unix:/run/x.sock`.
    let path = path.strip_prefix("//").unwrap_or(path);
    let bytes = path.len();
    Some(if !path.starts_with('/') {
        Err(bad(url, "has no absolute path"))
    } else if bytes > MAX_PATH {
        let why = format!("has a path of {bytes} bytes; that of a socket has at most {MAX_PATH}");
        Err(bad(url, &why))
    } else {
        Ok(Path::new(path))
    })
}

/// Returns the address without a trailing slash, if it is valid.
pub(super) fn base(url: &str) -> Result<String, ClientError> {
    let uri: Uri = url.parse().ok().ok_or_else(|| bad(url, "is invalid"))?;
    if !matches!(uri.scheme_str(), Some("http" | "https")) {
        let near = uri
            .scheme_str()
            .and_then(|typed| nearest(typed, &["http", "https"]));
        let meant = near.map_or_else(String::new, |near| format!(" (did you mean `{near}://`?)"));
        let why = format!("does not begin with http://, https:// or unix:{meant}");
        return Err(bad(url, &why));
    }
    if without_user(url) != url {
        return Err(ClientError::BadTarget {
            why: "the address contains a user name; put the token into LOUDOU_TOKEN instead"
                .to_owned(),
        });
    }
    if uri.query().is_some() || url.contains('#') {
        return Err(bad(url, "has a query or a fragment"));
    }
    check_authority(&uri).map_err(|why| bad(url, &why))?;
    Ok(url.trim_end_matches('/').to_owned())
}

/// Returns an error if the address has no host or an invalid port.
pub(super) fn check_authority(uri: &Uri) -> Result<(), String> {
    let Some(authority) = uri.authority().filter(|it| !it.host().is_empty()) else {
        return Err("has no host".to_owned());
    };
    let place = authority.as_str();
    let place = place.rsplit_once('@').map_or(place, |(_, place)| place);
    // Skip a bracketed IPv6 address, because its colons are not port separators.
    let behind = place.rsplit_once(']').map_or(place, |(_, behind)| behind);
    let Some((_, port)) = behind.split_once(':') else {
        return Ok(());
    };
    if is_port(port) {
        return Ok(());
    }
    Err(format!("has the port {port:?}, and {PORTS}"))
}

/// Description of valid port numbers, used in error messages.
pub const PORTS: &str = "a port is a number from 1 to 65535";

/// Returns true if `text` is a valid listening port.
pub fn is_port(text: &str) -> bool {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    is_number && text.parse::<u16>().is_ok_and(|port| port > 0)
}

/// Returns an address without its user name and password, which must not appear in messages.
pub(super) fn without_user(url: &str) -> Cow<'_, str> {
    let (scheme, rest) = match url.split_once("://") {
        Some((scheme, rest)) => (Some(scheme), rest),
        None => (None, url),
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, after) = rest.split_at_checked(end).unwrap_or((rest, ""));
    let Some((_, place)) = authority.rsplit_once('@') else {
        return url.into();
    };
    let scheme = scheme.map(|scheme| format!("{scheme}://"));
    format!("{}…@{place}{after}", scheme.unwrap_or_default()).into()
}

pub(super) fn bad(url: &str, why: &str) -> ClientError {
    ClientError::BadTarget {
        why: format!(
            "the address {:?} {why}; write http://HOST:PORT, https://HOST:PORT or unix:/PATH",
            shortened(&without_user(url), MAX_SHOWN)
        ),
    }
}

/// Returns true if a token would be sent to this address without encryption.
pub fn is_in_the_clear(url: &str) -> bool {
    let Ok(uri) = url.parse::<Uri>() else {
        return false;
    };
    let host = uri.host().unwrap_or_default();
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let is_loopback = bare
        .parse::<std::net::IpAddr>()
        .is_ok_and(|ip| ip.is_loopback());
    uri.scheme_str() == Some("http") && !is_loopback && host != "localhost"
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If an invalid port were accepted, the token would be sent to the default port.
    #[test]
    fn a_port_is_a_number_from_1_to_65535() {
        for port in [
            "99999",
            "65536",
            "0",
            "",
            "+80",
            "-1",
            "0x50",
            "18446744073709551617",
        ] {
            for (begin, end) in [
                ("http://127.0.0.9:", ""),
                ("https://[::1]:", "/"),
                ("http://h:", "/x"),
            ] {
                let error = base(&format!("{begin}{port}{end}"))
                    .expect_err(port)
                    .to_string();
                let is_told = error.contains(PORTS) && error.contains(&format!("{port:?}"));
                assert!(is_told || error.contains("is invalid"), "{port}: {error}");
            }
        }
        let error = base("http://127.0.0.9:99999")
            .expect_err("no port")
            .to_string();
        assert_eq!(
            error,
            "the address \"http://127.0.0.9:99999\" has the port \"99999\", and a port is a number from 1 to 65535; \
             write http://HOST:PORT, https://HOST:PORT or unix:/PATH"
        );
        for good in [
            "http://h",
            "http://h:1",
            "https://[::1]:65535",
            "https://[::1]",
            "http://h:80/x:99999",
        ] {
            assert_eq!(base(good).expect(good), good);
        }
    }

    #[test]
    fn a_slip_in_the_scheme_is_named() {
        for (url, told) in [
            ("htps://h", "(did you mean `https://`?)"),
            ("htp://h", "(did you mean `http://`?)"),
            ("ftp://h", "or unix:; write"),
        ] {
            let error = base(url).expect_err(url).to_string();
            assert!(error.contains(told), "{error}");
        }
    }

    #[test]
    fn the_path_of_a_socket_has_a_bound() {
        let url = |bytes: usize| format!("unix:/{}", "x".repeat(bytes - 1));
        assert_eq!(check(&url(MAX_PATH)), Ok(()));
        let error = check(&url(MAX_PATH + 1)).expect_err("too long").to_string();
        let told = format!(
            "{} bytes; that of a socket has at most {MAX_PATH}",
            MAX_PATH + 1
        );
        assert!(error.contains(&told), "{error}");
    }

    #[test]
    fn an_address_has_a_host_and_no_user() {
        for (url, told) in [
            ("http://:80", "has no host"),
            ("http://u:geheim@h", "contains a user name"),
            ("http://h/?", "a query or a fragment"),
            ("http://h?x", "a query or a fragment"),
            ("http://h#", "a query or a fragment"),
            ("ftp://u:geheim@h", "does not begin with"),
        ] {
            let error = base(url).expect_err(url).to_string();
            assert!(
                error.contains(told) || error.contains("is invalid"),
                "{url}: {error}"
            );
            assert!(!error.contains("geheim"), "{error}");
        }
    }
}
