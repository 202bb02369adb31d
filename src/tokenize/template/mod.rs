//! Chat templates, rendered as the reference library renders them.
//!
//! Decides what text a conversation becomes. Never counts and never changes a
//! conversation. Invariant: for a template and variables that Jinja2 renders,
//! the text is the same byte for byte, or rendering fails; work and memory of
//! one render are bounded by fuel.

mod code;
mod content_format;
mod dumps;
mod environment;
mod methods;
mod parametric;
mod text;

use minijinja::{Environment, Value};
use thiserror::Error;

use super::files::Templates;
pub(super) use content_format::ContentFormat;
use environment::Raised;

/// The name under which a template is stored; without a suffix nothing is escaped.
const NAME: &str = "chat";

/// Why a conversation could not be rendered.
#[derive(Debug, Error)]
pub(super) enum RenderError {
    /// The template called `raise_exception`.
    #[error("{0}")]
    Raised(String),
    /// Anything else: the engine may fare the same, or this is our shortcoming.
    #[error("{0}")]
    Failed(String),
}

/// Spells a value as Python's `json.dumps` does when it keeps what is not ASCII;
/// `None` for what is not JSON.
pub(super) fn python_json(value: &Value) -> Option<String> {
    let layout = dumps::Layout::from_arguments(&[]).ok()?;
    dumps::dumps(value, &layout).ok()
}

/// One compiled template.
pub(super) struct ChatTemplate {
    environment: Environment<'static>,
    content_format: ContentFormat,
    knows_developer: bool,
    merges_system: bool,
    /// Names that mean another thing where a mapping has them as keys.
    hidden_keys: Vec<&'static str>,
    /// What it seeks in texts; `None` where it may look into them otherwise.
    searched: Option<Vec<String>>,
}

impl ChatTemplate {
    /// Compiles `source`.
    ///
    /// # Errors
    /// What the parser says, with the line.
    pub(super) fn compile(source: &str) -> Result<Self, String> {
        let mut environment = environment::new();
        environment
            .add_template_owned(NAME, environment::without_generation_tags(source))
            .map_err(|error| format!("{error:#}"))?;
        Ok(Self {
            environment,
            content_format: ContentFormat::detect(source),
            knows_developer: ["\"developer\"", "'developer'"]
                .iter()
                .any(|role| source.contains(role)),
            merges_system: merges_system(source),
            hidden_keys: methods::read_as_keys(source),
            searched: parametric::searched(source),
        })
    }

    /// Whether the template reads a key of `value` by a name under which Jinja2
    /// finds a method instead, so that its text cannot be foreseen here.
    pub(super) fn misreads(&self, value: &serde_json::Value) -> bool {
        !self.hidden_keys.is_empty() && methods::has_key(value, &self.hidden_keys)
    }

    /// Whether the template wants message contents as text or as parts.
    pub(super) const fn content_format(&self) -> ContentFormat {
        self.content_format
    }

    /// Whether the template knows the role `developer`; where it does not, the
    /// engine turns such messages into `system` ones.
    pub(super) const fn knows_developer(&self) -> bool {
        self.knows_developer
    }

    /// Renders with `variables`, a map.
    ///
    /// # Errors
    /// The template's own refusal, or that it cannot be rendered here.
    pub(super) fn render(&self, variables: Value) -> Result<String, RenderError> {
        let template = self
            .environment
            .get_template(NAME)
            .expect("the template was added when it was compiled");
        template.render(variables).map_err(|error| {
            Raised::within(&error).map_or_else(
                || RenderError::Failed(format!("{error:#}")),
                |raised| RenderError::Raised(raised.to_owned()),
            )
        })
    }
}

/// Whether a system message further back makes the template fail, or needs a
/// function of the reference library: engines probe with none of those.
fn merges_system(source: &str) -> bool {
    let mut environment = environment::bare();
    let turns = ["system", "user", "system", "user"];
    let turn = |role| Value::from_pairs([("role", role), ("content", "t")]);
    let messages: Value = turns.map(turn).into_iter().collect();
    let variables = Value::from_pairs([
        ("messages", messages),
        ("add_generation_prompt", Value::from(false)),
    ]);
    let compiled = environment.add_template_owned(NAME, source.to_owned());
    let rendered = compiled.and_then(|()| environment.get_template(NAME)?.render(variables));
    rendered.is_err()
}

/// The compiled templates of a model: its default, and perhaps one for tools.
pub(super) struct ModelTemplates {
    default: ChatTemplate,
    with_tools: Option<ChatTemplate>,
}

impl ModelTemplates {
    /// Compiles what a model has; `None` if it has no template at all.
    ///
    /// # Errors
    /// The first template that does not compile, by name.
    pub(super) fn compile(templates: &Templates) -> Result<Option<Self>, String> {
        let compile = |name: &str| {
            let source = templates.get(name)?;
            let named = |error| format!("chat template {name:?} does not compile: {error}");
            Some(ChatTemplate::compile(source).map_err(named))
        };
        let Some(default) = compile("default").transpose()? else {
            return Ok(None);
        };
        let with_tools = compile("tool_use").transpose()?;
        Ok(Some(Self {
            default,
            with_tools,
        }))
    }

    /// Whether one of the templates takes a system message only in front.
    pub(super) const fn merges_system(&self) -> bool {
        match &self.with_tools {
            Some(with_tools) => self.default.merges_system || with_tools.merges_system,
            None => self.default.merges_system,
        }
    }

    /// What the default template seeks in texts; `None` where what it makes of a
    /// conversation depends on its texts in other ways, or is shown no texts.
    pub(super) fn searched(&self) -> Option<&[String]> {
        let takes_texts = self.default.content_format == ContentFormat::Text;
        self.default.searched.as_deref().filter(|_| takes_texts)
    }

    /// The template for a request with these tools, or without.
    pub(super) fn choose<T>(&self, tools: Option<&T>) -> &ChatTemplate {
        match (&self.with_tools, tools) {
            (Some(template), Some(_)) => template,
            _ => &self.default,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compile(named: &[(&str, &str)]) -> Result<Option<ModelTemplates>, String> {
        let own = |(name, text): &(&str, &str)| ((*name).to_owned(), (*text).to_owned());
        ModelTemplates::compile(&named.iter().map(own).collect())
    }

    #[test]
    fn a_template_for_tools_is_taken_only_with_tools() {
        let templates = compile(&[("default", "plain"), ("tool_use", "tools")])
            .unwrap()
            .unwrap();
        let rendered =
            |tools: Option<&u8>| templates.choose(tools).render(Value::from(())).unwrap();
        assert_eq!(rendered(None), "plain");
        assert_eq!(rendered(Some(&1)), "tools");
    }

    #[test]
    fn a_model_without_a_default_template_has_none() {
        assert!(compile(&[("rag", "x")]).unwrap().is_none());
        let problem = compile(&[("default", "{% if %}")]).err().unwrap();
        assert!(
            problem.starts_with("chat template \"default\" does not compile: "),
            "{problem}"
        );
        assert!(
            problem.contains("line 1") || problem.contains(":1"),
            "{problem}"
        );
    }
}
