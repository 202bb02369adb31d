//! The rules against the processors' own code, and files that are not plain.

use std::borrow::Cow;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::family::Family;
use super::header::{Size, Turn, of_url};
use super::*;
use crate::tokenize::{CounterSpec, Effort, MediaAllowance, ModelCounter, PromptInput, Source};

const GOLDEN: &str = include_str!("../../../tests/golden/media.json");

fn golden(part: &str) -> Vec<Value> {
    let golden: Value = serde_json::from_str(GOLDEN).unwrap();
    golden[part].as_array().unwrap().clone()
}

fn family(described: &Value) -> Family {
    Family::of(&files(described))
}

fn files(described: &Value) -> Described {
    Described {
        config: described["config"].clone(),
        images: described["preprocessor"].clone(),
        processor: described["processor"].clone(),
    }
}

fn size(width: u64, height: u64) -> Size {
    Size {
        width: u32::try_from(width).unwrap(),
        height: u32::try_from(height).unwrap(),
        turn: Turn::No,
    }
}

#[test]
fn every_family_counts_as_its_processor_does() {
    let mut compared = 0;
    for described in golden("families") {
        let family = family(&described);
        let most = family.most().unwrap();
        for case in described["sizes"].as_array().unwrap() {
            let [width, height, tokens] = [0, 1, 2].map(|at| case[at].as_u64());
            let image = size(width.unwrap(), height.unwrap());
            let counted = family.tokens(image);
            if tokens.is_some() {
                assert_eq!(counted, tokens, "{} {image:?}", described["name"]);
                compared += 1;
            }
            assert!(counted.is_none_or(|counted| counted <= most), "{image:?}");
        }
    }
    assert_eq!(compared, 1800);
}

#[test]
fn the_largest_image_is_as_large_as_the_processors() {
    let most: Vec<_> = golden("families")
        .iter()
        .map(|one| family(one).most())
        .collect();
    let most: Vec<_> = most.into_iter().map(Option::unwrap).collect();
    let known = [
        16_384, 16_384, 1280, 16_384, 576, 729, 256, 4160, 3080, 3328, 256, 1536,
    ];
    assert_eq!(most, known);
}

#[test]
fn files_that_switch_something_unusual_on_have_no_rule() {
    let qwen = |images: Value| {
        let config = json!({"model_type": "qwen2_vl", "vision_config": {"patch_size": 14, "spatial_merge_size": 2}});
        family(&json!({"config": config, "preprocessor": images, "processor": null}))
    };
    let plain = json!({"min_pixels": 3136, "max_pixels": 1_003_520});
    assert!(matches!(qwen(plain), Family::Qwen(_)));
    for odd in [
        json!({"min_pixels": 3136, "max_pixels": 1_003_520, "do_resize": false}),
        json!({"min_pixels": 3136}),
        json!({"min_pixels": 3136, "max_pixels": 10}),
        json!({"min_pixels": 3136, "max_pixels": 1_003_520, "patch_size": 0}),
        json!({"min_pixels": -1, "max_pixels": "many"}),
        json!({"size": {"height": 10, "width": 10}}),
        json!(null),
    ] {
        let none = json!({"config": {"model_type": "qwen2_vl"}, "preprocessor": odd});
        assert_eq!(family(&none), Family::Unknown);
        if odd.get("patch_size").is_none() {
            assert_eq!(qwen(odd), Family::Unknown);
        }
    }
    let gemma = json!({"config": {"model_type": "gemma3", "mm_tokens_per_image": 256},
        "preprocessor": {"do_pan_and_scan": true}});
    assert_eq!(family(&gemma), Family::Unknown);
    for kind in ["phi3_v", "llama", "llava_next"] {
        assert_eq!(
            family(&json!({"config": {"model_type": kind}})),
            Family::Unknown
        );
    }
}

