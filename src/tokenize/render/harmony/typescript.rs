//! JSON schemas as the TypeScript-like types that harmony shows a model.
//!
//! Decides nothing: it spells a schema as the reference library does, with that
//! library's omissions (`anyOf`, `$ref`) and its white space.

use serde_json::{Map, Value};

/// The type of `schema`, its lines indented by `indent`.
pub(super) fn of(schema: &Value, indent: &str) -> String {
    if let Some(variants) = schema.get("oneOf").and_then(Value::as_array) {
        return variants
            .iter()
            .map(|variant| {
                let shown = of_variant(variant, indent);
                format!("\n{indent} | {shown}{}", trailing(comments(variant)))
            })
            .collect();
    }
    match schema.get("type") {
        Some(Value::Array(kinds)) => of_kinds(kinds),
        Some(Value::String(kind)) => of_kind(kind, schema, indent),
        _ => "any".to_owned(),
    }
}

/// One of several types; names that are no text are left out.
fn of_kinds(kinds: &[Value]) -> String {
    let names: Vec<&str> = kinds.iter().filter_map(Value::as_str).map(mapped).collect();
    if names.is_empty() {
        return "any".to_owned();
    }
    names.join(" | ")
}

fn mapped(kind: &str) -> &str {
    if kind == "integer" { "number" } else { kind }
}

fn of_kind(kind: &str, schema: &Value, indent: &str) -> String {
    match kind {
        "object" => object(schema, indent),
        "string" => choices(schema).unwrap_or_else(|| "string".to_owned()),
        "number" | "integer" => "number".to_owned(),
        "boolean" => "boolean".to_owned(),
        "array" => match schema.get("items") {
            Some(items) => format!("{}[]", of(items, indent)),
            None => "Array<any>".to_owned(),
        },
        _ => "any".to_owned(),
    }
}

/// The texts a value is one of.
fn choices(schema: &Value) -> Option<String> {
    let choices = schema.get("enum")?.as_array()?;
    let texts = choices.iter().filter_map(Value::as_str);
    let texts: Vec<String> = texts.map(|text| format!("\"{text}\"")).collect();
    (!texts.is_empty()).then(|| texts.join(" | "))
}

fn object(schema: &Value, indent: &str) -> String {
    let mut out = String::new();
    if let Some(text) = text(schema, "description") {
        comment(&mut out, indent, text);
    }
    out.push_str("{\n");
    let required = schema.get("required").and_then(Value::as_array);
    let required: Vec<&str> = required
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let empty = Map::new();
    let properties = schema.get("properties").and_then(Value::as_object);
    for (name, schema) in properties.unwrap_or(&empty) {
        let mark = if required.contains(&name.as_str()) {
            ""
        } else {
            "?"
        };
        let property = Property {
            name: format!("{name}{mark}"),
            schema,
            indent,
        };
        property.write(&mut out);
    }
    out.push_str(indent);
    out.push('}');
    out
}

/// One property of an object.
struct Property<'a> {
    /// With a mark where it may be left out.
    name: String,
    schema: &'a Value,
    indent: &'a str,
}

// === impl Property ===

impl Property<'_> {
    fn write(&self, out: &mut String) {
        let Self {
            name,
            schema,
            indent,
        } = self;
        if let Some(title) = text(schema, "title") {
            comment(out, indent, title);
            out.push_str(&format!("{indent}//\n"));
        }
        let has_variants = schema.get("oneOf").is_some();
        if let (false, Some(text)) = (has_variants, text(schema, "description")) {
            comment(out, indent, text);
        }
        self.examples(out);
        if let Some(variants) = schema.get("oneOf").and_then(Value::as_array) {
            return self.variants(variants, out);
        }
        let shown = of_variant_at(schema, &format!("{indent}    "));
        out.push_str(&format!("{indent}{name}: {shown},"));
        if let (false, Some(default)) = (has_variants, default(schema, Quotes::UnlessEnum)) {
            out.push_str(&format!(" // {default}"));
        }
        out.push('\n');
    }

    fn examples(&self, out: &mut String) {
        let examples = self.schema.get("examples").and_then(Value::as_array);
        let Some(examples) = examples.filter(|examples| !examples.is_empty()) else {
            return;
        };
        let indent = self.indent;
        comment(out, indent, "Examples:");
        for example in examples.iter().filter_map(Value::as_str) {
            out.push_str(&format!("{indent}// - \"{example}\"\n"));
        }
    }

    /// A property of one of several types; what is said above it is not said again.
    fn variants(&self, variants: &[Value], out: &mut String) {
        let indent = self.indent;
        let above = text(self.schema, "description");
        let first = variants
            .first()
            .and_then(|first| text(first, "description"));
        let is_said = above.filter(|above| first != Some(above));
        if let Some(text) = is_said {
            comment(out, indent, text);
        }
        if let Some(default) = default(self.schema, Quotes::UnlessEnum) {
            comment(out, indent, &default);
        }
        out.push_str(&format!("{indent}{}:\n", self.name));
        for (at, variant) in variants.iter().enumerate() {
            let hidden = at == 0 && is_said.is_some();
            let description = text(variant, "description").filter(|_| !hidden);
            let description = description.filter(|text| Some(*text) != above);
            let notes = description.map(str::to_owned).into_iter();
            let notes = notes.chain(default(variant, Quotes::UnlessEnum)).collect();
            let shown = of_variant(variant, indent);
            out.push_str(&format!("{indent} | {shown}{}\n", trailing(notes)));
        }
        out.push_str(&format!("{indent},\n"));
    }
}

fn of_variant(variant: &Value, indent: &str) -> String {
    of_variant_at(variant, &format!("{indent}   "))
}

/// A type that may be null besides.
fn of_variant_at(schema: &Value, indent: &str) -> String {
    let shown = of(schema, indent);
    let nullable = schema.get("nullable").and_then(Value::as_bool);
    if nullable == Some(true) && !shown.contains("null") {
        return format!("{shown} | null");
    }
    shown
}

fn comments(variant: &Value) -> Vec<String> {
    let description = text(variant, "description").map(str::to_owned);
    let default = default(variant, Quotes::JsonOfEnum);
    description.into_iter().chain(default).collect()
}

fn trailing(notes: Vec<String>) -> String {
    match notes.is_empty() {
        true => String::new(),
        false => format!(" // {}", notes.join(" ")),
    }
}

/// How a text default is quoted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Quotes {
    /// Bare if the type is a list of choices.
    UnlessEnum,
    /// As JSON if the type is a list of choices.
    JsonOfEnum,
}

fn default(schema: &Value, quotes: Quotes) -> Option<String> {
    let choices = schema.get("enum").and_then(Value::as_array);
    let has_choices = choices.is_some_and(|choices| !choices.is_empty());
    Some(match schema.get("default")? {
        Value::String(text) if !has_choices => format!("default: \"{text}\""),
        Value::String(text) if quotes == Quotes::UnlessEnum => format!("default: {text}"),
        other => format!("default: {other}"),
    })
}

fn text<'a>(schema: &'a Value, key: &str) -> Option<&'a str> {
    schema.get(key).and_then(Value::as_str)
}

fn comment(out: &mut String, indent: &str, text: &str) {
    out.push_str(&format!("{indent}// {text}\n"));
}
