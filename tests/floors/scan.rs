//! Reads Rust source as tokens and syntax for the rules in `floors.rs`.
//!
//! Tokens rather than syntax where names count, so that the bodies of macros are
//! read too; comments never count. Holds no rule of its own.

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use syn::visit::Visit;

/// A name and the line it stands on.
pub(crate) type Named = (usize, String);

/// Collects every module that `tokens` names from the crate root, with its line.
///
/// `depth` is how many `super` lead from here to the crate root.
pub(crate) fn root_modules(tokens: TokenStream, depth: usize, found: &mut Vec<Named>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut at = 0;
    while at < tokens.len() {
        if let Some(body) = inline_module(&tokens[at..]) {
            root_modules(body, depth + 1, found);
            at += 3;
            continue;
        }
        match &tokens[at] {
            TokenTree::Group(group) => root_modules(group.stream(), depth, found),
            TokenTree::Ident(word) if word == "crate" && enters_path(&tokens[at + 1..]) => {
                at = follow(&tokens, at + 3, 0, found);
                continue;
            }
            TokenTree::Ident(word) if word == "super" || word == "self" => {
                at = follow(&tokens, at, depth, found);
                continue;
            }
            _ => {}
        }
        at += 1;
    }
}

/// Reads one path from `at`, `above` levels below the crate root; returns where it stopped.
fn follow(tokens: &[TokenTree], at: usize, above: usize, found: &mut Vec<Named>) -> usize {
    let step = |above| match enters_path(tokens.get(at + 1..).unwrap_or_default()) {
        true => (at + 3, above),
        false => (at + 1, above),
    };
    match tokens.get(at) {
        Some(TokenTree::Ident(word)) if word == "super" || word == "self" => {
            let (next, above) = step(above - usize::from(word == "super" && above > 0));
            if next == at + 3 {
                follow(tokens, next, above, found)
            } else {
                next
            }
        }
        Some(TokenTree::Ident(word)) => {
            if above == 0 {
                found.push((word.span().start().line, word.to_string()));
            }
            at + 1
        }
        Some(TokenTree::Punct(star)) if star.as_char() == '*' && above == 0 => {
            found.push((star.span().start().line, "*".to_owned()));
            at + 1
        }
        Some(TokenTree::Group(list)) if list.delimiter() == Delimiter::Brace => {
            let items: Vec<TokenTree> = list.stream().into_iter().collect();
            let comma = |t: &TokenTree| matches!(t, TokenTree::Punct(p) if p.as_char() == ',');
            for item in items.split(comma) {
                follow(item, 0, above, found);
            }
            at + 1
        }
        _ => at + 1,
    }
}

/// The body of `mod name { … }`, if `tokens` begin with one.
fn inline_module(tokens: &[TokenTree]) -> Option<TokenStream> {
    match tokens {
        [
            TokenTree::Ident(word),
            TokenTree::Ident(_),
            TokenTree::Group(body),
            ..,
        ] if word == "mod" => Some(body.stream()),
        _ => None,
    }
}

/// Whether `tokens` begin with `::`.
fn enters_path(tokens: &[TokenTree]) -> bool {
    let colon =
        |t: Option<&TokenTree>| matches!(t, Some(TokenTree::Punct(p)) if p.as_char() == ':');
    colon(tokens.first()) && colon(tokens.get(1))
}

/// Collects every identifier that `wanted` accepts; it is told whether `::` follows.
pub(crate) fn names(
    tokens: TokenStream,
    wanted: &dyn Fn(&str, Follows) -> bool,
    found: &mut Vec<Named>,
) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    for (at, token) in tokens.iter().enumerate() {
        match token {
            TokenTree::Group(group) => names(group.stream(), wanted, found),
            TokenTree::Ident(word) => {
                let name = word.to_string();
                let follows = if enters_path(&tokens[at + 1..]) {
                    Follows::Path
                } else {
                    Follows::Other
                };
                if wanted(&name, follows) {
                    found.push((word.span().start().line, name));
                }
            }
            _ => {}
        }
    }
}

/// What stands behind an identifier.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Follows {
    Path,
    Other,
}

/// Every function of `file` that has a body: first line, name, lines from `fn` to `}`.
pub(crate) fn functions(file: &syn::File) -> Vec<(usize, String, usize)> {
    let mut functions = Functions(Vec::new());
    functions.visit_file(file);
    functions.0
}

struct Functions(Vec<(usize, String, usize)>);

impl Functions {
    fn measure(&mut self, signature: &syn::Signature, body: &syn::Block) {
        let first = signature.fn_token.span.start().line;
        let lines = body.brace_token.span.close().end().line + 1 - first;
        self.0.push((first, signature.ident.to_string(), lines));
    }
}

impl<'ast> Visit<'ast> for Functions {
    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.measure(&function.sig, &function.block);
        syn::visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.measure(&function.sig, &function.block);
        syn::visit::visit_impl_item_fn(self, function);
    }

    fn visit_trait_item_fn(&mut self, function: &'ast syn::TraitItemFn) {
        if let Some(body) = &function.default {
            self.measure(&function.sig, body);
        }
        syn::visit::visit_trait_item_fn(self, function);
    }
}
