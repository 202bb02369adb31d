use super::*;
use crate::config::reader::Asked;

const DOCUMENTED: &str = include_str!("../../../config/tidegate.toml");
const TWO_TIER: &str = include_str!("../../../config/two-tier.toml");
const TENANTS: &str = include_str!("../../../config/tenants.toml");

/// A setting of the documented file.
#[derive(Debug)]
struct Setting {
    /// Path without indices, such as `models[].backends[].url`.
    path: String,
    value: String,
    active: bool,
    /// The comment above it, on one line.
    comment: String,
    /// Its line in the file.
    line: usize,
}

fn around() -> Around {
    Around {
        variables: HashMap::from([
            ("TIDEGATE_ADMIN_TOKEN", "token"),
            ("VLLM_API_KEY", "key"),
            ("HF_TOKEN", "token"),
            ("OTLP_HEADERS", "authorization: Bearer key"),
            ("TIDEGATE_CACHE_SECRET", "secret"),
            ("TIDEGATE_JWT_SECRET", "0123456789abcdef0123456789abcdef"),
        ]),
        files: [
            ("/etc/tidegate/tenants.toml", TENANTS),
            (
                "/etc/tidegate/backends.toml",
                "[[backends]]\nurl = \"http://10.0.0.9:8000\"\n",
            ),
            ("/etc/tidegate/admin.token", "token\n"),
            ("/etc/tidegate/vllm.key", "key\n"),
            ("/etc/tidegate/hub.token", "token\n"),
            ("/etc/tidegate/otlp.headers", "authorization: Bearer key\n"),
            ("/etc/tidegate/cache.secret", "secret\n"),
            (
                "/etc/tidegate/jwt.secret",
                "0123456789abcdef0123456789abcdef",
            ),
            (
                "/etc/tidegate/jwt.pem",
                include_str!("../../../tests/keys/ec.pub.pem"),
            ),
            (
                "/etc/tidegate/jwks.json",
                include_str!("../../../tests/keys/jwks.json"),
            ),
            ("/etc/tidegate/chat_template.jinja", "{{ messages }}"),
            ("/models/Llama-3.1-8B-Instruct/tokenizer.json", "{}"),
        ]
        .into_iter()
        .chain(super::tls::files())
        .collect(),
    }
}

/// Whether an example means something only beside the one that is tried.
fn belongs_to(other: &str, path: &str) -> bool {
    match (other, path.rsplit_once('.')) {
        ("server.tls.cert_file" | "server.tls.client_ca_file", _)
            if path == "tenants[].certificates" =>
        {
            true
        }
        ("server.tls.cert_file", Some(("server.tls", _))) => true,
        ("admin.tls.cert_file", Some(("admin.tls", _))) => true,
        (_, Some((_, "tls_client_key_file"))) => other.ends_with(".tls_client_cert_file"),
        ("tenants[].requests_per_minute", _) => path == "tenants[].request_burst",
        ("tenants[].tokens_per_minute", _) => path == "tenants[].token_burst",
        ("auth.jwt.issuer" | "auth.jwt.audience", Some(("auth.jwt", _))) => true,
        ("traces.endpoint", Some(("traces", _))) => true,
        ("auth.jwt.public_key_file", Some(("auth.jwt", key))) => {
            !["secret_env", "secret_file", "jwks_file"].contains(&key)
        }
        _ => false,
    }
}

/// Every `key = value` and `#key = value` of the documented file.
fn settings() -> Vec<Setting> {
    let (mut section, mut comment, mut settings) = (String::new(), String::new(), Vec::new());
    for (line, text) in DOCUMENTED.lines().enumerate() {
        if let Some(prose) = text.strip_prefix("# ") {
            comment = format!("{comment} {prose}");
            continue;
        }
        if let Some(header) = text.strip_prefix('[') {
            let name = header.trim_matches(['[', ']']);
            section = if header.starts_with('[') {
                format!("{}[].", name.replace('.', "[]."))
            } else {
                format!("{name}.")
            };
        } else if let Some((key, value)) = text.split_once(" = ") {
            settings.push(Setting {
                path: format!("{section}{}", key.trim_start_matches('#')),
                value: value.to_owned(),
                active: !key.starts_with('#'),
                comment: std::mem::take(&mut comment),
                line,
            });
        }
        comment.clear();
    }
    settings
}

