use super::*;
use crate::app::load_counter;
use crate::cli::live::seen::Rank;
use crate::config::load;
use crate::core::units::Tokens;
use crate::hub::{Hub, Wanted};
use crate::sim::engine::EngineSpec;
use crate::sim_server::{CHAT_TEMPLATE, SimServer, SimServerSpec};

/// A configuration of one model with one backend at `url`.
fn config(url: &str, model: &str) -> Config {
    let text = format!(
        "[[models]]\nname = \"tiny\"\n{model}\n[[models.backends]]\nname = \"sim\"\nurl = \"{url}\"\n"
    );
    load(&text).unwrap_or_else(|problems| panic!("{problems}"))
}

fn asked(config: Config) -> Live {
    let hub = Hub::new(&config.hub);
    let counters = config
        .models
        .iter()
        .map(|model| load_counter(model, &hub, Wanted::Any).unwrap())
        .collect();
    ask(config, counters).unwrap()
}

/// A simulated engine with a pool of 8,192 tokens, served by a runtime of its own.
fn engine() -> (tokio::runtime::Runtime, SimServer) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let spec = SimServerSpec::new("tiny", EngineSpec::with_pool(Tokens::new(8192)));
    let server = runtime.block_on(async { SimServer::start(spec) }).unwrap();
    (runtime, server)
}

fn printed(live: &Live) -> String {
    let mut out = Vec::new();
    live.print(&mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn a_backend_that_counts_as_we_do_has_no_finding() {
    let (_runtime, server) = engine();
    let template = std::env::temp_dir().join(format!("tidegate-live-{}.jinja", std::process::id()));
    std::fs::write(&template, CHAT_TEMPLATE).unwrap();
    let file = format!("chat_template_file = \"{}\"", template.display());
    let model = format!("tokenizer = \"tiktoken:o200k_base\"\n{file}");
    let live = asked(config(&server.url(), &model));
    std::fs::remove_file(&template).unwrap();
    assert_eq!(live.findings, []);
    assert!(live.verdict().is_ok());
    let rank = Rank {
        rank: 0,
        kv_tokens: 8192,
        kv_blocks: 512,
        block_size: 16,
        source: "advertised_tokens",
        context_limit: 8192,
        max_num_seqs: None,
        lookahead_tokens: 1,
    };
    assert_eq!(live.backends[0].ranks, [rank]);
    let counted: Vec<_> = live
        .counts
        .iter()
        .map(|count| (count.text, count.ours == count.engine))
        .collect();
    let texts = ["prose", "scripts", "code", "chat", "turns"];
    assert_eq!(counted, texts.map(|text| (text, true)));
    let out = printed(&live);
    let head = "BACKEND  MODEL  TIER      VERSION  MAX MODEL LEN  RANK  KV TOKENS  SOURCE\n\
        sim      tiny   standard  0.32.0   8192           0     8192       advertised_tokens\n\n";
    assert!(out.starts_with(head), "{out}");
}

#[test]
fn engines_behind_a_name_are_asked_and_a_name_without_any_is_a_failure() {
    let (_runtime, server) = engine();
    let named = |host: &str| server.url().replace("127.0.0.1", host);
    let with = |host: &str| {
        let url = format!("{}\"\ndiscover = \"dns", named(host));
        asked(config(&url, "tokenizer = \"engine\""))
    };
    let live = with("localhost");
    assert_eq!(live.backends[0].backend, "sim-0");
    assert_eq!(live.backends[0].ranks[0].kv_tokens, 8192);
    let live = with("nowhere.invalid");
    let told = printed(&live);
    assert!(told.contains("failure: sim: nowhere.invalid:"), "{told}");
    assert!(live.verdict().is_err());
}

#[test]
fn where_the_engine_counts_no_count_of_ours_is_shown() {
    let (_runtime, server) = engine();
    let live = asked(config(&server.url(), "tokenizer = \"engine\""));
    assert_eq!(live.findings, []);
    let counted = live.counts.iter().map(|count| {
        let engine = count.engine.is_some_and(|engine| engine > 0);
        (count.ours, count.precision, engine)
    });
    assert_eq!(counted.collect::<Vec<_>>(), [(None, "engine", true); 5]);
}

#[test]
fn a_wrong_vocabulary_is_a_failure_with_both_numbers() {
    let (_runtime, server) = engine();
    let live = asked(config(&server.url(), "tokenizer = \"tiktoken:r50k_base\""));
    let scripts = live
        .counts
        .iter()
        .find(|count| count.text == "scripts")
        .unwrap();
    let (ours, engine) = (scripts.ours.unwrap(), scripts.engine.unwrap());
    let text = format!(
        "\"scripts\" has {ours} tokens here and {engine} on sim: the tokenizer or the chat template is not the engine's"
    );
    assert!(
        live.findings.contains(&Finding {
            weight: Weight::Failure,
            text
        }),
        "{:?}",
        live.findings
    );
    assert!(live.verdict().is_err());
}

#[test]
fn a_backend_that_refuses_connections_is_one_failure() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let live = asked(config(&format!("http://{address}"), ""));
    let text = "sim: /v1/models: connection refused".to_owned();
    assert_eq!(
        live.findings,
        [Finding {
            weight: Weight::Failure,
            text
        }]
    );
    assert_eq!(live.counts, []);
    let verdict = live.verdict().map_err(|failure| failure.to_string());
    assert_eq!(verdict, Err("1 failure was found".to_owned()));
}

#[test]
fn a_backend_of_another_model_is_a_failure() {
    let (_runtime, server) = engine();
    let mut config = config(&server.url(), "tokenizer = \"estimate\"");
    config.models[0].name = "large".to_owned();
    let live = asked(config);
    let text = "sim does not serve \"large\"; it serves tiny".to_owned();
    assert_eq!(
        live.findings[0],
        Finding {
            weight: Weight::Failure,
            text
        }
    );
}
