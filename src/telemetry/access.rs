//! The access log's writer: a thread of its own behind a bounded queue.
//!
//! A slow disk or a full pipe costs records, counted, and never a request.
//! Files are opened for appending, so they can be rotated by copy and truncate.

use std::fmt;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use super::metrics::Metrics;
use super::outcome::Loss;
use super::record::AccessRecord;
use crate::config::{AccessLog, Log};

/// Bytes after which a batch is written.
const BATCH_BYTES: usize = 64 * 1024;

/// The longest rest after a batch. While the thread rests, a record costs its
/// request no wake-up; longer, and whoever reads the log waits for nothing.
const REST: Duration = Duration::from_millis(5);

/// The rest for each place of the queue, so that a small one is not filled
/// meanwhile by as many as 100,000 requests a second.
const REST_PER_PLACE: Duration = Duration::from_micros(10);

/// Owns the thread that writes records. Dropping it writes what is queued and
/// joins the thread, so it must be dropped where blocking is allowed.
pub struct AccessWriter {
    queue: Option<SyncSender<AccessRecord>>,
    thread: Option<JoinHandle<()>>,
    metrics: Arc<Metrics>,
}

/// The thread's side.
struct Output<W: Write> {
    records: Receiver<AccessRecord>,
    output: W,
    /// The batch at hand; its memory is used again.
    lines: Vec<u8>,
    /// Between two batches.
    rest: Duration,
    metrics: Arc<Metrics>,
}

// === impl AccessWriter ===

impl AccessWriter {
    /// Opens the log of `log.access`; `None` where it is off.
    ///
    /// # Errors
    ///
    /// The file cannot be opened for appending, or no thread started.
    pub fn start(log: &Log, metrics: Arc<Metrics>) -> io::Result<Option<Self>> {
        let places = log.access_queue;
        match &log.access {
            AccessLog::Off => Ok(None),
            AccessLog::Stdout => Self::write_to(io::stdout(), places, metrics).map(Some),
            AccessLog::File(path) => {
                let named = |error: io::Error| {
                    io::Error::new(
                        error.kind(),
                        format!("access log {}: {error}", path.display()),
                    )
                };
                let file = OpenOptions::new()
                    .create(true)
                    .append(true)
                    .open(path)
                    .map_err(named)?;
                Self::write_to(file, places, metrics).map(Some)
            }
        }
    }

    /// Writes to `output`, with at most `places` records waiting.
    ///
    /// # Errors
    ///
    /// No thread could be started.
    pub fn write_to<W>(output: W, places: usize, metrics: Arc<Metrics>) -> io::Result<Self>
    where
        W: Write + Send + 'static,
    {
        let (queue, records) = sync_channel(places);
        let output = Output {
            records,
            output,
            lines: Vec::new(),
            rest: rest(places),
            metrics: Arc::clone(&metrics),
        };
        let thread = Builder::new()
            .name("access-log".to_owned())
            .spawn(move || output.run())?;
        Ok(Self {
            queue: Some(queue),
            thread: Some(thread),
            metrics,
        })
    }

    /// Queues a record, or counts it as lost. Never blocks.
    pub fn write(&self, record: AccessRecord) {
        let sent = self
            .queue
            .as_ref()
            .is_some_and(|queue| queue.try_send(record).is_ok());
        if !sent {
            self.metrics.records_lost(Loss::QueueFull, 1);
        }
    }
}

impl Drop for AccessWriter {
    fn drop(&mut self) {
        drop(self.queue.take());
        let joined = self.thread.take().map(JoinHandle::join);
        if let Some(Err(_)) = joined {
            tracing::error!("the access log's thread panicked");
        }
    }
}

impl fmt::Debug for AccessWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccessWriter").finish_non_exhaustive()
    }
}

/// How long the thread of a queue of so many places rests.
fn rest(places: usize) -> Duration {
    let places = u32::try_from(places).unwrap_or(u32::MAX);
    REST_PER_PLACE.saturating_mul(places).min(REST)
}

// === impl Output ===

impl<W: Write> Output<W> {
    /// Writes until every sender is gone: a quiet gateway's line at once, a
    /// busy one's in batches, some milliseconds late.
    fn run(mut self) {
        let mut failing = false;
        while let Ok(record) = self.records.recv() {
            let batch = self.batch(record);
            let written = self
                .output
                .write_all(&self.lines)
                .and_then(|()| self.output.flush());
            if let Err(error) = &written {
                self.metrics.records_lost(Loss::WriteFailed, batch);
                if !failing {
                    tracing::warn!(%error, "the access log cannot be written; records are being lost");
                }
            }
            failing = written.is_err();
            std::thread::sleep(self.rest);
        }
    }

    /// Puts `first` and what else waits into `lines`, to about [`BATCH_BYTES`];
    /// returns how many records that is.
    fn batch(&mut self, first: AccessRecord) -> u64 {
        self.lines.clear();
        let mut records = 0;
        let mut next = Some(first);
        while let Some(record) = next {
            record.write_line(&mut self.lines);
            records += 1;
            let full = self.lines.len() >= BATCH_BYTES;
            next = if full {
                None
            } else {
                self.records.try_recv().ok()
            };
        }
        records
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rest_is_short_enough_for_the_places_of_the_queue() {
        let rests = [1, 4, 100, 8192, 1_000_000].map(|places| rest(places).as_micros());
        assert_eq!(rests, [10, 40, 1000, 5000, 5000]);
    }
}