#[test]
fn the_first_bytes_say_the_size_of_every_common_format() {
    let files = golden("files");
    assert_eq!(files.len(), 13);
    for file in files {
        let url = format!("data:image/any;base64,{}", file["base64"].as_str().unwrap());
        let found = of_url(&url).unwrap_or_else(|| panic!("{}", file["name"]));
        let sides = [found.width, found.height].map(u64::from);
        assert_eq!(json!(sides), file["size"], "{}", file["name"]);
        assert_eq!(
            found.turn == Turn::Perhaps,
            file["noted"],
            "{}",
            file["name"]
        );
    }
}

fn url(bytes: &[u8]) -> String {
    use base64::Engine as _;
    let text = base64::engine::general_purpose::STANDARD.encode(bytes);
    format!("data:image/png;base64,{text}")
}

fn file(name: &str) -> Vec<u8> {
    use base64::Engine as _;
    let files = golden("files");
    let file = files.iter().find(|file| file["name"] == name).unwrap();
    let text = file["base64"].as_str().unwrap();
    base64::engine::general_purpose::STANDARD
        .decode(text)
        .unwrap()
}

#[test]
fn a_file_cut_anywhere_has_a_size_or_none_and_never_panics() {
    for file in golden("files") {
        let whole = self::file(file["name"].as_str().unwrap());
        let known = of_url(&url(&whole));
        for end in 0..whole.len().min(700) {
            let cut = of_url(&url(&whole[..end]));
            assert!(cut.is_none() || cut == known, "{} {end}", file["name"]);
        }
    }
}

#[test]
fn files_that_readers_may_understand_differently_have_no_size() {
    let png = file("png");
    let mut two_headers = png[..33].to_vec();
    two_headers.extend_from_slice(&png[8..]);
    let jpeg = file("jpeg");
    let mut padded = jpeg.clone();
    padded.insert(2, 0xFF);
    let frame = jpeg.windows(2).position(|two| two == [0xFF, 0xC0]).unwrap();
    let mut two_frames = jpeg[..frame + 19].to_vec();
    two_frames.extend_from_slice(&jpeg[frame..]);
    let mut no_height = jpeg.clone();
    no_height[frame + 5..frame + 7].fill(0);
    for odd in [
        two_headers,
        padded,
        two_frames,
        no_height,
        b"BM".to_vec(),
        Vec::new(),
    ] {
        assert_eq!(of_url(&url(&odd)), None);
    }
    for link in [
        "https://a/b.png",
        "data:image/png,AAAA",
        "data:;base64",
        "dat\u{e9}:,",
        "data:image/png;base64,!!!!",
    ] {
        assert_eq!(of_url(link), None, "{link}");
    }
}

#[test]
fn a_gif_whose_first_picture_is_larger_than_its_screen_counts_as_that() {
    let mut gif = file("gif");
    gif[6..10].copy_from_slice(&[1, 0, 1, 0]);
    let found = of_url(&url(&gif)).unwrap();
    assert_eq!((found.width, found.height), (320, 200));
}

fn rules(described: &Value) -> MediaRules {
    MediaRules::new(files(described), MediaAllowance::default())
}

fn named(name: &str) -> Value {
    let families = golden("families");
    families
        .into_iter()
        .find(|family| family["name"] == name)
        .unwrap()
}

#[test]
fn an_image_that_may_be_turned_is_exact_only_where_that_changes_nothing() {
    let image = json!([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url(&file("jpeg-two-notes"))}}]}]);
    let charged = |name: &str| rules(&named(name)).charge(&ChatInput::new(&image));
    assert_eq!(charged("qwen2_vl-7b").precision, Precision::Exact);
    let both = charged("pixtral-12b");
    // 3 columns in 2 rows, or 2 in 3: the second has one more row end.
    assert_eq!((both.tokens, both.precision), (9, Precision::Estimated));
}

