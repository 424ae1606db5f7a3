//! Reading the plugin configuration of the admin role.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::matches::several;
use super::problem::Problem;
use super::reader::{Cursor, Report};
use crate::rule::StoreSettings;

/// The fields of an admin configuration.
pub(super) const TOP: &[&str] = &["version", "store", "admin"];
/// The fields of `admin`.
pub(super) const ADMIN: &[&str] = &["role", "tokens"];
/// The fields of a token.
pub(super) const TOKEN: &[&str] = &["name", "sha256", "may"];
/// The roles.
pub(super) const ROLES: [(&str, ()); 1] = [("admin", ())];
/// What a token may do.
pub(super) const ACCESS: [(&str, Access); 2] = [("view", Access::View), ("edit", Access::Edit)];
/// The longest name of a token, in bytes.
pub(super) const MAX_NAME: usize = 63;

/// The admin role's settings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AdminSettings {
    /// Which share it looks at.
    pub store: StoreSettings,
    /// Who may do what; with none, loopback peers may do everything.
    pub tokens: Vec<Token>,
}

/// A token, known by its hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// What events call whoever has it.
    pub name: String,
    /// SHA-256 of the token.
    pub sha256: [u8; 32],
    /// What it may do.
    pub may: Access,
}

/// What a token may do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Access {
    /// Look.
    #[default]
    View,
    /// Look and change.
    Edit,
}

/// Whether a document is an admin configuration, and not a rule file.
pub fn is_admin(document: &Value) -> bool {
    document.get("admin").is_some()
}

/// Reads an admin configuration.
pub fn parse_admin(document: &Value) -> Result<AdminSettings, Vec<Problem>> {
    let mut report = Report::default();
    let settings = settings(&Cursor::root(document), &mut report);
    report.unless_wrong(settings)
}

fn settings(cursor: &Cursor<'_, '_>, report: &mut Report) -> Option<AdminSettings> {
    let fields = cursor.object(TOP, report)?;
    if let Some(version) = fields.get("version") {
        version.integer(1, 1, report);
    }
    let store = super::store(fields.get("store").as_ref(), report);
    let admin = fields.need("admin", "an object with role", report)?;
    let admin = admin.object(ADMIN, report)?;
    if let Some(role) = admin.need("role", "admin", report) {
        role.word(&ROLES, report);
    }
    let tokens = match admin.get("tokens") {
        Some(tokens) => several(&tokens, usize::MAX, report, token),
        None => Vec::new(),
    };
    Some(AdminSettings { store, tokens })
}

fn token(cursor: &Cursor<'_, '_>, report: &mut Report) -> Option<Token> {
    let fields = cursor.object(TOKEN, report)?;
    let form = "1 to 63 printable characters of ASCII, without spaces";
    let name = fields.need("name", form, report).and_then(|cursor| {
        let name = cursor.value.as_str().unwrap_or("");
        let fits =
            (1..=MAX_NAME).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_graphic());
        if !fits {
            report.error(&cursor, "not a name", form);
        }
        fits.then(|| name.to_string())
    });
    let form = "64 hexadecimal digits, as `printf %s TOKEN | sha256sum` prints";
    let sha256 = fields.need("sha256", form, report).and_then(|cursor| {
        let hash = cursor.value.as_str().and_then(hex32);
        if hash.is_none() {
            report.error(&cursor, "not a hash", form);
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
    let mut digits = text.chars().map(|c| c.to_digit(16));
    for byte in &mut bytes {
        let (high, low) = (digits.next()??, digits.next()??);
        *byte = u8::try_from(high << 4 | low).ok()?;
    }
    digits.next().is_none().then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

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
