//! The resolved configuration: plain data, every field checked.
//!
//! The default of each section is in `defaults.rs`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;

use crate::core::backend::TierSet;
use crate::core::demand::{Length, OffloadRule};
use crate::core::placement::LongOnStandard;
use crate::core::queue::Unserved;
use crate::core::rate::Rate;
use crate::core::units::Tokens;

use super::backend::{Backend, BackendsFile};
use super::content::Content;
use super::jwt::Jwt;
use super::problem::Problem;
use super::secret::{KeyDigest, Secret};
use super::tls::{CertificateMatch, ListenerTls};
use super::traces::Traces;

/// Everything the operator decides.
///
/// `Config::default()` is what a file gives that names one model with one
/// backend on `127.0.0.1:8000` and nothing else.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The client side.
    pub server: Server,
    /// The operator's side.
    pub admin: Admin,
    /// Connections to backends.
    pub upstream: Upstream,
    /// Watching backends.
    pub probe: Probe,
    /// The line of each model.
    pub queue: Queue,
    /// How KV is reserved and tiers are used.
    pub admission: AdmissionConfig,
    /// Counting prompts.
    pub counting: Counting,
    /// Guessing of API keys, and tokens beside them.
    pub auth: Auth,
    /// What requests may carry beside text.
    pub content: Content,
    /// Where spans of requests are sent.
    pub traces: Traces,
    /// Where tokenizer files of named models come from.
    pub hub: HubSettings,
    /// Models; never empty, names and aliases unique over all of them.
    pub models: Vec<Model>,
    /// Tenants; never empty. Without any in the
    /// file there is one anonymous tenant without limits.
    pub tenants: Vec<Tenant>,
    /// Diagnostics and the access log.
    pub log: Log,
    /// What was seen while reading that is allowed but seldom meant.
    pub seen: Vec<Problem>,
    /// Files that were read for it besides its own.
    pub files: Vec<PathBuf>,
}

/// The listener clients speak to.
#[derive(Clone, Debug, PartialEq)]
pub struct Server {
    /// Address and port.
    pub listen: SocketAddr,
    /// Largest request body, in bytes.
    pub max_body_bytes: u64,
    /// Bodies held at one time over all requests, in bytes; at least `max_body_bytes`.
    pub body_budget_bytes: u64,
    /// Origins whose pages may ask from within a browser; `*` is any.
    pub cors_origins: Vec<String>,
    /// Bytes of a body that must come each second while it is read, over 5 s;
    /// 0 is no limit.
    pub min_body_bytes_per_second: u64,
    /// Connections of clients at one time.
    pub max_connections: usize,
    /// Of those from one address, how many may ask for nothing for longer than
    /// a second before their first good answer.
    pub max_silent_per_address: usize,
    /// Largest header block, in bytes.
    pub max_header_bytes: usize,
    /// From the first byte (or the last answer) to the end of the headers.
    pub header_timeout: Duration,
    /// From the end of the headers to the end of the body.
    pub body_timeout: Duration,
    /// From the stop signal until running streams are cut.
    pub drain_timeout: Duration,
    /// TLS, where it is asked for.
    pub tls: Option<ListenerTls>,
    /// How long a client of a stream hears nothing before a comment keeps its
    /// connection open; `None` is for ever.
    pub stream_keepalive: Option<Duration>,
    /// Until a client whose machine has vanished is given up.
    pub dead_client_timeout: Duration,
    /// Proxies whose word on the client's address is believed.
    pub trusted_proxies: Vec<IpNet>,
    /// Where they write it.
    pub forwarded_header: ForwardedHeader,
}

/// Where trusted proxies write whom they forward for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForwardedHeader {
    /// `X-Forwarded-For`.
    XForwardedFor,
    /// `Forwarded` (RFC 7239).
    Forwarded,
}

/// How much of a client's address is written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientAddress {
    /// Nothing.
    Off,
    /// Its network: /24 of IPv4, /48 of IPv6.
    Network,
    /// All of it.
    Full,
}

/// The operator's listener: metrics, health, state.
#[derive(Clone, Debug, PartialEq)]
pub struct Admin {
    /// Address and port; off loopback only with a token.
    pub listen: SocketAddr,
    /// Bearer token asked of every caller, if any.
    pub token: Option<Secret>,
    /// TLS, where it is asked for.
    pub tls: Option<ListenerTls>,
}

/// Connections to backends and their time limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upstream {
    /// Limit of one TCP connect.
    pub connect_timeout: Duration,
    /// From sending to the first data event (or the headers of a plain answer); `None` is no limit.
    pub first_byte_timeout: Option<Duration>,
    /// Silence inside a stream, counted from its first data event.
    pub stream_silence_timeout: Duration,
    /// From sending to the end of the answer; `None` is no limit.
    pub request_timeout: Option<Duration>,
    /// How long an idle connection may be used again.
    pub pool_idle_timeout: Duration,
    /// Age from which a connection takes no further request.
    pub max_connection_age: Duration,
}

