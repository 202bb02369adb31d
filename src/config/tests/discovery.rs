//! Backends in files of their own, and names that stand for several.

use super::*;
use crate::core::backend::Tier;

/// A model without backends of its own that names this file.
fn listed(name: &str) -> String {
    format!("[[models]]\nname = \"m\"\nbackends_file = \"{name}\"\n")
}

fn load_with(text: &str, name: &'static str, content: &'static str) -> Result<Config, Problems> {
    let mut around = Around::default();
    around.files.insert(name, content);
    load_in(text, &around)
}

#[test]
fn a_file_lists_backends_in_toml_or_json() {
    let toml = "[[backends]]\nname = \"a\"\nurl = \"http://10.0.0.1:8000\"\ntier = \"large\"\n\
        [[backends]]\nurl = \"http://10.0.0.2:8000\"\nmax_num_seqs = 64\n";
    let json = r#"{"backends": [
        {"name": "a", "url": "http://10.0.0.1:8000", "tier": "large"},
        {"url": "http://10.0.0.2:8000", "max_num_seqs": 64}]}"#;
    let toml = load_with(&listed("b.toml"), "/etc/tidegate/b.toml", toml);
    let json = load_with(&listed("b.json"), "/etc/tidegate/b.json", json);
    let (toml, json) = (toml.expect("it is right"), json.expect("it is right"));
    assert_eq!(toml.models[0].backends, json.models[0].backends);
    let [first, second] = &toml.models[0].backends[..] else {
        panic!("{toml:?}");
    };
    assert_eq!((first.name.as_str(), first.tier), ("a", Tier::Large));
    assert_eq!(second.name, "10.0.0.2:8000");
    assert_eq!(second.kv.max_num_seqs, Some(64));
}

#[test]
fn a_file_may_list_no_backend_and_stands_beside_the_models_own() {
    let none = load_with(&listed("b.json"), "/etc/tidegate/b.json", "{}");
    assert_eq!(none.expect("it is right").models[0].backends, []);
    let text = format!(
        "{}[[models.backends]]\nurl = \"http://10.0.0.1:8000\"\n",
        listed("b.toml")
    );
    let both = load_with(
        &text,
        "/etc/tidegate/b.toml",
        "[[backends]]\nurl = \"http://10.0.0.2:8000\"\n",
    );
    let both = both.expect("it is right");
    let names = both.models[0].backends.iter().map(|b| b.name.as_str());
    assert_eq!(
        names.collect::<Vec<_>>(),
        ["10.0.0.1:8000", "10.0.0.2:8000"]
    );
}

#[test]
fn problems_of_a_file_of_backends_name_that_file() {
    let told = |name: &'static str, content: &'static str| {
        let text = format!(
            "{}[[models.backends]]\nurl = \"http://10.0.0.1:8000\"\n",
            listed(name.strip_prefix("/etc/tidegate/").unwrap_or(name))
        );
        let problems = load_with(&text, name, content).expect_err("something is wrong");
        problems.to_string()
    };
    let toml = "/etc/tidegate/b.toml";
    let two = "[[backends]]\nurl = \"http://10.0.0.1:8000\"\n\
        [[backends]]\nuri = \"http://10.0.0.2:8000\"\ntier = \"huge\"\n[[models]]\n";
    let expected = [
        format!("{toml}: models: unknown key; known here: backends"),
        format!("{toml}: backends[1].url: is needed: http:// or https://host:port, without a path"),
        format!(
            "{toml}: backends[1].tier = \"huge\": must be \"standard\" or \"large\" or \"offload\""
        ),
        format!("{toml}: backends[1].uri: unknown key; did you mean url?"),
        format!(
            "{toml}: backends[0].url = \"http://10.0.0.1:8000/\": is already at models[0].backends[0].url"
        ),
    ];
    let told_of = told(toml, two);
    for problem in &expected {
        assert!(told_of.lines().any(|line| line == problem), "{told_of}");
    }
    let broken = told("/etc/tidegate/b.json", "{\"backends\": [}");
    assert!(
        broken.starts_with("/etc/tidegate/b.json: is not JSON that TOML could say too: "),
        "{broken}"
    );
    assert!(broken.contains("line 1 column 15"), "{broken}");
    let gone = load_in(&listed("gone.toml"), &Around::default()).expect_err("no such file");
    let gone = gone.to_string();
    assert!(
        gone.starts_with("models[0].backends_file: /etc/tidegate/gone.toml cannot be read: "),
        "{gone}"
    );
}

#[test]
fn only_a_host_name_can_stand_for_several_engines() {
    for host in ["10.0.0.1", "[::1]"] {
        let text = format!(
            "[[models]]\nname = \"m\"\n[[models.backends]]\nurl = \"http://{host}:8000\"\ndiscover = \"dns\"\n"
        );
        let problems = load_in(&text, &Around::default()).expect_err("no name");
        assert_eq!(
            problems.to_string(),
            "models[0].backends[0].discover = \"dns\": needs a url with a host name, not an IP address"
        );
    }
}
