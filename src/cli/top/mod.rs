//! `tidegate top`: what the dashboard shows, in a terminal.
//!
//! Decides when the gateway is asked and what a key does. Never changes anything at the
//! gateway. What is shown stays when it does not answer, and says since when; a gateway
//! that was restarted is taken up by itself.

mod feed;
mod frame;
mod panels;
mod spark;
mod view;

use std::io::{self, IsTerminal as _, Write};
use std::time::{Duration, Instant};

use clap::Args;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::Failure;
use super::remote::RemoteFlags;
use feed::{Feed, look};
use frame::Screen;
use view::Hour;

/// How long a key waits at most before what came is drawn.
const TICK: Duration = Duration::from_millis(200);

/// Limit of one answer: as long as this `q` waits for a gateway that hangs.
const PATIENCE: Duration = Duration::from_secs(3);

/// Flags of `tidegate top`.
#[derive(Debug, Args)]
pub(super) struct Flags {
    #[command(flatten)]
    remote: RemoteFlags,
    /// Print one frame as plain text and end; what happens anyway where standard output is
    /// no terminal.
    #[arg(long)]
    once: bool,
    /// Seconds between two looks.
    #[arg(long, value_name = "S", default_value_t = 1.0, value_parser = read_interval)]
    every: f64,
}

/// What a key asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Quit,
    Pause,
    Help,
    /// So many panels on.
    Panel(isize),
    /// So many lines on.
    Scroll(isize),
    /// The next model's charts.
    Model,
}

/// Shows until told to end.
pub(super) fn top(flags: &Flags, out: &mut impl Write) -> Result<(), Failure> {
    let remote = flags.remote.remote_within(PATIENCE)?;
    if flags.once || !io::stdout().is_terminal() {
        let mut hour = Hour::default();
        let state = look(&remote, &mut hour)?;
        let mut screen = Screen::new(remote.url());
        screen.take(Ok((state, hour)));
        write!(out, "{}", screen.plain())?;
        return Ok(());
    }
    let mut screen = Screen::new(remote.url());
    let feed = Feed::start(remote);
    let mut terminal = ratatui::try_init().map_err(terminal_failed)?;
    let shown = show(&mut terminal, &mut screen, (&feed, flags.every));
    ratatui::restore();
    shown.map_err(terminal_failed)
}

fn terminal_failed(error: io::Error) -> Failure {
    let next = "tidegate top --once prints plain text";
    Failure::Run(format!("cannot use this terminal: {error}; {next}"))
}

/// Draws what comes, and obeys keys.
fn show(
    terminal: &mut ratatui::DefaultTerminal,
    screen: &mut Screen,
    (feed, every): (&Feed, f64),
) -> io::Result<()> {
    let every = Duration::from_secs_f64(every);
    let mut next = Instant::now();
    loop {
        if !screen.is_paused() && Instant::now() >= next {
            feed.ask();
            next = Instant::now() + every;
        }
        if let Some(told) = feed.told() {
            screen.take(told);
        }
        terminal.draw(|frame| screen.draw(frame))?;
        if !event::poll(TICK)? {
            continue;
        }
        // A new size is seen by the next draw.
        let Event::Key(key) = event::read()? else {
            continue;
        };
        match order(key) {
            Some(Order::Quit) => return Ok(()),
            Some(order) => screen.obey(order),
            None => {}
        }
    }
}

fn order(key: KeyEvent) -> Option<Order> {
    if key.kind == KeyEventKind::Release {
        return None;
    }
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    match key.code {
        KeyCode::Char('c') if control => Some(Order::Quit),
        KeyCode::Char('q') | KeyCode::Esc => Some(Order::Quit),
        KeyCode::Char('p') => Some(Order::Pause),
        KeyCode::Char('?' | 'h') => Some(Order::Help),
        KeyCode::Char('m') => Some(Order::Model),
        KeyCode::Tab | KeyCode::Right => Some(Order::Panel(1)),
        KeyCode::BackTab | KeyCode::Left => Some(Order::Panel(-1)),
        KeyCode::Down => Some(Order::Scroll(1)),
        KeyCode::Up => Some(Order::Scroll(-1)),
        KeyCode::PageDown => Some(Order::Scroll(10)),
        KeyCode::PageUp => Some(Order::Scroll(-10)),
        _ => None,
    }
}

fn read_interval(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok();
    let seconds = seconds.filter(|seconds| (0.2..=3600.0).contains(seconds));
    seconds.ok_or_else(|| "must be seconds from 0.2 to 3600".to_owned())
}

#[cfg(test)]
mod tests;
