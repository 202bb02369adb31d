//! Certificates made for a test, clients that verify them, and engines behind TLS.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig, SupportedProtocolVersion};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::client::TlsStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::wire::Io;

impl Io for TlsStream<TcpStream> {
    fn reset_at_end(&self) {
        self.get_ref().0.set_zero_linger().unwrap();
    }
}

/// A directory of its own for the files of a test; gone with it.
pub(crate) struct Files(PathBuf);

/// An authority and what it signs.
pub(crate) struct Ca {
    issuer: Issuer<'static, KeyPair>,
    pub(crate) pem: String,
}

/// A certificate and its key, as PEM.
#[derive(Clone)]
pub(crate) struct Pair {
    pub(crate) chain: String,
    pub(crate) key: String,
}

/// How a client shakes hands.
pub(crate) struct Hello<'a> {
    pub(crate) trusts: &'a Ca,
    pub(crate) shows: Option<&'a Pair>,
    pub(crate) name: &'static str,
    pub(crate) alpn: &'static [&'static [u8]],
    pub(crate) versions: &'static [&'static SupportedProtocolVersion],
}

/// TLS before an engine that speaks clear text.
pub(crate) struct Front {
    addr: SocketAddr,
    serving: JoinHandle<()>,
}

// === impl Files ===

impl Files {
    pub(crate) fn new() -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("tls-{}-{number}", std::process::id());
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// Writes a file; its path as a TOML value.
    pub(crate) fn write(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        format!("{path:?}")
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

// === impl Ca ===

impl Ca {
    pub(crate) fn new(name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        let issuer = Issuer::new(params, key);
        Self { issuer, pem }
    }

    /// A certificate for these names, which a client may show too.
    pub(crate) fn sign(&self, names: &[&str]) -> Pair {
        self.sign_until(names, 2090)
    }

    /// One that expires with the beginning of `year`.
    pub(crate) fn sign_until(&self, names: &[&str], year: i32) -> Pair {
        let key = KeyPair::generate().unwrap();
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.not_after = date_time_ymd(year, 1, 1);
        let chain = params.signed_by(&key, &self.issuer).unwrap().pem();
        let key = key.serialize_pem();
        Pair { chain, key }
    }

    fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        let der = CertificateDer::from_pem_slice(self.pem.as_bytes()).unwrap();
        roots.add(der).unwrap();
        roots
    }
}

// === impl Pair ===

impl Pair {
    /// Both in one text.
    pub(crate) fn both(&self) -> String {
        format!("{}{}", self.chain, self.key)
    }

    fn chain(&self) -> Vec<CertificateDer<'static>> {
        vec![CertificateDer::from_pem_slice(self.chain.as_bytes()).unwrap()]
    }

    fn key(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::from_pem_slice(self.key.as_bytes()).unwrap()
    }
}

// === impl Hello ===

impl<'a> Hello<'a> {
    /// To `gateway.example`, for HTTP/1.1.
    pub(crate) fn new(trusts: &'a Ca) -> Self {
        Self {
            trusts,
            shows: None,
            name: "gateway.example",
            alpn: &[b"http/1.1"],
            versions: rustls::ALL_VERSIONS,
        }
    }

    pub(crate) fn showing(self, pair: &'a Pair) -> Self {
        Self {
            shows: Some(pair),
            ..self
        }
    }

    /// Shakes hands; the server's alert may come with the first read only.
    pub(crate) async fn connect(&self, addr: SocketAddr) -> std::io::Result<TlsStream<TcpStream>> {
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(self.versions)
            .unwrap()
            .with_root_certificates(self.trusts.roots());
        let mut config = match self.shows {
            Some(pair) => builder
                .with_client_auth_cert(pair.chain(), pair.key())
                .unwrap(),
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = self.alpn.iter().map(|name| name.to_vec()).collect();
        let io = TcpStream::connect(addr).await.unwrap();
        io.set_nodelay(true).unwrap();
        let name = ServerName::try_from(self.name).unwrap();
        TlsConnector::from(Arc::new(config)).connect(name, io).await
    }
}

// === impl Front ===

impl Front {
    /// Before the engine at `behind`, showing `pair`; `asks` for certificates of that authority.
    pub(crate) async fn start(behind: &str, pair: &Pair, asks: Option<&Ca>) -> Self {
        let provider = Arc::new(ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .unwrap();
        let builder = match asks {
            None => builder.with_no_client_auth(),
            Some(ca) => {
                let roots = Arc::new(ca.roots());
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider);
                builder.with_client_cert_verifier(verifier.build().unwrap())
            }
        };
        let config = builder.with_single_cert(pair.chain(), pair.key()).unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let behind: SocketAddr = behind.trim_start_matches("http://").parse().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let serving = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (io, _) = listener.accept().await.unwrap();
                let acceptor = acceptor.clone();
                connections.spawn(async move {
                    let Ok(mut outside) = acceptor.accept(io).await else {
                        return;
                    };
                    let mut inside = TcpStream::connect(behind).await.unwrap();
                    inside.set_nodelay(true).unwrap();
                    drop(copy_bidirectional(&mut outside, &mut inside).await);
                });
            }
        });
        Self { addr, serving }
    }

    pub(crate) fn url(&self) -> String {
        format!("https://{}", self.addr)
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        self.serving.abort();
    }
}
