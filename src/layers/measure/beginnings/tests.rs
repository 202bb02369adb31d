use super::*;
use crate::layers::fixture::Fixture;
use crate::layers::steps::Measured;
use crate::protocol::Route;

/// Some 2,000 bytes, and as many tokens as the estimate makes of them.
fn page(word: &str) -> String {
    format!("{word} ").repeat(2000 / (word.len() + 1))
}

fn chat(pages: &[&str], rest: &str) -> String {
    let messages: Vec<_> = pages
        .iter()
        .map(|word| format!(r#"{{"role":"user","content":"{}"}}"#, page(word)))
        .collect();
    format!(r#"{{"messages":[{}]{rest}}}"#, messages.join(","))
}

async fn trail(fixture: &Fixture, body: &str) -> Vec<PrefixHash> {
    let measured = fixture.measured(body).await;
    logged(&measured);
    measured.demand.trail.hashes().to_vec()
}

/// What the log is told is what admission is.
fn logged(measured: &Measured) {
    let hashes = measured.demand.trail.hashes().iter().map(|hash| hash.0);
    let hashes: Vec<u64> = hashes.collect();
    let record = measured.letter.trail.read(|facts| facts.record.clone());
    assert_eq!(record.prefix_hashes, hashes);
}

#[tokio::test]
async fn a_conversation_that_goes_on_begins_as_it_began() {
    let fixture = Fixture::new();
    let first = trail(&fixture, &chat(&["one", "two"], "")).await;
    let next = trail(&fixture, &chat(&["one", "two", "three", "four"], "")).await;
    assert!((1..=2).contains(&first.len()), "{}", first.len());
    assert!((3..=4).contains(&next.len()), "{}", next.len());
    assert_eq!(next[..first.len()], first[..]);
}

#[tokio::test]
async fn what_differs_early_shares_nothing_and_what_differs_late_shares_the_rest() {
    let fixture = Fixture::new();
    let one = trail(&fixture, &chat(&["one", "two", "three"], "")).await;
    let early = trail(&fixture, &chat(&["own", "two", "three"], "")).await;
    let late = trail(&fixture, &chat(&["one", "two", "seven"], "")).await;
    assert!(one.iter().all(|hash| !early.contains(hash)));
    let shared = one.iter().zip(&late).take_while(|(a, b)| a == b);
    assert_eq!(shared.count(), 1);
}

#[tokio::test]
async fn tools_salts_and_template_arguments_part_prompts_that_begin_alike() {
    let fixture = Fixture::new();
    let pages = ["one", "two", "three"];
    let plain = trail(&fixture, &chat(&pages, "")).await;
    assert!(!plain.is_empty());
    for rest in [
        r#","tools":[{"type":"function","function":{"name":"f"}}]"#,
        r#","cache_salt":"mine""#,
        r#","chat_template_kwargs":{"enable_thinking":false}"#,
        r#","reasoning_effort":"low""#,
    ] {
        let other = trail(&fixture, &chat(&pages, rest)).await;
        assert!(other.iter().all(|hash| !plain.contains(hash)), "{rest}");
    }
    assert_eq!(
        trail(&fixture, &chat(&pages, r#","max_tokens":3"#)).await,
        plain
    );
}

#[tokio::test]
async fn a_text_has_a_trail_and_ids_lists_and_pictures_have_none() {
    let fixture = Fixture::new();
    let of = async |route, body: &str| {
        let measured = fixture.layer().measure(fixture.parsed(route, body)).await;
        let measured = measured.ok().unwrap();
        logged(&measured);
        measured.demand.trail.hashes().len()
    };
    let text = page("one") + &page("two") + &page("three");
    let prompt = format!(r#"{{"prompt":"{text}"}}"#);
    assert_eq!(of(Route::Completions, &prompt).await, 2);
    let list = format!(r#"{{"prompt":["{text}","{text}"]}}"#);
    assert_eq!(of(Route::Completions, &list).await, 0);
    let ids = format!(r#"{{"prompt":[{}]}}"#, vec!["7"; 600].join(","));
    assert_eq!(of(Route::Completions, &ids).await, 0);
    let picture = format!(
        r#"{{"messages":[{{"role":"user","content":[{{"type":"text","text":"{text}"}},
        {{"type":"image_url","image_url":{{"url":"data:image/png;base64,AAAA"}}}}]}}]}}"#
    );
    assert_eq!(of(Route::ChatCompletions, &picture).await, 0);
}

#[test]
fn there_are_no_more_steps_than_the_prompt_has_tokens_for_and_never_more_than_the_most() {
    let seed = Seed(KEYS.build_hasher());
    let text = "x".repeat(STEP_BYTES * 10);
    let prompt = Prompt::Texts {
        texts: vec![text.into()],
        add_special_tokens: true,
    };
    let trail = seed.clone().trail(&prompt, MOST_STEPS);
    assert_eq!(trail.hashes().len(), 10);
    assert_eq!(seed.trail(&prompt, 4).hashes(), &trail.hashes()[..4]);
    let fewer = within(trail.clone(), Tokens::new(3 * TRAIL_STEP + 511));
    assert_eq!(fewer.hashes(), &trail.hashes()[..3]);
    assert_eq!(within(trail.clone(), Tokens::new(1 << 20)), trail);
}