/// Watching backends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Time between two scrapes of one backend.
    pub interval: Duration,
    /// Limit of one scrape.
    pub timeout: Duration,
    /// Age from which a scrape says nothing any more; longer than `interval + timeout`.
    pub stale_after: Duration,
    /// Failed probes in a row after which a backend is down; at least 1.
    pub down_after: u32,
}

/// The line of each model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queue {
    /// Most waiting requests.
    pub max_requests: u32,
    /// Most tokens (prompt and expected output) of waiting requests.
    pub max_tokens: Tokens,
    /// Longest wait; a tenant may have a shorter one.
    pub max_wait: Duration,
    /// How long a request that does not fit may be passed by later ones that do.
    pub max_bypass: Duration,
    /// What becomes of requests while no backend that could serve them is usable.
    pub unserved: Unserved,
}

/// How KV is reserved, what is sent when, and how tiers are used.
#[derive(Clone, Debug, PartialEq)]
pub struct AdmissionConfig {
    /// Whether what admission decides is done, or only told.
    pub mode: AdmissionMode,
    /// What a request holds.
    pub reservation: ReservationKind,
    /// Expected output of a request that does not bound it, in tokens.
    pub open_output_tokens: Tokens,
    /// Share of a KV pool that may be planned under `forecast`, 0.5..=1.
    pub plan_share: f64,
    /// How sure the forecast is to be, in standard deviations of the peak, 0..=4.
    pub confidence: f64,
    /// KV pool of a backend whose capacity is unknown, in tokens.
    pub assumed_kv_tokens: Tokens,
    /// Share of the smallest tier's pool from which a request is long, 0.01..=1.
    pub long_share: f64,
    /// Share of a larger tier kept free of borrowed short traffic, 0..=0.9.
    pub free_reserve: f64,
    /// Predicted prefill that may be on its way to a backend; `None` is any.
    pub late: Option<Duration>,
    /// How often its own prefill counts in the place of a request, 1..=100.
    pub order_weight: f64,
    /// Age by which a first token is taken to be wanted where nobody says.
    pub patience: Duration,
    /// The time per token that is promised, if any.
    pub token_pace: Option<Duration>,
    /// The time to the first token from which on an answer is worth nothing, for
    /// an empty prompt; `None` where there is no such time.
    pub first_token: Option<Duration>,
    /// What each thousand prompt tokens add to that.
    pub first_token_per_1000: Duration,
}

/// What becomes of admission's decisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdmissionMode {
    /// They hold.
    Enforce,
    /// Everything is sent at once; what would have been is told.
    Shadow,
}

/// What a request holds of the KV pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReservationKind {
    /// Prompt and output bound, from the start: the engine never preempts.
    Strict,
    /// What it holds now and is expected to hold at the coming peak.
    Forecast,
}

/// Counting prompts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counting {
    /// Time one prompt may take to count; the rest of it is charged by a bound.
    pub time_limit: Duration,
    /// Every how many exact counts one is made again by the reference; 0 is never.
    pub check_one_in: u32,
}

/// Guessing of API keys, and tokens beside them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Auth {
    /// Wrong keys one address may send within `failed_keys_window`.
    pub max_failed_keys: u32,
    /// Length of the window.
    pub failed_keys_window: Duration,
    /// JSON Web Tokens as a second way in, if any.
    pub jwt: Option<Jwt>,
}

/// Where tokenizer files of named models come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubSettings {
    /// Whether anything may be fetched.
    pub access: HubAccess,
    /// `http://` or `https://`, a host, and a path without a query.
    pub endpoint: String,
    /// Where fetched files are kept.
    pub cache_dir: PathBuf,
    /// Sent to the hub as a bearer token.
    pub token: Option<Secret>,
    /// Limit of one answer of the hub, to its last byte.
    pub timeout: Duration,
    /// Least time between two attempts to fetch a model.
    pub retry_after: Duration,
}

/// Whether tokenizer files may be fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HubAccess {
    /// No: what is in the cache is used.
    CacheOnly,
    /// Yes.
    Download,
}

/// A base model: one KV pool over its backends.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// The id clients ask for.
    pub name: String,
    /// Other ids of the same engines (served names, LoRA adapters).
    pub aliases: Vec<String>,
    /// How its prompts are counted.
    pub tokenizer: TokenizerChoice,
    /// What happens to a prompt that cannot be counted exactly.
    pub on_uncountable: OnUncountable,
    /// Tokens charged for a conversation that only the engine has.
    pub stored_history: Tokens,
    /// Chat template that replaces the tokenizer's own.
    pub chat_template_file: Option<PathBuf>,
    /// Template variables the engine was started with.
    pub template_kwargs: serde_json::Map<String, serde_json::Value>,
    /// Whether long documents may use the standard tier.
    pub long_on_standard: LongOnStandard,
    /// Layout of the KV cache, where the operator knows it; `None` asks the engine's metrics.
    pub kv_layout: Option<KvLayout>,
    /// Engines that serve it, names and addresses unique over all models; never
    /// empty but where they are listed in a file or discovered.
    pub backends: Vec<Backend>,
    /// The file that lists the last of them, if any.
    pub backends_file: Option<BackendsFile>,
}

