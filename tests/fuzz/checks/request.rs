//! Bodies of requests: read or refused, and edited without a trace elsewhere.

use bytes::Bytes;
use tidegate::protocol::links::{Host, Url, first_bad_link};
use tidegate::protocol::request::Request;
use tidegate::protocol::{Edit, Key, Route, parse, parse_form, splice};

/// The first byte chooses the route, the rest is the body.
pub(super) fn json(data: &[u8]) {
    let routes: Vec<Route> = Route::served().map(|(_, route)| route).collect();
    let Some((chosen, body)) = super::choice(data, routes.len()) else {
        return;
    };
    let route = routes[chosen];
    let Ok(request) = parse(route, body) else {
        return;
    };
    assert!(request.samples >= 1, "a request is at least one sequence");
    check_edits(route, body, &request);
}

/// An edited body is read as the old one, but for what was edited.
fn check_edits(route: Route, body: &[u8], request: &Request<'_>) {
    let body = Bytes::copy_from_slice(body);
    assert_eq!(splice(&body, &request.keys, &[]), body);
    let edits = [
        Edit::number(Key::Priority, -3),
        Edit::text(Key::CacheSalt, "salt \" of ours"),
        Edit::Remove(Key::RequestId),
    ];
    let edited = splice(&body, &request.keys, &edits);
    let again = parse(route, &edited).expect("an edited body can be read");
    assert_eq!(again.priority, Some(-3));
    assert_eq!(again.cache_salt.as_deref(), Some("salt \" of ours"));
    assert_eq!(again.request_id, None);
    let same = |request: &Request<'_>| {
        let model = request.model.as_ref().map(ToString::to_string);
        (
            model,
            request.max_tokens,
            request.samples,
            request.stream,
            request.truncate,
        )
    };
    assert_eq!(same(&again), same(request));
    let removed = splice(
        &edited,
        &again.keys,
        &[Edit::Remove(Key::Priority), Edit::Remove(Key::CacheSalt)],
    );
    let again = parse(route, &removed).expect("it can be read once more");
    assert_eq!((again.priority, again.cache_salt), (None, None));
}

/// The first line is the content type, the rest the form.
pub(super) fn form(data: &[u8]) {
    let at = memchr::memchr(b'\n', data).unwrap_or(data.len());
    let body = data.get(at + 1..).unwrap_or_default();
    if let Ok(request) = parse_form(&data[..at], &Bytes::copy_from_slice(body)) {
        assert_eq!(request.samples, 1, "speech is one sequence");
    }
}

/// Links within a body, and the body as a link.
pub(super) fn links(data: &[u8]) {
    if let Ok(Some(found)) = first_bad_link(data, |link| (!link.is_empty()).then_some(())) {
        assert!(found.place.starts_with(found.field), "{}", found.place);
    }
    let Ok(link) = std::str::from_utf8(data) else {
        return;
    };
    let Ok(url) = Url::parse(link) else {
        return;
    };
    assert_eq!(url.scheme, url.scheme.to_ascii_lowercase());
    if let Some(host) = url.host {
        check_host(&host);
        // What a link says after its host changes nothing.
        let longer = Url::parse(&format!("{link}/../x?y=//127.0.0.1#z"));
        assert_eq!(longer.ok().and_then(|url| url.host), Some(host));
    }
}

/// A host in its plain spelling is the same host.
fn check_host(host: &Host) {
    let plain = match host {
        Host::Name(name) => name.clone(),
        Host::Address(std::net::IpAddr::V4(address)) => address.to_string(),
        Host::Address(std::net::IpAddr::V6(address)) => format!("[{address}]"),
    };
    let again = Url::parse(&format!("http://{plain}:80/"));
    let again = again.ok().and_then(|url| url.host);
    assert_eq!(again.as_ref(), Some(host), "{plain}");
    assert_eq!(again.map(|host| host.is_private()), Some(host.is_private()));
}
