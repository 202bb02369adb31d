mod certificates;

use super::failures::MAX_ADDRESSES;
use super::*;
use crate::config::{KeyDigest, Limits};
use crate::core::demand::OutputLimit;
use crate::core::units::Tokens;

const HOME: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 7));
const AWAY: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 8));

fn digest(key: &str) -> KeyDigest {
    KeyDigest(Sha256::digest(key).into())
}

fn two_tenants() -> Config {
    let tenants = ["acme", "zeta"].map(|name| Tenant {
        keys: vec![digest(&format!("key-of-{name}"))],
        ..Tenant::new(name)
    });
    let mut config = Config {
        tenants: tenants.to_vec(),
        ..Config::default()
    };
    config.auth.max_failed_keys = 3;
    config
}

fn at(seconds: u64) -> Time {
    Time::from_start(Duration::from_secs(seconds))
}

fn moment(now: Time) -> Moment {
    let date = SystemTime::UNIX_EPOCH;
    Moment { now, date }
}

fn ask(tenants: &Tenants, header: &str, from: IpAddr, now: Time) -> Result<String, AuthError> {
    let header = HeaderValue::from_str(header).expect("a header value");
    let found = tenants.authenticate(Some(&header), from, moment(now))?;
    Ok(found.tenant.name.clone())
}

#[test]
fn a_key_names_its_tenant() {
    let tenants = Tenants::new(&two_tenants());
    assert_eq!(
        ask(&tenants, "Bearer key-of-acme", HOME, at(0)).as_deref(),
        Ok("acme")
    );
    assert_eq!(
        ask(&tenants, "bearer  key-of-zeta ", HOME, at(0)).as_deref(),
        Ok("zeta")
    );
    assert_eq!(
        tenants.named("zeta").map(|found| found.id),
        Some(TenantId(1))
    );
}

#[test]
fn a_request_without_a_key_is_refused_where_nobody_is_anonymous() {
    let tenants = Tenants::new(&two_tenants());
    let refused = tenants
        .authenticate(None, HOME, moment(at(0)))
        .map(|found| found.id);
    assert_eq!(refused, Err(AuthError::Missing));
}

#[test]
fn a_request_without_a_key_is_the_anonymous_tenants() {
    let mut config = two_tenants();
    config.tenants.push(Tenant::open());
    let tenants = Tenants::new(&config);
    let found = tenants
        .authenticate(None, HOME, moment(at(0)))
        .map(|found| found.id);
    assert_eq!(found, Ok(TenantId(2)));
}

#[test]
fn a_wrong_key_is_never_taken_as_anonymous() {
    let mut config = two_tenants();
    config.tenants.push(Tenant::open());
    let tenants = Tenants::new(&config);
    assert_eq!(
        ask(&tenants, "Bearer nonsense", HOME, at(0)),
        Err(AuthError::Unknown)
    );
    assert_eq!(
        ask(&tenants, "Basic a2V5", HOME, at(0)),
        Err(AuthError::Malformed)
    );
    assert_eq!(
        ask(&tenants, "Bearer  ", HOME, at(0)),
        Err(AuthError::Malformed)
    );
}

#[test]
fn any_key_is_anonymous_while_no_tenant_has_one() {
    let tenants = Tenants::new(&Config::default());
    assert_eq!(
        ask(&tenants, "Bearer EMPTY", HOME, at(0)).as_deref(),
        Ok("anonymous")
    );
}

#[test]
fn the_fourth_wrong_key_within_the_window_is_too_many() {
    let tenants = Tenants::new(&two_tenants());
    for second in 0..3 {
        assert_eq!(
            ask(&tenants, "Bearer guess", HOME, at(second)),
            Err(AuthError::Unknown)
        );
    }
    let retry_after = Duration::from_secs(57);
    let too_many = Err(AuthError::TooManyFailures { retry_after });
    assert_eq!(ask(&tenants, "Bearer guess", HOME, at(3)), too_many);
    assert_eq!(
        ask(&tenants, "Bearer guess", AWAY, at(3)),
        Err(AuthError::Unknown)
    );
    assert_eq!(
        ask(&tenants, "Bearer guess", HOME, at(60)),
        Err(AuthError::Unknown)
    );
}

