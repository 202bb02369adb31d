//! Megabytes a second of text never seen before, and of the same text again.

use tidegate::tokenize::Effort;

use crate::clock::{against, median, time};
use crate::corpus::Corpus;
use crate::model::Model;

/// Medians of one kind, in seconds a byte.
struct Speed {
    unseen: f64,
    again: f64,
    tiktoken: f64,
    peer: Option<f64>,
}

/// Prints one row for each vocabulary and kind.
pub(crate) fn throughput(models: &[Model], corpora: &[Corpus]) {
    println!("### Text, MB/s of CPU time\n");
    println!(
        "| vocabulary | text | unseen | repeated | tiktoken-rs | unseen / tiktoken-rs | tokenizers 0.23 | unseen / it |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    for model in models {
        for corpus in corpora {
            let speed = measure(model, corpus);
            let rate = |seconds: f64| 1e-6 / seconds;
            let ratio = speed.tiktoken / speed.unseen;
            let ratio = match goal(model.name, corpus.name) {
                Some(goal) => against(ratio, goal),
                None => format!("{ratio:.1}x"),
            };
            let (peer, over_peer) = match speed.peer {
                Some(peer) => (
                    format!("{:.1}", rate(peer)),
                    against(peer / speed.unseen, 20.0),
                ),
                None => ("–".to_owned(), "–".to_owned()),
            };
            println!(
                "| {} | {} | {:.0} | {:.0} | {:.0} | {ratio} | {peer} | {over_peer} |",
                model.name,
                corpus.name,
                rate(speed.unseen),
                rate(speed.again),
                rate(speed.tiktoken),
            );
        }
    }
    println!();
}

fn goal(model: &str, corpus: &str) -> Option<f64> {
    match (model, corpus) {
        ("cl100k" | "o200k", "English" | "code") => Some(8.0),
        ("Qwen 3", "English") => Some(5.0),
        (_, "Chinese") => Some(3.5),
        _ => None,
    }
}

fn measure(model: &Model, corpus: &Corpus) -> Speed {
    let effort = Effort::default();
    let (warm, parts) = corpus.parts.split_first().unwrap();
    model.count(warm, &effort);
    model.tiktoken.count_with_special_tokens(warm);
    let (mut unseen, mut again, mut tiktoken, mut peers) = (vec![], vec![], vec![], vec![]);
    for part in parts {
        #[expect(clippy::cast_precision_loss, reason = "a part is small")]
        let bytes = part.len() as f64;
        let (seconds, count) = time(|| model.count(part, &effort));
        unseen.push(seconds / bytes);
        again.push(time(|| model.count(part, &effort)).0 / bytes);
        let (seconds, tokens) = time(|| model.tiktoken.count_with_special_tokens(part));
        tiktoken.push(seconds / bytes);
        assert_eq!(
            count.total(),
            tokens as u64,
            "{} {}",
            model.name,
            corpus.name
        );
        if let Some(peer) = &model.peer {
            let (seconds, tokens) = time(|| peer.encode_fast(part.as_str(), false).unwrap().len());
            peers.push(seconds / bytes);
            // The file of o200k is that of gpt-oss, which has more control tokens.
            assert!(model.name == "o200k" || count.total() == tokens as u64);
        }
    }
    Speed {
        unseen: median(unseen),
        again: median(again),
        tiktoken: median(tiktoken),
        peer: (!peers.is_empty()).then(|| median(peers)),
    }
}
