//! Authentication of callers, and their access.

use loudou_api::Access;
use loudou_rules::config::AdminSettings;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::address;
use super::answer::Failure;
use super::named_host;
use crate::host::Host;

/// The caller of a request.
#[derive(Clone, Debug)]
pub(super) struct Caller {
    /// The name of the token.
    pub(super) name: String,
    /// The access of the token.
    pub(super) access: Access,
}

/// The caller of the current request, if it may call at all.
pub(super) fn authorize(host: &dyn Host, settings: &AdminSettings) -> Result<Caller, Failure> {
    if host.request_header("origin").is_some() {
        let detail = "requests from web pages (with an Origin header) are refused";
        return Err(Failure::new(403, "Forbidden", detail));
    }
    named_host::check(host, settings)?;
    if settings.tokens.is_empty() {
        return loopback(host);
    }
    let header = host.request_header("authorization").unwrap_or_default();
    let Some(token) = bearer(&header) else {
        let detail = "send a token: `Authorization: Bearer TOKEN` (loudou: LOUDOU_TOKEN)";
        return Err(Failure::new(401, "Unauthorized", detail));
    };
    let digest: [u8; 32] = Sha256::digest(token).into();
    // Every token is compared, and in constant time: the time reveals nothing about any token.
    let mut known = None;
    for token in &settings.tokens {
        if bool::from(token.sha256.ct_eq(&digest)) {
            known = Some(token);
        }
    }
    known
        .map(|token| Caller {
            name: token.name.clone(),
            access: token.may,
        })
        .ok_or_else(|| Failure::new(401, "Unauthorized", "unknown token"))
}

fn bearer(header: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = header.split_first_chunk::<7>()?;
    scheme
        .eq_ignore_ascii_case(b"bearer ")
        .then(|| token.trim_ascii())
        .filter(|t| !t.is_empty())
}

/// Without tokens, only this machine may call.
fn loopback(host: &dyn Host) -> Result<Caller, Failure> {
    if address::is_source_loopback(host) {
        return Ok(Caller {
            name: "loopback".to_owned(),
            access: Access::Edit,
        });
    }
    let detail =
        "no tokens are configured, so only loopback clients may call; configure admin.tokens";
    Err(Failure::new(403, "Forbidden", detail))
}
