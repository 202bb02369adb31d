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
