//! Cost of watching a stream while it is relayed.
//!
//! Measured: `Scanner::push` per chunk (time) and per byte (throughput), for
//! one event per chunk as an engine writes them, for 16 KiB reads after a stall,
//! for continuous usage, for one 10 MiB event in 1 KiB pieces, and for removing
//! the usage event. Baselines: handing the chunk on untouched, and copying it.
//! Act if an event costs more than 1 µs (an engine step takes milliseconds and a
//! gateway relays some 60,000 events a second), or if the 10 MiB event falls
//! below 1 GB/s, which would mean it is scanned more than once.

use std::hint::black_box;
use std::time::Duration;

use bytes::Bytes;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use tidegate::protocol::{ScanMode, Scanner};

const PLAIN: &[u8] = include_bytes!("../tests/golden/vllm-0.32/chat-stream-usage.sse");
const CONTINUOUS: &[u8] = include_bytes!("../tests/golden/vllm-0.32/chat-stream-continuous.sse");

/// A named stream in the chunks it arrives in.
struct Load {
    name: &'static str,
    mode: ScanMode,
    chunks: Vec<Bytes>,
}

fn loads() -> Vec<Load> {
    let plain = stream(PLAIN);
    let large = [
        b"data: {\"choices\":[{\"text\":\"",
        vec![b'y'; 10 << 20].as_slice(),
        b"\"}]}\n\n",
    ]
    .concat();
    vec![
        Load {
            name: "event_per_chunk",
            mode: ScanMode::Observe,
            chunks: events(&plain),
        },
        Load {
            name: "event_per_chunk_strip",
            mode: ScanMode::StripUsage,
            chunks: events(&plain),
        },
        Load {
            name: "continuous_usage",
            mode: ScanMode::Observe,
            chunks: events(&stream(CONTINUOUS)),
        },
        Load {
            name: "reads_of_16_kib",
            mode: ScanMode::Observe,
            chunks: cut(&plain, 16 << 10),
        },
        Load {
            name: "reads_of_100_bytes_strip",
            mode: ScanMode::StripUsage,
            chunks: cut(&plain, 100),
        },
        Load {
            name: "event_of_10_mib",
            mode: ScanMode::Observe,
            chunks: cut(&large, 1 << 10),
        },
        Load {
            name: "event_of_10_mib_strip",
            mode: ScanMode::StripUsage,
            chunks: cut(&large, 1 << 10),
        },
    ]
}

/// A captured stream of some events, its middle repeated to 1,000 events.
fn stream(captured: &[u8]) -> Vec<u8> {
    let all = events(captured);
    let token = &all[1];
    let middle = std::iter::repeat_n(token, 1_000);
    std::iter::once(&all[0])
        .chain(middle)
        .chain(&all[all.len() - 3..])
        .flatten()
        .copied()
        .collect()
}

fn events(stream: &[u8]) -> Vec<Bytes> {
    let mut events = Vec::new();
    let mut start = 0;
    for end in memchr::memmem::find_iter(stream, b"\n\n") {
        events.push(Bytes::copy_from_slice(&stream[start..end + 2]));
        start = end + 2;
    }
    events
}

fn cut(stream: &[u8], size: usize) -> Vec<Bytes> {
    stream.chunks(size).map(Bytes::copy_from_slice).collect()
}

fn relay(c: &mut Criterion) {
    for Load { name, mode, chunks } in loads() {
        let total: usize = chunks.iter().map(Bytes::len).sum();
        let mut group = c.benchmark_group(name);
        group.throughput(Throughput::BytesDecimal(
            u64::try_from(total).expect("a stream fits 64 bits"),
        ));
        group
            .sample_size(20)
            .measurement_time(Duration::from_secs(2))
            .warm_up_time(Duration::from_millis(500));
        let count = chunks.len();
        group.bench_with_input(BenchmarkId::new("scan", count), &chunks, |b, chunks| {
            b.iter(|| scan(mode, chunks));
        });
        group.bench_with_input(
            BenchmarkId::new("untouched", count),
            &chunks,
            |b, chunks| {
                b.iter(|| {
                    chunks
                        .iter()
                        .cloned()
                        .for_each(|chunk| drop(black_box(chunk)))
                });
            },
        );
        group.bench_with_input(BenchmarkId::new("copy", count), &chunks, |b, chunks| {
            b.iter(|| {
                chunks
                    .iter()
                    .for_each(|chunk| drop(black_box(chunk.to_vec())))
            });
        });
        group.finish();
    }
}

fn scan(mode: ScanMode, chunks: &[Bytes]) {
    let mut scanner = Scanner::new(mode);
    for chunk in chunks {
        drop(black_box(scanner.push(chunk.clone())));
    }
    drop(black_box(scanner.finish()));
}

criterion_group!(benches, relay);
criterion_main!(benches);