#[test]
fn a_right_guess_from_a_locked_address_tells_nothing() {
    let tenants = Tenants::new(&two_tenants());
    assert_eq!(
        ask(&tenants, "Bearer key-of-zeta", HOME, at(0)).as_deref(),
        Ok("zeta")
    );
    for _ in 0..3 {
        assert_eq!(
            ask(&tenants, "Bearer guess", HOME, at(1)),
            Err(AuthError::Unknown)
        );
    }
    let retry_after = Duration::from_secs(59);
    let too_many = Err(AuthError::TooManyFailures { retry_after });
    assert_eq!(ask(&tenants, "Bearer key-of-acme", HOME, at(2)), too_many);
    assert_eq!(
        ask(&tenants, "Bearer key-of-zeta", HOME, at(2)).as_deref(),
        Ok("zeta")
    );
    assert_eq!(
        ask(&tenants, "Bearer key-of-acme", HOME, at(62)).as_deref(),
        Ok("acme")
    );
}

#[test]
fn a_reload_keeps_the_failed_keys_on_record() {
    let config = two_tenants();
    let tenants = Tenants::new(&config);
    for _ in 0..3 {
        assert_eq!(
            ask(&tenants, "Bearer guess", HOME, at(0)),
            Err(AuthError::Unknown)
        );
    }
    let retry_after = Duration::from_secs(60);
    let too_many = Err(AuthError::TooManyFailures { retry_after });
    assert_eq!(
        ask(&tenants.reloaded(&config), "Bearer guess", HOME, at(0)),
        too_many
    );
}

#[test]
fn a_flood_of_addresses_is_bounded_and_ages_out() {
    let tenants = Tenants::new(&two_tenants());
    let flood = u32::try_from(MAX_ADDRESSES).expect("small") + 100;
    let address = |index: u32| IpAddr::V4(std::net::Ipv4Addr::from_bits(0x0a00_0000 + index));
    let refused = (0..flood)
        .filter(|index| {
            ask(&tenants, "Bearer guess", address(*index), at(5)) != Err(AuthError::Unknown)
        })
        .count();
    assert_eq!(
        refused, 97,
        "100 strangers share one window of 3 wrong keys"
    );
    assert_eq!(tenants.shared.failures.len(), MAX_ADDRESSES + 1);
    assert_eq!(
        ask(&tenants, "Bearer guess", AWAY, at(70)),
        Err(AuthError::Unknown)
    );
    assert_eq!(tenants.shared.failures.len(), 1);
}

#[test]
fn addresses_of_one_ipv6_network_count_together() {
    let tenants = Tenants::new(&two_tenants());
    let address = |last: u16| IpAddr::from([0x2001, 0xdb8, 0, 1, 0, 0, 0, last]);
    for last in 0..3 {
        assert_eq!(
            ask(&tenants, "Bearer guess", address(last), at(0)),
            Err(AuthError::Unknown)
        );
    }
    let retry_after = Duration::from_secs(60);
    let too_many = Err(AuthError::TooManyFailures { retry_after });
    assert_eq!(ask(&tenants, "Bearer guess", address(3), at(0)), too_many);
}

#[test]
fn nothing_printed_shows_a_digest() {
    let printed = format!("{:?}", Tenants::new(&two_tenants()));
    assert_eq!(printed.matches("[digest]").count(), 2, "{printed}");
    assert!(!printed.contains("key-of"), "{printed}");
}

#[test]
fn a_tenant_uses_only_its_models() {
    let mut config = two_tenants();
    config.tenants[0].models = ModelAccess::Only(vec!["llama".to_owned()]);
    let tenants = Tenants::new(&config);
    let allowed: Vec<_> = tenants
        .all()
        .map(|found| (found.may_use("llama"), found.may_use("qwen")))
        .collect();
    assert_eq!(allowed, [(true, false), (true, true)]);
}

fn limits() -> Limits {
    Limits {
        max_context: Some(Tokens::new(4000)),
        max_prompt: Some(Tokens::new(3950)),
        max_output: Some(Tokens::new(500)),
        ..Limits::default()
    }
}

#[test]
fn prompt_and_asked_output_together_meet_the_context_limit() {
    let refused = check(&limits(), Tokens::new(3900), Some(Tokens::new(200)));
    let error = refused.expect_err("over the limit");
    assert_eq!(
        error.to_string(),
        "3900 prompt and 200 output tokens pass this tenant's limit of 4000 in all"
    );
    let allowed = check(&limits(), Tokens::new(3900), Some(Tokens::new(100)));
    assert_eq!(allowed, Ok(OutputLimit::Asked(Tokens::new(100))));
}

#[test]
fn prompt_and_output_have_their_own_limits_too() {
    let prompt = check(&limits(), Tokens::new(3951), None).map_err(|error| error.to_string());
    assert_eq!(
        prompt,
        Err("the prompt has 3951 tokens, this tenant's limit is 3950".to_owned())
    );
    let output =
        check(&limits(), Tokens::new(1), Some(Tokens::new(501))).map_err(|error| error.to_string());
    assert_eq!(
        output,
        Err("501 output tokens are asked, this tenant's limit is 500".to_owned())
    );
}

