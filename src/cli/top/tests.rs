use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::thread;

use clap::Parser;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use serde::Deserialize as _;
use serde_json::{Value, json};

use super::panels::Panel;
use super::view::State;
use super::*;

/// The command line, without the command's name.
#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    flags: Flags,
}

fn recorded() -> (Value, Value) {
    let state = include_str!("../../../tests/golden/top/state.json");
    let history = include_str!("../../../tests/golden/top/history.json");
    (
        serde_json::from_str(state).unwrap(),
        serde_json::from_str(history).unwrap(),
    )
}

/// A screen that has seen what was recorded.
fn screen() -> Screen {
    let (state, history) = recorded();
    let state = State::deserialize(&state).unwrap();
    let mut hour = Hour::default();
    assert_eq!(hour.path(&state.instance), "/history?after=0");
    hour.take(&history);
    let mut screen = Screen::new("http://127.0.0.1:8081");
    screen.take(Ok((state, hour)));
    screen
}

/// What is on a terminal of that size, line by line.
fn drawn(screen: &mut Screen, width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| screen.draw(frame)).unwrap();
    let buffer = terminal.backend().buffer();
    let cells = buffer.content().chunks(usize::from(width));
    cells
        .map(|line| line.iter().map(ratatui::buffer::Cell::symbol).collect())
        .collect()
}

fn press(screen: &mut Screen, code: KeyCode) {
    let order = order(KeyEvent::new(code, KeyModifiers::NONE));
    screen.obey(order.expect("the key does something"));
}

#[test]
fn a_large_terminal_shows_every_panel_with_the_values_of_the_state() {
    let lines = drawn(&mut screen(), 120, 40);
    let text = lines.join("\n");
    for panel in Panel::ALL {
        assert!(
            text.contains(&format!(" {} ", panel.name())),
            "{panel:?}\n{text}"
        );
    }
    let (state, _) = recorded();
    let pool = &state["pools"][0];
    for backend in pool["backends"].as_array().unwrap() {
        let figure = |key: &str| backend[key].as_u64().unwrap();
        let used = 100 * (figure("held_blocks") + figure("foreign_blocks"));
        let used = used / backend["capacity"]["blocks"].as_u64().unwrap();
        let seen = &backend["observed"];
        let line = lines
            .iter()
            .find(|line| line.contains(backend["name"].as_str().unwrap()));
        let line = line.expect("each backend has a line");
        let told = format!("{used}% of ");
        let engine = format!("{}+{}", seen["running"], seen["waiting"]);
        let engine = format!(
            "{} in flight {engine:>7} pre {}",
            backend["leases"], seen["preemptions"]
        );
        assert!(
            line.contains(&told) && line.contains(&engine),
            "{told}{engine}: {line}"
        );
    }
    let queue = &pool["queue"];
    assert!(
        text.contains(&format!(
            "tiny: {} wait, 102k tokens, the oldest 29s",
            queue["requests"]
        )),
        "{text}"
    );
    assert!(text.contains("chat              752 tokens standard waited    27s for blocks set aside, in 0.20s (80 %: 0.43s)"), "{text}");
    assert!(text.contains("       35 queue_timeout"), "{text}");
    assert!(text.contains("weight 1  3.0M of 3.0M/min"), "{text}");
    assert!(
        lines[0].starts_with("tidegate 0.1.0  running  up 49s  http://127.0.0.1:8081"),
        "{}",
        lines[0]
    );
}

#[test]
fn a_bar_has_a_cell_for_each_share_of_the_pool() {
    let lines = drawn(&mut screen(), 120, 40);
    // 2,389 held, 4 growing, 106 reserve, none free, of 2,499.
    let big = lines.iter().find(|line| line.contains("big ")).unwrap();
    let count = |glyph: char| big.chars().filter(|c| *c == glyph).count();
    let cells = [count('█'), count('▓'), count('▒'), count('░'), count('·')];
    let all: usize = cells.iter().sum();
    assert_eq!(cells[1..], [1, 0, 2, 0], "{big}");
    assert!(all >= 30, "{big}");
    assert_eq!(cells[0], all - 3);
}

#[test]
fn a_terminal_of_40_by_12_shows_one_panel_and_tab_another() {
    let mut screen = screen();
    let lines = drawn(&mut screen, 40, 12);
    assert!(lines[1].contains(" backends "), "{lines:?}");
    assert!(lines[2].starts_with("│std-a     up*   █"), "{lines:?}");
    assert!(lines[2].ends_with("167%│"), "{lines:?}");
    press(&mut screen, KeyCode::Tab);
    let lines = drawn(&mut screen, 40, 12);
    assert!(
        lines[1].contains(" queue ") && lines[2].contains("tiny: 43 wait"),
        "{lines:?}"
    );
    press(&mut screen, KeyCode::Left);
    press(&mut screen, KeyCode::Left);
    let lines = drawn(&mut screen, 40, 12);
    assert!(lines[1].contains(" last hour "), "{lines:?}");
    assert!(lines[3].contains("ttft p50"), "{lines:?}");
}

