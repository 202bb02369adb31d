//! Edits on hand-made bodies, and the same law on made-up ones.

use proptest::prelude::*;

use super::super::fields::Fields;
use super::*;

fn edited(body: &str, edits: &[Edit]) -> String {
    let keys = Fields::read(body.as_bytes()).unwrap().top_level();
    let bytes = splice(&Bytes::copy_from_slice(body.as_bytes()), &keys, edits);
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn a_value_is_replaced_where_it_stands() {
    let body = r#" { "model" : "m", "max\u005ftokens" :  7 , "x":[ 1 ] } "#;
    assert_eq!(
        edited(body, &[Edit::number(Key::MaxTokens, 100)]),
        r#" { "model" : "m", "max\u005ftokens" :  100 , "x":[ 1 ] } "#
    );
}

#[test]
fn a_missing_key_is_added_in_front() {
    assert_eq!(
        edited(r#"{ "a":1}"#, &[Edit::number(Key::MaxTokens, 5)]),
        r#"{"max_tokens":5, "a":1}"#
    );
    assert_eq!(
        edited("{ \n}", &[Edit::text(Key::CacheSalt, "a\"b")]),
        "{\"cache_salt\":\"a\\\"b\" \n}"
    );
    let two = [
        Edit::number(Key::Priority, -1),
        Edit::text(Key::RequestId, "r"),
    ];
    assert_eq!(edited("{}", &two), r#"{"priority":-1,"request_id":"r"}"#);
}

#[test]
fn a_removed_key_takes_one_comma_with_it() {
    let remove = [Edit::Remove(Key::Priority)];
    assert_eq!(edited(r#"{"priority":1}"#, &remove), "{}");
    assert_eq!(
        edited(r#"{ "priority" : 1 , "a":2}"#, &remove),
        r#"{ "a":2}"#
    );
    assert_eq!(edited(r#"{"a":2 , "priority":1 }"#, &remove), r#"{"a":2 }"#);
    assert_eq!(
        edited(r#"{"a":2,"priority":1,"b":3}"#, &remove),
        r#"{"a":2,"b":3}"#
    );
    let both = [Edit::Remove(Key::Priority), Edit::Remove(Key::CacheSalt)];
    assert_eq!(
        edited(r#"{"a":2,"priority":1,"cache_salt":"s"}"#, &both),
        r#"{"a":2}"#
    );
    assert_eq!(
        edited(r#"{"cache_salt":"s","a":2,"priority":1}"#, &both),
        r#"{"a":2}"#
    );
    let swap = [Edit::Remove(Key::Priority), Edit::number(Key::MaxTokens, 1)];
    assert_eq!(
        edited(r#"{ "priority":1 }"#, &swap),
        r#"{"max_tokens":1  }"#
    );
}

#[test]
fn a_body_without_a_change_is_the_same_bytes() {
    let body = Bytes::from_static(br#"{"a":1}"#);
    let keys = Fields::read(&body).unwrap().top_level();
    let same = splice(&body, &keys, &[Edit::Remove(Key::Priority)]);
    assert_eq!(same.as_ptr(), body.as_ptr());
}

#[test]
fn the_last_of_several_edits_of_a_key_counts() {
    let edits = [
        Edit::number(Key::MaxTokens, 1),
        Edit::Remove(Key::MaxTokens),
        Edit::number(Key::MaxTokens, 2),
    ];
    assert_eq!(edited(r#"{"max_tokens":9}"#, &edits), r#"{"max_tokens":2}"#);
}

#[test]
fn usage_is_asked_for_within_whatever_options_there_are() {
    for (options, expected) in [
        (r#"{}"#, r#"{"stream_options":{"include_usage":true}}"#),
        (
            r#"{"stream_options":null}"#,
            r#"{"stream_options":{"include_usage":true}}"#,
        ),
        (
            r#"{"stream_options":{ }}"#,
            r#"{"stream_options":{"include_usage":true }}"#,
        ),
        (
            r#"{"stream_options":{"x":1}}"#,
            r#"{"stream_options":{"include_usage":true,"x":1}}"#,
        ),
        (
            r#"{"stream_options":{"include_usage" : false }}"#,
            r#"{"stream_options":{"include_usage" : true }}"#,
        ),
        (
            r#"{"stream_options":{"continuous_usage_stats":true,"include_usage":null}}"#,
            r#"{"stream_options":{"continuous_usage_stats":false,"include_usage":true}}"#,
        ),
        (r#"{"stream_options":[]}"#, r#"{"stream_options":[]}"#),
    ] {
        assert_eq!(edited(options, &[Edit::IncludeUsage]), expected);
    }
}

#[test]
fn an_output_limit_is_written_under_every_name_the_route_reads() {
    let limited = |route, body: &str| {
        let keys = Fields::read(body.as_bytes()).unwrap().top_level();
        edited(body, &limit_output(route, &keys, 9))
    };
    assert_eq!(
        limited(Route::ChatCompletions, r#"{"a":1}"#),
        r#"{"max_tokens":9,"a":1}"#
    );
    let both = r#"{"max_completion_tokens":1,"max_tokens":null}"#;
    assert_eq!(
        limited(Route::ChatCompletions, both),
        r#"{"max_completion_tokens":9,"max_tokens":9}"#
    );
    assert_eq!(
        limited(Route::ChatCompletions, r#"{"max_completion_tokens":1}"#),
        r#"{"max_completion_tokens":9}"#
    );
    let foreign = r#"{"max_completion_tokens":1}"#;
    assert_eq!(
        limited(Route::Completions, foreign),
        r#"{"max_tokens":9,"max_completion_tokens":1}"#
    );
}

/// Space a writer may put between tokens.
fn space() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["", "", " ", "\n\t", "\r\n  "])
}

/// A key as it may be spelled: plain, or its first letter escaped.
fn spelled(name: &str, escaped: usize) -> String {
    let first = name.bytes().next().map_or(0, u32::from);
    match escaped {
        0 => format!("\"\\u{first:04x}{}\"", &name[1..]),
        _ => format!("\"{name}\""),
    }
}

prop_compose! {
    fn member()(
        name in prop::sample::select(vec!["a", "b", "a", "max_tokens_", "é"]),
        value in prop::sample::select(vec!["1", "\"},{\"", "[1, {\"priority\": 2}]", "{ }", "null", "\"\\\"\"", "-0.5e3"]),
        spaces in prop::array::uniform4(space()),
        escaped in 0usize..3,
    ) -> (String, String) {
        let key = if name.is_ascii() { spelled(name, escaped) } else { format!("\"{name}\"") };
        let [before, between, after, end] = spaces;
        (format!("{before}{key}{between}:{after}"), format!("{value}{end}"))
    }
}

prop_compose! {
    fn known(key: Key)(
        value in prop::sample::select(vec!["7", "null", "{\"x\" : [ ]}", "\"s\""]),
        spaces in prop::array::uniform4(space()),
        escaped in 0usize..3,
    ) -> (String, String) {
        let [before, between, after, end] = spaces;
        (format!("{before}{}{between}:{after}", spelled(key.name(), escaped)), format!("{value}{end}"))
    }
}

fn body() -> impl Strategy<Value = String> {
    let known = prop::sample::subsequence(Key::ALL.to_vec(), 0..=Key::ALL.len())
        .prop_flat_map(|keys| keys.into_iter().map(known).collect::<Vec<_>>());
    let others = prop::collection::vec(member(), 0..4);
    let members = (known, others)
        .prop_map(|(known, others)| [known, others].concat())
        .prop_shuffle();
    (members, space(), space()).prop_map(|(members, before, after)| {
        let members: Vec<String> = members
            .into_iter()
            .map(|(key, value)| key + &value)
            .collect();
        format!("{before}{{{after}{}}}{before}", members.join(","))
    })
}

fn edits() -> impl Strategy<Value = Vec<Edit>> {
    let key = prop::sample::select(Key::ALL.to_vec());
    let edit = (key, prop::option::of(0u32..1000)).prop_map(|(key, value)| match value {
        Some(value) => Edit::number(key, value),
        None => Edit::Remove(key),
    });
    prop::collection::vec(edit, 0..6)
}

/// The members of an object in order, as raw text, keys resolved.
fn members(text: &str) -> Vec<(String, String)> {
    struct Members(Vec<(String, String)>);
    impl<'de> serde::Deserialize<'de> for Members {
        fn deserialize<D: serde::Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
            struct Collect;
            impl<'de> serde::de::Visitor<'de> for Collect {
                type Value = Members;
                fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                    f.write_str("an object")
                }
                fn visit_map<A: serde::de::MapAccess<'de>>(
                    self,
                    mut map: A,
                ) -> Result<Members, A::Error> {
                    let mut all = Vec::new();
                    while let Some(key) = map.next_key::<String>()? {
                        let value = map.next_value::<&serde_json::value::RawValue>()?;
                        all.push((key, value.get().to_owned()));
                    }
                    Ok(Members(all))
                }
            }
            json.deserialize_map(Collect)
        }
    }
    serde_json::from_str::<Members>(text).unwrap().0
}

proptest! {
    #[test]
    fn an_edited_body_reads_as_the_old_one_with_the_edits_applied(body in body(), edits in edits()) {
        let mut expected = members(&body);
        let mut added = Vec::new();
        for key in Key::ALL {
            let last = edits.iter().rev().find(|edit| matches!(edit, Edit::Set(k, _) | Edit::Remove(k) if *k == key));
            let at = expected.iter().position(|(name, _)| name == key.name());
            match (last, at) {
                (Some(Edit::Set(_, value)), Some(at)) => expected[at].1.clone_from(value),
                (Some(Edit::Set(_, value)), None) => added.push((key.name().to_owned(), value.clone())),
                (Some(_), Some(at)) => { expected.remove(at); }
                _ => {}
            }
        }
        let mut result = members(&edited(&body, &edits));
        // New keys stand in front, in the order of the edits: compare them as a set.
        let mut new: Vec<_> = result.drain(..added.len()).collect();
        new.sort();
        added.sort();
        prop_assert_eq!(new, added);
        prop_assert_eq!(result, expected);
    }

    #[test]
    fn bytes_outside_an_edited_value_stay(body in body(), value in 0u32..1000) {
        let keys = Fields::read(body.as_bytes()).unwrap().top_level();
        let Some(place) = keys.place(Key::MaxTokens) else { return Ok(()) };
        let result = edited(&body, &[Edit::number(Key::MaxTokens, value)]);
        let expected = format!("{}{value}{}", &body[..place.value.start], &body[place.value.end..]);
        prop_assert_eq!(result, expected);
    }
}
