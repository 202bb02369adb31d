//! Tokenizer files from a hub, on loopback: what is fetched, when, and what an
//! interrupted or refused fetch leaves behind.

#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::path::Path;
use std::time::{Duration, Instant};

use tidegate::config::{HubAccess, HubModel, HubSettings, Secret};
use tidegate::hub::{Hub, HubError, Wanted};
use tidegate::tokenize::{CounterSpec, ModelCounter, Source};

#[path = "support/hub.rs"]
mod fake;

use fake::{COMMIT, Directory, FakeHub, LISTING, Reply, file_path, tiny, tiny_model};

fn fetch(hub: &FakeHub, cache: &Directory) -> Result<std::path::PathBuf, HubError> {
    Hub::new(&hub.settings(cache.path())).directory(&tiny(), Wanted::Any)
}

/// Files below `path`, by name.
fn files(path: &Path) -> Vec<String> {
    let mut names: Vec<_> = path
        .read_dir()
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort_unstable();
    names
}

fn nothing_is_left(cache: &Directory) {
    let model = cache.path().join("models--org--tiny");
    assert!(!model.join("refs/main").exists());
    let snapshots = model.join("snapshots");
    if snapshots.exists() {
        assert_eq!(files(&snapshots), [""; 0]);
    }
}

#[test]
fn a_model_is_fetched_without_its_weights_and_counts_exactly() {
    let (hub, cache) = (FakeHub::with_tiny_model(), Directory::new());
    let found = fetch(&hub, &cache).unwrap();
    let expected = [
        "chat_template.jinja",
        "tokenizer.json",
        "tokenizer_config.json",
    ];
    assert_eq!(files(&found), expected);
    let counter = ModelCounter::load(CounterSpec::new(Source::Directory(found))).unwrap();
    assert!(counter.is_exact());
    assert_eq!(hub.paths().len(), 4, "the listing and each file once");
}

#[test]
fn what_is_in_the_cache_is_used_without_a_question_until_the_newest_is_wanted() {
    let (hub, cache) = (FakeHub::with_tiny_model(), Directory::new());
    let found = fetch(&hub, &cache).unwrap();
    assert_eq!(fetch(&hub, &cache).unwrap(), found);
    assert_eq!(hub.paths().len(), 4);
    let again = Hub::new(&hub.settings(cache.path()));
    assert_eq!(again.directory(&tiny(), Wanted::Newest).unwrap(), found);
    assert_eq!(
        hub.paths().len(),
        5,
        "the commit is the same: only the listing"
    );
    let offline = HubSettings {
        access: HubAccess::CacheOnly,
        ..hub.settings(cache.path())
    };
    for wanted in [Wanted::Any, Wanted::Newest] {
        assert_eq!(
            Hub::new(&offline).directory(&tiny(), wanted).unwrap(),
            found
        );
    }
    let commit = HubModel::parse(&format!("org/tiny@{COMMIT}")).unwrap();
    assert_eq!(
        Hub::new(&offline).directory(&commit, Wanted::Any).unwrap(),
        found
    );
    assert_eq!(hub.paths().len(), 5);
}

#[test]
fn nothing_is_fetched_unless_the_operator_allows_it() {
    let (hub, cache) = (FakeHub::with_tiny_model(), Directory::new());
    let off = HubSettings {
        access: HubAccess::CacheOnly,
        ..hub.settings(cache.path())
    };
    let refused = Hub::new(&off)
        .directory(&tiny(), Wanted::Newest)
        .unwrap_err();
    assert!(matches!(refused, HubError::NotCached { .. }), "{refused}");
    assert_eq!(hub.paths(), [""; 0]);
    assert_eq!(HubSettings::default().access, HubAccess::CacheOnly);
}

#[test]
fn a_refusal_or_a_missing_model_is_told_with_its_status() {
    let (hub, cache) = (FakeHub::start(), Directory::new());
    let missing = fetch(&hub, &cache).unwrap_err();
    let url = format!("{}{LISTING}?blobs=true", hub.url());
    assert_eq!(missing.to_string(), format!("{url} answered status 404"));
    hub.put(LISTING, Reply::Status(401));
    let refused = fetch(&hub, &cache).unwrap_err();
    let expected =
        format!("the hub refuses {url} with status 401: a token with access to it is needed");
    assert_eq!(refused.to_string(), expected);
    hub.put_tiny_model();
    hub.put(&file_path("tokenizer.json"), Reply::Status(403));
    let refused = fetch(&hub, &cache).unwrap_err();
    assert!(
        matches!(refused, HubError::NoAccess { status: 403, .. }),
        "{refused}"
    );
    nothing_is_left(&cache);
}

#[test]
fn a_cut_a_wrong_length_or_a_wrong_digest_leaves_nothing_behind() {
    let (hub, cache) = (FakeHub::with_tiny_model(), Directory::new());
    let path = file_path("tokenizer.json");
    let whole = std::fs::read(tiny_model().join("tokenizer.json")).unwrap();
    let mut altered = whole.clone();
    altered[0] = b' ';
    let longer = [&whole[..], b" "].concat();
    let wrong = [
        (Reply::Cut(whole.clone()), "failed: "),
        (Reply::Body(longer), "bytes instead of"),
        (Reply::Body(altered), "SHA-256"),
    ];
    for (reply, told) in wrong {
        hub.put(&path, reply);
        let failed = fetch(&hub, &cache).unwrap_err().to_string();
        assert!(failed.contains(told), "{failed}");
        nothing_is_left(&cache);
    }
    hub.put(&path, Reply::Body(whole));
    fetch(&hub, &cache).unwrap();
}