#[test]
fn no_size_and_no_state_is_too_small_to_draw() {
    let mut full = screen();
    let mut empty = Screen::new("http://127.0.0.1:8081");
    let mut bare = Screen::new("http://127.0.0.1:8081");
    let state = json!({"pools": [{"model": "m", "backends": [{"name": "a"}], "heads": [{}], "queue": {"requests": 1}}], "tenants": [{}]});
    bare.take(Ok((State::deserialize(&state).unwrap(), Hour::default())));
    for width in [1, 2, 5, 40, 60, 90, 92, 100, 200] {
        for height in [1, 2, 3, 5, 12, 25, 26, 80] {
            for screen in [&mut full, &mut empty, &mut bare] {
                press(screen, KeyCode::Char('?'));
                for _ in Panel::ALL {
                    press(screen, KeyCode::Tab);
                    drawn(screen, width, height);
                }
            }
        }
    }
}

#[test]
fn the_queue_scrolls_to_its_end_and_no_further() {
    let mut screen = screen();
    press(&mut screen, KeyCode::Tab);
    let first = drawn(&mut screen, 40, 12);
    for _ in 0..100 {
        press(&mut screen, KeyCode::PageDown);
    }
    let last = drawn(&mut screen, 40, 12);
    assert_ne!(first[2], last[2]);
    let lines: Vec<_> = last[2..10]
        .iter()
        .map(|line| line.trim_matches(['│', ' ']))
        .collect();
    assert!(
        lines.iter().all(|line| !line.is_empty()),
        "the end is at the foot: {last:?}"
    );
    press(&mut screen, KeyCode::Up);
    assert_ne!(
        drawn(&mut screen, 40, 12)[2],
        last[2],
        "one line back is seen at once"
    );
}

#[test]
fn what_was_seen_stays_while_nobody_answers() {
    let mut screen = screen();
    screen.take(Err("nothing answers".to_owned()));
    let lines = drawn(&mut screen, 120, 40);
    assert!(
        lines[0].starts_with("no answer for 1.00s from http://127.0.0.1:8081"),
        "{}",
        lines[0]
    );
    assert!(lines.join("\n").contains("std-a"));
    let mut new = Screen::new("http://127.0.0.1:8081");
    new.take(Err("nothing answers".to_owned()));
    assert!(drawn(&mut new, 60, 12)[1].starts_with("nothing answers"));
}

#[test]
fn a_pause_is_told_and_help_lists_the_keys() {
    let mut screen = screen();
    press(&mut screen, KeyCode::Char('p'));
    assert!(screen.is_paused());
    assert!(drawn(&mut screen, 120, 40)[0].contains("PAUSED"));
    press(&mut screen, KeyCode::Char('p'));
    press(&mut screen, KeyCode::Char('?'));
    let text = drawn(&mut screen, 60, 14).join("\n");
    assert!(
        !screen.is_paused() && text.contains("read only: nothing is changed"),
        "{text}"
    );
    for quit in [KeyCode::Char('q'), KeyCode::Esc] {
        assert_eq!(
            order(KeyEvent::new(quit, KeyModifiers::NONE)),
            Some(Order::Quit)
        );
    }
    let control_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(order(control_c), Some(Order::Quit));
    assert_eq!(
        order(KeyEvent::new(KeyCode::Char('x'), KeyModifiers::NONE)),
        None
    );
}

#[test]
fn the_hour_grows_by_what_is_new_and_begins_again_after_a_restart() {
    let news = |instance: &str, first: u64, values: &[f64]| {
        let next = first + u64::try_from(values.len()).unwrap();
        json!({"instance": instance, "step_seconds": 5, "first": first, "next": next,
            "models": [{"model": "m", "running": values}]})
    };
    let mut hour = Hour::default();
    hour.path("a");
    hour.take(&news("a", 0, &[1.0, 2.0]));
    assert_eq!(hour.path("a"), "/history?after=2");
    // One step was missed.
    hour.take(&news("a", 3, &[4.0]));
    let running = |hour: &Hour| hour.models["m"].running.iter().copied().collect::<Vec<_>>();
    assert_eq!(running(&hour), [Some(1.0), Some(2.0), None, Some(4.0)]);
    hour.take(&news("a", 4, &[5.0; 1000]));
    assert_eq!(running(&hour), [Some(5.0); 720]);
    assert_eq!(hour.path("b"), "/history?after=0");
    hour.take(&news("b", 0, &[7.0]));
    assert_eq!(running(&hour), [Some(7.0)]);
}

