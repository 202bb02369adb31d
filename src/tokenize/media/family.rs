//! How many tokens an image becomes, by the family of the model.
//!
//! Decides the rule from the model's own files and applies it to a size. Never
//! looks at a request. Invariant: [`Family::most`] is at least [`Family::tokens`]
//! of any size; a model whose rule is not known here, or whose files switch
//! something unusual on, is [`Family::Unknown`].
//!
//! | family | an image becomes |
//! |---|---|
//! | Qwen2-VL, Qwen2.5-VL, Qwen3-VL, Qwen3.5 | its merged patches, after a resize to whole patches between two areas |
//! | LLaVA 1.5 | the patches of the encoder's only size |
//! | Gemma 3 | 256 |
//! | Pixtral, Mistral 3 | its merged patches and the end of each row, after a resize to a longest side |
//! | `InternVL` | tiles of one size in the grid nearest to its shape, and an overview |

use serde_json::{Map, Value};

use super::grid::{Area, Rows, Tiles};
use super::header::Size;

/// The rule of a model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Family {
    Qwen(Area),
    Gemma3 { tokens: u64 },
    Llava { tokens: u64 },
    Mistral(Rows),
    InternVl(Tiles),
    Unknown,
}

/// The text that stands for an image in a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tokenize) struct Placeholder {
    /// What the engine writes where the template takes contents as text; some
    /// models leave that to the template alone.
    pub(in crate::tokenize) written: Option<&'static str>,
    /// What it replaces once for each image.
    pub(in crate::tokenize) target: &'static str,
    /// What surrounds the tokens of the image then; the target itself where
    /// that is one token, which is then one of them.
    pub(in crate::tokenize) frame: Option<&'static str>,
}

/// The small files of a model that say how it sees.
#[derive(Clone, Debug)]
pub(in crate::tokenize) struct Described {
    /// `config.json`.
    pub(in crate::tokenize) config: Value,
    /// `preprocessor_config.json`.
    pub(in crate::tokenize) images: Value,
    /// `processor_config.json`.
    pub(in crate::tokenize) processor: Value,
}

// === impl Family ===

impl Family {
    /// The rule for a model with these files.
    pub(super) fn of(files: &Described) -> Self {
        let kind = files.config.get("model_type").and_then(Value::as_str);
        let family = match kind {
            Some(
                "qwen2_vl" | "qwen2_5_vl" | "qwen3_vl" | "qwen3_vl_moe" | "qwen3_5" | "qwen3_5_moe",
            ) => files.qwen().map(Self::Qwen),
            Some("gemma3") => files.gemma3().map(|tokens| Self::Gemma3 { tokens }),
            Some("llava") => files.llava(),
            Some("mistral3") => files.mistral3().map(Self::Mistral),
            Some("internvl_chat") => files.internvl().map(Self::InternVl),
            _ => None,
        };
        family.unwrap_or(Self::Unknown)
    }

    /// Tokens of an image of this size; `None` where there is no rule, or the
    /// engine refuses such an image.
    pub(super) fn tokens(&self, size: Size) -> Option<u64> {
        match self {
            Self::Qwen(area) => area.tokens(size),
            Self::Gemma3 { tokens } | Self::Llava { tokens } => Some(*tokens),
            Self::Mistral(rows) => Some(rows.tokens(size)),
            Self::InternVl(tiles) => Some(tiles.tokens(size)),
            Self::Unknown => None,
        }
    }

    /// Tokens of the image that becomes most.
    pub(super) fn most(&self) -> Option<u64> {
        match self {
            Self::Qwen(area) => Some(area.most()),
            Self::Gemma3 { tokens } | Self::Llava { tokens } => Some(*tokens),
            Self::Mistral(rows) => Some(rows.most()),
            Self::InternVl(tiles) => Some(tiles.most()),
            Self::Unknown => None,
        }
    }

    /// What stands for an image in the text; `None` where the text does not say.
    pub(super) const fn placeholder(&self) -> Option<Placeholder> {
        let (written, target, frame) = match self {
            Self::Qwen(_) => (
                Some("<|vision_start|><|image_pad|><|vision_end|>"),
                "<|image_pad|>",
                None,
            ),
            Self::Gemma3 { .. } => (
                Some("<start_of_image>"),
                "<start_of_image>",
                Some("\n\n<start_of_image><end_of_image>\n\n"),
            ),
            Self::Llava { .. } => (Some("<image>"), "<image>", None),
            Self::Mistral(_) => (None, "[IMG]", None),
            Self::InternVl(_) => (Some("<image>"), "<image>", Some("<img></img>")),
            Self::Unknown => return None,
        };
        Some(Placeholder {
            written,
            target,
            frame,
        })
    }
}

// === impl Described ===

