//! Draws the panels of a figure as SVG, with `plotters`.

use std::fmt::Display;
use std::path::Path;

use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::quartiles::Quartiles;
use super::report::{Content, FigureReport, Panel, Series, number};
use crate::error::Result;

const PANEL: (u32, u32) = (560, 360);
const COLORS: [RGBColor; 8] = [
    RGBColor(31, 119, 180),
    RGBColor(255, 127, 14),
    RGBColor(44, 160, 44),
    RGBColor(214, 39, 40),
    RGBColor(148, 103, 189),
    RGBColor(140, 86, 75),
    RGBColor(127, 127, 127),
    RGBColor(23, 190, 207),
];

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

/// Draws all panels of `report` into `file`, two in a row.
pub fn draw(report: &FigureReport, file: &Path) -> Result<()> {
    let panels = report.panels.len().max(1);
    let columns = panels.min(2);
    let rows = panels.div_ceil(columns);
    let size = (PANEL.0 * columns as u32, PANEL.1 * rows as u32);
    let root = SVGBackend::new(file, size).into_drawing_area();
    root.fill(&WHITE).map_err(draw_error)?;
    for (panel, area) in report.panels.iter().zip(root.split_evenly((rows, columns))) {
        Drawing { panel }.draw(&area)?;
    }
    root.present().map_err(draw_error)
}

fn draw_error(error: impl Display) -> crate::error::Error {
    format!("the figure cannot be drawn: {error}").into()
}

fn color(position: usize) -> RGBColor {
    COLORS[position % COLORS.len()]
}

struct Drawing<'p> {
    panel: &'p Panel,
}

impl Drawing<'_> {
    fn draw(&self, area: &Area<'_>) -> Result<()> {
        let (x_low, x_high) = self.x_range();
        let (low, high) = self.y_range();
        let mut chart = ChartBuilder::on(area)
            .caption(&self.panel.title, ("sans-serif", 16))
            .margin(10)
            .x_label_area_size(44)
            .y_label_area_size(64)
            .build_cartesian_2d(x_low..x_high, low..high)
            .map_err(draw_error)?;
        let grouped = !matches!(self.panel.content, Content::Lines { .. });
        let y_format = |y: &f64| number(if self.panel.log { 10f64.powf(*y) } else { *y });
        let x_format = |x: &f64| number(*x);
        let mut mesh = chart.configure_mesh();
        mesh.disable_x_mesh()
            .y_desc(&self.panel.y_label)
            .x_desc(&self.panel.x_label)
            .y_label_formatter(&y_format)
            .x_label_formatter(&x_format)
            .max_light_lines(0);
        if grouped {
            mesh.x_labels(0);
        }
        mesh.draw().map_err(draw_error)?;
        match &self.panel.content {
            Content::Bars { groups, series } => {
                self.group_labels(&mut chart, groups, low)?;
                self.bars(&mut chart, series, low)?;
            }
            Content::Boxes { groups, series } => {
                self.group_labels(&mut chart, groups, low)?;
                self.boxes(&mut chart, series)?;
            }
            Content::Lines { x, series } => self.lines(&mut chart, x, series)?,
        }
        chart
            .configure_series_labels()
            .background_style(WHITE.mix(0.8))
            .border_style(BLACK.mix(0.3))
            .position(SeriesLabelPosition::UpperRight)
            .draw()
            .map_err(draw_error)
    }

    /// A value as a position on the y axis; `None` where a logarithm has none.
    fn y(&self, value: f64) -> Option<f64> {
        if !self.panel.log {
            return value.is_finite().then_some(value);
        }
        (value > 0.0).then(|| value.log10())
    }

    fn x_range(&self) -> (f64, f64) {
        match &self.panel.content {
            Content::Bars { groups, .. } | Content::Boxes { groups, .. } => (0.0, groups.len().max(1) as f64),
            Content::Lines { x, .. } => {
                let (low, high) = extremes(x.iter().copied());
                if low < high { (low, high) } else { (low, low + 1.0) }
            }
        }
    }

    /// The ends of the y axis, with room for the legend.
    fn y_range(&self) -> (f64, f64) {
        let values: Vec<f64> = match &self.panel.content {
            Content::Bars { series, .. } | Content::Lines { series, .. } => {
                series.iter().flat_map(|one| one.values.iter().copied()).collect()
            }
            Content::Boxes { series, .. } => series
                .iter()
                .flat_map(|one| one.values.iter().flat_map(|boxed| [boxed.low, boxed.high]))
                .collect(),
        };
        let (low, high) = extremes(values.into_iter().filter_map(|value| self.y(value)));
        let low = if self.panel.log { low.floor() } else { low.min(0.0) };
        let high = if high > low { high } else { low + 1.0 };
        (low, high + (high - low) * 0.35)
    }

    fn group_labels(&self, chart: &mut Chart<'_, '_>, groups: &[String], low: f64) -> Result<()> {
        let style = ("sans-serif", 12).into_font().color(&BLACK).pos(Pos::new(HPos::Center, VPos::Top));
        let labels = groups.iter().enumerate().map(|(position, group)| {
            EmptyElement::at((position as f64 + 0.5, low)) + Text::new(group.clone(), (0, 6), style.clone())
        });
        chart.draw_series(labels).map(drop).map_err(draw_error)
    }

    /// The left and right edge of series `position` of `count` within group `group`.
    fn bar_edges(group: usize, position: usize, count: usize) -> (f64, f64) {
        let width = 0.84 / count.max(1) as f64;
        let left = group as f64 + 0.08 + position as f64 * width;
        (left + width * 0.08, left + width * 0.92)
    }

    fn bars(&self, chart: &mut Chart<'_, '_>, series: &[Series<f64>], low: f64) -> Result<()> {
        for (position, one) in series.iter().enumerate() {
            let color = color(position);
            let bars = one.values.iter().enumerate().filter_map(|(group, value)| {
                let (left, right) = Self::bar_edges(group, position, series.len());
                let top = self.y(*value)?;
                Some(Rectangle::new([(left, low), (right, top)], color.filled()))
            });
            chart
                .draw_series(bars.collect::<Vec<_>>())
                .map_err(draw_error)?
                .label(&one.name)
                .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 10, y + 5)], color.filled()));
        }
        Ok(())
    }

    fn boxes(&self, chart: &mut Chart<'_, '_>, series: &[Series<Quartiles>]) -> Result<()> {
        for (position, one) in series.iter().enumerate() {
            let color = color(position);
            let mut strokes = Vec::new();
            let mut bodies = Vec::new();
            for (group, boxed) in one.values.iter().enumerate() {
                let (left, right) = Self::bar_edges(group, position, series.len());
                let middle = (left + right) / 2.0;
                let values = [boxed.low, boxed.first, boxed.median, boxed.third, boxed.high];
                let heights: Option<Vec<f64>> = values.into_iter().map(|value| self.y(value)).collect();
                let Some::<[f64; 5]>([low, first, median, third, high]) =
                    heights.as_deref().and_then(|all| all.try_into().ok())
                else {
                    continue;
                };
                bodies.push(Rectangle::new([(left, first), (right, third)], color.mix(0.45).filled()));
                for line in [
                    [(middle, low), (middle, first)],
                    [(middle, third), (middle, high)],
                    [(left, median), (right, median)],
                    [(left, low), (right, low)],
                    [(left, high), (right, high)],
                ] {
                    strokes.push(PathElement::new(line, color));
                }
            }
            chart
                .draw_series(bodies)
                .map_err(draw_error)?
                .label(&one.name)
                .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 10, y + 5)], color.filled()));
            chart.draw_series(strokes).map_err(draw_error)?;
        }
        Ok(())
    }

    fn lines(&self, chart: &mut Chart<'_, '_>, x: &[f64], series: &[Series<f64>]) -> Result<()> {
        for (position, one) in series.iter().enumerate() {
            let color = color(position);
            let points: Vec<(f64, f64)> =
                x.iter().zip(&one.values).filter_map(|(x, y)| Some((*x, self.y(*y)?))).collect();
            chart
                .draw_series(LineSeries::new(points.iter().copied(), color.stroke_width(2)))
                .map_err(draw_error)?
                .label(&one.name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 14, y)], color.stroke_width(2)));
            chart
                .draw_series(points.iter().map(|point| Circle::new(*point, 2, color.filled())))
                .map_err(draw_error)?;
        }
        Ok(())
    }
}

