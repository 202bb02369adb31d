//! The figures as bars, on a scale of powers of ten, small and readable on light and
//! on dark pages: no background, and colours between the two.

use plotters::coord::Shift;
use plotters::prelude::{
    Color as _, DrawingArea, DrawingAreaErrorKind, DrawingBackend, IntoDrawingArea as _,
    IntoFont as _, RGBColor, Rectangle, SVGBackend, Text, TextStyle,
};
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::report::{Column, Results, rounded};

/// Of each panel, in pixels.
const WIDTH: i32 = 480;
const BAR: i32 = 16;
const HEAD: i32 = 26;
/// Where bars begin and how far they go at most.
const LEFT: i32 = 96;
const LONGEST: i32 = 290;

const INK: RGBColor = RGBColor(124, 124, 124);
const OURS: RGBColor = RGBColor(0, 130, 200);
const THEIRS: RGBColor = RGBColor(150, 150, 150);

/// What is drawn, two panels in a row.
const PANELS: [Column; 6] = [
    Column::PerRequest,
    Column::HalfP99,
    Column::PerChunk("paced100"),
    Column::PerChunk("fast2000"),
    Column::Idle,
    Column::Long,
];

/// The drawing as SVG text.
///
/// # Errors
/// What the drawing library says.
pub(crate) fn svg(results: &Results) -> Result<String, String> {
    let mut text = String::new();
    draw(results, &mut text).map_err(|error| error.to_string())?;
    Ok(text)
}

fn draw(results: &Results, text: &mut String) -> Result<(), Box<dyn std::error::Error>> {
    let bars = i32::try_from(results.names().len())?;
    let height = HEAD + bars * BAR + 14;
    let rows = i32::try_from(PANELS.len().div_ceil(2))?;
    let size = (
        u32::try_from(2 * WIDTH)?,
        u32::try_from(rows * height + 20)?,
    );
    let root = SVGBackend::with_string(text, size).into_drawing_area();
    for (number, column) in (0..).zip(PANELS) {
        let at = (number % 2 * WIDTH, number / 2 * height);
        panel(&root, (results, column), at).map_err(|error| error.to_string())?;
    }
    let style = style(11, Pos::new(HPos::Left, VPos::Top));
    let origin = results.origin().replace('`', "");
    root.draw(&Text::new(origin, (8, rows * height), style))?;
    root.present()?;
    Ok(())
}

/// One column's bars, with the upper left corner at `at`.
fn panel<B: DrawingBackend>(
    root: &DrawingArea<B, Shift>,
    (results, column): (&Results, Column),
    (x, y): (i32, i32),
) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
    let head = style(14, Pos::new(HPos::Left, VPos::Top));
    root.draw(&Text::new(column.title(results), (x + 8, y + 6), head))?;
    let names = results.names();
    let figures: Vec<_> = names
        .iter()
        .map(|name| results.figure(name, column).map(|figure| figure.median))
        .collect();
    let known = figures
        .iter()
        .flatten()
        .map(|&figure| figure.max(f64::MIN_POSITIVE));
    let most = known.clone().fold(f64::MIN, f64::max).log10();
    let least = known
        .fold(f64::MAX, f64::min)
        .log10()
        .max(most - 5.0)
        .floor();
    for ((row, name), figure) in (0..).zip(&names).zip(&figures) {
        let top = y + HEAD + row * BAR;
        let right = style(12, Pos::new(HPos::Right, VPos::Center));
        root.draw(&Text::new(
            (*name).to_owned(),
            (x + LEFT - 6, top + BAR / 2),
            right,
        ))?;
        let share = figure.map_or(0.0, |figure| {
            (figure.max(f64::MIN_POSITIVE).log10() - least) / (most - least).max(0.1)
        });
        #[expect(clippy::cast_possible_truncation, reason = "pixels")]
        let length = (f64::from(LONGEST) * share.clamp(0.0, 1.0)) as i32;
        let colour = if *name == "tidegate" { OURS } else { THEIRS };
        let corners = [
            (x + LEFT, top + 2),
            (x + LEFT + length.max(1), top + BAR - 2),
        ];
        root.draw(&Rectangle::new(corners, colour.filled()))?;
        let told = figure.map_or_else(|| "–".to_owned(), rounded);
        let left = style(12, Pos::new(HPos::Left, VPos::Center));
        root.draw(&Text::new(
            told,
            (x + LEFT + length + 6, top + BAR / 2),
            left,
        ))?;
    }
    Ok(())
}

fn style(size: i32, pos: Pos) -> TextStyle<'static> {
    TextStyle::from(("sans-serif", size).into_font())
        .color(&INK)
        .pos(pos)
}
