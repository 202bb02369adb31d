//! Certificates and keys: what is read of them, and what is told where they are wrong.

use std::time::SystemTime;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, KeyPair, date_time_ymd};

use super::*;
use crate::config::{CertificateMatch, ClientAuth};

/// A self-signed certificate for `name` and its key, as PEM.
fn pair(name: &str) -> (String, String) {
    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.not_after = date_time_ymd(2090, 1, 1);
    let certificate = params.self_signed(&key).expect("it signs itself");
    (certificate.pem(), key.serialize_pem())
}

fn kept(text: String) -> &'static str {
    Box::leak(text.into_boxed_str())
}

/// The files that the documented settings name.
pub(super) fn files() -> Vec<(&'static str, &'static str)> {
    let (server, server_key) = pair("Gateway.Example");
    let (other, other_key) = pair("other.example");
    let (client, client_key) = pair("client.example");
    let both = |chain: &str, key: &str| kept(format!("{chain}{key}"));
    vec![
        ("/etc/tidegate/tls/server.pem", both(&server, &server_key)),
        ("/etc/tidegate/tls/server.key", kept(server_key)),
        ("/etc/tidegate/tls/other.pem", both(&other, &other_key)),
        ("/etc/tidegate/tls/clients.pem", kept(other.clone())),
        ("/etc/tidegate/tls/engines.pem", kept(other)),
        ("/etc/tidegate/tls/gateway.pem", both(&client, &client_key)),
        ("/etc/tidegate/tls/gateway.key", kept(client_key)),
    ]
}

fn around() -> Around {
    let mut around = Around::default();
    around.files.extend(files());
    let pem = around.files["/etc/tidegate/tls/server.pem"];
    around.files.insert("/etc/tidegate/open.pem", pem);
    around.files.insert("/etc/tidegate/text", "no PEM at all");
    around
}

fn told_of(more: &str) -> Vec<String> {
    let text = format!("{more}\n{LEAST}");
    let problems = load_in(&text, &around()).expect_err("something is wrong");
    problems.to_string().lines().map(str::to_owned).collect()
}

#[test]
fn certificates_of_a_listener_are_read_with_what_they_say() {
    let text = format!(
        "[server.tls]\ncert_file = \"tls/server.pem\"\nkey_file = \"tls/server.key\"\n\
         more_cert_files = [\"tls/other.pem\"]\nclient_ca_file = \"tls/clients.pem\"\n\
         client_auth = \"required\"\n{LEAST}"
    );
    let config = load_in(&text, &around()).expect("nothing is wrong");
    let tls = config.server.tls.as_ref().expect("it is on");
    let names: Vec<_> = tls
        .identities
        .iter()
        .map(|one| one.facts.names.join(" "))
        .collect();
    assert_eq!(names, ["dns:gateway.example", "dns:other.example"]);
    assert_eq!(tls.identities[0].facts.subject, "CN=Gateway.Example");
    let year_2090 = 3_786_912_000;
    let expires = tls.identities[0].facts.not_after;
    assert_eq!(
        expires
            .duration_since(SystemTime::UNIX_EPOCH)
            .expect("after 1970")
            .as_secs(),
        year_2090
    );
    assert_eq!(
        tls.clients.as_ref().map(|clients| clients.auth),
        Some(ClientAuth::Required)
    );
    assert_eq!(config.advice(), []);
    let printed = format!("{config:?}");
    assert!(
        !printed.contains("PRIVATE") && printed.len() < 10_000,
        "{printed}"
    );
}

#[test]
fn what_is_wrong_with_a_listeners_files_is_told_without_what_is_in_them() {
    let section = |keys: &str| told_of(&format!("[server.tls]\n{keys}\n"));
    for (keys, problem) in [
        (
            "key_file = \"tls/server.key\"",
            "server.tls.cert_file: is needed beside the other keys of this section",
        ),
        (
            "client_auth = \"required\"",
            "server.tls.client_auth = \"required\": needs client_ca_file",
        ),
        (
            "cert_file = \"tls/server.pem\"\nkey_file = \"tls/gateway.key\"",
            "server.tls.cert_file: the key in /etc/tidegate/tls/gateway.key does not belong to the first certificate in /etc/tidegate/tls/server.pem",
        ),
        (
            "cert_file = \"text\"",
            "server.tls.cert_file: /etc/tidegate/text holds no certificate in PEM form",
        ),
        (
            "cert_file = \"none\"",
            "server.tls.cert_file: /etc/tidegate/none cannot be read: entity not found",
        ),
        (
            "cert_file = \"tls/clients.pem\"",
            "server.tls.cert_file: /etc/tidegate/tls/clients.pem holds no private key in PEM form (an encrypted one cannot be read)",
        ),
        (
            "cert_file = \"tls/server.pem\"\nclient_ca_file = \"text\"",
            "server.tls.client_ca_file: /etc/tidegate/text holds no certificate in PEM form",
        ),
    ] {
        assert_eq!(section(keys), [problem]);
    }
}

