//! What goes wrong, and whether what is said tells the next step.

use std::net::TcpListener;

use super::process::{Folder, least, run, stderr, tidegate};

#[test]
fn an_address_that_is_taken_is_told_with_what_to_do() {
    let folder = Folder::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = taken.local_addr().unwrap().to_string();
    let text = least("").replacen("127.0.0.1:0", &addr, 1);
    let file = folder.write("t.toml", &text);
    let output = tidegate().arg("serve").arg(file).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let told = stderr(&output);
    assert!(
        told.contains(&format!("cannot listen on {addr}: ")),
        "{told}"
    );
    assert!(told.contains("set server.listen"), "{told}");
}

#[test]
fn an_address_of_another_machine_is_told_with_what_listens_on_all() {
    let folder = Folder::new();
    let text = least("").replacen("127.0.0.1:0", "192.0.2.1:80", 1);
    let file = folder.write("t.toml", &text);
    let output = tidegate().arg("serve").arg(file).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let told = stderr(&output);
    assert!(told.ends_with("0.0.0.0 or [::] listens on all\n"), "{told}");
}

#[test]
fn an_unknown_command_is_told_with_the_one_that_was_meant() {
    let output = run(&["sevre"]);
    assert_eq!(output.status.code(), Some(2));
    let told = stderr(&output);
    assert!(told.contains("'serve'"), "{told}");
    assert!(told.contains("--help"), "{told}");
}

#[test]
fn a_gateway_that_does_not_answer_is_told_with_the_flag_that_names_it() {
    let output = run(&["health", "--from", "http://127.0.0.1:1"]);
    assert_eq!(output.status.code(), Some(1));
    let told = stderr(&output);
    let expected = "tidegate: nothing answers at http://127.0.0.1:1: ";
    assert!(told.starts_with(expected), "{told}");
    assert!(told.ends_with("--from URL names another\n"), "{told}");
}

#[test]
fn an_access_log_that_cannot_be_opened_is_told_with_its_path_and_key() {
    let folder = Folder::new();
    let text = least("").replace("\"off\"", "\"/nowhere/access.log\"");
    let file = folder.write("t.toml", &text);
    let output = tidegate().arg("serve").arg(file).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let told = stderr(&output);
    assert!(told.contains("access log /nowhere/access.log: "), "{told}");
    assert!(told.contains("; log.access_log must be"), "{told}");
}

#[test]
fn a_configuration_that_cannot_be_read_is_told_with_what_to_do() {
    let folder = Folder::new();
    let told = |path: &std::path::Path| {
        let output = run(&["serve", path.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(2));
        stderr(&output)
    };
    let gone = told(&folder.0.join("gone.toml"));
    assert!(
        gone.ends_with("config/tidegate.toml explains what to put there\n"),
        "{gone}"
    );
    let directory = told(&folder.0);
    assert!(
        directory.ends_with("; name the file in it\n"),
        "{directory}"
    );
}
