//! What a certificate says of itself.
//!
//! Decides nothing about trust; reads what operators are told and tenants go by.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::{Duration, SystemTime};

use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

/// What a certificate says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFacts {
    /// Its subject, as RFC 4514 writes it; may be empty.
    pub subject: String,
    /// Its subject alternative names: `dns:` and a name in lower case, `uri:` and
    /// a URI, `ip:` and an address.
    pub names: Vec<String>,
    /// When it expires.
    pub not_after: SystemTime,
}

// === impl CertificateFacts ===

impl CertificateFacts {
    /// What a certificate in DER form says; `None` where it is none.
    pub fn of(der: &[u8]) -> Option<Self> {
        let (_, certificate) = X509Certificate::from_der(der).ok()?;
        let names = certificate.subject_alternative_name().ok()?;
        let names = names.map_or_else(Vec::new, |found| {
            found.value.general_names.iter().filter_map(name).collect()
        });
        let seconds = certificate.validity().not_after.timestamp();
        let seconds = u64::try_from(seconds).unwrap_or(0);
        Some(Self {
            subject: certificate.subject().to_string(),
            names,
            not_after: SystemTime::UNIX_EPOCH + Duration::from_secs(seconds),
        })
    }
}

fn name(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(name) => Some(format!("dns:{}", name.to_ascii_lowercase())),
        GeneralName::URI(uri) => Some(format!("uri:{uri}")),
        GeneralName::IPAddress(bytes) => match **bytes {
            [a, b, c, d] => Some(format!("ip:{}", Ipv4Addr::new(a, b, c, d))),
            ref bytes => {
                let bytes: [u8; 16] = bytes.try_into().ok()?;
                Some(format!("ip:{}", Ipv6Addr::from(bytes)))
            }
        },
        _ => None,
    }
}