/// Smallest and largest of `values`; 0 and 1 where there are none.
fn extremes(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values
        .fold(None, |found: Option<(f64, f64)>, value| match found {
            Some((low, high)) => Some((low.min(value), high.max(value))),
            None => Some((value, value)),
        })
        .unwrap_or((0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_panel_is_drawn() {
        let mut report = FigureReport::new("x-1", "All kinds", "X, figure 1");
        let groups = vec!["left".to_owned(), "right".to_owned()];
        let boxed = Quartiles::of(vec![1.0, 2.0, 30.0]);
        for log in [false, true] {
            for content in [
                Content::Bars {
                    groups: groups.clone(),
                    series: vec![Series { name: "bar".into(), values: vec![0.0, 9.0] }],
                },
                Content::Lines {
                    x: vec![1.0, 2.0],
                    series: vec![Series { name: "line".into(), values: vec![3.0, 0.0] }],
                },
                Content::Boxes {
                    groups: groups.clone(),
                    series: vec![Series { name: "box".into(), values: vec![boxed, Quartiles::default()] }],
                },
            ] {
                report.panels.push(Panel {
                    title: "a <panel>".into(),
                    x_label: "x".into(),
                    y_label: "y".into(),
                    log,
                    content,
                });
            }
        }
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("x.svg");
        draw(&report, &file).unwrap();
        let svg = std::fs::read_to_string(&file).unwrap();
        assert!(svg.trim_end().ends_with("</svg>"));
        for text in ["left", "right", "bar", "line", "box", "a &lt;panel&gt;"] {
            assert!(svg.contains(text), "{text} is missing");
        }
    }
}
