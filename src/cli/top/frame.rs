//! The screen: a head, the panels as there is room for them, a foot.
//!
//! Decides which panels are shown in a size. From 100 by 26 all of them are; below, the
//! one that was chosen has what the others leave. Invariant: a draw never fails, in any
//! size and with nothing known.

use std::time::{Duration, Instant};

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize as _};
use ratatui::text::Line;
use ratatui::widgets::{Block, Clear, Paragraph};

use super::Order;
use super::feed::Told;
use super::panels::{Panel, Shown, time};
use super::view::{Hour, State};

/// Size from which all panels are shown.
const ALL: (u16, u16) = (100, 26);
/// Columns of plain text.
const PLAIN: usize = 100;

const HELP: [&str; 7] = [
    "q, Esc     quit",
    "Tab, ← →   another panel",
    "↑ ↓        scroll it",
    "m          the next model's hour",
    "p          pause, and go on",
    "?          this help",
    "read only: nothing is changed",
];

/// What is shown, and how.
pub(super) struct Screen {
    url: String,
    seen: Option<(State, Hour)>,
    /// Why the last look failed, and since when they do.
    trouble: Option<(String, Instant)>,
    panel: usize,
    scroll: usize,
    model: usize,
    mode: Mode,
    help: Help,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Live,
    Paused,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Help {
    Hidden,
    Shown,
}

// === impl Screen ===

impl Screen {
    /// A screen of the gateway at `url` that nobody has looked at.
    pub(super) fn new(url: &str) -> Self {
        Self {
            url: url.to_owned(),
            seen: None,
            trouble: None,
            panel: 0,
            scroll: 0,
            model: 0,
            mode: Mode::Live,
            help: Help::Hidden,
        }
    }

    /// What came of a look. What was seen before stays while there is nothing newer.
    pub(super) fn take(&mut self, told: Told) {
        match told {
            Ok(seen) => {
                self.model = self.model.min(seen.0.pools.len().saturating_sub(1));
                (self.seen, self.trouble) = (Some(seen), None);
            }
            Err(problem) => {
                let since = self.trouble.as_ref().map_or_else(Instant::now, |old| old.1);
                self.trouble = Some((problem, since));
            }
        }
    }

    pub(super) fn is_paused(&self) -> bool {
        self.mode == Mode::Paused
    }

    pub(super) fn obey(&mut self, order: Order) {
        match order {
            Order::Quit => {}
            Order::Pause => {
                self.mode = match self.mode {
                    Mode::Live => Mode::Paused,
                    Mode::Paused => Mode::Live,
                }
            }
            Order::Help => {
                self.help = match self.help {
                    Help::Hidden => Help::Shown,
                    Help::Shown => Help::Hidden,
                }
            }
            Order::Panel(on) => {
                let panels = Panel::ALL.len();
                self.panel = self.panel.saturating_add_signed(on.rem_euclid(5)) % panels;
                self.scroll = 0;
            }
            Order::Scroll(lines) => self.scroll = self.scroll.saturating_add_signed(lines),
            Order::Model => {
                let models = self.seen.as_ref().map_or(1, |(state, _)| state.pools.len());
                self.model = (self.model + 1) % models.max(1);
            }
        }
    }

    /// Draws it all.
    pub(super) fn draw(&mut self, frame: &mut Frame<'_>) {
        let area = frame.area();
        let rows = [
            Constraint::Length(1),
            Constraint::Min(0),
            Constraint::Length(1),
        ];
        let [head, body, foot] = Layout::vertical(rows).areas(area);
        frame.render_widget(Paragraph::new(self.head()), head);
        let foot_text = "q quit  Tab panel  ↑↓ scroll  m model  p pause  ? help";
        frame.render_widget(Paragraph::new(foot_text.dim()), foot);
        match self.seen.take() {
            None => frame.render_widget(Paragraph::new(self.waiting()), body),
            Some(seen) => {
                let shown = Shown {
                    state: &seen.0,
                    hour: &seen.1,
                    model: self.model,
                };
                if area.width >= ALL.0 && area.height >= ALL.1 {
                    self.draw_all(frame, (shown, body));
                } else {
                    self.draw_one(frame, (shown, body));
                }
                self.seen = Some(seen);
            }
        }
        if self.help == Help::Shown {
            draw_help(frame);
        }
    }

