//! The name under which a tenant's prompts are kept in an engine's prefix cache.
//!
//! Whoever shares a cache can time it, and so ask whether somebody sent a prompt
//! before. Where the operator isolates tenants, each has a name of its own that
//! only this gateway can make. Invariant: equal names only for one tenant, one
//! secret and one choice of its client.

use sha2::{Digest, Sha256};

use crate::config::Secret;

/// The `cache_salt` of `tenant`: 64 hexadecimal digits, the same in every process
/// that has the secret. What the client chose keeps its own prompts apart, and
/// leads to nobody else's.
pub fn cache_salt(secret: &Secret, tenant: &str, chosen: Option<&str>) -> String {
    // Digests have one length, so no two pairs of texts make the same bytes.
    let mut salt = Sha256::new();
    salt.update(Sha256::digest(secret.expose()));
    salt.update(Sha256::digest(tenant));
    salt.update([u8::from(chosen.is_some())]);
    salt.update(Sha256::digest(chosen.unwrap_or_default()));
    let digits = |byte: u8| [byte >> 4, byte & 15].map(|digit| char::from_digit(digit.into(), 16));
    let digits = salt.finalize().into_iter().flat_map(digits);
    digits.flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_salt_is_a_tenants_own_whatever_its_client_chooses() {
        let secret = Secret::new("s");
        let salt = |tenant, chosen| cache_salt(&secret, tenant, chosen);
        let own = salt("a", None);
        assert_eq!(own.len(), 64);
        assert_eq!(own, salt("a", None));
        let others = [
            salt("b", None),
            salt("a", Some("")),
            salt("a", Some("x")),
            salt("b", Some("x")),
            salt("b", Some(&own)),
            salt("ax", None),
            cache_salt(&Secret::new("t"), "a", None),
        ];
        assert!(!others.contains(&own));
        let all: std::collections::BTreeSet<_> = others.iter().collect();
        assert_eq!(all.len(), others.len());
    }
}
