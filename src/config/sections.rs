//! The keys of the single sections, with their ranges.

use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;

use ipnet::IpNet;

use super::jwt;
use super::reader::Section;
use super::resolved::{
    AccessLog, Admin, AdmissionConfig, AdmissionMode, Auth, ClientAddress, Counting,
    ForwardedHeader, Log, LogFormat, Probe, Queue, ReservationKind, Server, Upstream,
};
use super::secret::Secret;
use super::surroundings::Surroundings;
use super::tls;
use crate::core::queue::Unserved;
use crate::core::units::Tokens;

const KIB: u64 = 1024;
const GIB: u64 = KIB * KIB * KIB;

/// More tokens than any fleet holds.
const MOST_TOKENS: u64 = 1_000_000_000_000;

const RESERVATIONS: [(&str, ReservationKind); 2] = [
    ("strict", ReservationKind::Strict),
    ("forecast", ReservationKind::Forecast),
];

const MODES: [(&str, AdmissionMode); 2] = [
    ("enforce", AdmissionMode::Enforce),
    ("shadow", AdmissionMode::Shadow),
];

const UNSERVED: [(&str, Unserved); 2] = [("refuse", Unserved::Refuse), ("wait", Unserved::Wait)];

const FORWARDED_HEADERS: [(&str, ForwardedHeader); 2] = [
    ("x-forwarded-for", ForwardedHeader::XForwardedFor),
    ("forwarded", ForwardedHeader::Forwarded),
];

const CLIENT_ADDRESSES: [(&str, ClientAddress); 3] = [
    ("off", ClientAddress::Off),
    ("network", ClientAddress::Network),
    ("full", ClientAddress::Full),
];

const FORMATS: [(&str, LogFormat); 2] = [("text", LogFormat::Text), ("json", LogFormat::Json)];

pub(super) const fn milliseconds(range: RangeInclusive<u64>) -> RangeInclusive<Duration> {
    Duration::from_millis(*range.start())..=Duration::from_millis(*range.end())
}

pub(super) const fn seconds(range: RangeInclusive<u64>) -> RangeInclusive<Duration> {
    Duration::from_secs(*range.start())..=Duration::from_secs(*range.end())
}

const DAY: u64 = 86_400;

pub(super) fn server(mut section: Section<'_>, around: &dyn Surroundings) -> Server {
    let default = Server::default();
    let header_bytes = section.small("max_header_bytes", 8192..=1_048_576);
    let connections = section.small("max_connections", 16..=1_000_000);
    let silent = section.small("max_silent_per_address", 1..=1_000_000);
    let server = Server {
        listen: section.address("listen", default.listen),
        max_body_bytes: section
            .number("max_body_bytes", KIB..=GIB)
            .unwrap_or(default.max_body_bytes),
        body_budget_bytes: section
            .number("body_budget_bytes", KIB..=KIB * GIB)
            .unwrap_or(default.body_budget_bytes),
        cors_origins: origins(&mut section),
        min_body_bytes_per_second: section
            .number("min_body_bytes_per_second", 0..=KIB * KIB)
            .unwrap_or(default.min_body_bytes_per_second),
        max_connections: connections.map_or(default.max_connections, to_size),
        max_silent_per_address: silent.map_or(default.max_silent_per_address, to_size),
        max_header_bytes: header_bytes.map_or(default.max_header_bytes, to_size),
        header_timeout: section.time("header_timeout", seconds(1..=300), default.header_timeout),
        body_timeout: section.time("body_timeout", seconds(1..=3600), default.body_timeout),
        drain_timeout: section.time("drain_timeout", seconds(0..=DAY), default.drain_timeout),
        tls: tls::listener(section.section("tls"), around),
        stream_keepalive: section.time_or_off(
            "stream_keepalive",
            seconds(1..=600),
            default.stream_keepalive,
        ),
        dead_client_timeout: section.time(
            "dead_client_timeout",
            seconds(4..=3600),
            default.dead_client_timeout,
        ),
        trusted_proxies: networks(&mut section, "trusted_proxies"),
        forwarded_header: section.word(
            "forwarded_header",
            &FORWARDED_HEADERS,
            default.forwarded_header,
        ),
    };
    section.finish();
    server
}

/// Origins as browsers spell them, or `*`.
fn origins(section: &mut Section<'_>) -> Vec<String> {
    const KEY: &str = "cors_origins";
    let range = "a list of origins, such as [\"https://app.example\"], or [\"*\"]";
    let listed = section.texts(KEY, range).unwrap_or_default();
    let (right, wrong): (Vec<String>, Vec<String>) =
        listed.into_iter().partition(|text| is_origin(text));
    for text in wrong {
        let problem =
            "must be a scheme, a host in small letters and at most a port, without a path";
        section.note(KEY, Some(format!("{text:?}")), problem);
    }
    right
}