#[test]
fn a_request_that_changes_how_images_are_prepared_is_charged_by_that() {
    let image = json!([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url(&file("png"))}}]}]);
    let charged = |name: &str, kwargs: Value| {
        let mut chat = ChatInput::new(&image);
        chat.mm_processor_kwargs = kwargs.as_object();
        let charged = rules(&named(name)).charge(&chat);
        assert_eq!(charged.precision, Precision::Estimated, "{name} {kwargs}");
        charged.tokens
    };
    let qwen = |kwargs| charged("qwen2_vl-7b", kwargs);
    // 640 x 480 pixels are 391 patches of 28.
    assert_eq!(qwen(json!({})), 391);
    assert_eq!(qwen(json!({"max_pixels": 100_352})), 117);
    assert_eq!(qwen(json!({"size": {"longest_edge": 100_352}})), 117);
    assert_eq!(
        qwen(json!({"images_kwargs": {"min_pixels": 10_000_000}})),
        12_838
    );
    assert_eq!(qwen(json!({"min_pixels": "many"})), 4096);
    assert_eq!(
        charged("internvl2_5-8b", json!({"max_dynamic_patch": 2})),
        256
    );
    assert_eq!(
        charged("gemma-3-4b", json!({"do_pan_and_scan": true})),
        4096
    );
}

#[test]
fn an_image_of_unknown_size_is_charged_as_the_largest_of_the_family() {
    let links = json!([{"role": "user", "content": [
        {"type": "image_url", "image_url": {"url": "https://a/b.png"}},
        {"type": "input_image", "image_url": "https://a/b.png"},
    ]}]);
    let charged = |described: &Value| rules(described).charge(&ChatInput::new(&links));
    let qwen = charged(&named("qwen2_5_vl-narrowed"));
    assert_eq!((qwen.tokens, qwen.precision), (2560, Precision::Estimated));
    let other = charged(&json!({"config": {"model_type": "other"}}));
    assert_eq!(
        (other.tokens, other.precision),
        (8192, Precision::Estimated)
    );
}

#[test]
fn an_image_the_engine_may_take_from_elsewhere_is_of_unknown_size() {
    const LARGEST: (u64, Precision) = (1280, Precision::Estimated);
    let link = url(&file("png"));
    let charged = |part: Value| {
        let messages = json!([{"role": "user", "content": [part]}]);
        let charged = rules(&named("qwen2_5_vl-narrowed")).charge(&ChatInput::new(&messages));
        (charged.tokens, charged.precision)
    };
    let seen = charged(json!({"type": "image_url", "image_url": {"url": link}}));
    assert_eq!(seen.1, Precision::Exact);
    assert!(seen.0 < 1280);
    let elsewhere = [
        json!({"type": "image_url", "image_url": {"url": link}, "uuid": "u"}),
        json!({"type": "text", "text": "a", "image_url": link, "uuid": "u"}),
        json!({"type": "image_embeds", "image_embeds": "AAAA", "image_url": link}),
        json!({"image_pil": "x"}),
        json!({"image_embeds": "AAAA"}),
    ];
    for part in elsewhere {
        assert_eq!(charged(part.clone()), LARGEST, "{part}");
    }
}

