//! Files that are fleets, files that are not, and questions.

use super::*;

const LEAST: &str = r#"
assumed_max_tokens = 100
[slo]
first_token = "2s"
prompt_tokens_per_second = 4000
token_pace = "60ms"
[[nodes]]
name = "gpu"
count = 2
tier = "standard"
profile = "rtx_4090_8b"
kv_tokens = 41408
max_model_len = 8192
"#;

fn file(name: &str) -> FleetFile {
    let path = format!("{}/config/fleets/{name}.toml", env!("CARGO_MANIFEST_DIR"));
    FleetFile::read(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn said(text: &str) -> String {
    FleetFile::read(text).unwrap_err().to_string()
}

#[test]
fn a_file_tells_engines_and_what_clients_expect() {
    let plan = FleetFile::read(LEAST).unwrap().plan().unwrap();
    assert_eq!(plan.fleet.nodes.len(), 2);
    assert_eq!(plan.fleet.nodes[1].name, "gpu-1");
    assert_eq!(plan.fleet.nodes[0].spec.usable().get(), 41_408 / 16);
    let within = plan.fleet.slo.first_token_within(Tokens::new(8000));
    assert_eq!(within, Duration::from_secs(4));
    assert_eq!(plan.tiers, TierPolicy::default());
    assert_eq!(plan.surge, None);
}

#[test]
fn unknown_keys_and_values_that_make_no_fleet_are_told() {
    assert!(said(&LEAST.replace("count", "counts")).contains("unknown field `counts`"));
    assert!(
        said(&LEAST.replace("\"2s\"", "\"soon\"")).contains("\"soon\" is no time with its unit")
    );
    assert!(said(&LEAST.replace("4090", "9999")).contains("unknown variant"));
    assert_eq!(
        said(&LEAST.replace("count = 2", "count = 0")),
        "nodes: a fleet needs an engine"
    );
    let slow = LEAST.replace("count = 2", "count = 2\nspeed = 0.0");
    assert_eq!(said(&slow), "nodes \"gpu\": speed = 0 must be above 0");
    let odd = format!("{LEAST}[min_prompt]\ncsvs = 4\n");
    assert!(said(&odd).starts_with("min_prompt.csvs: no format of traces; known are mooncake"));
    let tiers = format!("{LEAST}[tiers]\nfree_reserve = 1.5\n");
    assert_eq!(
        said(&tiers),
        "tiers.free_reserve = 1.5: must be within 0 and 1"
    );
}

#[test]
fn questions_change_the_fleet_and_nothing_else() {
    let file = FleetFile::read(LEAST).unwrap();
    let asked = |questions: &[&str]| {
        let changes: Vec<Change> = questions.iter().map(|text| text.parse().unwrap()).collect();
        file.changed(&changes).map(|file| file.plan().unwrap())
    };
    assert_eq!(asked(&["add=node:2"]).unwrap().fleet.nodes.len(), 4);
    assert_eq!(asked(&["add=standard:1"]).unwrap().fleet.nodes.len(), 3);
    let both = asked(&["kv=fp8", "max_model_len=gpu:16384"]).unwrap();
    assert_eq!(both.fleet.nodes[0].spec.usable().get(), 2 * 41_408 / 16);
    assert_eq!(both.fleet.nodes[0].spec.max_model_len, Tokens::new(16_384));
    let large = asked(&["tier=gpu:large"]).unwrap();
    assert!(
        large
            .fleet
            .nodes
            .iter()
            .all(|node| node.tier == Tier::Large)
    );
    let surge = asked(&["surge=a*b*10@300-600"]).unwrap().surge.unwrap();
    assert_eq!((surge.tenant.as_str(), surge.factor), ("a*b", 10));
    let missing = asked(&["add=big:1"]).unwrap_err().to_string();
    assert_eq!(missing, "no engines \"big\" in the fleet, it has gpu");
}

#[test]
fn a_question_is_written_as_it_is_read() {
    for text in [
        "add=node:2",
        "max_model_len=4096",
        "max_model_len=gpu:4096",
        "kv=fp8",
        "tier=gpu:large",
        "surge=54*10@300-600",
    ] {
        assert_eq!(text.parse::<Change>().unwrap().to_string(), text);
    }
    for text in [
        "add=node",
        "add=node:0",
        "kv=int4",
        "tier=gpu:huge",
        "more",
        "surge=a*b@1-2",
    ] {
        assert!(text.parse::<Change>().is_err(), "{text}");
    }
}

#[test]
fn the_fleets_of_the_repository_are_what_they_say() {
    let nodes = |name: &str| file(name).plan().unwrap().fleet.nodes.len();
    assert_eq!(
        ["conv", "mix", "r1", "syn", "fair"].map(nodes),
        [6, 6, 6, 4, 2]
    );
    let mix = file("mix").plan().unwrap();
    assert_eq!(mix.least_prompt[&Format::Mooncake], Tokens::new(16_385));
    assert_eq!(mix.fleet, file("conv").plan().unwrap().fleet);
    assert!(file("fair").plan().unwrap().surge.is_some());
}
