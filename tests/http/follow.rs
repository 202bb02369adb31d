//! The configuration file, as it changes on the disk.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::support::client::Ask;
use crate::support::fake::{Fake, FakeSpec};
use crate::support::setup::Setup;
use crate::support::stand::Stand;

/// A directory of its own for each test; gone with it.
struct Files(PathBuf);

impl Files {
    fn new() -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("follow-{}-{number}", std::process::id());
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _gone = fs::remove_dir_all(&self.0);
    }
}

/// A gateway that follows a file with `setup` in it.
async fn following(files: &Files, setup: &Setup) -> (Stand, PathBuf) {
    let path = files.write("tidegate.toml", &setup.text());
    let mut stand = Stand::start(setup).await;
    stand.running.follow(&path);
    (stand, path)
}

/// Looks until the gateway says this of its last reload.
async fn until(stand: &Stand, outcome: &str, problems: usize) {
    loop {
        let config = &stand.state().await["config"];
        let told = config["problems"].as_array().unwrap().len();
        if config["last_reload"] == outcome && told == problems {
            return;
        }
        tokio::task::yield_now().await;
    }
}

/// Looks until bodies of more than `limit` bytes are refused.
async fn until_limit(stand: &Stand, limit: u64) {
    while stand
        .running
        .gateway()
        .snapshot()
        .config
        .server
        .max_body_bytes
        != limit
    {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_bad_file_changes_nothing_and_a_good_one_is_taken_by_itself() {
    let fake = Fake::start(FakeSpec::default()).await;
    let files = Files::new();
    let setup = Setup::tiny(&[fake.backend("a")]);
    let (stand, path) = following(&files, &setup).await;
    let served = async |stand: &Stand| {
        let mut client = stand.send(&Ask::tokens(4, "")).await;
        fake.call().await.ok("{}").await;
        assert_eq!(client.reply().await.status, 200);
    };
    fs::write(&path, "[server\n").unwrap();
    until(&stand, "refused", 1).await;
    assert_eq!(stand.metric("tidegate_config_reload_success").await, 0.0);
    assert!(stand.metric("tidegate_config_age_seconds").await > 0.0);
    served(&stand).await;
    // Two at once, one of them a model that no tenant could be given.
    let two = setup.clone().set("queue.max_requests", "-1");
    let two = two.anonymous("models = [\"nobody\"]").text();
    fs::write(&path, two).unwrap();
    until(&stand, "refused", 2).await;
    let ready = stand.admin("/readyz").await;
    assert_eq!(ready.status, 200);
    let problems = &ready.json()["config"]["problems"];
    assert!(problems[0].as_str().unwrap().contains("queue.max_requests"));
    served(&stand).await;
    let good = setup.clone().set("server.max_body_bytes", "2048");
    fs::write(&path, good.text()).unwrap();
    until_limit(&stand, 2048).await;
    assert_eq!(stand.metric("tidegate_config_reload_success").await, 1.0);
    fs::remove_file(&path).unwrap();
    until(&stand, "refused", 1).await;
    served(&stand).await;
    let better = setup.set("server.max_body_bytes", "4096");
    fs::write(&path, better.text()).unwrap();
    until_limit(&stand, 4096).await;
    let refused = r#"tidegate_config_reloads_total{outcome="refused"}"#;
    assert_eq!(stand.metric(refused).await, 3.0);
    stand.settle().await;
    fake.check();
}

#[tokio::test]
async fn what_changed_before_anybody_looked_is_not_taken_for_what_was_read() {
    let fake = Fake::start(FakeSpec::default()).await;
    let files = Files::new();
    let setup = Setup::tiny(&[fake.backend("a")]);
    let mut stand = Stand::start(&setup).await;
    // Written between the start's reading of the file and the first look at it.
    let changed = setup.clone().set("server.max_body_bytes", "2048");
    let path = files.write("tidegate.toml", &changed.text());
    stand.running.follow(&path);
    until_limit(&stand, 2048).await;
    until(&stand, "applied", 0).await;
    stand.settle().await;
    fake.check();
}

#[tokio::test]
async fn a_link_that_leads_elsewhere_and_a_key_file_are_changes_too() {
    let fake = Fake::start(FakeSpec::default()).await;
    let files = Files::new();
    let key = files.write("key", "first-secret-of-engine");
    let lines = format!("api_key_file = {:?}", key.display().to_string());
    let engine = crate::support::setup::backend("a", &fake.url(), &lines);
    let setup = Setup::tiny(&[engine]);
    fake.change(|spec| spec.key = Some("first-secret-of-engine".into()));
    // As a mounted map of files: a link to a directory that is swapped.
    let old = files.0.join("..2026_1");
    fs::create_dir(&old).unwrap();
    fs::write(old.join("tidegate.toml"), setup.text()).unwrap();
    let link = files.0.join("..data");
    std::os::unix::fs::symlink(&old, &link).unwrap();
    let mut stand = Stand::start(&setup).await;
    stand.running.follow(link.join("tidegate.toml"));
    let next = setup.clone().set("server.max_body_bytes", "2048");
    let new = files.0.join("..2026_2");
    fs::create_dir(&new).unwrap();
    fs::write(new.join("tidegate.toml"), next.text()).unwrap();
    let swap = files.0.join("..swap");
    std::os::unix::fs::symlink(&new, &swap).unwrap();
    fs::rename(&swap, &link).unwrap();
    until_limit(&stand, 2048).await;
    fake.change(|spec| spec.key = Some("second-secret-of-engine".into()));
    fs::write(&key, "second-secret-of-engine").unwrap();
    let secret = || {
        let config = &stand.running.gateway().snapshot().config;
        config.models[0].backends[0].api_key.clone().unwrap()
    };
    while secret().expose() != "second-secret-of-engine" {
        tokio::task::yield_now().await;
    }
    let mut client = stand.send(&Ask::tokens(4, "")).await;
    fake.call().await.ok("{}").await;
    assert_eq!(client.reply().await.status, 200);
    stand.settle().await;
}
