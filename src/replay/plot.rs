//! Goodput over load, one line a policy, as an SVG.

use plotters::coord::types::RangedCoordf64;
use plotters::prelude::{
    Cartesian2d, ChartBuilder, ChartContext, Circle, Color as _, IntoDrawingArea as _,
    IntoFont as _, LineSeries, PathElement, RGBColor, SVGBackend, SeriesLabelPosition, ShapeStyle,
    WHITE,
};

use super::report::Row;

type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

/// Of the drawing, in pixels.
const SIZE: (u32, u32) = (960, 560);

/// One for each policy, told apart by those who see colours differently (Okabe and Ito's,
/// and greys).
const COLOURS: [RGBColor; 13] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(240, 228, 66),
    RGBColor(150, 150, 150),
    RGBColor(90, 90, 90),
    RGBColor(170, 110, 40),
    RGBColor(120, 94, 240),
    RGBColor(100, 143, 120),
    RGBColor(213, 94, 0),
    RGBColor(0, 0, 0),
];

/// The drawing of `rows` as SVG text.
///
/// # Errors
/// What the drawing library says.
pub fn svg(rows: &[Row], title: &str) -> Result<String, String> {
    let mut text = String::new();
    draw(rows, title, &mut text).map_err(|error| error.to_string())?;
    Ok(text)
}

fn draw(rows: &[Row], title: &str, text: &mut String) -> Result<(), Box<dyn std::error::Error>> {
    let loads = rows.iter().map(|row| row.load);
    let (least, most) = loads.fold((f64::MAX, f64::MIN), |(least, most), load| {
        (least.min(load), most.max(load))
    });
    // One load alone gets some room around it.
    let (least, most) = if least < most {
        (least, most)
    } else {
        (most - 0.1, most + 0.1)
    };
    let root = SVGBackend::with_string(text, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .caption(title, ("sans-serif", 20).into_font())
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(50)
        .build_cartesian_2d(least..most, 0.0..100.0)?;
    chart
        .configure_mesh()
        .x_desc("load")
        .y_desc("goodput, %")
        .light_line_style(WHITE)
        .draw()?;
    let mut kinds: Vec<_> = rows.iter().map(|row| row.kind).collect();
    kinds.dedup();
    for (kind, colour) in kinds.iter().zip(COLOURS.iter().cycle()) {
        let own: Vec<&Row> = rows.iter().filter(|row| row.kind == *kind).collect();
        line(&mut chart, &own, *colour)?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::LowerLeft)
        .background_style(WHITE.mix(0.8))
        .border_style(RGBColor(200, 200, 200))
        .draw()?;
    root.present()?;
    Ok(())
}

/// Points, the line between them and a bar for each interval.
fn line(
    chart: &mut Chart<'_, '_>,
    rows: &[&Row],
    colour: RGBColor,
) -> Result<(), Box<dyn std::error::Error>> {
    let style = ShapeStyle::from(colour).stroke_width(2);
    let name = rows.first().map_or("", |row| row.kind.name());
    let mut points: Vec<(f64, f64, f64)> = rows
        .iter()
        .filter_map(|row| Some((row.load, row.estimate(|figures| Some(figures.goodput))?)))
        .map(|(load, goodput)| {
            (
                load,
                100.0 * goodput.mean,
                100.0 * goodput.ci95.unwrap_or(0.0),
            )
        })
        .collect();
    points.sort_by(|one, two| one.0.total_cmp(&two.0));
    let between = points.iter().map(|(load, goodput, _)| (*load, *goodput));
    chart
        .draw_series(LineSeries::new(between, style))?
        .label(name)
        .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], style));
    chart.draw_series(
        points
            .iter()
            .map(|(load, goodput, _)| Circle::new((*load, *goodput), 3, style.filled())),
    )?;
    let bars = points.iter().filter(|(_, _, ci)| *ci > 0.0);
    chart.draw_series(bars.map(|(load, goodput, ci)| {
        let ends = [
            (*load, (goodput - ci).max(0.0)),
            (*load, (goodput + ci).min(100.0)),
        ];
        PathElement::new(ends, style)
    }))?;
    Ok(())
}
