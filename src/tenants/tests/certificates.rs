//! A certificate beside a key, in place of it, and against it.

use super::*;
use crate::config::CertificateMatch;

/// Of `acme` by its name or its fingerprint.
fn certificate(names: &[&str], fingerprint: u8) -> ClientCertificate {
    ClientCertificate {
        fingerprint: [fingerprint; 32],
        names: names.iter().map(|name| (*name).to_owned()).collect(),
    }
}

/// `acme` is known by a name and a key, `zeta` by a fingerprint, a name and a key.
fn known() -> Config {
    let mut config = two_tenants();
    let name = |name: &str| CertificateMatch::Name(name.to_owned());
    config.tenants[0].certificates = vec![name("dns:acme.example")];
    config.tenants[1].certificates = vec![
        CertificateMatch::Fingerprint([9; 32]),
        name("uri:spiffe://zeta"),
    ];
    config
}

fn told(
    tenants: &Tenants,
    key: Option<&str>,
    certificate: Option<&ClientCertificate>,
) -> Result<String, AuthError> {
    let header = key.map(|key| HeaderValue::from_str(&format!("Bearer {key}")).expect("a header"));
    let shown = Shown {
        header: header.as_ref(),
        certificate,
        from: HOME,
    };
    let found = tenants.identify(shown, moment(at(0)))?;
    Ok(found.tenant.name.clone())
}

#[test]
fn a_certificate_names_its_tenant_by_fingerprint_first_and_then_by_name() {
    let tenants = Tenants::new(&known());
    let by_name = certificate(&["dns:x.example", "dns:acme.example"], 1);
    assert_eq!(told(&tenants, None, Some(&by_name)).as_deref(), Ok("acme"));
    let by_uri = certificate(&["uri:spiffe://zeta"], 1);
    assert_eq!(told(&tenants, None, Some(&by_uri)).as_deref(), Ok("zeta"));
    let by_print = certificate(&["dns:acme.example"], 9);
    assert_eq!(told(&tenants, None, Some(&by_print)).as_deref(), Ok("zeta"));
    let of_both = certificate(&["dns:acme.example", "uri:spiffe://zeta"], 1);
    assert_eq!(
        told(&tenants, None, Some(&of_both)),
        Err(AuthError::Unknown)
    );
}

#[test]
fn a_key_beside_a_certificate_must_be_the_same_tenants() {
    let mut config = known();
    config.auth.max_failed_keys = 100;
    let tenants = Tenants::new(&config);
    let acme = certificate(&["dns:acme.example"], 1);
    let asked = |key| told(&tenants, Some(key), Some(&acme));
    assert_eq!(asked("key-of-acme").as_deref(), Ok("acme"));
    // Both told alike: whoever guesses keys learns nothing of them.
    assert_eq!(asked("key-of-zeta"), Err(AuthError::Unknown));
    assert_eq!(asked("key-of-none"), Err(AuthError::Unknown));
    assert_eq!(
        told(&tenants, Some("key-of-zeta"), None).as_deref(),
        Ok("zeta")
    );
}

#[test]
fn an_unknown_certificate_is_refused_like_an_unknown_key_even_where_anybody_may_ask() {
    let mut config = known();
    config.tenants.push(Tenant::open());
    let tenants = Tenants::new(&config);
    let stranger = certificate(&["dns:stranger.example"], 1);
    assert_eq!(told(&tenants, None, None).as_deref(), Ok("anonymous"));
    for key in [None, Some("key-of-acme")] {
        assert_eq!(
            told(&tenants, key, Some(&stranger)),
            Err(AuthError::Unknown)
        );
    }
    assert_eq!(
        told(&tenants, None, Some(&stranger)),
        Err(AuthError::Unknown)
    );
    // The third was the last of three that its address may send.
    let refused = told(&tenants, None, Some(&stranger)).unwrap_err();
    let retry_after = config.auth.failed_keys_window;
    assert_eq!(refused, AuthError::TooManyFailures { retry_after });
}

#[test]
fn where_no_tenant_is_known_by_certificates_they_say_nothing() {
    let tenants = Tenants::new(&two_tenants());
    let any = certificate(&["dns:acme.example"], 1);
    assert_eq!(
        told(&tenants, Some("key-of-zeta"), Some(&any)).as_deref(),
        Ok("zeta")
    );
    assert_eq!(told(&tenants, None, Some(&any)), Err(AuthError::Missing));
}

#[test]
fn where_no_tenant_has_a_key_what_clients_send_is_no_matter() {
    let mut config = known();
    for tenant in &mut config.tenants {
        tenant.keys.clear();
    }
    let tenants = Tenants::new(&config);
    let acme = certificate(&["dns:acme.example"], 1);
    assert_eq!(
        told(&tenants, Some("unused"), Some(&acme)).as_deref(),
        Ok("acme")
    );
    assert_eq!(
        told(&tenants, Some("unused"), None),
        Err(AuthError::Missing)
    );
}
