//! What a scripted engine says of itself: its pages, as an engine writes them,
//! and what a test puts in their place.

use std::time::Duration;

use serde_json::Value;

/// What the engine says of itself.
#[derive(Clone, Debug)]
pub(crate) struct FakeSpec {
    pub(crate) model: String,
    /// Data-parallel engines behind its address.
    pub(crate) ranks: u64,
    /// Usable blocks of each; it advertises one more, the null block.
    pub(crate) blocks: u64,
    pub(crate) block_size: u64,
    pub(crate) max_model_len: u64,
    /// Tokens `/tokenize` counts in anything; `None` answers 404.
    pub(crate) counts: Option<u64>,
    /// The only credentials it may see.
    pub(crate) key: Option<String>,
    /// Share of its KV in use, from 0 to 1; `None` leaves the line out.
    pub(crate) usage: Option<f64>,
    /// Requests it says it runs, and those it says wait, on each rank.
    pub(crate) running: u64,
    pub(crate) waiting: u64,
    /// Whether it may learn of the clients' addresses.
    pub(crate) knows_clients: bool,
    /// Whether it may be sent more than it holds.
    pub(crate) takes_too_much: bool,
}

/// What a page answers in place of its own.
#[derive(Clone, Debug)]
pub(crate) enum Page {
    /// A whole answer: status, media type, body.
    Whole(u16, &'static str, String),
    /// These bytes as they are, and the end of the connection.
    Raw(Vec<u8>),
    /// Nothing, until the page is another.
    Silent,
    /// What follows, but only after this long on the test's clock.
    Late(Duration, Box<Page>),
    /// The end of the connection.
    Closed,
    /// A reset, where the transport knows one.
    Reset,
}

impl Default for FakeSpec {
    /// 64 usable blocks of 16 tokens: 1,024 tokens of KV.
    fn default() -> Self {
        Self {
            model: "tiny".into(),
            ranks: 1,
            blocks: 64,
            block_size: 16,
            max_model_len: 1024,
            counts: Some(10),
            key: None,
            usage: None,
            running: 0,
            waiting: 0,
            knows_clients: false,
            takes_too_much: false,
        }
    }
}

// === impl Page ===

impl Page {
    /// An answer of this status in JSON.
    pub(crate) fn json(status: u16, body: &str) -> Self {
        Self::Whole(status, "application/json", body.into())
    }

    /// A 200 in plain text.
    pub(crate) fn text(body: &str) -> Self {
        Self::Whole(200, "text/plain", body.into())
    }

    /// This page, but only after `delay`.
    pub(crate) fn late(self, delay: Duration) -> Self {
        Self::Late(delay, Box::new(self))
    }
}

// === impl FakeSpec ===

impl FakeSpec {
    pub(super) fn models(&self) -> String {
        let (model, longest) = (&self.model, self.max_model_len);
        format!(
            r#"{{"object":"list","data":[{{"id":"{model}","object":"model","created":1,"owned_by":"vllm","root":"{model}","parent":null,"max_model_len":{longest}}}]}}"#
        )
    }

    /// The metrics page, as this engine writes it.
    pub(crate) fn metrics(&self) -> String {
        let size = self.block_size;
        let tokens = (self.blocks + 1) * size;
        // The front end writes the sum over its engines on each of them.
        let blocks = (self.blocks + 1) * self.ranks;
        let (running, waiting) = (self.running, self.waiting);
        let of_rank = |rank: u64| {
            let usage = self.usage.map_or(String::new(), |usage| {
                format!("vllm:kv_cache_usage_perc{{engine=\"{rank}\"}} {usage}\n")
            });
            format!(
                "vllm:num_requests_running{{engine=\"{rank}\"}} {running}\n\
                 vllm:num_requests_waiting{{engine=\"{rank}\"}} {waiting}\n{usage}\
                 vllm:cache_config_info{{block_size=\"{size}\",num_gpu_blocks=\"{blocks}\",\
                 kv_cache_size_tokens=\"{tokens}\",engine=\"{rank}\"}} 1\n"
            )
        };
        (0..self.ranks).map(of_rank).collect()
    }

    pub(super) fn tokens(&self, count: u64) -> String {
        let longest = self.max_model_len;
        let ids = vec!["7"; usize::try_from(count).unwrap()].join(",");
        format!(
            r#"{{"count":{count},"max_model_len":{longest},"tokens":[{ids}],"token_strs":null}}"#
        )
    }

    /// Blocks a request holds until its end and the sequences it runs, by its
    /// own body. Samples of one prompt share its whole blocks, which is the
    /// least any engine needs.
    pub(super) fn footprint(&self, body: &Value) -> (u64, u64) {
        let asked = body["max_tokens"]
            .as_u64()
            .or(body["max_output_tokens"].as_u64());
        let output = asked.unwrap_or(1);
        let samples = body["n"].as_u64().unwrap_or(1).max(1);
        let of_prompt = |prompt: u64| {
            let shared = prompt / self.block_size;
            let whole = (prompt + output - 1).div_ceil(self.block_size);
            shared + samples * (whole - shared.min(whole))
        };
        let prompts = self.prompts(&body["prompt"]);
        let blocks = prompts.iter().map(|&prompt| of_prompt(prompt)).sum();
        (blocks, samples * prompts.len() as u64)
    }

    /// Tokens of each prompt of a request.
    fn prompts(&self, prompt: &Value) -> Vec<u64> {
        let counted = self.counts.unwrap_or(1);
        let length = |list: &Vec<Value>| u64::try_from(list.len()).unwrap();
        match prompt {
            Value::Array(list) if list.iter().all(Value::is_number) => vec![length(list)],
            Value::Array(list) => {
                let each = list.iter();
                each.map(|one| one.as_array().map_or(counted, length))
                    .collect()
            }
            _ => vec![counted],
        }
    }
}