#[test]
fn a_slow_answer_ends_at_the_time_limit() {
    let (hub, cache) = (FakeHub::with_tiny_model(), Directory::new());
    let settings = HubSettings {
        timeout: Duration::from_millis(300),
        ..hub.settings(cache.path())
    };
    for reply in [Reply::Silence, Reply::Stall(b"{}".to_vec())] {
        hub.put(&file_path("tokenizer.json"), reply);
        let begun = Instant::now();
        let failed = Hub::new(&settings).directory(&tiny(), Wanted::Any);
        let failed = failed.unwrap_err().to_string();
        assert!(failed.contains("timeout"), "{failed}");
        assert!(begun.elapsed() < Duration::from_secs(10));
        nothing_is_left(&cache);
    }
}

#[test]
fn a_redirect_is_followed_and_another_host_is_not_shown_the_token() {
    let (hub, store, cache) = (
        FakeHub::with_tiny_model(),
        FakeHub::start(),
        Directory::new(),
    );
    let whole = std::fs::read(tiny_model().join("tokenizer.json")).unwrap();
    store.put("/blob", Reply::Body(whole));
    // Another name, so that it is another host.
    let place = store.url().replace("127.0.0.1", "localhost");
    let to = Reply::Redirect(format!("{place}/blob?signature=x"));
    hub.put(&file_path("tokenizer.json"), to);
    let settings = HubSettings {
        token: Some(Secret::new("secret-hub")),
        ..hub.settings(cache.path())
    };
    let hub_with_token = Hub::new(&settings);
    hub_with_token.directory(&tiny(), Wanted::Any).unwrap();
    let bearer = Some("Bearer secret-hub".to_owned());
    assert!(
        hub.asked()
            .iter()
            .all(|asked| asked.authorization == bearer)
    );
    assert_eq!(store.asked().len(), 1);
    assert_eq!(store.asked()[0].authorization, None);
    assert!(!format!("{hub_with_token:?}").contains("secret-hub"));
}

#[test]
fn redirects_without_end_are_given_up() {
    let (hub, cache) = (FakeHub::with_tiny_model(), Directory::new());
    hub.put(LISTING, Reply::Redirect(LISTING.to_owned()));
    let failed = fetch(&hub, &cache).unwrap_err().to_string();
    assert!(failed.contains("redirects"), "{failed}");
    assert!(hub.paths().len() <= 6, "{}", hub.paths().len());
}

#[test]
fn a_hub_that_fails_is_not_asked_again_within_the_back_off_period() {
    let (hub, cache) = (FakeHub::start(), Directory::new());
    let settings = HubSettings {
        retry_after: Duration::from_secs(300),
        ..hub.settings(cache.path())
    };
    let asking = Hub::new(&settings);
    for wanted in [Wanted::Any, Wanted::Any, Wanted::Newest] {
        asking.directory(&tiny(), wanted).unwrap_err();
    }
    assert_eq!(hub.paths().len(), 1);
    let told = asking
        .directory(&tiny(), Wanted::Any)
        .unwrap_err()
        .to_string();
    assert_eq!(
        told,
        "the hub was asked for org/tiny@main less than 300 s ago"
    );
}

#[test]
fn a_listing_that_is_none_or_names_no_tokenizer_is_told() {
    let (hub, cache) = (FakeHub::start(), Directory::new());
    for (listing, told) in [
        ("{", "not what the hub announced"),
        (r#"{"sha": "../x", "siblings": []}"#, "odd name"),
        (
            r#"{"sha": "0a", "siblings": []}"#,
            "org/tiny@main has no tokenizer files",
        ),
    ] {
        hub.put(LISTING, Reply::Body(listing.as_bytes().to_vec()));
        let failed = fetch(&hub, &cache).unwrap_err().to_string();
        assert!(failed.contains(told), "{failed}");
    }
    nothing_is_left(&cache);
}

#[test]
fn a_cache_that_another_tool_has_filled_in_part_is_completed() {
    let (hub, cache) = (FakeHub::with_tiny_model(), Directory::new());
    let snapshot = cache
        .path()
        .join(format!("models--org--tiny/snapshots/{COMMIT}"));
    std::fs::create_dir_all(&snapshot).unwrap();
    std::fs::copy(
        tiny_model().join("tokenizer.json"),
        snapshot.join("tokenizer.json"),
    )
    .unwrap();
    assert_eq!(fetch(&hub, &cache).unwrap(), snapshot);
    assert_eq!(files(&snapshot).len(), 3);
    assert!(!hub.paths().contains(&file_path("tokenizer.json")));
}

#[test]
fn a_cache_that_cannot_be_written_is_told_with_its_path() {
    let (hub, cache) = (FakeHub::with_tiny_model(), Directory::new());
    std::fs::write(cache.path().join("models--org--tiny"), "in the way").unwrap();
    let failed = fetch(&hub, &cache).unwrap_err();
    assert!(matches!(failed, HubError::Cache { .. }), "{failed}");
    assert!(failed.to_string().contains("models--org--tiny"), "{failed}");
}
