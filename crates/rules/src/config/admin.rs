//! Reads the configuration of the admin role, and the settings of an admin API embedded in a plugin
//! that also limits requests.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::net::Ipv6Addr;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::grammar::{Field, Form, List, Object, Text, object, words};
use super::problem::Problem;
use super::reader::{Cursor, Fields, Report, several};
use crate::hex;
use crate::rule::StoreSettings;

/// Names of the roles.
const ROLES: [(&str, ()); 1] = [("admin", ())];
/// Names of the access levels.
const ACCESS: [(&str, Access); 2] = [("view", Access::View), ("edit", Access::Edit)];
/// Maximum size of a token's name, in bytes.
const MAX_NAME: usize = 63;
/// Maximum size of a host name, in bytes.
const MAX_HOST: usize = 253;
/// Maximum size of an embedded admin API's path, in bytes.
const MAX_AT: usize = 64;
/// Grammar of the admin role's configuration.
pub(super) const ADMIN_FILE: Object = object!([
    Field::optional("version", Form::Only(1), "", "The version of this format."),
    Field::optional(
        "store",
        Form::Defined("store"),
        "",
        "The store of the rule file: the same namespace.",
    ),
    Field::required("admin", Form::Defined("admin"), "The admin role."),
]);
/// Grammar of the field `admin` in the admin role's configuration.
pub(super) const ADMIN: Object = object!([
    Field::required(
        "role",
        Form::Word(&words(&ROLES)),
        "The role of this plugin."
    ),
    Field::optional(
        "tokens",
        TOKENS,
        "loopback clients have full access, others none",
        "Access tokens.",
    ),
    Field::optional(
        "hosts",
        HOSTS,
        "any host with tokens; without, loopback and the listener's address",
        "The hosts that requests may name, without ports, besides loopback and the listener's address.",
    ),
]);
/// Grammar of the field `admin` in a rule file.
pub(super) const EMBEDDED: Object = object!([
    Field::required(
        "at",
        Form::Text(Text::like(r"^(/[0-9A-Za-z._~-]+)+$", MAX_AT)),
        "The path below which the API is answered, as `/.loudou`, to connections from loopback to loopback only.",
    ),
    Field::required("tokens", SOME_TOKENS, "Access tokens."),
    Field::optional(
        "hosts",
        HOSTS,
        "any host",
        "The hosts that requests may name, without ports, besides loopback.",
    ),
]);
/// Grammar of a possibly empty list of access tokens.
const TOKENS: Form = Form::List(&List {
    fewest: 0,
    most: 0,
    item: Field::value(Form::Defined("token"), ""),
});
/// Grammar of a non-empty list of access tokens.
const SOME_TOKENS: Form = Form::List(&List {
    fewest: 1,
    most: 0,
    item: Field::value(Form::Defined("token"), ""),
});
/// Grammar of the list of hosts to which requests may be addressed.
const HOSTS: Form = Form::List(&List {
    fewest: 0,
    most: 0,
    item: Field::value(
        Form::Text(Text::like(
            r"^([0-9A-Za-z_.-]+|\[[0-9A-Fa-f:.]+\])$",
            MAX_HOST,
        )),
        "",
    ),
});
/// Grammar of a token.
pub(super) const TOKEN: Object = object!([
    Field::required(
        "name",
        Form::Text(Text::like("^[!-~]+$", MAX_NAME)),
        "The name of the token's holder in events.",
    ),
    Field::required(
        "sha256",
        Form::Text(Text::like("^[0-9A-Fa-f]{64}$", 0)),
        "The SHA-256 of the token, as `printf %s TOKEN | sha256sum` prints it.",
    ),
    Field::required(
        "may",
        Form::Word(&words(&ACCESS)),
        "The access level: read (view), or read and write (edit).",
    ),
]);

/// Settings of the admin role.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AdminSettings {
    /// Settings of the store that is exposed by the admin API.
    pub store: StoreSettings,
    /// Access tokens. Without tokens, loopback clients have full access.
    pub tokens: Vec<Token>,
    /// Lower-case names of the hosts to which requests may be addressed, in addition to loopback
    /// and the listener's address.
    pub hosts: Vec<String>,
}

