use super::*;

#[test]
fn all_problems_are_told_at_once_each_with_its_key_value_and_range() {
    let text = "tenant_file = \"t.toml\"\n\
        [server]\nlisten = \"localhost\"\nmax_body_bytes = 12\nbody_timeout = \"60\"\nlisten_port = 80\n\
        [admission]\nreservation = \"exact\"\nplan_share = 1.5\n\
        [[models]]\nname = \"llama\"\n\
        [[models.backends]]\nurl = \"http://10.0.0.1:8000\"\n\
        [[models.backends]]\nurl = \"ftp://10.0.0.2:8000\"\ntier = \"huge\"\nblock_size = 0\n\
        [[models]]\nalias = [\"x\"]\n";
    let problems = load_in(text, &Around::default())
        .expect_err("much is wrong")
        .to_string();
    let expected = [
        "server.listen = \"localhost\": must be an IP address and a port, such as \"127.0.0.1:8080\"",
        "server.max_body_bytes = 12: must be 1024 to 1073741824",
        "server.body_timeout = \"60\": must be a time of 1s to 1h with its unit",
        "server.listen_port: unknown key; did you mean listen?",
        "admission.reservation = \"exact\": must be \"strict\" or \"forecast\"",
        "admission.plan_share = 1.5: must be 0.5 to 1",
        "models[0].backends[1].url = \"ftp://10.0.0.2:8000\": must be http:// or https://host:port, without a path",
        "models[0].backends[1].tier = \"huge\": must be \"standard\" or \"large\" or \"offload\"",
        "models[0].backends[1].block_size = 0: must be 1 to 4096",
        "models[1].name: is needed: the model id that clients ask for",
        "models[1].backends: at least one [[models.backends]] is needed",
        "models[1].alias: unknown key; did you mean aliases?",
        "tenant_file: unknown key; did you mean tenants_file?",
    ];
    assert_eq!(problems.lines().collect::<Vec<_>>(), expected);
}

#[test]
fn a_file_without_models_says_so() {
    let problems = load_in("", &Around::default()).expect_err("no models");
    assert_eq!(
        problems.to_string(),
        "models: at least one [[models]] is needed"
    );
}

#[test]
fn text_that_is_not_toml_is_told_by_its_line() {
    let problems = load_in("[server]\n\nlisten = = 3\n", &Around::default()).expect_err("not TOML");
    let told = problems.to_string();
    assert!(told.starts_with("line 3 is not TOML: "), "{told}");
}

#[test]
fn a_file_that_cannot_be_read_is_one_problem() {
    let problems = load_file(Path::new("/nowhere/tidegate.toml")).expect_err("no such file");
    assert_eq!(
        problems.to_string(),
        "/nowhere/tidegate.toml cannot be read: No such file or directory (os error 2); \
         config/tidegate.toml explains what to put there"
    );
}

#[test]
fn a_key_that_is_nothing_like_a_known_one_lists_those_there_are() {
    assert_eq!(
        told("[auth]\nxyzzy = 1"),
        "auth.xyzzy: unknown key; known here: max_failed_keys, failed_keys_window, jwt"
    );
}

#[test]
fn a_table_in_place_of_a_list_is_told() {
    let problems = load_in("[models]\nname = \"m\"", &Around::default()).expect_err("not a list");
    let expected = "models = { name = \"m\" }: must be a list of tables";
    assert_eq!(problems.to_string(), expected);
}

#[test]
fn the_admin_address_off_loopback_needs_a_token() {
    assert_eq!(
        told("[admin]\nlisten = \"0.0.0.0:8081\""),
        "admin.listen = \"0.0.0.0:8081\": needs token_env or token_file, since others than this machine can reach it"
    );
    let mut around = Around::default();
    around.variables.insert("TOKEN", "abc");
    let text = format!("[admin]\nlisten = \"0.0.0.0:8081\"\ntoken_env = \"TOKEN\"\n{LEAST}");
    let config = load_in(&text, &around).expect("it has a token");
    assert_eq!(config.admin.token.as_ref().map(Secret::expose), Some("abc"));
}

