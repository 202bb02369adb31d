//! Small drawings in text: lines of eight heights, and bars of several parts.

/// Heights of a cell, lowest first.
const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// `values`, oldest first, in `width` cells: each is the largest of its share of them,
/// relative to the largest of all; a space where there is none.
pub(super) fn spark(values: &[Option<f64>], width: usize) -> String {
    let most = values.iter().flatten().copied().fold(0.0, f64::max);
    let each = values.len().div_ceil(width.max(1)).max(1);
    // The newest cell is whole.
    let first = values.len() % each;
    let (head, rest) = values.split_at(first);
    let parts = [head].into_iter().filter(|head| !head.is_empty());
    let cells = parts.chain(rest.chunks(each));
    cells.map(|cell| height(cell, most)).collect()
}

fn height(cell: &[Option<f64>], most: f64) -> char {
    let Some(value) = cell.iter().flatten().copied().reduce(f64::max) else {
        return ' ';
    };
    if most <= 0.0 {
        return HEIGHTS[0];
    }
    // Eighths of the largest, from 0 to 7; a comparison for each is clearer than a cast.
    let share = 8.0 * value / most;
    let above = (1..8_u8).filter(|eighth| share > f64::from(*eighth));
    HEIGHTS[above.count()]
}

/// How many of `width` cells each part gets: all of them together, by largest remainder,
/// and at least one for each part that is not zero, as far as there are cells.
pub(super) fn cells<const N: usize>(parts: [u64; N], width: usize) -> [usize; N] {
    let sum: u128 = parts.iter().map(|part| u128::from(*part)).sum();
    if sum == 0 {
        return [0; N];
    }
    let wide = u128::try_from(width).unwrap_or(0);
    let share = parts.map(|part| u128::from(part) * wide);
    let mut cells = share.map(|share| usize::try_from(share / sum).unwrap_or(0));
    let mut by_rest: Vec<usize> = (0..N).collect();
    by_rest.sort_by_key(|place| std::cmp::Reverse(share[*place] % sum));
    let left = width - cells.iter().sum::<usize>();
    for place in by_rest.into_iter().take(left) {
        cells[place] += 1;
    }
    for place in 0..N {
        let widest = (0..N).max_by_key(|place| cells[*place]).unwrap_or(0);
        if parts[place] > 0 && cells[place] == 0 && cells[widest] > 1 {
            cells[widest] -= 1;
            cells[place] = 1;
        }
    }
    cells
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_newest_at_its_end_and_gaps_where_nothing_was() {
        let values = [Some(0.0), None, Some(4.0), Some(8.0)];
        assert_eq!(spark(&values, 10), "▁ ▄█");
        assert_eq!(spark(&values, 2), "▁█");
        assert_eq!(spark(&[Some(1.0), Some(2.0), Some(8.0)], 2), "▁█");
        assert_eq!(spark(&[Some(0.0), None], 4), "▁ ");
        assert_eq!(spark(&[], 4), "");
    }

    #[test]
    fn the_parts_of_a_bar_fill_it_and_none_that_is_there_is_left_out() {
        assert_eq!(cells([50, 25, 0, 25], 20), [10, 5, 0, 5]);
        assert_eq!(cells([1, 0, 0, 9999], 20), [1, 0, 0, 19]);
        assert_eq!(cells([1, 1, 1], 10).iter().sum::<usize>(), 10);
        assert_eq!(cells([1, 1, 1], 2).iter().sum::<usize>(), 2);
        assert_eq!(cells([0, 0], 5), [0, 0]);
        assert_eq!(cells([u64::MAX, u64::MAX], 5).iter().sum::<usize>(), 5);
    }
}