/// Answers so many requests, each by its path, then is gone.
fn gateway(
    answers: usize,
    pages: fn(&str) -> Option<Value>,
) -> (String, thread::JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let served = thread::spawn(move || {
        let mut paths = Vec::new();
        while paths.len() < answers {
            let (mut stream, _) = listener.accept().unwrap();
            let (mut asked, mut bytes) = (Vec::new(), [0; 1024]);
            while !asked.ends_with(b"\r\n\r\n") {
                let read = stream.read(&mut bytes).unwrap();
                asked.extend_from_slice(&bytes[..read]);
            }
            let asked = String::from_utf8(asked).unwrap();
            let path = asked.split(' ').nth(1).unwrap().to_owned();
            let (status, body) = match pages(&path) {
                Some(page) => ("200 OK", page.to_string()),
                None => ("404 Not Found", "no such page\n".to_owned()),
            };
            let length = body.len();
            let head = format!(
                "HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"
            );
            stream
                .write_all(format!("{head}{body}").as_bytes())
                .unwrap();
            paths.push(path);
        }
        paths
    });
    (url, served)
}

fn run(line: &[&str]) -> Result<String, Failure> {
    let line = Line::try_parse_from(["top"].iter().chain(line)).unwrap();
    let mut out = Vec::new();
    top(&line.flags, &mut out)?;
    Ok(String::from_utf8(out).unwrap())
}

#[test]
fn once_prints_plain_text_of_a_bounded_width() {
    let (url, served) = gateway(2, |path| {
        let (state, history) = recorded();
        Some(if path == "/state" { state } else { history })
    });
    let told = run(&["--once", "--from", &url]).unwrap();
    assert_eq!(served.join().unwrap(), ["/state", "/history?after=0"]);
    assert!(
        told.lines().all(|line| line.chars().count() <= 100),
        "{told}"
    );
    assert!(!told.contains('\u{1b}'));
    for panel in Panel::ALL {
        assert!(told.contains(&format!("\n{}\n", panel.name())), "{told}");
    }
}

#[test]
fn a_name_that_a_terminal_would_obey_is_shown_as_it_is_called() {
    let (url, served) = gateway(2, |path| {
        let (state, history) = recorded();
        let own = |told: Value| {
            let told = told.to_string();
            told.replace("\"tiny\"", "\"ti\\u001b[2J\\n\\u202eny\"")
        };
        let told = own(if path == "/state" { state } else { history });
        serde_json::from_str(&told).ok()
    });
    let line = Line::try_parse_from(["top", "--from", &url]).unwrap();
    let remote = line.flags.remote.remote().unwrap();
    let state = look(&remote, &mut Hour::default()).unwrap();
    served.join().unwrap();
    assert_eq!(state.pools[0].model, "ti\\u001b[2J\\n\\u202eny");
}

#[test]
fn a_gateway_without_a_history_is_shown_all_the_same() {
    let (url, served) = gateway(2, |path| (path == "/state").then(|| recorded().0));
    let told = run(&["--once", "--from", &url]).unwrap();
    served.join().unwrap();
    assert!(told.contains("last hour\n  nothing yet\n"), "{told}");
    let free = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let said = run(&["--once", "--from", &format!("http://{free}")])
        .unwrap_err()
        .to_string();
    assert!(said.contains("is the gateway running"), "{said}");
}

#[test]
fn the_feed_tells_what_came_and_ends_when_dropped() {
    let (url, served) = gateway(2, |path| {
        Some(if path == "/state" {
            recorded().0
        } else {
            recorded().1
        })
    });
    let line = Line::try_parse_from(["top", "--from", &url]).unwrap();
    let feed = Feed::start(line.flags.remote.remote().unwrap());
    feed.ask();
    served.join().unwrap();
    let told = loop {
        match feed.told() {
            Some(told) => break told,
            None => thread::yield_now(),
        }
    };
    assert_eq!(told.unwrap().0.pools[0].model, "tiny");
    // Nobody is there any more.
    feed.ask();
    let told = loop {
        match feed.told() {
            Some(told) => break told,
            None => thread::yield_now(),
        }
    };
    assert!(told.unwrap_err().starts_with("nothing answers at"));
    drop(feed);
}

#[test]
fn looks_are_at_least_a_fifth_of_a_second_apart() {
    for wrong in ["0", "0.1", "-1", "x", "inf", "NaN"] {
        assert!(
            Line::try_parse_from(["top", "--every", wrong]).is_err(),
            "{wrong}"
        );
    }
    assert_eq!(Line::try_parse_from(["top"]).unwrap().flags.every, 1.0);
}
