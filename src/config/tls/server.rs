//! What a listener's handshakes go by.
//!
//! Decides the versions, the certificate by the name a client asks for, and
//! whether a client must prove itself. Cannot fail: what it is made of was
//! checked while it was read.

use std::sync::Arc;

use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::ServerName;
use rustls::server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use webpki::EndEntityCert;

use super::{ClientAuth, ClientCa, TlsIdentity};

/// Protocols a listener agrees on, the dearest first.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// Chooses among certificates; the first one serves where no name fits.
#[derive(Debug)]
struct ByName(Vec<Arc<CertifiedKey>>);

/// The handshakes of a listener that shows `identities`.
pub(super) fn handshake(identities: &[TlsIdentity], clients: Option<&ClientCa>) -> ServerConfig {
    let provider = Arc::new(ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .expect("ring has cipher suites for both versions");
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(ca) => {
            let verifier = WebPkiClientVerifier::builder_with_provider(ca.roots.store(), provider);
            let verifier = match ca.auth {
                ClientAuth::Optional => verifier.allow_unauthenticated(),
                ClientAuth::Required => verifier,
            };
            let verifier = verifier.build().expect("there is at least one authority");
            builder.with_client_cert_verifier(verifier)
        }
    };
    let shown = identities.iter().map(|one| Arc::clone(&one.certified));
    let mut config = builder.with_cert_resolver(Arc::new(ByName(shown.collect())));
    config.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).to_vec();
    config
}

impl ResolvesServerCert for ByName {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let usable =
            |one: &&Arc<CertifiedKey>| one.key.choose_scheme(hello.signature_schemes()).is_some();
        let asked = hello
            .server_name()
            .and_then(|name| ServerName::try_from(name).ok());
        let named = asked.and_then(|name| {
            let fits = |one: &&Arc<CertifiedKey>| bears(one, &name);
            self.0.iter().filter(usable).find(fits)
        });
        named.or_else(|| self.0.iter().find(usable)).cloned()
    }
}

/// Whether the leaf is for `name`, wildcards included.
fn bears(certified: &CertifiedKey, name: &ServerName<'_>) -> bool {
    certified.cert.first().is_some_and(|leaf| {
        EndEntityCert::try_from(leaf)
            .is_ok_and(|leaf| leaf.verify_is_valid_for_subject_name(name).is_ok())
    })
}