#[test]
fn an_admin_token_that_is_missing_is_told_once() {
    assert_eq!(
        told("[admin]\nlisten = \"0.0.0.0:8081\"\ntoken_env = \"GONE\""),
        "admin.token_env: the variable GONE is not set"
    );
}

#[test]
fn secrets_that_cannot_be_used_are_told_without_being_shown() {
    let mut around = Around::default();
    around.variables.insert("EMPTY", "  ");
    around.variables.insert("ODD", "pass word");
    around.files.insert("/etc/tidegate/key", "sk-1");
    let problem = |keys: &str| {
        let text = format!("[admin]\n{keys}\n{LEAST}");
        load_in(&text, &around)
            .expect_err("something is wrong")
            .to_string()
    };
    assert_eq!(
        problem("token_env = \"GONE\""),
        "admin.token_env: the variable GONE is not set"
    );
    assert_eq!(
        problem("token_env = \"EMPTY\""),
        "admin.token_env: the secret is empty"
    );
    let odd = problem("token_env = \"ODD\"");
    assert_eq!(
        odd,
        "admin.token_env: the secret must be of visible ASCII characters"
    );
    let both = problem("token_env = \"ODD\"\ntoken_file = \"key\"");
    assert_eq!(both, "admin.token_env: set this or token_file, not both");
    let gone = problem("token_file = \"gone\"");
    assert_eq!(
        gone,
        "admin.token_file: /etc/tidegate/gone cannot be read: entity not found"
    );
}

#[test]
fn a_secret_written_into_the_file_is_refused_and_not_shown() {
    let text = LEAST.replace("url", "api_key = \"sk-secret\"\nurl");
    let tenant = "[[tenants]]\nname = \"a\"\nkey = \"sk-secret\"\nkey_sha256 = [\"sk-secret\"]\n";
    let problems = load_in(&format!("{text}{tenant}"), &Around::default()).expect_err("secrets");
    let expected = [
        "models[0].backends[0].api_key: unknown key; did you mean api_key_env?",
        "tenants[0].key_sha256: must be a list of SHA-256 digests, each of 64 hexadecimal digits",
        "tenants[0].key: unknown key; did you mean key_sha256?",
    ];
    assert_eq!(problems.to_string().lines().collect::<Vec<_>>(), expected);
    let url = LEAST.replace("http://", "http://user:sk-secret@");
    let problems = load_in(&url, &Around::default()).expect_err("a secret in the address");
    assert_eq!(
        problems.to_string(),
        "models[0].backends[0].url: must be http:// or https://host:port, without a path"
    );
}

#[test]
fn nothing_printed_of_a_config_shows_a_secret() {
    let mut around = Around::default();
    around.variables.insert("TOKEN", "the-token");
    let digest = "0123456789abcdef".repeat(4);
    let text = format!(
        "[admin]\ntoken_env = \"TOKEN\"\n{LEAST}[[tenants]]\nname = \"a\"\nkey_sha256 = [\"{digest}\"]\n"
    );
    let config = load_in(&text, &around).expect("nothing is wrong");
    assert_eq!(config.tenants[0].keys[0].0[..3], [0x01, 0x23, 0x45]);
    let printed = format!("{config:?}");
    assert!(printed.contains("token: Some([secret])"), "{printed}");
    assert!(printed.contains("keys: [[digest]]"), "{printed}");
    assert!(
        !printed.contains("the-token") && !printed.contains("35, 69"),
        "{printed}"
    );
}

#[test]
fn addresses_with_a_path_a_bad_port_or_another_scheme_are_refused() {
    let urls = [
        "http://host:8000/v1",
        "http://host:8000?x=1",
        "http://host:99999",
        "http://host:",
        "http://host:0",
        "http://:8000",
        "host:8000",
        "unix:/run/vllm.sock",
    ];
    for url in urls {
        let text = LEAST.replace("http://127.0.0.1:8000", url);
        let problems = load_in(&text, &Around::default())
            .expect_err(url)
            .to_string();
        let expected = format!(
            "models[0].backends[0].url = \"{url}\": must be http:// or https://host:port, without a path"
        );
        assert_eq!(problems, expected);
    }
}

