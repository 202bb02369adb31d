//! Every engine of a vocabulary counts alike.

use std::sync::LazyLock;

use proptest::prelude::*;

use super::unicode::is_disputed;
use super::*;

const BARE: Encoding = Encoding::recognised(AddSpecial::Bare);

static CL100K: LazyLock<Engines> = LazyLock::new(|| {
    let ranks = tiktoken::Tiktoken::builtin("cl100k_base").unwrap();
    let json = ranks.ranks("cl100k_base").tokenizer_json().unwrap();
    let tail = tail::Tail::load(json).unwrap();
    Engines {
        tail: Some(Arc::new(tail)),
        ..builtin("cl100k_base")
    }
});
static O200K: LazyLock<Engines> = LazyLock::new(|| builtin("o200k_harmony"));

fn builtin(name: &str) -> Engines {
    Engines::from_vocabulary(name, 4096).unwrap()
}

/// Short stretches of everything the split patterns treat apart, parted by "¦".
const FRAGMENTS: &str = " ¦  ¦\t¦\n¦\r\n¦\n\n¦ \n¦\u{a0}¦\u{3000}¦\u{85}¦'s¦'LL¦'re¦'¦don't¦ſ¦'ſ¦\u{212a}¦1¦22\
    ¦333¦4444¦½¦٣¦-¦--¦/¦\n/¦!?¦...¦e\u{301}¦é¦\u{301}¦漢字¦。¦かな¦한¦\u{1112}\u{1161}¦🙂¦👩\u{200d}👧\
    ¦\u{200d}¦\0¦\u{7f}¦Word¦word¦WORD¦camelCase¦<|endoftext|>¦<|start|>¦<|sta¦rt|>¦<|¦|>¦ไทย\
    ¦العربية¦\u{feff}¦ǅ¦ﷺ¦aaaaaaaa¦=====¦_¦0x1F";

fn fragment() -> impl Strategy<Value = String> {
    prop_oneof![
        prop::sample::select(FRAGMENTS.split('¦').collect::<Vec<_>>()).prop_map(str::to_owned),
        any::<char>().prop_map(String::from),
        "[a-zA-Z]{1,12}",
    ]
}

pub(super) fn texts() -> impl Strategy<Value = String> {
    prop::collection::vec(fragment(), 0..60).prop_map(|fragments| fragments.concat())
}

/// What each engine counts: first, tail, reference.
fn counts(engines: &Engines, text: &str, encoding: Encoding) -> [Option<u64>; 3] {
    let tokens = |engine: &Arc<dyn Engine>| Some(engine.count(text, encoding)?.tokens);
    [
        tokens(&engines.first),
        engines.tail.as_ref().and_then(tokens),
        engines.reference.as_ref().and_then(tokens),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn the_engines_of_a_vocabulary_agree(text in texts()) {
        for engines in [&*CL100K, &*O200K] {
            for added in [AddedTokens::Recognised, AddedTokens::Ordinary] {
                let encoding = Encoding { added, ..BARE };
                let [first, tail, reference] = counts(engines, &text, encoding);
                prop_assert!(first.is_some());
                prop_assert_eq!(first, reference, "{:?}", text);
                let has_tail = engines.tail.is_some();
                let agrees = !has_tail || tail == reference || is_disputed(&text);
                prop_assert!(agrees, "{:?}", text);
            }
        }
    }
}

#[test]
fn the_oldest_vocabularies_are_read_by_every_engine() {
    let engines = builtin("p50k_edit");
    for text in ["It's  a\n\ntest, isn't it?  42 ", "<|fim_prefix|>x", ""] {
        let [first, tail, reference] = counts(&engines, text, BARE);
        assert_eq!((first, tail), (reference, None), "{text:?}");
        assert!(reference.is_some());
    }
}
