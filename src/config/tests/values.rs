use std::time::Duration;

use super::*;
use crate::core::admission::PoolPolicy;
use crate::core::backend::Tier;
use crate::core::dispatch::DispatchPolicy;
use crate::core::fairness::TenantPolicy;
use crate::core::placement::{ForecastPolicy, Reservation, TierPolicy};
use crate::core::queue::{QueuePolicy, Unserved};
use crate::core::units::{BlockSize, Tokens};

#[test]
fn written_values_are_taken() {
    let config = least_and(
        "[server]\nlisten = \"0.0.0.0:80\"\nmax_header_bytes = 8192\n\
         [upstream]\nfirst_byte_timeout = \"30s\"\npool_idle_timeout = \"1500ms\"\n\
         [admission]\nreservation = \"strict\"\nplan_share = 1\n\
         [log]\naccess_log = \"logs/access.jsonl\"\n",
    );
    let config = config.expect("nothing is wrong");
    assert_eq!(config.server.listen.to_string(), "0.0.0.0:80");
    assert_eq!(config.server.max_header_bytes, 8192);
    assert_eq!(
        config.upstream.first_byte_timeout,
        Some(Duration::from_secs(30))
    );
    assert_eq!(
        config.upstream.pool_idle_timeout,
        Duration::from_millis(1500)
    );
    assert_eq!(config.admission.reservation, ReservationKind::Strict);
    assert!(config.admission.plan_share >= 1.0);
    assert_eq!(
        config.log.access,
        AccessLog::File("/etc/tidegate/logs/access.jsonl".into())
    );
}

#[test]
fn a_model_with_everything_is_taken() {
    let text = "[[models]]\nname = \"llama\"\naliases = [\"lora\"]\ntokenizer = \"/models/llama\"\n\
         on_uncountable = \"refuse\"\nstored_history_tokens = 9\nchat_template_file = \"chat.jinja\"\n\
         template_kwargs = { enable_thinking = false, tags = [1, \"a\"] }\n\
         long_on_standard = \"never\"\nkv_layout = \"hybrid\"\n\
         [[models.backends]]\nname = \"gpu-0\"\nurl = \"http://[::1]:8000/\"\ntier = \"large\"\n\
         api_key_file = \"key\"\ndata_parallel_ranks = 2\nkv_tokens = 65536\nblock_size = 16\n\
         max_model_len = 32768\nmax_num_seqs = 64\nlookahead_tokens = 4\n";
    let mut around = Around::default();
    around.files.insert("/models/llama/tokenizer.json", "{}");
    around.files.insert("/etc/tidegate/chat.jinja", "");
    around.files.insert("/etc/tidegate/key", "engine-key\n");
    let config = load_in(text, &around).expect("nothing is wrong");
    let model = &config.models[0];
    assert_eq!(model.served_ids().collect::<Vec<_>>(), ["llama", "lora"]);
    assert_eq!(
        model.tokenizer,
        TokenizerChoice::Directory("/models/llama".into())
    );
    assert_eq!(model.on_uncountable, OnUncountable::Refuse);
    assert_eq!(model.stored_history, Tokens::new(9));
    assert_eq!(
        model.chat_template_file,
        Some("/etc/tidegate/chat.jinja".into())
    );
    let kwargs = serde_json::Value::Object(model.template_kwargs.clone());
    assert_eq!(
        kwargs,
        serde_json::json!({"enable_thinking": false, "tags": [1, "a"]})
    );
    assert_eq!(
        (model.long_on_standard, model.kv_layout),
        (LongOnStandard::Never, Some(KvLayout::Hybrid))
    );
    let backend = &model.backends[0];
    assert_eq!(
        (
            backend.name.as_str(),
            backend.tier,
            backend.data_parallel_ranks
        ),
        ("gpu-0", Tier::Large, 2)
    );
    assert_eq!(
        backend.api_key.as_ref().map(Secret::expose),
        Some("engine-key")
    );
    let kv = KvOverrides {
        tokens: Some(Tokens::new(65_536)),
        blocks: None,
        block_size: BlockSize::new(16),
        max_model_len: Some(Tokens::new(32_768)),
        max_num_seqs: Some(64),
        lookahead: Some(Tokens::new(4)),
    };
    assert_eq!(backend.kv, kv);
}

#[test]
fn a_backend_without_a_name_is_called_by_its_address() {
    let config = least_and("").expect("nothing is wrong");
    assert_eq!(config.models[0].backends[0].name, "127.0.0.1:8000");
}

#[test]
fn tokenizers_are_told_apart_by_their_first_word() {
    let tokenizer = |written: &str| {
        let text = LEAST.replace(
            "\n[[models.b",
            &format!("\ntokenizer = \"{written}\"\n[[models.b"),
        );
        load_in(&text, &Around::default()).map(|config| config.models[0].tokenizer.clone())
    };
    assert_eq!(tokenizer("engine"), Ok(TokenizerChoice::Engine));
    assert_eq!(tokenizer("estimate"), Ok(TokenizerChoice::Estimate));
    assert_eq!(
        tokenizer("tiktoken:o200k_base"),
        Ok(TokenizerChoice::Tiktoken("o200k_base".to_owned()))
    );
    let model = HubModel::parse("org/model@v1").expect("a name and a revision");
    assert_eq!(
        tokenizer("hub:org/model@v1"),
        Ok(TokenizerChoice::Hub(model))
    );
    let typo = tokenizer("engin").map_err(|problems| problems.to_string());
    let told = "models[0].tokenizer = \"engin\": must be \"engine\", \"estimate\", \"tiktoken:\" and a vocabulary, \"hub:\" and a model's name there, or a path with a /";
    assert_eq!(typo, Err(told.to_owned()));
}

