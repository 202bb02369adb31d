//! A mapping of a few keys, as a template sees it.
//!
//! Decides only how an entry is found: by looking at each, which for a dozen keys
//! costs less than to hash them. Never renders. Invariant: to a template it is a
//! mapping like any other, in the order of its entries.

use std::sync::Arc;

use minijinja::Value as Shown;
use minijinja::value::{Enumerator, Object, ObjectExt};

/// Entries that are looked through.
const FEW: usize = 32;

/// The entries; the last of a name wins.
#[derive(Debug)]
pub(super) struct Mapping(Vec<(Shown, Shown)>);

// === impl Mapping ===

impl Mapping {
    /// A template value of `entries`. More than a few are hashed after all: clients
    /// say how many there are.
    pub(super) fn shown(entries: Vec<(Shown, Shown)>) -> Shown {
        match entries.len() {
            ..=FEW => Shown::from_object(Self(entries)),
            _ => Shown::from_pairs(entries),
        }
    }
}

impl Object for Mapping {
    fn get_value(self: &Arc<Self>, key: &Shown) -> Option<Shown> {
        self.get_value_by_str(key.as_str()?)
    }

    fn get_value_by_str(self: &Arc<Self>, key: &str) -> Option<Shown> {
        let mut entries = self.0.iter().rev();
        let found = entries.find(|(name, _)| name.as_str() == Some(key))?;
        Some(found.1.clone())
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        self.mapped_rev_key_value_enumerator(|this| Box::new(this.0.iter().cloned()))
    }

    fn enumerator_len(self: &Arc<Self>) -> Option<usize> {
        Some(self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use minijinja::Environment;

    #[test]
    fn a_template_cannot_tell_it_from_another_mapping() {
        let pairs = || [("role", Shown::from("user")), ("content", Shown::from(7))];
        let source = "{{ m }}|{{ m|tojson }}|{{ m|length }}|{{ m|list }}|{{ m|reverse }}|\
            {{ m|items|list }}|{{ m is mapping }}|{{ 'role' in m }}|{{ 1 in m }}|{{ m.role }}|\
            {{ m['content'] }}|{{ m.x is defined }}|{{ m == other }}|{{ other == m }}|\
            {% for k, v in m|dictsort %}{{ k }}{{ v }}{% endfor %}|{% if m %}yes{% endif %}";
        let other = Shown::from_pairs(pairs());
        let render = |m: Shown| {
            let variables = Shown::from_pairs([("m", m), ("other", other.clone())]);
            Environment::new().render_str(source, variables).unwrap()
        };
        let entries = pairs().map(|(key, value)| (Shown::from(key), value));
        assert_eq!(
            render(Mapping::shown(entries.into())),
            render(other.clone())
        );
    }
}