impl Described {
    /// The files as if a request's `mm_processor_kwargs` were in them, which may
    /// be grouped by modality and may spell an area in two ways.
    pub(super) fn with(&self, kwargs: &Map<String, Value>) -> Self {
        let mut changed = self.clone();
        let grouped = kwargs.get("images_kwargs").and_then(Value::as_object);
        for (key, value) in kwargs.iter().chain(grouped.into_iter().flatten()) {
            for file in [&mut changed.config, &mut changed.images] {
                set(file, key, value);
            }
            for (edge, area) in [
                ("shortest_edge", "min_pixels"),
                ("longest_edge", "max_pixels"),
            ] {
                if let Some(size) = value.get(edge).filter(|_| key == "size") {
                    set(&mut changed.images, area, size);
                }
            }
        }
        changed
    }

    /// Patches of the processor; both areas from the newer spelling (`size`) unless
    /// the older one (`min_pixels`) is there, which wins.
    fn qwen(&self) -> Option<Area> {
        let vision = self.config.get("vision_config")?;
        let number = |key, twin| {
            let patch = || number(vision, twin);
            number(&self.images, key).or_else(patch)
        };
        let size = self.images.get("size").unwrap_or(&Value::Null);
        let limit = |old, new| number_of(&self.images, old).or_else(|| number_of(size, new));
        if self.images.get("do_resize").and_then(Value::as_bool) == Some(false) {
            return None;
        }
        Area::new(
            number("patch_size", "patch_size")? * number("merge_size", "spatial_merge_size")?,
            limit("min_pixels", "shortest_edge")?,
            limit("max_pixels", "longest_edge")?,
        )
    }

    /// Cutting images into crops is off unless the files switch it on.
    fn gemma3(&self) -> Option<u64> {
        let crops = |file: &Value| file.get("do_pan_and_scan") == Some(&Value::Bool(true));
        if crops(&self.images) || crops(&self.processor) {
            return None;
        }
        let tokens = number(&self.processor, "image_seq_length");
        tokens.or_else(|| number(&self.config, "mm_tokens_per_image"))
    }

    /// A CLIP encoder puts a class token before the patches, which the usual
    /// choice of features drops; a Pixtral encoder keeps the image's own shape.
    fn llava(&self) -> Option<Family> {
        let vision = self.config.get("vision_config")?;
        let (image, patch) = (number(vision, "image_size")?, number(vision, "patch_size")?);
        let patches = image.checked_div(patch)?.checked_pow(2)?;
        let chosen = self.config.get("vision_feature_select_strategy");
        let dropped = match chosen.map_or(Some("default"), Value::as_str) {
            Some("default") => 1,
            Some("full") => 0,
            _ => return None,
        };
        let encoded = match vision.get("model_type").and_then(Value::as_str) {
            Some("clip_vision_model") => patches + 1,
            Some("siglip_vision_model") => patches,
            Some("pixtral") => return Rows::new(image, patch).map(Family::Mistral),
            _ => return None,
        };
        let tokens = encoded.checked_sub(dropped)?;
        Some(Family::Llava { tokens })
    }

    fn mistral3(&self) -> Option<Rows> {
        let vision = self.config.get("vision_config")?;
        let merged = number(&self.config, "spatial_merge_size")?;
        let patch = number(vision, "patch_size")?.checked_mul(merged)?;
        Rows::new(number(self.images.get("size")?, "longest_edge")?, patch)
    }

    fn internvl(&self) -> Option<Tiles> {
        let vision = self.config.get("vision_config")?;
        let (image, patch) = (number(vision, "image_size")?, number(vision, "patch_size")?);
        let patches = image.checked_div(patch)?.checked_pow(2)?;
        let ratio = self.config.get("downsample_ratio")?.as_f64()?;
        let flag = |key| self.config.get(key).and_then(Value::as_bool);
        let dynamic = flag("dynamic_image_size")?;
        let tiles = |key| {
            if dynamic {
                number(&self.config, key)
            } else {
                Some(1)
            }
        };
        Tiles {
            side: image,
            tokens: scaled(patches, ratio * ratio)?,
            fewest: tiles("min_dynamic_patch")?,
            most: tiles("max_dynamic_patch")?,
            overview: flag("use_thumbnail")?,
        }
        .checked()
    }
}

/// A whole number above zero and of a size that no rule overflows with.
fn number(file: &Value, key: &str) -> Option<u64> {
    number_of(file, key)
}

fn number_of(file: &Value, key: &str) -> Option<u64> {
    let number = file.get(key)?.as_u64()?;
    (1..=1 << 32).contains(&number).then_some(number)
}

fn set(file: &mut Value, key: &str, value: &Value) {
    if let Some(fields) = file.as_object_mut() {
        fields.insert(key.to_owned(), value.clone());
    }
}

/// `count * factor`, rounded down.
fn scaled(count: u64, factor: f64) -> Option<u64> {
    let count = f64::from(u32::try_from(count).ok()?);
    super::grid::whole(count * factor)
}