#[test]
fn an_alias_in_a_tenants_models_means_the_model() {
    let text = LEAST.replace("\n[[models.b", "\naliases = [\"lora\"]\n[[models.b");
    let tenant =
        "[[tenants]]\nname = \"a\"\nanonymous = \"accepted\"\nmodels = [\"lora\", \"model\"]\n";
    let config = load_in(&format!("{text}{tenant}"), &Around::default()).expect("nothing is wrong");
    assert_eq!(
        config.tenants[0].models,
        ModelAccess::Only(vec!["model".to_owned()])
    );
    assert_eq!(
        config
            .model_serving("lora")
            .map(|model| model.name.as_str()),
        Some("model")
    );
    assert_eq!(config.model_serving("LoRA"), None);
}

#[test]
fn tenants_may_stand_in_a_file_of_their_own() {
    let mut around = Around::default();
    around.files.insert(
        "/etc/tidegate/t.toml",
        "[[tenants]]\nname = \"a\"\nanonymous = \"accepted\"\nweight = 3\n",
    );
    let config =
        load_in(&format!("tenants_file = \"t.toml\"\n{LEAST}"), &around).expect("nothing is wrong");
    assert_eq!(config.tenants.len(), 1);
    let policy = TenantPolicy {
        weight: 3,
        ..TenantPolicy::default()
    };
    assert_eq!(config.tenants[0].policy(), policy);
}

#[test]
fn the_core_gets_its_policy_from_the_sections() {
    let config = Config::default();
    let policy = PoolPolicy {
        reservation: Reservation::Forecast(ForecastPolicy {
            open_output: Tokens::new(1024),
            margin: 0.97,
            confidence: 1.64,
        }),
        queue: QueuePolicy {
            max_requests: 1024,
            max_tokens: Tokens::new(4_000_000),
            max_bypass: Duration::from_secs(10),
            unserved: Unserved::Refuse,
        },
        tiers: TierPolicy {
            long_share: 0.25,
            free_reserve: 0.15,
            long_on_standard: LongOnStandard::WhenNothingLarger,
        },
        dispatch: crate::core::dispatch::DispatchPolicy::default(),
        observed_for: Duration::from_secs(10),
    };
    assert_eq!(config.pool_policy(&config.models[0]), policy);
}

#[test]
fn what_is_allowed_but_seldom_meant_is_told() {
    let text = format!(
        "[server]\nlisten = \"0.0.0.0:8080\"\n[upstream]\npool_idle_timeout = \"5s\"\n[admission]\nmode = \"shadow\"\n{}\
         [[tenants]]\nname = \"a\"\nanonymous = \"accepted\"\ntiers = [\"large\"]\n\
         max_context_tokens = 1000\nmax_in_flight_tokens = 999\n",
        LEAST.replace("\n[[models.b", "\nlong_on_standard = \"never\"\n[[models.b")
    );
    let config = load_in(&text, &Around::default()).expect("nothing is wrong");
    let advice: Vec<_> = config.advice().iter().map(ToString::to_string).collect();
    let expected = [
        "upstream.pool_idle_timeout = \"5s\": vLLM closes idle connections after 5s: some requests will meet a closed one",
        "admission.mode = \"shadow\": admission only watches: nothing waits, and engines may be sent more than they hold",
        "server.listen = \"0.0.0.0:8080\": no tenant has a key: everybody who reaches this address may use the fleet",
        "models[0].long_on_standard = \"never\": no backend is larger than standard: every long document is refused",
        "tenants[0].max_in_flight_tokens = 999: requests between this and max_context_tokens, 1000, are refused",
        "tenants[0].tiers: no backend of model \"model\" is in a tier this tenant may use",
    ];
    assert_eq!(advice, expected);
    assert_eq!(Config::default().advice(), []);
}

#[test]
fn the_work_gate_and_the_objective_are_taken_as_written() {
    let config = least_and(
        "[admission]\nmode = \"shadow\"\nlate = \"off\"\norder_weight = 2.5\npatience = \"5s\"\n\
         token_pace = \"40ms\"\nfirst_token = \"2s\"\nfirst_token_per_1000_tokens = \"250ms\"\n",
    );
    let config = config.expect("nothing is wrong");
    let dispatch = DispatchPolicy {
        late: Duration::MAX,
        order_weight: 2.5,
        patience: Duration::from_secs(5),
        token_pace: Some(Duration::from_millis(40)),
    };
    assert_eq!(config.pool_policy(&config.models[0]).dispatch, dispatch);
    assert_eq!(config.admission.mode, AdmissionMode::Shadow);
    let within = |prompt| config.admission.first_token_within(Tokens::new(prompt));
    assert_eq!(within(0), Some(Duration::from_secs(2)));
    assert_eq!(within(6_500), Some(Duration::from_millis(3_625)));
    assert!(within(u64::MAX) > Some(Duration::from_secs(1 << 40)));
    let least = least_and("").expect("nothing is wrong");
    assert_eq!(least.admission.first_token_within(Tokens::new(9)), None);
    assert_eq!(
        least.pool_policy(&least.models[0]).dispatch,
        DispatchPolicy::default()
    );
}
