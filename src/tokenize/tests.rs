//! Requests that cannot be rendered or tokenized here: estimated, never zero,
//! never a crash.

use std::borrow::Cow;
use std::path::Path;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn tiny_model() -> Source {
    Source::Directory(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/tiny-model"))
}

fn make(source: Source, template: Option<&str>) -> ModelCounter {
    let mut spec = CounterSpec::new(source);
    spec.chat_template = template.map(str::to_owned);
    ModelCounter::load(spec).unwrap()
}

const CHATML: &str = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n\
                      {% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

fn chat(counter: &ModelCounter, messages: &Value) -> Result<Count, CountError> {
    counter.count(
        &PromptInput::Chat(ChatInput::new(messages)),
        &Effort::default(),
    )
}

fn text(counter: &ModelCounter, text: &str) -> Count {
    let input = PromptInput::Texts {
        texts: &[Cow::Borrowed(text)],
        add_special_tokens: true,
    };
    counter.count(&input, &Effort::default()).unwrap()
}

fn estimated(counter: &ModelCounter, messages: &Value) -> u64 {
    let count = chat(counter, messages).unwrap();
    assert_eq!(count.precision, Precision::Estimated, "{messages}");
    assert_eq!(count.prompts.len(), 1);
    count.total()
}

#[test]
fn an_unknown_part_leaves_the_text_beside_it_counted() {
    let counter = make(tiny_model(), Some(CHATML));
    let words = "seven ".repeat(12_000);
    let exact = chat(&counter, &json!([{"role": "user", "content": words}])).unwrap();
    assert_eq!(exact.precision, Precision::Exact);
    for odd in [
        json!({"type": "holo_url", "x": 1}),
        json!(1),
        json!(null),
        json!({"type": 5}),
    ] {
        let messages = json!([{"role": "user", "content": [{"type": "text", "text": words}, odd]}]);
        let tokens = estimated(&counter, &messages);
        assert!(tokens >= exact.total(), "{odd}: {tokens}");
        assert!(tokens < exact.total() * 11 / 10, "{odd}: {tokens}");
    }
    let short = json!([{"role": "user", "content": [{"type": "text", "text": "hi"}, {"type": "holo_url"}]}]);
    assert!((5..110).contains(&estimated(&counter, &short)));
}

#[test]
fn media_parts_are_charged_their_allowance_and_not_their_data() {
    let counter = make(tiny_model(), Some(CHATML));
    let url = format!("data:image/png;base64,{}", "A".repeat(1 << 20));
    let image = json!({"type": "image_url", "image_url": {"url": url}});
    let messages = |parts: Value| json!([{"role": "user", "content": parts}]);
    let one = estimated(&counter, &messages(json!([image])));
    assert!((4096..4200).contains(&one), "{one}");
    let two = estimated(
        &counter,
        &messages(json!([image, image, {"type": "text", "text": "hi"}])),
    );
    assert!((8192..8300).contains(&two), "{two}");
    let video = estimated(&counter, &messages(json!([{"video_url": {"url": "x"}}])));
    assert!((16_384..16_500).contains(&video), "{video}");
}

#[test]
fn odd_messages_are_estimated_from_what_they_hold() {
    let counter = make(tiny_model(), Some(CHATML));
    for messages in [
        json!("a string"),
        json!({"role": "user"}),
        json!([1, null]),
        json!([{"content": "no role"}]),
        json!([{"role": "user", "content": 5}]),
        json!([{"role": "user", "content": [["nested"]]}]),
        json!([{"role": "assistant", "tool_calls": [null]}]),
        json!([{"role": "assistant", "tool_calls": [{"type": "custom", "custom": {"name": "x"}}]}]),
    ] {
        assert!(
            (72..130).contains(&estimated(&counter, &messages)),
            "{messages}"
        );
    }
}

#[test]
fn tool_arguments_of_any_shape_are_counted() {
    let source = "{% for m in messages %}{% for c in m.tool_calls or [] %}{{ c.function.name }}\
                  {{ c.function.arguments | tojson }}{% endfor %}{% endfor %}";
    let counter = make(tiny_model(), Some(source));
    let with = |function: Value| json!([{"role": "assistant", "tool_calls": [{"type": "function", "function": function}]}]);
    let empty = chat(&counter, &with(json!({"name": "f"}))).unwrap();
    assert_eq!(empty.precision, Precision::Exact);
    for arguments in [
        json!(null),
        json!(""),
        json!("[]"),
        json!("{"),
        json!(7),
        json!("null"),
    ] {
        let messages = with(json!({"name": "f", "arguments": arguments}));
        assert_eq!(chat(&counter, &messages), Ok(empty.clone()), "{arguments}");
    }
    let mapping = chat(&counter, &with(json!({"name": "f", "arguments": {"a": 1}}))).unwrap();
    let text = chat(
        &counter,
        &with(json!({"name": "f", "arguments": "{\"a\": 1}"})),
    )
    .unwrap();
    assert_eq!(mapping, text);
    assert!(text.total() > empty.total());
}

#[test]
fn a_template_that_refuses_is_an_error_with_its_words() {
    let counter = make(
        tiny_model(),
        Some("{{ raise_exception('roles must alternate') }}"),
    );
    let refused = chat(&counter, &json!([{"role": "user", "content": "hi"}]));
    assert_eq!(
        refused,
        Err(CountError::Template("roles must alternate".into()))
    );
}

#[test]
fn a_template_that_fails_otherwise_is_estimated() {
    for source in [
        "{{ messages.nothing.here }}",
        "{% for a in range(99999) %}{% for b in range(99999) %}x{% endfor %}{% endfor %}",
    ] {
        let counter = make(tiny_model(), Some(source));
        assert!(counter.is_exact());
        let tokens = estimated(
            &counter,
            &json!([{"role": "user", "content": "hello there"}]),
        );
        assert!((72..120).contains(&tokens), "{tokens}");
    }
}

#[test]
fn a_template_that_does_not_compile_is_reported_and_chats_are_estimated() {
    let counter = make(tiny_model(), Some("{% for %}"));
    assert!(!counter.is_exact());
    let problem = counter.template_problem().unwrap();
    assert!(problem.contains("does not compile"), "{problem}");
    assert!(estimated(&counter, &json!([{"role": "user", "content": "hi"}])) > 0);
    assert_eq!(text(&counter, "hi").precision, Precision::Exact);
}

#[test]
fn flags_that_contradict_and_empty_chats_are_refused() {
    let counter = make(tiny_model(), Some(CHATML));
    assert_eq!(chat(&counter, &json!([])), Err(CountError::NoMessages));
    let messages = json!([{"role": "assistant", "content": null}]);
    let mut input = ChatInput::new(&messages);
    input.continue_final_message = true;
    let both = counter.count(&PromptInput::Chat(input.clone()), &Effort::default());
    assert_eq!(both, Err(CountError::ContinueAndGenerate));
    input.add_generation_prompt = false;
    let messages =
        json!([{"role": "assistant", "content": [{"type": "image_url", "image_url": {}}]}]);
    input.messages = &messages;
    let parts = make(
        tiny_model(),
        Some("{% for m in messages %}{% for c in m.content %}{{ c.text }}{% endfor %}{% endfor %}"),
    );
    let nothing = parts.count(&PromptInput::Chat(input), &Effort::default());
    assert_eq!(nothing, Err(CountError::NothingToContinue));
}

#[test]
fn a_template_of_the_request_is_never_compiled() {
    let counter = make(tiny_model(), Some(CHATML));
    let messages = json!([{"role": "user", "content": "hi"}]);
    let mut input = ChatInput::new(&messages);
    input.chat_template = Some("{{ raise_exception('compiled') }}");
    let count = counter
        .count(&PromptInput::Chat(input), &Effort::default())
        .unwrap();
    assert_eq!(count.precision, Precision::Estimated);
}

#[test]
fn a_vocabulary_counts_texts_exactly_and_frames_chats() {
    let counter = make(Source::Tiktoken("cl100k_base".into()), None);
    assert!(!counter.is_exact());
    assert_eq!(text(&counter, "tiktoken is great!").total(), 6);
    let tokens = estimated(
        &counter,
        &json!([{"role": "user", "content": "tiktoken is great!"}]),
    );
    assert!((80..100).contains(&tokens), "{tokens}");
    let templated = make(Source::Tiktoken("cl100k_base".into()), Some(CHATML));
    assert!(templated.is_exact());
}

#[test]
fn without_a_tokenizer_answers_calibrate_the_estimate() {
    let counter = make(Source::Engine, None);
    let prose = "The quick brown fox jumps over the lazy dog. ".repeat(100);
    let before = text(&counter, &prose);
    assert_eq!(before.precision, Precision::Estimated);
    assert_eq!(before.total(), 1890);
    let texts = [Cow::from(prose.as_str())];
    let sample = counter.sample(&PromptInput::Texts {
        texts: &texts,
        add_special_tokens: true,
    });
    for _ in 0..200 {
        counter.observe(7, sample.unwrap(), 1000);
    }
    assert_eq!(text(&counter, &prose).total(), 1004);
}

#[test]
fn text_without_white_space_is_estimated_higher() {
    let counter = make(Source::Estimate, None);
    assert_eq!(text(&counter, &"word ".repeat(200)).total(), 420);
    assert_eq!(text(&counter, &"aGVsbG8g".repeat(125)).total(), 900);
    assert_eq!(text(&counter, &"人".repeat(333)).total(), 750);
}

#[test]
fn ids_are_counted_by_their_length() {
    let counter = make(Source::Estimate, None);
    let count = counter
        .count(&PromptInput::Ids { counts: &[3, 8192] }, &Effort::default())
        .unwrap();
    assert_eq!(count.prompts, [3, 8192]);
    assert_eq!(count.precision, Precision::Exact);
    assert_eq!(count.total(), 8195);
}

#[test]
fn the_cost_of_a_request_is_its_text() {
    let messages = json!([{"role": "user", "content": "12345"}]);
    let mut input = ChatInput::new(&messages);
    assert_eq!(
        ModelCounter::cost_bytes(&PromptInput::Chat(input.clone())),
        9
    );
    let tools = json!([{"a": 1}]);
    input.tools = Some(&tools);
    assert_eq!(ModelCounter::cost_bytes(&PromptInput::Chat(input)), 18);
    let texts = [Cow::Borrowed("abc"), Cow::Borrowed("de")];
    let input = PromptInput::Texts {
        texts: &texts,
        add_special_tokens: true,
    };
    assert_eq!(ModelCounter::cost_bytes(&input), 5);
}

#[test]
fn operator_variables_are_defaults_for_those_of_a_request() {
    let mut spec = CounterSpec::new(tiny_model());
    spec.chat_template = Some("{{ a }}-{{ b }}-{{ eos_token }}-{{ bos_token is defined }}".into());
    spec.template_kwargs = json!({"a": "1", "b": "2"}).as_object().unwrap().clone();
    let counter = ModelCounter::load(spec).unwrap();
    let messages = json!([{"role": "user", "content": "hi"}]);
    let kwargs = json!({"b": "3", "a": null}).as_object().unwrap().clone();
    let mut input = ChatInput::new(&messages);
    input.chat_template_kwargs = Some(&kwargs);
    let rendered = counter.render(&input).unwrap().unwrap();
    assert_eq!(rendered.text(), "1-3-<|im_end|>-False");
    assert_eq!(rendered.media_tokens, 0);
}

/// JSON of any shape, with the keys and words that messages use among others.
fn any_json() -> impl Strategy<Value = Value> {
    let word = prop::sample::select(vec![
        "role",
        "content",
        "type",
        "text",
        "user",
        "assistant",
        "tool",
        "developer",
        "system",
        "image_url",
        "tool_calls",
        "function",
        "name",
        "arguments",
        "{\"a\": 1}",
        "<|im_end|>",
        "",
    ]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        word.clone().prop_map(Value::from),
        "\\PC{0,20}".prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 60, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::vec((word.clone(), inner), 0..6)
                .prop_map(|pairs| pairs.into_iter().collect::<Value>()),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn no_request_crashes_the_counter_or_counts_zero(
        messages in prop_oneof![any_json(), prop::collection::vec(any_json(), 1..4).prop_map(Value::from)],
        tools in prop::option::of(any_json()),
        kwargs in any_json(),
    ) {
        thread_local! {
            static QWEN3: ModelCounter = make(tiny_model(), Some(include_str!("../../tests/golden/templates/qwen3.jinja")));
        }
        let mut input = ChatInput::new(&messages);
        input.tools = tools.as_ref();
        input.chat_template_kwargs = kwargs.as_object();
        let counted = QWEN3.with(|counter| counter.count(&PromptInput::Chat(input), &Effort::default()));
        if let Ok(count) = counted {
            prop_assert!(count.total() > 0);
        }
    }

    #[test]
    fn a_text_has_at_most_one_token_per_normalised_byte(words in "(\\PC|\\s){0,200}") {
        thread_local! {
            static TINY: ModelCounter = make(tiny_model(), None);
        }
        let count = TINY.with(|counter| text(counter, &words));
        prop_assert_eq!(count.precision, Precision::Exact);
        prop_assert!(count.total() <= 3 * words.len() as u64);
        prop_assert_eq!(count.total() == 0, words.is_empty());
    }
}