#[test]
fn what_is_there_twice_is_told_where_the_first_is() {
    let text = "[[models]]\nname = \"a\"\naliases = [\"x\"]\n\
        [[models.backends]]\nname = \"gpu\"\nurl = \"http://Host:80\"\n\
        [[models]]\nname = \"b\"\naliases = [\"x\", \"a\"]\n\
        [[models.backends]]\nname = \"gpu\"\nurl = \"http://host\"\n\
        [[tenants]]\nname = \"t\"\nanonymous = \"accepted\"\n\
        [[tenants]]\nname = \"t\"\nanonymous = \"accepted\"\n";
    let problems = load_in(text, &Around::default())
        .expect_err("much is there twice")
        .to_string();
    let expected = [
        "models[1].aliases[0] = \"x\": is already at models[0].aliases[0]",
        "models[1].aliases[1] = \"a\": is already at models[0].name",
        "models[1].backends[0].name = \"gpu\": is already at models[0].backends[0].name",
        "models[1].backends[0].url = \"http://host/\": is already at models[0].backends[0].url",
        "tenants[1].name = \"t\": is already at tenants[0].name",
        "tenants[1].anonymous = \"accepted\": is already at tenants[0].anonymous",
    ];
    assert_eq!(problems.lines().collect::<Vec<_>>(), expected);
}

#[test]
fn one_key_cannot_be_two_tenants() {
    let digest = "0123456789abcdef".repeat(4);
    let first = format!("[[tenants]]\nname = \"a\"\nkey_sha256 = [\"{digest}\"]\n");
    let digest = digest.to_uppercase();
    let second = format!("[[tenants]]\nname = \"b\"\nkey_sha256 = [\"{digest}\"]\n");
    let problems = load_in(&format!("{LEAST}{first}{second}"), &Around::default());
    let problems = problems.expect_err("one key twice").to_string();
    assert_eq!(
        problems,
        "tenants[1].key_sha256[0]: is already at tenants[0].key_sha256[0]"
    );
}

#[test]
fn limits_that_contradict_each_other_are_told() {
    let text = "[server]\nmax_body_bytes = 4096\nbody_budget_bytes = 2048\n\
        [admin]\nlisten = \"127.0.0.1:8080\"\n\
        [probe]\nstale_after = \"3s\"\n[queue]\nmax_wait = \"10s\"\n";
    let tenants = "[[tenants]]\nname = \"a\"\nanonymous = \"accepted\"\nmax_context_tokens = 100\n\
        max_prompt_tokens = 101\nmax_output_tokens = 102\nmax_queue_wait = \"11s\"\n\
        tiers = [\"offload\"]\noffload = \"never\"\nmodels = [\"model\", \"gone\"]\n\
        [[tenants]]\nname = \"b\"\nkey_sha256 = []\ntiers = [\"standard\"]\noffload = \"when_faster\"\nmodels = []\n";
    let problems = load_in(&format!("{text}{LEAST}{tenants}"), &Around::default())
        .expect_err("contradictions");
    let problems = problems.to_string();
    let expected = [
        "server.body_budget_bytes = 2048: must be at least server.max_body_bytes, 4096",
        "admin.listen = \"127.0.0.1:8080\": must differ from server.listen",
        "probe.stale_after = \"3s\": must be longer than interval and timeout together, 3s",
        "tenants[0].max_prompt_tokens = 101: must be at most max_context_tokens, 100",
        "tenants[0].max_output_tokens = 102: must be at most max_context_tokens, 100",
        "tenants[0].max_queue_wait = \"11s\": must be at most queue.max_wait, 10s",
        "tenants[0].offload = \"never\": must not be \"never\" where tiers is only \"offload\"",
        "tenants[0].models[0] = \"model\": no backend of it is in a tier this tenant may use",
        "tenants[0].models[1] = \"gone\": no model has this name or alias",
        "tenants[1].key_sha256: is needed, or anonymous = \"accepted\": nobody could be this tenant",
        "tenants[1].offload = \"when_faster\": must not be \"when_faster\" where tiers leaves out \"offload\"",
        "tenants[1].models: must name at least one model, or be left out for all",
    ];
    assert_eq!(problems.lines().collect::<Vec<_>>(), expected);
}

