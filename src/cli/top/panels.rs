//! What each panel says, as lines of a width.
//!
//! Decides words, columns and colours. Never draws: a terminal and a pipe get the same.

use ratatui::style::{Color, Style, Stylize as _};
use ratatui::text::{Line, Span};

use super::spark::{cells, spark};
use super::view::{Backend, Head, Hour, Points, Pool, State};

/// Width from which there is room for every column.
const WIDE: usize = 90;
/// Width from which there is room for what an engine runs and queues.
const MIDDLE: usize = 60;

/// The parts of a KV bar: name, glyph, colour.
const PARTS: [(&str, char, Color); 5] = [
    ("held", '█', Color::Blue),
    ("growing", '▓', Color::Cyan),
    ("foreign", '▒', Color::Magenta),
    ("reserve", '░', Color::Yellow),
    ("free", '·', Color::DarkGray),
];

/// A panel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Panel {
    /// KV of each backend.
    Backends,
    /// The line, and why its heads wait.
    Queue,
    /// Who holds and who waits.
    Tenants,
    /// Refusals by reason.
    Refusals,
    /// The last hour.
    Hour,
}

/// What there is to show of the gateway.
#[derive(Clone, Copy)]
pub(super) struct Shown<'a> {
    pub(super) state: &'a State,
    pub(super) hour: &'a Hour,
    /// Place of the model whose hour is shown.
    pub(super) model: usize,
}

// === impl Panel ===

impl Panel {
    /// All, in the order of `tab`.
    pub(super) const ALL: [Self; 5] = [
        Self::Backends,
        Self::Queue,
        Self::Tenants,
        Self::Refusals,
        Self::Hour,
    ];

    /// Its title.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Backends => "backends",
            Self::Queue => "queue",
            Self::Tenants => "tenants",
            Self::Refusals => "refusals",
            Self::Hour => "last hour",
        }
    }

    /// Its lines, none wider than `width`.
    pub(super) fn lines(self, shown: Shown<'_>, width: usize) -> Vec<Line<'static>> {
        match self {
            Self::Backends => backends(shown.state, width),
            Self::Queue => queue(shown.state, width),
            Self::Tenants => tenants(shown.state, width),
            Self::Refusals => refusals(shown.state),
            Self::Hour => hour(shown, width),
        }
    }
}

fn backends(state: &State, width: usize) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    let several = state.pools.len() > 1;
    for pool in &state.pools {
        if several {
            lines.push(Line::from(pool.model.clone().bold()));
        }
        lines.extend(pool.backends.iter().map(|one| backend(one, width)));
    }
    if lines.is_empty() {
        lines.push(Line::from("no backend"));
    }
    let key = PARTS.iter().flat_map(|(name, glyph, colour)| {
        [
            Span::styled(glyph.to_string(), *colour),
            Span::raw(format!(" {name}  ")),
        ]
    });
    let mut key: Vec<_> = key.collect();
    let mut backends = state.pools.iter().flat_map(|pool| &pool.backends);
    if backends.any(|one| one.set_aside) {
        key.push(Span::raw("* blocks set aside"));
    }
    lines.push(key.into());
    lines
}

fn backend(one: &Backend, width: usize) -> Line<'static> {
    let (name, state) = if width >= WIDE { (14, 10) } else { (9, 6) };
    let aside = if one.set_aside { "*" } else { "" };
    let word = fixed(&format!("{}{aside}", one.state), state);
    let mut spans = vec![Span::raw(format!("{} ", fixed(&one.name, name)))];
    if width >= WIDE {
        spans.push(Span::raw(format!("{} ", fixed(&one.tier, 8))));
    }
    spans.push(Span::styled(word, state_style(&one.state)));
    let tail = figures(one, width);
    let taken: usize = spans.iter().map(Span::width).sum();
    let left = width.saturating_sub(taken + tail.chars().count());
    spans.extend(bar(one, left));
    spans.push(Span::raw(tail));
    spans.into()
}

/// Share used of its tokens, requests in flight, and what its engine runs, queues and has
/// preempted; of equal width for all.
fn figures(one: &Backend, width: usize) -> String {
    let used = one
        .used_percent()
        .map_or("–".to_owned(), |used| used.to_string());
    let engine = one.observed.map_or("–".to_owned(), |seen| {
        format!("{}+{}", seen.running, seen.waiting)
    });
    if width < MIDDLE {
        return format!(" {used:>3}%");
    }
    if width < WIDE {
        return format!(" {used:>3}% {engine:>7}");
    }
    let tokens = one.capacity.map_or("–".to_owned(), |capacity| {
        short(capacity.blocks.saturating_mul(capacity.block_size))
    });
    let preempted = one
        .observed
        .map_or("–".to_owned(), |seen| short(seen.preemptions));
    format!(
        " {used:>3}% of {tokens:>5} {:>4} in flight {engine:>7} pre {preempted:<5}",
        one.leases
    )
}

