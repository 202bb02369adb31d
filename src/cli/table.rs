//! Columns of text, each as wide as its widest cell, and one line to a row whatever is
//! in it.

use std::fmt;

use super::plain::one_line;

/// A table for people.
pub(super) struct Table<const N: usize> {
    rows: Vec<[String; N]>,
}

// === impl Table ===

impl<const N: usize> Table<N> {
    /// A table with nothing but its head.
    pub(super) fn new(head: [&str; N]) -> Self {
        Self {
            rows: vec![head.map(str::to_owned)],
        }
    }

    pub(super) fn row(&mut self, row: [String; N]) {
        self.rows.push(row.map(|cell| one_line(&cell).into_owned()));
    }
}

impl<const N: usize> fmt::Display for Table<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut widths = [0; N];
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = cell.chars().count().max(*width);
            }
        }
        for row in &self.rows {
            let cells = row
                .iter()
                .zip(widths)
                .map(|(cell, width)| format!("{cell:width$}"));
            let line = cells.collect::<Vec<_>>().join("  ");
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new(["NAME", "N"]);
        table.row(["grüße-12".to_owned(), "7".to_owned()]);
        table.row(["a".to_owned(), String::new()]);
        assert_eq!(table.to_string(), "NAME      N\ngrüße-12  7\na\n");
    }

    #[test]
    fn a_name_of_several_lines_is_one_row_of_the_width_that_is_shown() {
        let mut table = Table::new(["NAME", "N"]);
        table.row(["a\nb\u{1b}".to_owned(), "7".to_owned()]);
        assert_eq!(table.to_string(), "NAME        N\na\\nb\\u001b  7\n");
    }
}
