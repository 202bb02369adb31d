//! Client certificates, as far as tenants go by them.
//!
//! Decides which tenant a certificate is, never whether it is trusted: what is
//! here was verified in the handshake against the operator's authorities.
//! Invariant: a certificate whose names are several tenants' is nobody's.

use std::collections::HashMap;
use std::fmt;

use sha2::{Digest, Sha256};

use crate::config::{CertificateFacts, CertificateMatch, Tenant};

/// A client certificate that was verified in the handshake.
#[derive(Clone, PartialEq, Eq)]
pub struct ClientCertificate {
    /// SHA-256 of the certificate as it was sent (DER).
    pub fingerprint: [u8; 32],
    /// Its names, written as in [`CertificateFacts::names`].
    pub names: Vec<String>,
}

/// Which tenant each certificate belongs to.
#[derive(Debug)]
pub(super) struct CertificateTable(HashMap<CertificateMatch, usize>);

// === impl ClientCertificate ===

impl ClientCertificate {
    /// What tenants go by of a certificate in DER form; `None` where it is none.
    pub fn of(der: &[u8]) -> Option<Self> {
        let facts = CertificateFacts::of(der)?;
        Some(Self {
            fingerprint: Sha256::digest(der).into(),
            names: facts.names,
        })
    }
}

impl fmt::Debug for ClientCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClientCertificate({:?})", self.names)
    }
}

// === impl CertificateTable ===

impl CertificateTable {
    /// The certificates of all tenants. The configuration has refused what two of them share.
    pub(super) fn new(tenants: &[Tenant]) -> Self {
        let all = tenants.iter().enumerate().flat_map(|(index, tenant)| {
            let matches = tenant.certificates.iter();
            matches.map(move |certificate| (certificate.clone(), index))
        });
        Self(all.collect())
    }

    /// Whether no tenant is known by a certificate.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The index of the tenant of `shown`: by its fingerprint, else by its names.
    pub(super) fn find(&self, shown: &ClientCertificate) -> Option<usize> {
        let print = CertificateMatch::Fingerprint(shown.fingerprint);
        if let Some(index) = self.0.get(&print) {
            return Some(*index);
        }
        let names = shown.names.iter().cloned().map(CertificateMatch::Name);
        let mut found = names.filter_map(|name| self.0.get(&name).copied());
        let first = found.next()?;
        found.all(|other| other == first).then_some(first)
    }
}