#[test]
fn an_open_output_is_bounded_by_what_the_limits_leave() {
    let open = |prompt| check(&limits(), Tokens::new(prompt), None);
    let at_most = |tokens| {
        Ok(OutputLimit::Open {
            at_most: Some(Tokens::new(tokens)),
        })
    };
    assert_eq!(open(100), at_most(500));
    assert_eq!(open(3900), at_most(100));
    let free = check(&Limits::default(), Tokens::new(9), None);
    assert_eq!(free, Ok(OutputLimit::Open { at_most: None }));
}

#[test]
fn a_prompt_that_leaves_no_room_for_one_token_is_refused() {
    let limits = Limits {
        max_context: Some(Tokens::new(100)),
        ..Limits::default()
    };
    let refused = check(&limits, Tokens::new(100), None);
    let context = LimitError::Context {
        prompt: Tokens::new(100),
        output: Tokens::new(1),
        limit: Tokens::new(100),
    };
    assert_eq!(refused, Err(context));
}

#[test]
fn a_huge_asked_output_does_not_overflow() {
    let limits = Limits {
        max_context: Some(Tokens::new(100)),
        ..Limits::default()
    };
    let refused = check(&limits, Tokens::new(10), Some(Tokens::MAX));
    let context = LimitError::Context {
        prompt: Tokens::new(10),
        output: Tokens::MAX,
        limit: Tokens::new(100),
    };
    assert_eq!(refused, Err(context));
}

#[test]
fn an_id_stays_with_its_name_over_reloads_and_is_given_to_no_other() {
    let mut config = two_tenants();
    let first = Tenants::new(&config);
    let id = |tenants: &Tenants, name| tenants.named(name).map(|found| found.id);
    assert_eq!(id(&first, "acme"), Some(TenantId(0)));
    config.tenants.remove(0);
    config.tenants.insert(0, Tenant::new("newer"));
    let second = first.reloaded(&config);
    assert_eq!(id(&second, "acme"), None);
    assert_eq!(id(&second, "zeta"), Some(TenantId(1)));
    assert_eq!(id(&second, "newer"), Some(TenantId(2)));
    config.tenants.push(Tenant::new("acme"));
    let third = second.reloaded(&config);
    assert_eq!(id(&third, "acme"), Some(TenantId(0)));
    assert_eq!(
        third.names(),
        ["acme".into(), "zeta".into(), "newer".into()]
    );
}

#[test]
fn a_reload_adds_rotates_and_revokes_keys_and_keeps_what_was_used() {
    let mut config = two_tenants();
    config.tenants[0].limits.requests = Some(crate::core::rate::Rate::per_minute(1000));
    let before = Tenants::new(&config);
    let running = before.named("acme").unwrap();
    for _ in 0..600 {
        assert_eq!(running.rates.request(&running.tenant.limits), Ok(()));
    }
    // One more key while clients move over, then without the old one; a new
    // tenant first in the file, and one that is gone.
    config.tenants[0].keys.push(digest("next-key-of-acme"));
    let both = before.reloaded(&config);
    let asked = |tenants: &Tenants, key| ask(tenants, &format!("Bearer {key}"), HOME, at(0));
    assert_eq!(asked(&both, "key-of-acme").as_deref(), Ok("acme"));
    assert_eq!(asked(&both, "next-key-of-acme").as_deref(), Ok("acme"));
    config.tenants[0].keys.remove(0);
    config.tenants[1] = config.tenants[0].clone();
    config.tenants[0] = Tenant {
        keys: vec![digest("key-of-yota")],
        ..Tenant::new("yota")
    };
    let after = both.reloaded(&config);
    assert_eq!(asked(&after, "key-of-acme"), Err(AuthError::Unknown));
    assert_eq!(asked(&after, "key-of-zeta"), Err(AuthError::Unknown));
    assert_eq!(asked(&after, "key-of-yota").as_deref(), Ok("yota"));
    assert_eq!(asked(&after, "next-key-of-acme").as_deref(), Ok("acme"));
    let acme = after.named("acme").unwrap();
    assert_eq!(acme.id, running.id);
    let left = acme.rates.standing(&acme.tenant.limits).requests.unwrap();
    assert!((400..1000).contains(&left.remaining), "{left:?}");
    // What runs under the old configuration goes on with what it was let in by.
    assert_eq!(running.tenant.keys, [digest("key-of-acme")]);
    assert!(running.may_use("any"));
}