/// An access token. The configuration contains only its hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// Name of the token's holder, as shown in events.
    pub name: String,
    /// SHA-256 of the token.
    pub sha256: [u8; 32],
    /// Access level.
    pub may: Access,
}

/// Access level of a token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Access {
    /// Read access only.
    #[default]
    View,
    /// Read and write access.
    Edit,
}

/// Settings of an admin API embedded in a plugin that also limits requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EmbeddedAdmin {
    /// Path prefix of the API. The prefix begins with a slash and does not end with one.
    pub at: String,
    /// API settings, including at least one token.
    pub settings: AdminSettings,
}

/// Returns true if a document configures the admin role. A document with `rules` configures the
/// data role, which limits requests, even if the document also embeds an admin API.
pub fn is_admin(document: &Value) -> bool {
    document.get("admin").is_some() && document.get("rules").is_none()
}

/// Reads the configuration of the admin role.
pub fn parse_admin(document: &Value) -> Result<AdminSettings, Vec<Problem>> {
    let mut report = Report::default();
    let settings = settings(&Cursor::root(document), &mut report);
    report.unless_invalid(settings)
}

fn settings(cursor: &Cursor<'_, '_>, report: &mut Report) -> Option<AdminSettings> {
    let fields = cursor.object(ADMIN_FILE.names, report)?;
    if let Some(version) = fields.get("version") {
        version.integer(1, 1, report);
    }
    let store = super::store(fields.get("store").as_ref(), report);
    let admin = fields.need("admin", "an object with role", report)?;
    let admin = admin.object(ADMIN.names, report)?;
    if let Some(role) = admin.need("role", "admin", report) {
        role.word(&ROLES, report);
    }
    Some(with_callers(&admin, store, report))
}

/// Reads the field `admin` of a rule file. `store` contains the store settings from the same file.
pub(super) fn embedded(
    cursor: &Cursor<'_, '_>,
    store: &StoreSettings,
    report: &mut Report,
) -> Option<EmbeddedAdmin> {
    let admin = cursor.object(EMBEDDED.names, report)?;
    let form =
        "a path of at most 64 bytes, as /.loudou, of 0-9, A-Z, a-z, and . _ ~ - between slashes";
    let at = admin.need("at", form, report)?;
    let path = at.value.as_str().filter(|path| is_path(path));
    if path.is_none() {
        report.error(&at, "invalid path", form);
    }
    let tokens = admin.need("tokens", "a list of tokens", report)?;
    let settings = with_callers(&admin, store.clone(), report);
    if tokens.value.as_array().is_some_and(Vec::is_empty) {
        // Tokens are required, because behind a proxy on the same machine, all clients appear to
        // connect from loopback.
        report.error(&tokens, "no tokens", "at least one token");
    }
    Some(EmbeddedAdmin {
        at: path?.to_string(),
        settings,
    })
}

fn is_path(path: &str) -> bool {
    let mut steps = path.split('/');
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"._~-".contains(&b);
    path.len() <= MAX_AT
        && steps.next() == Some("")
        && steps.all(|step| !step.is_empty() && step.bytes().all(is_plain))
        && path.len() > 1
}

fn with_callers(
    admin: &Fields<'_, '_>,
    store: StoreSettings,
    report: &mut Report,
) -> AdminSettings {
    let tokens = admin.get("tokens");
    let hosts = admin.get("hosts");
    AdminSettings {
        store,
        tokens: tokens.map_or_else(Vec::new, |list| several(&list, usize::MAX, report, token)),
        hosts: hosts.map_or_else(Vec::new, |list| several(&list, usize::MAX, report, host)),
    }
}

fn host(cursor: &Cursor<'_, '_>, report: &mut Report) -> Option<String> {
    let host = cursor.value.as_str().unwrap_or("");
    let is_name = |text: &str| {
        let mut bytes = text.bytes();
        bytes.all(|b| b.is_ascii_alphanumeric() || b"_.-".contains(&b))
    };
    let inner = host.strip_prefix('[').and_then(|h| h.strip_suffix(']'));
    let is_host = match inner {
        Some(v6) => v6.parse::<Ipv6Addr>().is_ok(),
        None => is_name(host),
    };
    if is_host && (1..=MAX_HOST).contains(&host.len()) {
        return Some(host.to_ascii_lowercase());
    }
    let form = "a name or an address without a port: loudou.internal, 10.0.0.7, [2001:db8::7]";
    report.error(cursor, "invalid host", form);
    None
}

