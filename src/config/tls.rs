//! Certificates and keys that the configuration names, read and checked.
//!
//! Decides whether a chain, its key and a set of authorities can be used, so
//! that whoever builds a handshake from them cannot fail. Never shows a key;
//! an expired certificate is used and told of, since refusing it would turn a
//! warning into an outage. Invariant: the key of a [`TlsIdentity`] belongs to
//! the first certificate of its chain, and [`TlsRoots`] holds at least one.

mod facts;
mod server;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use http::Uri;
use http::uri::Scheme;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::sign::CertifiedKey;
use rustls::{InconsistentKeys, RootCertStore, ServerConfig};

use super::reader::Section;
use super::secret::KeyDigest;
use super::surroundings::Surroundings;

pub use facts::CertificateFacts;

/// TLS on a listener.
#[derive(Clone)]
pub struct ListenerTls {
    /// Certificates with their keys, chosen by the name a client asks for; the
    /// first one serves whoever asks for another or for none. Never empty.
    pub identities: Vec<TlsIdentity>,
    /// Whose client certificates are taken; `None` asks for none.
    pub clients: Option<ClientCa>,
    /// Both as handshakes take them.
    pub handshake: Arc<ServerConfig>,
}

/// Whose client certificates a listener takes.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientCa {
    /// Authorities that sign them.
    pub roots: TlsRoots,
    /// Whether a client must show one.
    pub auth: ClientAuth,
}

/// Whether a client must show a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientAuth {
    /// It may; a wrong one ends the handshake either way.
    Optional,
    /// Without one there is no connection.
    Required,
}

/// TLS towards a backend; its certificate is always verified.
#[derive(Clone, Debug, PartialEq)]
pub struct BackendTls {
    /// Authorities that may sign the backend's certificate.
    pub roots: TlsRoots,
    /// What is shown where the backend asks for a client certificate.
    pub identity: Option<TlsIdentity>,
    /// The name the backend's certificate must bear.
    pub server_name: ServerName<'static>,
}

/// How a tenant's client certificate is known.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum CertificateMatch {
    /// By the SHA-256 of the certificate (DER).
    Fingerprint([u8; 32]),
    /// By one of its names, written as in [`CertificateFacts::names`].
    Name(String),
}

/// A certificate chain, leaf first, and the key of its leaf.
#[derive(Clone)]
pub struct TlsIdentity {
    /// Where the chain was read.
    pub file: PathBuf,
    /// What the leaf says.
    pub facts: CertificateFacts,
    /// The chain and its key as a handshake takes them.
    pub certified: Arc<CertifiedKey>,
}

/// Authorities that are trusted.
#[derive(Clone)]
pub struct TlsRoots(Arc<RootCertStore>);

const CLIENT_AUTH: [(&str, ClientAuth); 2] = [
    ("optional", ClientAuth::Optional),
    ("required", ClientAuth::Required),
];

/// TLS of a listener, where `section` asks for it.
pub(super) fn listener(mut section: Section<'_>, around: &dyn Surroundings) -> Option<ListenerTls> {
    let chain = section.text(
        "cert_file",
        "the path of a PEM file, the server's certificate first",
    );
    let key = section.text("key_file", "the path of a PEM file of one private key");
    let more = section.texts(
        "more_cert_files",
        "a list of PEM files, each of a chain and its key",
    );
    let ca = section.text("client_ca_file", "the path of a PEM file of authorities");
    let auth = section.word("client_auth", &CLIENT_AUTH, ClientAuth::Optional);
    if ca.is_none() && auth == ClientAuth::Required {
        section.note(
            "client_auth",
            Some("\"required\"".to_owned()),
            "needs client_ca_file",
        );
    }
    let Some(chain) = chain else {
        if key.is_some() || more.is_some() || ca.is_some() {
            section.note(
                "cert_file",
                None,
                "is needed beside the other keys of this section",
            );
        }
        section.finish();
        return None;
    };
    let keys = Pair {
        key: "cert_file",
        chain: &chain,
        private: key.as_deref().unwrap_or(&chain),
    };
    let first = identity(&section, keys, around);
    let others = more.iter().flatten().map(|file| {
        let keys = Pair {
            key: "more_cert_files",
            chain: file,
            private: file,
        };
        identity(&section, keys, around)
    });
    let identities = std::iter::once(first)
        .chain(others)
        .collect::<Option<Vec<_>>>();
    let clients = ca.and_then(|file| {
        let roots = roots(&section, ("client_ca_file", &file), around)?;
        Some(ClientCa { roots, auth })
    });
    section.finish();
    let identities = identities?;
    Some(ListenerTls::new(identities, clients))
}