fn bar(one: &Backend, width: usize) -> Vec<Span<'static>> {
    if one.capacity.is_none() {
        return vec![Span::styled("?".repeat(width), Color::DarkGray)];
    }
    let parts = PARTS.iter().zip(cells(one.parts(), width));
    let spans = parts
        .map(|((_, glyph, colour), cells)| Span::styled(glyph.to_string().repeat(cells), *colour));
    spans.collect()
}

fn state_style(state: &str) -> Style {
    match state {
        "up" => Color::Green.into(),
        "down" => Color::Red.into(),
        _ => Color::Yellow.into(),
    }
}

fn queue(state: &State, width: usize) -> Vec<Line<'static>> {
    let waiting: Vec<&Pool> = state
        .pools
        .iter()
        .filter(|pool| pool.queue.requests > 0)
        .collect();
    if waiting.is_empty() {
        return vec![Line::from("nobody waits")];
    }
    let mut lines = Vec::new();
    for pool in waiting {
        let queue = pool.queue;
        lines.push(Line::from(format!(
            "{}: {} wait, {} tokens, the oldest {}",
            pool.model,
            queue.requests,
            short(queue.tokens),
            time(queue.oldest_seconds)
        )));
        lines.extend(pool.heads.iter().map(|one| head(one, width)));
    }
    lines
}

fn head(one: &Head, width: usize) -> Line<'static> {
    let tenant = fixed(
        one.tenant.as_deref().unwrap_or("–"),
        if width >= WIDE { 14 } else { 8 },
    );
    let expected = match (one.expected_seconds.q50, one.expected_seconds.q80) {
        (Some(half), Some(most)) => format!("in {} (80 %: {})", time(half), time(most)),
        _ => "when unknown".to_owned(),
    };
    let text = if width >= WIDE {
        format!(
            " {tenant} {:>6} tokens {:8} waited {:>6} for {}, {expected}",
            short(one.prompt_tokens),
            one.tier,
            time(one.waited_seconds),
            wanted(&one.waits_for)
        )
    } else {
        let half = one.expected_seconds.q50.map_or("?".to_owned(), time);
        format!(
            " {tenant} {:>5} {} in {half}",
            short(one.prompt_tokens),
            wanted(&one.waits_for)
        )
    };
    Line::from(text)
}

/// What it waits for, in words.
fn wanted(word: &str) -> &str {
    match word {
        "turn" => "its turn",
        "memory" => "memory",
        "prefill" => "prefills ahead",
        "cached" => "its beginning",
        "tenant_limit" => "its tenant's limit",
        "others_share" => "others' share",
        "no_backend" => "a backend",
        "set_aside" => "blocks set aside",
        other => other,
    }
}

fn tenants(state: &State, width: usize) -> Vec<Line<'static>> {
    let pools = || state.pools.iter();
    let capacity: u64 = pools().flat_map(|pool| &pool.backends).map(tokens_of).sum();
    let head = format!(
        "{} {:>6} {:>7} {:>4} {:>5} {:>7}",
        fixed("", 14),
        "flight",
        "KV",
        "%",
        "wait",
        "refused"
    );
    let mut lines = vec![Line::from(cut(&head, width).dim())];
    for tenant in &state.tenants {
        let shares = pools().flat_map(|pool| &pool.tenants);
        let shares = shares.filter(|share| share.name.as_ref() == Some(&tenant.name));
        let (mut leases, mut held, mut waiting) = (0_u64, 0_u64, 0_u64);
        for share in shares {
            leases += share.leases;
            held = held.saturating_add(share.in_flight_tokens);
            waiting += share.waiting;
        }
        let refused: u64 = tenant.refusals.values().sum();
        let percent = held.saturating_mul(100).checked_div(capacity).unwrap_or(0);
        let rate = tenant.tokens.map_or(String::new(), |gauge| {
            format!(
                "  {} of {}/min",
                short(gauge.remaining),
                short(gauge.per_minute)
            )
        });
        let text = format!(
            "{} {leases:>6} {:>7} {percent:>4} {waiting:>5} {refused:>7}  weight {}{rate}",
            fixed(&tenant.name, 14),
            short(held),
            tenant.weight
        );
        lines.push(Line::from(cut(&text, width)));
    }
    lines
}

