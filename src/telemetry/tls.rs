//! What operators see of TLS: failed handshakes and when certificates expire.

use std::time::SystemTime;

use super::metric::Metric;
use super::metrics::Metrics;
use crate::config::Config;

/// Why a client's handshake failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HandshakeFailure {
    /// It took too long.
    Timeout,
    /// What came is not TLS.
    NotTls,
    /// No version, cipher or protocol that both sides speak.
    NothingInCommon,
    /// A client certificate is needed and none was shown.
    NoCertificate,
    /// The client certificate proves nothing.
    BadCertificate,
    /// The client does not take our certificate, or gave up.
    RefusedByClient,
}

// === impl HandshakeFailure ===

impl HandshakeFailure {
    /// All of them, in declaration order.
    pub const ALL: [Self; 6] = [
        Self::Timeout,
        Self::NotTls,
        Self::NothingInCommon,
        Self::NoCertificate,
        Self::BadCertificate,
        Self::RefusedByClient,
    ];

    /// The name in logs and metrics.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::NotTls => "not_tls",
            Self::NothingInCommon => "nothing_in_common",
            Self::NoCertificate => "no_certificate",
            Self::BadCertificate => "bad_certificate",
            Self::RefusedByClient => "refused_by_client",
        }
    }
}

// === impl Metrics ===

impl Metrics {
    /// Counts a failed handshake on a listener, `clients` or `admin`.
    pub fn handshake_failed(&self, listener: &'static str, failure: HandshakeFailure) {
        let labels = [listener, failure.label()];
        self.counter(Metric::HandshakesFailed, &labels).increment(1);
    }

    /// Sets when each certificate that is shown expires.
    pub fn show_certificates(&self, config: &Config) {
        for (setting, identity) in config.identities() {
            let expires = identity.facts.not_after;
            let since_1970 = expires.duration_since(SystemTime::UNIX_EPOCH);
            let seconds = since_1970.unwrap_or_default().as_secs_f64();
            self.set(Metric::CertificateExpires, &[&setting], seconds);
        }
    }
}