    fn draw_all(&mut self, frame: &mut Frame<'_>, (shown, body): (Shown<'_>, Rect)) {
        let width = usize::from(body.width).saturating_sub(2);
        let backends = Panel::Backends.lines(shown, width).len() + 2;
        let most = usize::from(body.height).saturating_sub(18).max(5);
        let backends = u16::try_from(backends.min(most)).unwrap_or(u16::MAX);
        let rows = [
            Constraint::Length(backends),
            Constraint::Min(4),
            Constraint::Length(8),
            Constraint::Length(8),
        ];
        let [top, queue, hour, last] = Layout::vertical(rows).areas(body);
        let [tenants, refusals] =
            Layout::horizontal([Constraint::Percentage(65), Constraint::Percentage(35)])
                .areas(last);
        let places = [top, queue, tenants, refusals, hour];
        for (place, (panel, area)) in Panel::ALL.into_iter().zip(places).enumerate() {
            self.draw_panel(frame, (shown, area), (panel, place == self.panel));
        }
    }

    fn draw_one(&mut self, frame: &mut Frame<'_>, (shown, body): (Shown<'_>, Rect)) {
        let panel = Panel::ALL[self.panel];
        self.draw_panel(frame, (shown, body), (panel, true));
    }

    fn draw_panel(
        &mut self,
        frame: &mut Frame<'_>,
        (shown, area): (Shown<'_>, Rect),
        (panel, chosen): (Panel, bool),
    ) {
        let border: Style = if chosen {
            Color::Cyan.into()
        } else {
            Color::DarkGray.into()
        };
        let block = Block::bordered()
            .title(format!(" {} ", panel.name()))
            .border_style(border);
        let inner = block.inner(area);
        let lines = panel.lines(shown, usize::from(inner.width));
        let mut scroll = 0;
        if chosen {
            let most = lines.len().saturating_sub(usize::from(inner.height));
            self.scroll = self.scroll.min(most);
            scroll = u16::try_from(self.scroll).unwrap_or(u16::MAX);
        }
        frame.render_widget(Paragraph::new(lines).block(block).scroll((scroll, 0)), area);
    }

    /// Who is shown and how fresh that is.
    fn head(&self) -> Line<'static> {
        if let Some((_, since)) = &self.trouble {
            let text = format!(
                "no answer for {} from {}",
                since_text(since.elapsed()),
                self.url
            );
            return Line::from(text.red().bold());
        }
        let paused = if self.is_paused() { "  PAUSED" } else { "" };
        let text = match &self.seen {
            None => format!("tidegate  {}{paused}", self.url),
            Some((state, _)) => format!(
                "tidegate {}  {}{}  up {}  {}{paused}",
                state.version,
                state.phase,
                if state.ready { "" } else { ", not ready" },
                time(state.uptime_seconds),
                self.url
            ),
        };
        Line::from(text.bold())
    }

    /// While nothing was seen.
    fn waiting(&self) -> String {
        match &self.trouble {
            None => "asking…".to_owned(),
            Some((problem, _)) => format!("{problem}\ntrying again…"),
        }
    }

    /// Everything as plain text, without colours and in fixed width.
    pub(super) fn plain(&self) -> String {
        let mut text = format!("{}\n", self.head());
        let Some((state, hour)) = &self.seen else {
            return text;
        };
        let shown = Shown {
            state,
            hour,
            model: self.model,
        };
        for panel in Panel::ALL {
            text += &format!("\n{}\n", panel.name());
            for line in panel.lines(shown, PLAIN - 2) {
                let line = format!("  {line}");
                text += line.trim_end();
                text.push('\n');
            }
        }
        text
    }
}

fn since_text(elapsed: Duration) -> String {
    time(elapsed.as_secs_f64().max(1.0).floor())
}

fn draw_help(frame: &mut Frame<'_>) {
    let area = frame.area();
    let width = area.width.min(36);
    let height = area.height.min(u16::try_from(HELP.len()).unwrap_or(0) + 2);
    let place = Rect {
        x: (area.width - width) / 2,
        y: (area.height - height) / 2,
        width,
        height,
    };
    let lines = HELP.map(Line::from).to_vec();
    frame.render_widget(Clear, place);
    frame.render_widget(
        Paragraph::new(lines).block(Block::bordered().title(" help ")),
        place,
    );
}
