//! Checks that a host's shared data has the semantics on which exactness depends.
//!
//! Envoy's host does put-if-absent for a version that no value has, but only its source documents that.
//! Every VM checks it once; unit tests run the same check on the fake.

use loudou_store::{CAS_ABSENT, StoreFailed, Written};

use crate::host::Host;

/// Whether creating an existing key fails and a stale version is refused.
pub(crate) fn shared_data_is_sound(host: &dyn Host, share: &str) -> Result<bool, StoreFailed> {
    let key = [share.as_bytes(), b":probe"].concat();
    let mut value = Vec::new();
    host.shared_set(&key, b"probe", CAS_ABSENT)?;
    let Some(cas) = host.shared_get(&key, &mut value)? else {
        return Ok(false);
    };
    let created_again = host.shared_set(&key, b"again", CAS_ABSENT)? == Written::Done;
    // Another worker may write in between, so only the stale write is certain to fail.
    host.shared_set(&key, b"probe", cas)?;
    let stale = host.shared_set(&key, b"stale", cas)? == Written::Done;
    host.shared_get(&key, &mut value)?;
    Ok(!created_again && !stale && value == b"probe")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::fake::FakeHost;

    #[test]
    fn the_fake_has_the_semantics_of_envoy() {
        assert_eq!(
            shared_data_is_sound(&FakeHost::default(), "loudou"),
            Ok(true)
        );
    }
}