#[test]
fn files_that_a_model_names_must_be_there() {
    let keys = "\ntokenizer = \"./llama\"\nchat_template_file = \"c.jinja\"\n[[models.b";
    let text = LEAST.replace("\n[[models.b", keys);
    let problems = load_in(&text, &Around::default())
        .expect_err("files are missing")
        .to_string();
    let expected = "models[0].tokenizer = \"./llama\": /etc/tidegate/./llama is no vocabulary file and no directory \
        with one (tokenizer.json, tekken.json, tokenizer.model, tiktoken.model, qwen.tiktoken)\n\
        models[0].chat_template_file: /etc/tidegate/c.jinja is not a file";
    assert_eq!(problems, expected);
}

#[test]
fn a_model_that_refuses_estimates_must_be_countable() {
    let keys = "\ntokenizer = \"estimate\"\non_uncountable = \"refuse\"\n[[models.b";
    let text = LEAST.replace("\n[[models.b", keys);
    let problems = load_in(&text, &Around::default())
        .expect_err("a contradiction")
        .to_string();
    let expected = "models[0].on_uncountable = \"refuse\": refuses every request of a model whose tokenizer is \"estimate\"";
    assert_eq!(problems, expected);
}

#[test]
fn a_pool_is_set_in_tokens_or_in_blocks() {
    let text = format!("{LEAST}kv_tokens = 100\nkv_blocks = 10\n");
    let problems = load_in(&text, &Around::default())
        .expect_err("two sizes")
        .to_string();
    assert_eq!(
        problems,
        "models[0].backends[0].kv_blocks: set this or kv_tokens, not both"
    );
}

#[test]
fn tenants_stand_in_one_file_only() {
    let text = format!(
        "tenants_file = \"t.toml\"\n{LEAST}[[tenants]]\nname = \"a\"\nanonymous = \"accepted\"\n"
    );
    let problems = load_in(&text, &Around::default())
        .expect_err("two places")
        .to_string();
    let expected = "tenants_file: set this or [[tenants]], not both\n\
        tenants_file: /etc/tidegate/t.toml cannot be read: entity not found";
    assert_eq!(problems, expected);
}

#[test]
fn a_key_in_the_wrong_section_is_told_the_right_one() {
    let text = "max_requests = 8\n[server]\nmax_wait = \"5s\"\nlevel = \"info\"\n[jwt]\nissuer = \"a\"\n\
        [[models]]\nname = \"m\"\nurl = \"http://a:1\"\n[[models.backends]]\nurl = \"http://a:1\"\ntokenizer = \"estimate\"\n";
    let problems = load_in(text, &Around::default()).expect_err("four keys are lost");
    let expected = [
        "server.level: unknown key here; it belongs to [log]",
        "server.max_wait: unknown key here; it belongs to [queue]",
        "models[0].backends[0].tokenizer: unknown key here; it belongs to [[models]]",
        "models[0].url: unknown key here; it belongs to [[models.backends]]",
        "jwt: unknown key here; it belongs to [auth]",
        "max_requests: unknown key here; it belongs to [queue]",
    ];
    assert_eq!(problems.to_string().lines().collect::<Vec<_>>(), expected);
}