fn token(cursor: &Cursor<'_, '_>, report: &mut Report) -> Option<Token> {
    let fields = cursor.object(TOKEN.names, report)?;
    let form = "1 to 63 printable characters of ASCII, without spaces";
    let name = fields.need("name", form, report).and_then(|cursor| {
        let name = cursor.value.as_str().unwrap_or("");
        let fits =
            (1..=MAX_NAME).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_graphic());
        if !fits {
            report.error(&cursor, "invalid name", form);
        }
        fits.then(|| name.to_string())
    });
    let form = "64 hexadecimal digits, as `printf %s TOKEN | sha256sum` prints";
    let sha256 = fields.need("sha256", form, report).and_then(|cursor| {
        let hash = cursor.value.as_str().and_then(hex32);
        if hash.is_none() {
            report.error(&cursor, "invalid hash", form);
        }
        hash
    });
    let may = fields.need("may", "view, edit", report);
    let may = may.and_then(|cursor| cursor.word(&ACCESS, report));
    Some(Token {
        name: name?,
        sha256: sha256?,
        may: may?,
    })
}

fn hex32(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    let mut rest = text.as_bytes();
    for byte in &mut bytes {
        (*byte, rest) = hex::byte(rest)?;
    }
    rest.is_empty().then_some(bytes)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn hosts() {
        let read =
            |hosts: Value| parse_admin(&json!({ "admin": { "role": "admin", "hosts": hosts } }));
        let settings = read(json!(["Loudou.Internal", "10.0.0.7", "[2001:DB8::7]"]));
        assert_eq!(
            settings.expect("valid").hosts,
            ["loudou.internal", "10.0.0.7", "[2001:db8::7]"]
        );
        let wrong = json!([
            "",
            "a:80",
            "::1",
            "[::1",
            "[x]",
            "http://a",
            "*.a",
            7,
            "a".repeat(254)
        ]);
        let count = wrong.as_array().map_or(0, Vec::len);
        assert_eq!(read(wrong).expect_err("invalid").len(), count);
    }

    #[test]
    fn paths_of_embedded_apis() {
        let read = |admin: Value| {
            let mut report = Report::default();
            let found = embedded(
                &Cursor::root(&admin),
                &StoreSettings::default(),
                &mut report,
            );
            report.unless_invalid(found)
        };
        let token = json!({ "name": "ops", "sha256": "0".repeat(64), "may": "edit" });
        let at = |path: Value| read(json!({ "at": path, "tokens": [token] }));
        for path in ["/.loudou", "/a/b_c~d/E-9", "/v1"] {
            assert_eq!(at(json!(path)).expect("valid").at, path);
        }
        let wrong = ["", "/", "a", "/a/", "//a", "/a b", "/a?b", "/%2e", "/ä"];
        let long = "/a".repeat(33);
        for path in wrong.into_iter().chain([long.as_str()]) {
            let problems = at(json!(path)).expect_err(path);
            assert_eq!(problems.len(), 1, "{path}: {problems:?}");
        }
        for admin in [
            json!({ "at": "/a" }),
            json!({ "tokens": [token] }),
            json!({ "at": "/a", "tokens": [] }),
            json!({ "at": "/a", "tokens": {} }),
            json!({ "at": "/a", "tokens": [token], "role": "admin" }),
            json!(true),
        ] {
            let problems = read(admin.clone()).expect_err("invalid");
            assert_eq!(problems.len(), 1, "{admin}: {problems:?}");
        }
    }

    #[test]
    fn hashes() {
        let hash = "0123456789abcdefABCDEF".to_string() + &"0".repeat(42);
        let bytes = hex32(&hash).expect("64 digits");
        assert_eq!(bytes.get(..4), Some(&[1, 0x23, 0x45, 0x67][..]));
        assert_eq!(bytes.get(8..11), Some(&[0xab, 0xcd, 0xef][..]));
        for wrong in [
            "",
            &"0".repeat(63),
            &(hash.clone() + "0"),
            &hash.replace('a', "g"),
        ] {
            assert_eq!(hex32(wrong), None, "{wrong}");
        }
    }
}