#[test]
fn settings_of_tls_need_a_secured_backend() {
    let backend = |url: &str, keys: &str| {
        let text = LEAST.replace("http://127.0.0.1:8000\"", &format!("{url}\"\n{keys}"));
        load_in(&text, &around())
    };
    let problems = backend(
        "http://engine:1",
        "tls_server_name = \"x\"\ntls_ca_file = \"text\"",
    );
    assert_eq!(
        problems.expect_err("in clear text").to_string(),
        "models[0].backends[0].tls_ca_file: needs an https:// url\n\
         models[0].backends[0].tls_server_name: needs an https:// url"
    );
    let config = backend(
        "https://[::1]",
        "tls_client_cert_file = \"tls/gateway.pem\"",
    )
    .expect("it is right");
    let tls = config.models[0].backends[0]
        .tls
        .as_ref()
        .expect("it is secured");
    assert!(format!("{:?}", tls.server_name).contains("IpAddress"));
    assert!(tls.roots.store().len() > 50, "Mozilla's");
    let wrong = backend("https://engine", "tls_server_name = \"a name\"").expect_err("no name");
    assert_eq!(
        wrong.to_string(),
        "models[0].backends[0].tls_server_name: must have a DNS name or an IP address, as a certificate bears it"
    );
    assert_eq!(
        backend("https://engine", "").expect("it is right").models[0].backends[0]
            .url
            .scheme_str(),
        Some("https")
    );
}

#[test]
fn a_secret_that_everybody_may_read_is_told() {
    let mut around = around();
    around.files.insert("/etc/tidegate/open.token", "t0ken");
    let text = format!(
        "[server.tls]\ncert_file = \"open.pem\"\n[admin]\ntoken_file = \"open.token\"\n{LEAST}"
    );
    let config = load_in(&text, &around).expect("it is allowed");
    let told: Vec<_> = config.advice().iter().map(ToString::to_string).collect();
    assert_eq!(
        told,
        [
            "server.tls.cert_file: /etc/tidegate/open.pem can be read by every user of this machine",
            "admin.token_file: /etc/tidegate/open.token can be read by every user of this machine",
        ]
    );
}

#[test]
fn certificates_of_tenants_are_told_apart_and_need_an_authority() {
    let digits = "0123456789abcdef".repeat(4);
    let listener =
        "[server.tls]\ncert_file = \"tls/server.pem\"\nclient_ca_file = \"tls/clients.pem\"\n";
    let tenants = |certificates: &str| {
        format!("{LEAST}[[tenants]]\nname = \"t\"\ncertificates = [{certificates}]\n")
    };
    let all = format!("\"sha256:{digits}\", \"dns:Svc.Example\", \"uri:spiffe://x/y\"");
    let config = load_in(&format!("{listener}{}", tenants(&all)), &around()).expect("it is right");
    let [CertificateMatch::Fingerprint(print), name, uri] = &config.tenants[0].certificates[..]
    else {
        panic!("three were written");
    };
    assert_eq!(print[..2], [0x01, 0x23]);
    assert_eq!(name, &CertificateMatch::Name("dns:svc.example".to_owned()));
    assert_eq!(uri, &CertificateMatch::Name("uri:spiffe://x/y".to_owned()));
    let problems =
        load_in(&tenants("\"svc\", \"dns:a\", \"dns:A\""), &around()).expect_err("much is wrong");
    assert_eq!(
        problems.to_string(),
        "tenants[0].certificates = \"svc\": must be a list of \"sha256:\" and 64 hexadecimal digits, \"dns:\" and a name, or \"uri:\" and a URI\n\
         tenants[0].certificates[1]: is already at tenants[0].certificates[0]\n\
         tenants[0].certificates: needs client_ca_file of [server.tls]: no client is asked for one"
    );
}