fn is_origin(text: &str) -> bool {
    let host = text
        .strip_prefix("https://")
        .or_else(|| text.strip_prefix("http://"));
    let is_part =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-._:[]".contains(&byte);
    text == "*" || host.is_some_and(|host| !host.is_empty() && host.bytes().all(is_part))
}

pub(super) fn admin(mut section: Section<'_>, around: &dyn Surroundings) -> Admin {
    let admin = Admin {
        listen: section.address("listen", Admin::default().listen),
        token: secret(&mut section, ["token_env", "token_file"], around),
        tls: tls::listener(section.section("tls"), around),
    };
    section.finish();
    admin
}

pub(super) fn upstream(mut section: Section<'_>) -> Upstream {
    let default = Upstream::default();
    let upstream = Upstream {
        connect_timeout: section.time(
            "connect_timeout",
            milliseconds(10..=60_000),
            default.connect_timeout,
        ),
        first_byte_timeout: section.time_or_off(
            "first_byte_timeout",
            seconds(1..=DAY),
            default.first_byte_timeout,
        ),
        stream_silence_timeout: section.time(
            "stream_silence_timeout",
            seconds(1..=DAY),
            default.stream_silence_timeout,
        ),
        request_timeout: section.time_or_off(
            "request_timeout",
            seconds(1..=DAY),
            default.request_timeout,
        ),
        pool_idle_timeout: section.time(
            "pool_idle_timeout",
            milliseconds(100..=3_600_000),
            default.pool_idle_timeout,
        ),
        max_connection_age: section.time(
            "max_connection_age",
            seconds(1..=DAY),
            default.max_connection_age,
        ),
    };
    section.finish();
    upstream
}

pub(super) fn probe(mut section: Section<'_>) -> Probe {
    let default = Probe::default();
    let probe = Probe {
        interval: section.time("interval", milliseconds(100..=60_000), default.interval),
        timeout: section.time("timeout", milliseconds(50..=60_000), default.timeout),
        stale_after: section.time("stale_after", seconds(1..=3600), default.stale_after),
        down_after: section
            .small("down_after", 1..=100)
            .unwrap_or(default.down_after),
    };
    section.finish();
    probe
}

pub(super) fn queue(mut section: Section<'_>) -> Queue {
    let default = Queue::default();
    let queue = Queue {
        max_requests: section
            .small("max_requests", 0..=1_000_000)
            .unwrap_or(default.max_requests),
        max_tokens: tokens(&mut section, "max_tokens", 1..=MOST_TOKENS)
            .unwrap_or(default.max_tokens),
        max_wait: section.time("max_wait", milliseconds(100..=DAY * 1000), default.max_wait),
        max_bypass: section.time("max_bypass", seconds(0..=3600), default.max_bypass),
        unserved: section.word("when_no_backend", &UNSERVED, default.unserved),
    };
    section.finish();
    queue
}

pub(super) fn admission(mut section: Section<'_>) -> AdmissionConfig {
    let default = AdmissionConfig::default();
    let admission = AdmissionConfig {
        mode: section.word("mode", &MODES, default.mode),
        reservation: section.word("reservation", &RESERVATIONS, default.reservation),
        open_output_tokens: tokens(&mut section, "open_output_tokens", 1..=1_000_000)
            .unwrap_or(default.open_output_tokens),
        plan_share: section.share("plan_share", 0.5..=1.0, default.plan_share),
        confidence: section.share("confidence", 0.0..=4.0, default.confidence),
        assumed_kv_tokens: tokens(&mut section, "assumed_kv_tokens", 256..=MOST_TOKENS)
            .unwrap_or(default.assumed_kv_tokens),
        long_share: section.share("long_share", 0.01..=1.0, default.long_share),
        free_reserve: section.share("free_reserve", 0.0..=0.9, default.free_reserve),
        late: section.time_or_off("late", milliseconds(1..=60_000), default.late),
        order_weight: section.share("order_weight", 1.0..=100.0, default.order_weight),
        patience: section.time("patience", milliseconds(100..=DAY * 1000), default.patience),
        token_pace: section.time_or_off("token_pace", milliseconds(1..=60_000), default.token_pace),
        first_token: section.time_or_off(
            "first_token",
            milliseconds(1..=DAY * 1000),
            default.first_token,
        ),
        first_token_per_1000: section.time(
            "first_token_per_1000_tokens",
            milliseconds(0..=60_000),
            default.first_token_per_1000,
        ),
    };
    section.finish();
    admission
}

pub(super) fn counting(mut section: Section<'_>) -> Counting {
    let default = Counting::default();
    let counting = Counting {
        time_limit: section.time("time_limit", milliseconds(10..=60_000), default.time_limit),
        check_one_in: section
            .small("check_one_in", 0..=1_000_000_000)
            .unwrap_or(default.check_one_in),
    };
    section.finish();
    counting
}