/// TLS towards the backend at `url`, whose keys are in `section`.
pub(super) fn backend(
    section: &mut Section<'_>,
    url: &Uri,
    around: &dyn Surroundings,
) -> Option<BackendTls> {
    let ca = section.text("tls_ca_file", "the path of a PEM file of authorities");
    let chain = section.text(
        "tls_client_cert_file",
        "the path of a PEM file, the client's certificate first",
    );
    let key = section.text(
        "tls_client_key_file",
        "the path of a PEM file of one private key",
    );
    let name = section.text("tls_server_name", "a DNS name or an IP address");
    if url.scheme() != Some(&Scheme::HTTPS) {
        let given = [
            ("tls_ca_file", &ca),
            ("tls_client_cert_file", &chain),
            ("tls_client_key_file", &key),
            ("tls_server_name", &name),
        ];
        for (key, _) in given.into_iter().filter(|(_, value)| value.is_some()) {
            section.note(key, None, "needs an https:// url");
        }
        return None;
    }
    if chain.is_none() && key.is_some() {
        section.note(
            "tls_client_cert_file",
            None,
            "is needed beside tls_client_key_file",
        );
    }
    let identity = chain.and_then(|chain| {
        let private = key.as_deref().unwrap_or(&chain);
        let keys = Pair {
            key: "tls_client_cert_file",
            chain: &chain,
            private,
        };
        identity(section, keys, around)
    });
    let roots = match ca {
        Some(file) => roots(section, ("tls_ca_file", &file), around)?,
        None => TlsRoots::public(),
    };
    let host = url.host().unwrap_or_default().trim_matches(['[', ']']);
    let wanted = match &name {
        Some(name) => ("tls_server_name", name.as_str()),
        None => ("url", host),
    };
    let server_name = server_name(section, wanted)?;
    Some(BackendTls {
        roots,
        identity,
        server_name,
    })
}

/// TLS towards the host of `url`, by the authorities of `tls_ca_file` where there
/// is one, else by those of Mozilla.
pub(super) fn towards(
    section: &Section<'_>,
    url: &Uri,
    (ca, around): (Option<&str>, &dyn Surroundings),
) -> Option<BackendTls> {
    let roots = match ca {
        Some(file) => roots(section, ("tls_ca_file", file), around)?,
        None => TlsRoots::public(),
    };
    let host = url.host().unwrap_or_default().trim_matches(['[', ']']);
    Some(BackendTls {
        roots,
        identity: None,
        server_name: server_name(section, ("endpoint", host))?,
    })
}

fn server_name(
    section: &Section<'_>,
    (key, name): (&'static str, &str),
) -> Option<ServerName<'static>> {
    const FORM: &str = "must have a DNS name or an IP address, as a certificate bears it";
    ServerName::try_from(name.to_owned())
        .map_err(|_| section.note(key, None, FORM))
        .ok()
}

/// A chain and a key as they are written, and the setting that is told of what is wrong.
struct Pair<'a> {
    key: &'static str,
    chain: &'a str,
    private: &'a str,
}

fn identity(
    section: &Section<'_>,
    pair: Pair<'_>,
    around: &dyn Surroundings,
) -> Option<TlsIdentity> {
    let private = around.path(pair.private);
    if around.is_open_to_all(&private) {
        section.advise(pair.key, exposed(&private));
    }
    TlsIdentity::read(&around.path(pair.chain), &private, around)
        .map_err(|problem| section.note(pair.key, None, problem))
        .ok()
}

fn roots(
    section: &Section<'_>,
    (key, file): (&'static str, &str),
    around: &dyn Surroundings,
) -> Option<TlsRoots> {
    TlsRoots::read(&around.path(file), around)
        .map_err(|problem| section.note(key, None, problem))
        .ok()
}

/// The client certificates of a tenant.
pub(super) fn matches(section: &mut Section<'_>) -> Vec<CertificateMatch> {
    const FORM: &str = "a list of \"sha256:\" and 64 hexadecimal digits, \"dns:\" and a name, or \"uri:\" and a URI";
    let texts = section.texts("certificates", FORM).unwrap_or_default();
    let read = |text: &String| {
        let read = CertificateMatch::parse(text);
        if read.is_none() {
            section.note(
                "certificates",
                Some(format!("{text:?}")),
                format!("must be {FORM}"),
            );
        }
        read
    };
    texts.iter().filter_map(read).collect()
}

/// What is told of a secret's file that everybody on the machine may read.
pub(super) fn exposed(file: &Path) -> String {
    format!(
        "{} can be read by every user of this machine",
        file.display()
    )
}

// === impl ListenerTls ===

impl ListenerTls {
    /// A listener that shows `identities`, which must not be empty.
    pub fn new(identities: Vec<TlsIdentity>, clients: Option<ClientCa>) -> Self {
        let handshake = server::handshake(&identities, clients.as_ref());
        Self {
            identities,
            clients,
            handshake: Arc::new(handshake),
        }
    }
}

impl PartialEq for ListenerTls {
    /// The handshake is made of the rest.
    fn eq(&self, other: &Self) -> bool {
        self.identities == other.identities && self.clients == other.clients
    }
}

impl fmt::Debug for ListenerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ListenerTls({:?}, {:?})", self.identities, self.clients)
    }
}