/// How prompts of a model are counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenizerChoice {
    /// A directory with `tokenizer.json` or an older vocabulary (and
    /// `tokenizer_config.json`, `chat_template.jinja`).
    Directory(PathBuf),
    /// A vocabulary file.
    File(PathBuf),
    /// A model of a hub.
    Hub(HubModel),
    /// A vocabulary inside the binary, e.g. `o200k_base`.
    Tiktoken(String),
    /// The engine's own `/tokenize`.
    Engine,
    /// Bytes per token, learned from the engine's usage.
    Estimate,
}

/// A model of a hub, at a revision.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HubModel {
    /// Organisation and model, `org/model`.
    pub id: String,
    /// Branch, tag or commit; `main` where none is named.
    pub revision: String,
}

/// What happens to a prompt that cannot be counted exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnUncountable {
    /// It is estimated, high.
    Estimate,
    /// It is refused with `tokenizer_unavailable`.
    Refuse,
}

/// Layout of a model's KV cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KvLayout {
    /// Every layer holds every token: `num_gpu_blocks` can be read as capacity.
    Uniform,
    /// Sliding-window or Mamba layers are mixed in: it cannot.
    Hybrid,
}

/// One tenant.
#[derive(Clone, Debug, PartialEq)]
pub struct Tenant {
    /// Name in logs and metrics; unique.
    pub name: String,
    /// Digests of its API keys; unique over all tenants.
    pub keys: Vec<KeyDigest>,
    /// Client certificates that are its; unique over all tenants.
    pub certificates: Vec<CertificateMatch>,
    /// Whether requests without a key are its; at most one tenant accepts them.
    pub anonymous: Anonymous,
    /// What it may take.
    pub limits: Limits,
    /// Its share while others wait too; at least 1.
    pub weight: u32,
    /// Share of each pool's KV that is its own, 0 to 1.
    pub in_flight_share: f64,
    /// `priority` written into its requests; `None` removes what the client sent.
    pub priority: Option<i32>,
    /// Models it may use.
    pub models: ModelAccess,
    /// Tiers it may use; never empty.
    pub tiers: TierSet,
    /// When its requests may use the offload tier.
    pub offload: OffloadRule,
    /// Whether its traffic is long documents by definition.
    pub length: Length,
    /// Whether its answers name the backend.
    pub backend_name: BackendVisibility,
}

/// What a tenant may take; `None` is no limit of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Prompt plus output of one request, in tokens.
    pub max_context: Option<Tokens>,
    /// Prompt of one request, in tokens.
    pub max_prompt: Option<Tokens>,
    /// Output of one sequence, in tokens.
    pub max_output: Option<Tokens>,
    /// KV held at one time in one pool, in tokens.
    pub max_in_flight: Option<Tokens>,
    /// Requests waiting at one time in one pool.
    pub max_waiting: Option<u32>,
    /// Longest wait; at most the queue's.
    pub max_queue_wait: Option<Duration>,
    /// Requests a minute, over all pools.
    pub requests: Option<Rate>,
    /// Prompt and output tokens a minute, over all pools.
    pub tokens: Option<Rate>,
    /// Largest request body, in bytes; at most the server's.
    pub max_body_bytes: Option<u64>,
}

/// Whether requests without a key belong to a tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anonymous {
    /// They do.
    Accepted,
    /// They do not.
    Refused,
}

/// Models a tenant may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModelAccess {
    /// All.
    All,
    /// These base models (by name, aliases resolved) and their aliases; never empty.
    Only(Vec<String>),
}

/// Whether a tenant's answers name the backend that made them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackendVisibility {
    /// `x-tidegate-backend` is sent.
    Shown,
    /// It is left out.
    Hidden,
}

/// Diagnostics and the access log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    /// Filter of the diagnostics on stderr, in `tracing` directives, e.g. `info` or `tidegate=debug`.
    pub level: String,
    /// Form of the diagnostics.
    pub format: LogFormat,
    /// Where the access log goes.
    pub access: AccessLog,
    /// Records that may wait for the writer before new ones are dropped and counted; at least 1.
    pub access_queue: usize,
    /// What the access log tells of clients' addresses.
    pub client_address: ClientAddress,
    /// Tenants with their own metric label; the others share `other`.
    pub metric_tenants: usize,
}

/// Form of the diagnostics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// Where the access log goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessLog {
    /// Nowhere.
    Off,
    /// Standard output.
    Stdout,
    /// Appended to a file.
    File(PathBuf),
}
