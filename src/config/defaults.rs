//! The default of every key, with its reason.
//!
//! `config/tidegate.toml` says the same to the operator; a test compares them.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use http::Uri;

use super::backend::{Backend, KvOverrides};
use super::content::Content;
use super::discovery::Discover;
use super::resolved::{
    AccessLog, Admin, AdmissionConfig, AdmissionMode, Anonymous, Auth, BackendVisibility,
    ClientAddress, Config, Counting, ForwardedHeader, HubAccess, HubSettings, Limits, Log,
    LogFormat, Model, ModelAccess, OnUncountable, Probe, Queue, ReservationKind, Server, Tenant,
    TokenizerChoice, Upstream,
};
use super::traces::Traces;
use crate::core::backend::{Tier, TierSet};
use crate::core::demand::{Length, OffloadRule};
use crate::core::placement::LongOnStandard;
use crate::core::queue::Unserved;
use crate::core::units::Tokens;

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;

// === defaults ===

impl Default for Config {
    fn default() -> Self {
        Self {
            server: Server::default(),
            admin: Admin::default(),
            upstream: Upstream::default(),
            probe: Probe::default(),
            queue: Queue::default(),
            admission: AdmissionConfig::default(),
            counting: Counting::default(),
            auth: Auth::default(),
            content: Content::default(),
            traces: Traces::default(),
            hub: HubSettings::default(),
            models: vec![Model::new(
                "model",
                vec![Backend::new(Uri::from_static("http://127.0.0.1:8000"))],
            )],
            tenants: vec![Tenant::open()],
            log: Log::default(),
            seen: Vec::new(),
            files: Vec::new(),
        }
    }
}

impl Default for Server {
    fn default() -> Self {
        Self {
            listen: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8080),
            max_body_bytes: 16 * MIB,
            body_budget_bytes: 512 * MIB,
            cors_origins: Vec::new(),
            min_body_bytes_per_second: 512,
            max_connections: 8192,
            max_silent_per_address: 256,
            max_header_bytes: 32 * 1024,
            header_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(60),
            drain_timeout: Duration::from_secs(25),
            tls: None,
            stream_keepalive: None,
            dead_client_timeout: Duration::from_secs(60),
            trusted_proxies: Vec::new(),
            forwarded_header: ForwardedHeader::XForwardedFor,
        }
    }
}

impl Default for Admin {
    fn default() -> Self {
        Self {
            listen: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8081),
            token: None,
            tls: None,
        }
    }
}

impl Default for Upstream {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(5),
            first_byte_timeout: None,
            stream_silence_timeout: Duration::from_secs(120),
            request_timeout: None,
            pool_idle_timeout: Duration::from_secs(4),
            max_connection_age: Duration::from_secs(30),
        }
    }
}

impl Default for Probe {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(1),
            timeout: Duration::from_secs(2),
            stale_after: Duration::from_secs(10),
            down_after: 3,
        }
    }
}

impl Default for Queue {
    fn default() -> Self {
        Self {
            max_requests: 1024,
            max_tokens: Tokens::new(4_000_000),
            max_wait: Duration::from_secs(60),
            max_bypass: Duration::from_secs(10),
            unserved: Unserved::Refuse,
        }
    }
}

impl Default for AdmissionConfig {
    fn default() -> Self {
        Self {
            mode: AdmissionMode::Enforce,
            reservation: ReservationKind::Forecast,
            open_output_tokens: Tokens::new(1024),
            plan_share: 0.97,
            confidence: 1.64,
            assumed_kv_tokens: Tokens::new(8192),
            long_share: 0.25,
            free_reserve: 0.15,
            late: Some(Duration::from_millis(500)),
            order_weight: 4.0,
            patience: Duration::from_secs(30),
            token_pace: None,
            first_token: None,
            first_token_per_1000: Duration::from_millis(250),
        }
    }
}

impl Default for Counting {
    fn default() -> Self {
        Self {
            time_limit: Duration::from_millis(250),
            check_one_in: 1000,
        }
    }
}

impl Default for Auth {
    fn default() -> Self {
        Self {
            max_failed_keys: 20,
            failed_keys_window: Duration::from_secs(60),
            jwt: None,
        }
    }
}

impl Default for HubSettings {
    fn default() -> Self {
        Self {
            access: HubAccess::CacheOnly,
            endpoint: "https://huggingface.co".to_owned(),
            cache_dir: PathBuf::from("/var/cache/tidegate"),
            token: None,
            timeout: Duration::from_secs(60),
            retry_after: Duration::from_secs(300),
        }
    }
}

impl Default for Log {
    fn default() -> Self {
        Self {
            level: "info".to_owned(),
            format: LogFormat::Text,
            access: AccessLog::Stdout,
            access_queue: 8192,
            client_address: ClientAddress::Off,
            metric_tenants: 50,
        }
    }
}

// === impl Model ===

impl Model {
    /// A model with default settings. `backends` must not be empty.
    pub fn new(name: impl Into<String>, backends: Vec<Backend>) -> Self {
        Self {
            name: name.into(),
            aliases: Vec::new(),
            tokenizer: TokenizerChoice::Engine,
            on_uncountable: OnUncountable::Estimate,
            stored_history: Tokens::new(4096),
            chat_template_file: None,
            template_kwargs: serde_json::Map::new(),
            long_on_standard: LongOnStandard::WhenNothingLarger,
            kv_layout: None,
            backends,
            backends_file: None,
        }
    }

    /// The ids clients may ask for: the name first, then the aliases.
    pub fn served_ids(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.name.as_str()).chain(self.aliases.iter().map(String::as_str))
    }
}

// === impl Backend ===

impl Backend {
    /// A standard backend at `http://host:port`, named after its address.
    pub fn new(url: Uri) -> Self {
        let name = url
            .authority()
            .map_or_else(|| url.to_string(), ToString::to_string);
        Self {
            name,
            url,
            tier: Tier::Standard,
            api_key: None,
            tls: None,
            kv: KvOverrides::default(),
            data_parallel_ranks: 1,
            discover: Discover::Off,
        }
    }
}

// === impl Tenant ===

impl Tenant {
    /// A tenant without limits that no key and no request belongs to yet.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            keys: Vec::new(),
            certificates: Vec::new(),
            anonymous: Anonymous::Refused,
            limits: Limits::default(),
            weight: 1,
            in_flight_share: 0.0,
            priority: None,
            models: ModelAccess::All,
            tiers: TierSet::ALL,
            offload: OffloadRule::WhenOnly,
            length: Length::ByFootprint,
            backend_name: BackendVisibility::Shown,
        }
    }

    /// The tenant of a file that names none: everybody, without limits.
    pub fn open() -> Self {
        Self {
            anonymous: Anonymous::Accepted,
            ..Self::new("anonymous")
        }
    }
}
