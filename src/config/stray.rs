//! Keys that nobody asked for.
//!
//! Decides what such a key was meant to be: another of its section, where its
//! name is almost that, or the same key of another section. Only guesses; the key
//! stays a problem.

/// A key that nobody asked for.
#[derive(Debug)]
pub(super) struct Stray {
    /// Which problem tells of it.
    pub(super) problem: usize,
    /// The path of its section.
    pub(super) section: String,
    pub(super) key: String,
    /// The place of the key that was perhaps meant.
    pub(super) meant: Option<String>,
}

// === impl Stray ===

impl Stray {
    /// The sections that have this key, of all paths that are `known`.
    pub(super) fn homes<'k>(&self, known: impl Iterator<Item = &'k str>) -> Option<String> {
        let own = header(&self.section);
        let mut homes: Vec<String> = Vec::new();
        for path in known {
            let (section, key) = path.rsplit_once('.').unwrap_or(("", path));
            let home = header(section);
            if key == self.key && home != own && !homes.contains(&home) {
                homes.push(home);
            }
        }
        (!homes.is_empty()).then(|| homes.join(" or "))
    }
}

/// A section as a file writes it: `models[1].backends[0]` is `[[models.backends]]`.
fn header(section: &str) -> String {
    if section.is_empty() {
        return "the top of the file".to_owned();
    }
    let named = |part: &str| part.split('[').next().unwrap_or_default().to_owned();
    let name = section.split('.').map(named).collect::<Vec<_>>().join(".");
    if section.ends_with(']') {
        format!("[[{name}]]")
    } else {
        format!("[{name}]")
    }
}

/// The known key an unknown one most likely means: the part of a longer name,
/// or at most a third of its letters away.
pub(super) fn nearest<'k>(unknown: &str, known: &[&'k str]) -> Option<&'k str> {
    let distance = |key: &str| {
        if key.contains(unknown) || unknown.contains(key) {
            1
        } else {
            edits(unknown, key)
        }
    };
    let nearest = known
        .iter()
        .min_by_key(|key| (distance(key), edits(unknown, key)))?;
    (distance(nearest) <= unknown.len() / 3).then_some(*nearest)
}

/// Letters to insert, remove or replace to turn `from` into `to`.
fn edits(from: &str, to: &str) -> usize {
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (index, letter) in from.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = index + 1;
        for (column, other) in to.bytes().enumerate() {
            let replaced = diagonal + usize::from(letter != other);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[to.len()]
}