/// Keys the code knows, as in the documented file; tables themselves left out.
fn known() -> Vec<Asked> {
    let report = Report::default();
    read(DOCUMENTED, &around(), &report).expect("the documented file is TOML");
    let tables = ["a table", "a list of tables"];
    let unnumbered = |asked: Asked| Asked {
        path: asked.path.replace("[0]", "[]"),
        range: asked.range,
    };
    let keys = report
        .asked()
        .into_iter()
        .filter(|asked| !tables.contains(&asked.range.as_str()));
    keys.map(unnumbered).collect()
}

#[test]
fn the_documented_file_is_the_default() {
    let config = load_in(DOCUMENTED, &Around::default());
    assert_eq!(config, Ok(Config::default()));
}

#[test]
fn every_known_key_is_documented_with_its_range() {
    let settings = settings();
    for asked in known() {
        let found: Vec<_> = settings
            .iter()
            .filter(|setting| setting.path == asked.path)
            .collect();
        let [setting] = found[..] else {
            panic!("{} is documented {} times", asked.path, found.len());
        };
        let range = format!("Range: {}. Default: ", asked.range);
        assert!(
            setting.comment.contains(&range),
            "{}: {range:?} is not in {:?}",
            asked.path,
            setting.comment
        );
    }
    assert_eq!(settings.len(), known().len(), "each once, and no other");
}

#[test]
fn every_documented_default_is_the_value_that_stands_there() {
    for setting in settings() {
        let (_, default) = setting
            .comment
            .split_once("Default: ")
            .expect("a default is told");
        let named = ["none, it is needed.", "host and port of the url.", "all."];
        let expected = match setting.path.as_str() {
            "tenants[].anonymous" => "\"refused\".".to_owned(),
            _ if !setting.active => "unset.".to_owned(),
            _ if named.contains(&default) => continue,
            _ => format!("{}.", setting.value),
        };
        assert_eq!(default, expected, "{}", setting.path);
    }
}

#[test]
fn every_example_of_an_unset_key_can_be_used() {
    let examples: Vec<_> = settings()
        .into_iter()
        .filter(|setting| !setting.active)
        .collect();
    assert!(examples.len() >= 40, "{}", examples.len());
    for example in &examples {
        let (before, _) = DOCUMENTED.split_at(if example.path == "tenants_file" {
            DOCUMENTED.find("[[tenants]]\n\n# Name").unwrap_or_default()
        } else {
            DOCUMENTED.len()
        });
        let needed: Vec<_> = examples
            .iter()
            .filter(|other| other.line == example.line || belongs_to(&other.path, &example.path))
            .map(|other| other.line)
            .collect();
        let secured = example.path.starts_with("models[].backends[].tls_");
        let uncomment = |(line, text): (usize, &str)| match text {
            "url = \"http://127.0.0.1:8000\"" if secured => text.replace("http:", "https:"),
            _ if needed.contains(&line) => text[1..].to_owned(),
            _ => text.to_owned(),
        };
        let mut lines: Vec<_> = before.lines().enumerate().map(uncomment).collect();
        if example.path == "tenants_file" {
            lines.extend(
                TWO_TIER
                    .lines()
                    .skip_while(|line| *line != "[[models]]")
                    .map(str::to_owned),
            );
        }
        let config = load_in(&lines.join("\n"), &around());
        let config = config.unwrap_or_else(|problems| panic!("{}: {problems}", example.path));
        assert_ne!(
            config,
            Config::default(),
            "{} changes nothing",
            example.path
        );
    }
}

#[test]
fn the_two_tier_example_loads_without_problem_or_advice() {
    let config = load_in(TWO_TIER, &around()).unwrap_or_else(|problems| panic!("{problems}"));
    assert_eq!(config.advice(), []);
    let tiers: Vec<_> = config.models[0]
        .backends
        .iter()
        .map(|backend| backend.tier.name())
        .collect();
    assert_eq!(tiers, ["standard", "standard", "large", "offload"]);
    let tenants: Vec<_> = config
        .tenants
        .iter()
        .map(|tenant| (tenant.name.as_str(), tenant.keys.len()))
        .collect();
    assert_eq!(tenants, [("chat", 1), ("documents", 1), ("batch", 2)]);
    assert_eq!(
        config.tenants[2].models,
        ModelAccess::Only(vec!["meta-llama/Llama-3.1-8B-Instruct".to_owned()])
    );
}

#[test]
fn the_example_keys_are_those_of_the_example_digests() {
    use sha2::Digest as _;

    let config = load_in(TWO_TIER, &around()).expect("it loads");
    let digest: [u8; 32] = sha2::Sha256::digest("chat-example-key").into();
    assert_eq!(config.tenants[0].keys[0].0, digest);
}
