//! Client certificates, as far as tenants go by them.
//!
//! Decides nothing about trust: what is here was verified in the handshake
//! against the operator's certification authority.

/// A client certificate that was verified in the handshake.
#[derive(Clone, PartialEq, Eq)]
pub struct ClientCertificate {
    /// SHA-256 of the certificate as it was sent (DER).
    pub fingerprint: [u8; 32],
    /// Its subject alternative names, DNS names in lower case and URIs as they are.
    pub names: Vec<String>,
}

impl std::fmt::Debug for ClientCertificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ClientCertificate({:?})", self.names)
    }
}
