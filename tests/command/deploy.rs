//! The configurations under `config/deploy` are ones that this binary serves.

use std::fs;
use std::path::Path;

use super::process::{Folder, run, stderr};

fn deployed(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/deploy");
    fs::read_to_string(folder.join(name)).unwrap()
}

/// What `tidegate check` says, with the admin token in the test's own folder.
fn check(text: &str, token: &str) -> String {
    let folder = Folder::new();
    let file = folder.write("admin.token", "0123456789abcdef0123456789abcdef\n");
    assert!(text.contains(token), "{text}");
    let text = text.replace(token, file.to_str().unwrap());
    let file = folder.write("tidegate.toml", &text);
    let output = run(&["check", file.to_str().unwrap()]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &stderr(&output);
    assert_eq!(output.status.code(), Some(0), "{said}");
    said
}

#[test]
fn the_configuration_of_compose_can_be_served() {
    let said = check(
        &deployed("compose/tidegate.toml"),
        "/run/secrets/admin.token",
    );
    // Its ports are published on loopback only, which the gateway cannot know.
    assert!(said.contains("no tenant has a key"), "{said}");
}

#[test]
fn the_configuration_of_the_chart_can_be_served() {
    let text = deployed("helm/tidegate/files/tidegate.toml");
    let text = text.replace("@MODEL@", "m").replace("@SERVICE@", "vllm");
    let text = text.replace("@PORT@", "8000");
    assert!(!text.contains('@'), "{text}");
    let said = check(&text, "/etc/tidegate-secrets/admin.token");
    assert!(said.contains("no tenant has a key"), "{said}");
}
