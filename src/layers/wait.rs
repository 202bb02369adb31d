//! `Retry-After`: when a refused client should come back.
//!
//! Decides a whole number of seconds, 1 to 60. Overload adds jitter, upwards
//! only, so that the clients of one bad moment do not return in one; limits of
//! a tenant or an address add none, since their end is known.

use std::time::Duration;

use crate::core::reject::Reject;
use crate::tenants::{AuthError, RateError};

use super::error::{ForwardError, IngestError, MeasureError, Refusal, TenantError};

/// Longest time a client is sent away for, in seconds.
const LONGEST: u64 = 60;
/// Jitter of an overload answer, as a share of the wait.
const JITTER: f64 = 0.5;
/// When something short-lived (a body in flight, a restart) should be over.
const SOON: Duration = Duration::from_secs(1);
/// When another process should have taken over.
const SHUTDOWN: Duration = Duration::from_secs(5);

/// Whether many clients are sent away at once.
enum Crowd {
    One(Duration),
    Many(Duration),
}

/// Seconds after which `refusal` is worth trying again, where it is.
pub(super) fn retry_after(refusal: &Refusal) -> Option<u64> {
    Some(match crowd(refusal)? {
        Crowd::One(wait) => seconds(wait),
        Crowd::Many(wait) => {
            let spread = wait.mul_f64(JITTER * rand::random::<f64>());
            seconds(wait + spread)
        }
    })
}

/// The least and the most that [`retry_after`] may say.
pub(super) fn retry_within(refusal: &Refusal) -> Option<(u64, u64)> {
    Some(match crowd(refusal)? {
        Crowd::One(wait) => (seconds(wait), seconds(wait)),
        Crowd::Many(wait) => (seconds(wait), seconds(wait + wait.mul_f64(JITTER))),
    })
}

fn crowd(refusal: &Refusal) -> Option<Crowd> {
    match refusal {
        Refusal::Tenant(error) => tenant(error),
        Refusal::Ingest(IngestError::BodyBudgetSpent) => Some(Crowd::Many(SOON)),
        Refusal::Measure(MeasureError::TokenizerUnavailable) => Some(Crowd::Many(SHUTDOWN)),
        Refusal::Forward(ForwardError::Busy) => Some(Crowd::Many(SOON)),
        Refusal::Admit(reject) => admit(reject),
        _ => None,
    }
}

fn tenant(error: &TenantError) -> Option<Crowd> {
    match *error {
        TenantError::Key(AuthError::TooManyFailures { retry_after }) => {
            Some(Crowd::One(retry_after))
        }
        TenantError::Rate(
            RateError::Requests { retry_after, .. } | RateError::Tokens { retry_after, .. },
        ) => Some(Crowd::One(retry_after)),
        TenantError::Rate(RateError::AboveBurst { .. }) => None,
        TenantError::Full(ref reject) => admit(reject),
        TenantError::Key(_) | TenantError::TwoKeys(_) => None,
        TenantError::BodyBudgetSpent => Some(Crowd::Many(SOON)),
        TenantError::Draining => Some(Crowd::Many(SHUTDOWN)),
    }
}

fn admit(reject: &Reject) -> Option<Crowd> {
    let wait = reject.retry_after()?;
    Some(match reject {
        Reject::TenantQueueFull { .. } => Crowd::One(wait),
        _ => Crowd::Many(wait),
    })
}

/// Rounded up, within 1 to 60.
fn seconds(wait: Duration) -> u64 {
    let started = u64::from(wait.subsec_nanos() > 0);
    wait.as_secs().saturating_add(started).clamp(1, LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::reject::QueueBound;

    fn overloaded(retry_after: Duration) -> Refusal {
        Refusal::Admit(Reject::Overloaded {
            bound: QueueBound::Tokens,
            retry_after,
        })
    }

    #[test]
    fn a_wait_is_rounded_up_to_between_1_and_60_seconds() {
        assert_eq!(seconds(Duration::ZERO), 1);
        assert_eq!(seconds(Duration::from_millis(1001)), 2);
        assert_eq!(seconds(Duration::from_secs(3600)), 60);
    }

    #[test]
    fn overload_jitters_upwards_only() {
        for _ in 0..200 {
            let wait = retry_after(&overloaded(Duration::from_secs(10))).unwrap();
            assert!((10..=15).contains(&wait), "{wait}");
        }
        let within = retry_within(&overloaded(Duration::from_secs(10)));
        assert_eq!(within, Some((10, 15)));
    }

    #[test]
    fn a_tenant_limit_does_not_jitter() {
        let refusal = Refusal::Admit(Reject::TenantQueueFull {
            waiting: 3,
            limit: 3,
            retry_after: Duration::from_millis(6500),
        });
        assert_eq!(retry_after(&refusal), Some(7));
    }

    #[test]
    fn what_never_fits_is_not_sent_away_for_a_while() {
        let refusal = Refusal::Admit(Reject::ContextTooLong {
            prompt: crate::core::units::Tokens::new(9),
            output: crate::core::units::Tokens::ZERO,
            limit: crate::core::units::Tokens::new(8),
        });
        assert_eq!(retry_after(&refusal), None);
    }
}