fn tokens_of(one: &Backend) -> u64 {
    let capacity = one.capacity.unwrap_or_default();
    capacity.blocks.saturating_mul(capacity.block_size)
}

fn refusals(state: &State) -> Vec<Line<'static>> {
    let mut reasons: Vec<_> = state
        .refusals
        .iter()
        .filter(|(_, count)| **count > 0)
        .collect();
    reasons.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    if reasons.is_empty() {
        return vec![Line::from("nothing was refused")];
    }
    let lines = reasons.into_iter();
    lines
        .map(|(reason, count)| Line::from(format!("{count:>9} {reason}")))
        .collect()
}

fn hour(shown: Shown<'_>, width: usize) -> Vec<Line<'static>> {
    let model = shown.state.pools.get(shown.model).map(|pool| &pool.model);
    let Some((model, series)) = model.and_then(|name| Some((name, shown.hour.models.get(name)?)))
    else {
        return vec![Line::from("nothing yet")];
    };
    let rows = [
        (
            "first token p50",
            &series.ttft_p50,
            time as fn(f64) -> String,
        ),
        ("first token p99", &series.ttft_p99, time),
        ("queue wait p99", &series.queue_p99, time),
        ("output tokens/s", &series.output_rate, |rate| {
            format!("{rate:.0}")
        }),
        ("running", &series.running, |running| {
            format!("{running:.0}")
        }),
    ];
    let points = u32::try_from(series.running.len()).unwrap_or(u32::MAX);
    let span = time(f64::from(points) * shown.hour.step_seconds);
    let mut lines = vec![Line::from(
        format!("{model}, {span}, newest at the right").dim(),
    )];
    lines.extend(rows.map(|(name, points, written)| chart(name, (points, written), width)));
    lines
}

fn chart(
    name: &str,
    (points, written): (&Points, fn(f64) -> String),
    width: usize,
) -> Line<'static> {
    let now = points
        .iter()
        .rev()
        .flatten()
        .next()
        .map_or("–".to_owned(), |now| written(*now));
    let most = points.iter().flatten().copied().reduce(f64::max);
    let most = most.map_or(String::new(), |most| format!("max {}", written(most)));
    let (name, tail) = if width >= WIDE {
        (fixed(name, 15), format!(" {now:>7}  {most:<12}"))
    } else {
        (
            fixed(&name.replace("first token", "ttft"), 11),
            format!(" {now:>6}"),
        )
    };
    let left = width.saturating_sub(name.chars().count() + 1 + tail.chars().count());
    let points: Vec<Option<f64>> = points.iter().copied().collect();
    let drawn = spark(&points, left);
    let space = " ".repeat(left.saturating_sub(drawn.chars().count()));
    Line::from(vec![
        Span::raw(format!("{name} {space}")),
        Span::styled(drawn, Color::Cyan),
        Span::raw(tail),
    ])
}

/// A time in one unit: `0.25s`, `12s`, `3m`, `2h`.
pub(super) fn time(seconds: f64) -> String {
    match seconds {
        s if !s.is_finite() || s < 0.0 => "?".to_owned(),
        s if s < 9.995 => format!("{s:.2}s"),
        s if s < 120.0 => format!("{s:.0}s"),
        s if s < 7200.0 => format!("{:.0}m", s / 60.0),
        s if s < 172_800.0 => format!("{:.0}h", s / 3600.0),
        s => format!("{:.0}d", s / 86_400.0),
    }
}

/// A count in at most five characters, rounded down: `999`, `9.9k`, `999k`, `1.2M`.
fn short(count: u64) -> String {
    let scaled = |unit: u64, sign: char| {
        let tenths = count / (unit / 10);
        match tenths {
            0..1000 => format!("{}.{}{sign}", tenths / 10, tenths % 10),
            _ => format!("{}{sign}", tenths / 10),
        }
    };
    match count {
        0..1000 => count.to_string(),
        1000..1_000_000 => scaled(1000, 'k'),
        1_000_000..1_000_000_000 => scaled(1_000_000, 'M'),
        _ => scaled(1_000_000_000, 'G'),
    }
}

/// Exactly `width` characters of `text`, with spaces behind it or its end left out.
fn fixed(text: &str, width: usize) -> String {
    let shown = cut(text, width);
    format!("{shown:width$}")
}

/// At most `width` characters of `text`.
fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let mut shown: String = text.chars().take(width.saturating_sub(1)).collect();
    shown.push('…');
    shown
}
