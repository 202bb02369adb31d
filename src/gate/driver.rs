//! The only sleeper: wakes the pool when a deadline comes.

use super::Gate;
use crate::core::time::Time;

impl Gate {
    /// Drives the pool's timeouts for ever; run it as one owned task per pool
    /// and abort it with the pool.
    pub async fn drive(self) {
        loop {
            let timeout = {
                let mut inner = self.shared.lock();
                let timeout = inner.admission.poll_timeout(self.shared.clock.now());
                inner.wakes = timeout.unwrap_or(Time::NEVER);
                timeout
            };
            // A change between the look above and the wait below is not lost:
            // the notification is kept until it is waited for.
            match timeout {
                None => self.shared.retimed.notified().await,
                Some(time) => {
                    let sleep = tokio::time::sleep_until(self.shared.clock.instant(time));
                    tokio::select! {
                        () = sleep => self.update(|admission, now, out| admission.handle_timeout(now, out)),
                        () = self.shared.retimed.notified() => {}
                    }
                }
            }
        }
    }
}