/// The tiny model with a family's files, its control tokens and a template.
fn model(name: &str, family: &Value, template: &str) -> ModelCounter {
    let tiny = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/tiny-model");
    let directory = std::env::temp_dir().join(format!("tidegate-{name}-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    let mut tokenizer: Value =
        serde_json::from_slice(&fs::read(tiny.join("tokenizer.json")).unwrap()).unwrap();
    let added = tokenizer["added_tokens"].as_array_mut().unwrap();
    for (id, token) in (5000..).zip(CONTROL) {
        added.push(
            json!({"id": id, "content": token, "single_word": false, "lstrip": false,
            "rstrip": false, "normalized": false, "special": true}),
        );
    }
    let files = [
        ("tokenizer.json", &tokenizer),
        ("config.json", &family["config"]),
        ("preprocessor_config.json", &family["preprocessor"]),
        ("processor_config.json", &family["processor"]),
        ("tokenizer_config.json", &json!({"chat_template": template})),
    ];
    for (file, value) in files {
        fs::write(directory.join(file), value.to_string()).unwrap();
    }
    let counter = ModelCounter::load(CounterSpec::new(Source::Directory(directory.clone())));
    fs::remove_dir_all(directory).unwrap();
    counter.unwrap()
}

const CONTROL: [&str; 8] = [
    "<|vision_start|>",
    "<|image_pad|>",
    "<|vision_end|>",
    "<image>",
    "<start_of_image>",
    "<end_of_image>",
    "<img>",
    "</img>",
];
const PARTS: &str = "{% for m in messages %}<|im_start|>{{ m.role }}\n{% for p in m.content %}\
    {% if p.type == 'image' %}IMAGE{% else %}{{ p.text }}{% endif %}{% endfor %}<|im_end|>\n{% endfor %}";
const TEXT: &str =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}";

fn count(counter: &ModelCounter, content: &Value) -> (u64, Precision) {
    let messages = json!([{"role": "user", "content": content}]);
    let chat = PromptInput::Chat(ChatInput::new(&messages));
    let count = counter.count(&chat, &Effort::default()).unwrap();
    (count.total(), count.precision)
}

fn text(counter: &ModelCounter, text: &str) -> u64 {
    let texts = [Cow::Borrowed(text)];
    let input = PromptInput::Texts {
        texts: &texts,
        add_special_tokens: false,
    };
    counter.count(&input, &Effort::default()).unwrap().total()
}

#[test]
fn a_prompt_with_images_is_the_text_the_engine_makes_of_it_and_their_tokens() {
    let image = json!({"type": "image_url", "image_url": {"url": url(&file("png"))}});
    let content = json!([{"type": "text", "text": "Look: "}, image, image, {"type": "text", "text": " What?"}]);
    // 640 x 480 pixels: 391 patches of 28 pixels, 256, and 6 tiles of 256 and an overview.
    let cases = [
        (
            "qwen2_vl-7b",
            "<|vision_start|><|image_pad|><|vision_end|>",
            None,
            391 - 1,
        ),
        ("llava-1.5-7b", "<image>\n", None, 576 - 1),
        (
            "gemma-3-4b",
            "<start_of_image>",
            Some("\n\n<start_of_image><end_of_image>\n\n"),
            256,
        ),
    ];
    for (name, written, frame, tokens) in cases {
        let counter = model(
            name,
            &named(name),
            &PARTS.replace("IMAGE", &written.replace('\n', "\\n")),
        );
        let frame = frame.unwrap_or(written);
        let prompt = format!("<|im_start|>user\nLook: {frame}{frame} What?<|im_end|>\n");
        let expected = text(&counter, &prompt) + 2 * tokens;
        assert_eq!(
            count(&counter, &content),
            (expected, Precision::Exact),
            "{name}"
        );
    }
}

#[test]
fn where_contents_are_text_the_placeholders_are_put_in_front() {
    let image = json!({"type": "image_url", "image_url": {"url": url(&file("png"))}});
    let content = json!([{"type": "text", "text": "Look: "}, image, image]);
    let counter = model("tiles", &named("internvl2_5-8b"), TEXT);
    let prompt = "<|im_start|>user\n<img></img>\n<img></img>\nLook: <|im_end|>\n";
    let expected = text(&counter, prompt) + 2 * 13 * 256;
    assert_eq!(count(&counter, &content), (expected, Precision::Exact));
    let placed = json!([{"type": "text", "text": "Look: <image>"}, image]);
    let prompt = "<|im_start|>user\nLook: <img></img><|im_end|>\n";
    let expected = text(&counter, prompt) + 13 * 256;
    assert_eq!(count(&counter, &placed), (expected, Precision::Exact));
    let too_many = json!([{"type": "text", "text": "<image><image>"}, image]);
    assert_eq!(count(&counter, &too_many).1, Precision::Estimated);
}

#[test]
fn a_placeholder_that_a_client_wrote_makes_the_count_an_estimate() {
    let image = json!({"type": "image_url", "image_url": {"url": url(&file("png"))}});
    let counter = model(
        "forged",
        &named("qwen2_vl-7b"),
        &PARTS.replace("IMAGE", "<|image_pad|>"),
    );
    let forged = json!([image, {"type": "text", "text": "<|image_pad|>"}]);
    let (tokens, precision) = count(&counter, &forged);
    assert_eq!(precision, Precision::Estimated);
    assert!(tokens > 391, "{tokens}");
    let none = json!([{"type": "text", "text": "<|image_pad|>"}]);
    assert_eq!(count(&counter, &none).1, Precision::Exact);
}