pub(super) fn auth(mut section: Section<'_>, around: &dyn Surroundings) -> Auth {
    let default = Auth::default();
    let auth = Auth {
        max_failed_keys: section
            .small("max_failed_keys", 1..=1_000_000)
            .unwrap_or(default.max_failed_keys),
        failed_keys_window: section.time(
            "failed_keys_window",
            seconds(1..=3600),
            default.failed_keys_window,
        ),
        jwt: jwt::jwt(section.section("jwt"), around),
    };
    section.finish();
    auth
}

pub(super) fn log(mut section: Section<'_>, around: &dyn Surroundings) -> Log {
    let default = Log::default();
    let places = section.small("access_queue_records", 1..=1_000_000);
    let tenants = section.small("metric_tenants", 0..=10_000);
    let log = Log {
        level: level(&mut section).unwrap_or(default.level),
        format: section.word("format", &FORMATS, default.format),
        access: access(&mut section, around).unwrap_or(default.access),
        client_address: section.word("client_address", &CLIENT_ADDRESSES, default.client_address),
        access_queue: places.map_or(default.access_queue, to_size),
        metric_tenants: tenants.map_or(default.metric_tenants, to_size),
    };
    section.finish();
    log
}

/// Networks, or single addresses.
fn networks(section: &mut Section<'_>, key: &'static str) -> Vec<IpNet> {
    const FORM: &str = "a list of networks, such as \"10.0.0.0/8\", or addresses";
    let texts = section.texts(key, FORM).unwrap_or_default();
    let network = |text: &String| {
        let single = || text.parse::<IpAddr>().map(IpNet::from);
        text.parse::<IpNet>().or_else(|_| single()).ok()
    };
    let networks: Vec<IpNet> = texts.iter().filter_map(network).collect();
    if networks.len() < texts.len() {
        section.note(key, Some(format!("{texts:?}")), format!("must be {FORM}"));
    }
    networks
}

fn level(section: &mut Section<'_>) -> Option<String> {
    let range =
        "\"error\", \"warn\", \"info\", \"debug\", \"trace\", \"off\" or tracing directives";
    let level = section.text("level", range)?;
    if let Err(error) = tracing_subscriber::EnvFilter::try_new(&level) {
        section.note(
            "level",
            Some(format!("{level:?}")),
            format!("must be {range}: {error}"),
        );
        return None;
    }
    Some(level)
}

fn access(section: &mut Section<'_>, around: &dyn Surroundings) -> Option<AccessLog> {
    let written = section.text("access_log", "\"stdout\", \"off\" or a file's path")?;
    Some(match written.as_str() {
        "stdout" => AccessLog::Stdout,
        "off" => AccessLog::Off,
        path => AccessLog::File(around.path(path)),
    })
}

/// A number of tokens within `range`, if the key is there.
pub(super) fn tokens(
    section: &mut Section<'_>,
    key: &'static str,
    range: RangeInclusive<u64>,
) -> Option<Tokens> {
    section.number(key, range).map(Tokens::new)
}

/// A secret out of the environment or a file; `keys` are the keys that name
/// the variable and the path. Neither found nor wrong secrets are ever shown;
/// for one that is missing a stand-in goes on, so that it is told once.
pub(super) fn secret(
    section: &mut Section<'_>,
    [env_key, file_key]: [&'static str; 2],
    around: &dyn Surroundings,
) -> Option<Secret> {
    let variable = section.text(env_key, "the name of an environment variable");
    let file = section.text(file_key, "the path of a file");
    let (key, found) = match (variable, file) {
        (None, None) => return None,
        (Some(_), Some(_)) => {
            section.note(env_key, None, format!("set this or {file_key}, not both"));
            return None;
        }
        (Some(name), None) => {
            let found = around
                .variable(&name)
                .ok_or_else(|| format!("the variable {name} is not set"));
            (env_key, found)
        }
        (None, Some(written)) => {
            let path = around.path(&written);
            if around.is_open_to_all(&path) {
                section.advise(file_key, tls::exposed(&path));
            }
            (file_key, file_text(&path, around))
        }
    };
    let secret = found.and_then(|text| usable(text.trim()));
    Some(secret.unwrap_or_else(|problem| {
        section.note(key, None, problem);
        Secret::new("missing")
    }))
}

/// The text of a file, or why it cannot be read.
pub(super) fn file_text(path: &Path, around: &dyn Surroundings) -> Result<String, String> {
    around
        .text(path)
        .map_err(|error| format!("{} cannot be read: {error}", path.display()))
}

/// A secret goes into a header: visible ASCII, and not empty.
fn usable(text: &str) -> Result<Secret, String> {
    if text.is_empty() {
        return Err("the secret is empty".to_owned());
    }
    if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err("the secret must be of visible ASCII characters".to_owned());
    }
    Ok(Secret::new(text))
}

fn to_size(number: u32) -> usize {
    usize::try_from(number).expect("a u32 fits memory")
}