#[test]
fn what_could_not_be_read_contradicts_nothing() {
    let text = "[server]\nmax_body_bytes = \"64MB\"\nbody_budget_bytes = 4096\nlisten = 8081\n\
        [admin]\nlisten = \"127.0.0.1:8080\"\n\
        [probe]\ninterval = 1\nstale_after = \"2s\"\n[queue]\nmax_waits = \"60s\"\n\
        [[models]]\nname = 7\n[[models.backends]]\nurl = \"a\"\n[[models.backends]]\nurl = \"b\"\n\
        [[tenants]]\nname = \"a\"\nkey_sha256 = [\"00\"]\nmodels = [\"m\"]\nmax_queue_wait = \"50s\"\n\
        max_body_bytes = 1073741824\n";
    let problems = load_in(text, &Around::default()).expect_err("much cannot be read");
    let expected = [
        "server.listen = 8081: must be an IP address and a port, such as \"127.0.0.1:8080\"",
        "server.max_body_bytes = \"64MB\": must be 1024 to 1073741824",
        "probe.interval = 1: must be a time of 100ms to 1m with its unit",
        "queue.max_waits: unknown key; did you mean max_wait?",
        "models[0].name = 7: must be the model id that clients ask for",
        "models[0].backends[0].url = \"a\": must be http:// or https://host:port, without a path",
        "models[0].backends[1].url = \"b\": must be http:// or https://host:port, without a path",
        "tenants[0].key_sha256: must be a list of SHA-256 digests, each of 64 hexadecimal digits",
    ];
    assert_eq!(problems.to_string().lines().collect::<Vec<_>>(), expected);
}

#[test]
fn problems_of_the_file_of_tenants_name_that_file() {
    let told = |tenants: &'static str| {
        let mut around = Around::default();
        around.files.insert("/etc/tidegate/t.toml", tenants);
        let text = format!("tenants_file = \"t.toml\"\n{LEAST}");
        let problems = load_in(&text, &around).expect_err("something is wrong");
        problems.to_string()
    };
    let file = "/etc/tidegate/t.toml";
    let not_toml = told("[[tenants]]\nname = = 3\n");
    let expected = format!("{file}: line 2 is not TOML: ");
    assert!(not_toml.starts_with(&expected), "{not_toml}");
    let two = "[server]\n[[tenants]]\nname = \"a\"\nanonymous = \"accepted\"\nweight = 0\n\
        [[tenants]]\nname = \"a\"\nkey = []\nmodels = [\"gone\"]\n";
    let expected = [
        format!("{file}: server: unknown key; known here: tenants"),
        format!("{file}: tenants[0].weight = 0: must be 1 to 10000"),
        format!("{file}: tenants[1].key: unknown key; did you mean key_sha256?"),
        format!("{file}: tenants[1].name = \"a\": is already at {file}: tenants[0].name"),
        format!("{file}: tenants[1].models[0] = \"gone\": no model has this name or alias"),
    ];
    assert_eq!(told(two).lines().collect::<Vec<_>>(), expected);
}

#[test]
fn a_wrong_log_filter_is_told() {
    let told = told("[log]\nlevel = \"tidegate=loud=er\"");
    assert!(
        told.starts_with("log.level = \"tidegate=loud=er\": must be \"error\", \"warn\""),
        "{told}"
    );
}

#[test]
fn a_hub_is_an_address_and_its_token_is_not_sent_readable() {
    let address = "an https:// or http:// address without a query";
    for written in ["ftp://x", "x", "https://x?y", "https://user@x"] {
        let told = told(&format!("[hub]\nendpoint = \"{written}\""));
        assert!(told.contains(&format!("must be {address}")), "{told}");
        assert!(!told.contains('@'), "{told}");
    }
    let around = Around {
        variables: HashMap::from([("HF_TOKEN", "token")]),
        ..Around::default()
    };
    let with_token = |endpoint: &str| {
        let text = format!("[hub]\ntoken_env = \"HF_TOKEN\"\nendpoint = \"{endpoint}\"\n{LEAST}");
        load_in(&text, &around).map(|config| config.hub.endpoint)
    };
    for endpoint in ["https://hub.example", "http://127.0.0.1:1/mirror"] {
        assert_eq!(with_token(endpoint), Ok(endpoint.to_owned()));
    }
    let told = with_token("http://hub.example").map_err(|problems| problems.to_string());
    let expected = "hub.endpoint = \"http://hub.example\": must be https:// where a token is sent";
    assert_eq!(told, Err(expected.to_owned()));
}