// === impl CertificateMatch ===

impl CertificateMatch {
    fn parse(text: &str) -> Option<Self> {
        match text.split_once(':')? {
            ("sha256", digits) => {
                KeyDigest::from_hex(digits).map(|digest| Self::Fingerprint(digest.0))
            }
            ("dns", name) if !name.is_empty() => {
                Some(Self::Name(format!("dns:{}", name.to_ascii_lowercase())))
            }
            ("uri", uri) if uri.contains(':') => Some(Self::Name(text.to_owned())),
            _ => None,
        }
    }
}

// === impl TlsIdentity ===

impl TlsIdentity {
    /// Reads a chain from `chain` and its key from `key`, both PEM, perhaps the same file.
    ///
    /// # Errors
    /// What is wrong, as the rest of a sentence that begins with the file's name.
    pub(super) fn read(
        chain: &Path,
        key: &Path,
        around: &dyn Surroundings,
    ) -> Result<Self, String> {
        let certificates = certificates(chain, around)?;
        let facts = certificates
            .iter()
            .map(|certificate| CertificateFacts::of(certificate))
            .collect::<Option<Vec<_>>>()
            .and_then(|all| all.into_iter().next())
            .ok_or_else(|| format!("{} holds what is no certificate", chain.display()))?;
        let text = text(key, around)?;
        let private = PrivateKeyDer::from_pem_slice(text.as_bytes()).map_err(|_| {
            let file = key.display();
            format!("{file} holds no private key in PEM form (an encrypted one cannot be read)")
        })?;
        let provider = ring::default_provider();
        let certified = CertifiedKey::from_der(certificates, private, &provider)
            .map_err(|error| unusable(&error, chain, key))?;
        Ok(Self {
            file: chain.to_owned(),
            facts,
            certified: Arc::new(certified),
        })
    }
}

/// The error's own words may quote what was read: they are not used.
fn unusable(error: &rustls::Error, chain: &Path, key: &Path) -> String {
    match error {
        rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => format!(
            "the key in {} does not belong to the first certificate in {}",
            key.display(),
            chain.display()
        ),
        _ => format!("the key in {} is of no kind that is known", key.display()),
    }
}

impl PartialEq for TlsIdentity {
    /// The key belongs to the chain, so equal chains have equal keys.
    fn eq(&self, other: &Self) -> bool {
        self.file == other.file && self.certified.cert == other.certified.cert
    }
}

impl fmt::Debug for TlsIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TlsIdentity({})", self.file.display())
    }
}

// === impl TlsRoots ===

impl TlsRoots {
    /// Mozilla's authorities, as compiled in.
    pub fn public() -> Self {
        let roots = webpki_roots::TLS_SERVER_ROOTS.iter().cloned();
        Self(Arc::new(roots.collect()))
    }

    /// These authorities; `None` where there are none.
    pub fn new(roots: RootCertStore) -> Option<Self> {
        (!roots.is_empty()).then(|| Self(Arc::new(roots)))
    }

    /// Reads authorities from a PEM file.
    ///
    /// # Errors
    /// What is wrong, as the rest of a sentence.
    pub(super) fn read(file: &Path, around: &dyn Surroundings) -> Result<Self, String> {
        let mut roots = RootCertStore::empty();
        for certificate in certificates(file, around)? {
            roots.add(certificate).map_err(|_| {
                format!(
                    "{} holds what is no authority's certificate",
                    file.display()
                )
            })?;
        }
        Ok(Self(Arc::new(roots)))
    }

    /// The authorities as a handshake takes them.
    pub fn store(&self) -> Arc<RootCertStore> {
        Arc::clone(&self.0)
    }
}

impl PartialEq for TlsRoots {
    fn eq(&self, other: &Self) -> bool {
        self.0.roots == other.0.roots
    }
}

impl fmt::Debug for TlsRoots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TlsRoots({})", self.0.len())
    }
}

/// The certificates of a PEM file; at least one.
fn certificates(
    file: &Path,
    around: &dyn Surroundings,
) -> Result<Vec<CertificateDer<'static>>, String> {
    let text = text(file, around)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text.as_bytes()).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        _ => Err(format!(
            "{} holds no certificate in PEM form",
            file.display()
        )),
    }
}

fn text(file: &Path, around: &dyn Surroundings) -> Result<String, String> {
    around
        .text(file)
        .map_err(|error| format!("{} cannot be read: {error}", file.display()))
}
