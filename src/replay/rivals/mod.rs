//! Emulations of how other gateways send and hold calls.
//!
//! A [`Rule`] decides for one call at a time; [`Rival`] is the gateway around it: it keeps
//! what such a product can count itself, the line in arrival order, and scrapes where the
//! product has them. A call goes only to an engine whose context holds its prompt. The
//! rules are those that were published; the products themselves are not run here.

mod cache_aware;
mod counts;
mod desk;
mod early;
mod flow_control;
mod kv_cost;
mod line;
mod reserve;
mod seen;
#[cfg(test)]
mod tests;

use std::time::Duration;

use super::Run;
use super::gateway::{Gateway, Order, Reach, Scrape};
use super::policy::{Late, Policy, Reserve};
use crate::core::admission::End;
use crate::core::queue::QueuePolicy;
use crate::core::reject::{QueueBound, Reject};
use crate::core::time::Time;
use crate::core::units::Tokens;

use desk::Desk;

/// What becomes of a call for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Choice {
    /// It goes to the engine at this place.
    Send(usize),
    /// It waits in the gateway.
    Wait,
    /// It is refused.
    Refuse,
}

/// Whether a product reads its engines' metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reads {
    Scrapes,
    OwnCounts,
}

/// How one product decides.
trait Rule {
    /// Where `call` goes at `now`. The engines are those of `desk`.
    fn choose(&mut self, now: Time, call: usize, desk: &Desk<'_>) -> Choice;

    /// `call` was sent to `node`.
    fn on_sent(&mut self, _call: usize, _node: usize, _desk: &Desk<'_>) {}

    /// What becomes of calls that are too late, and of those behind a head that waits.
    fn late(&self) -> Late {
        Late::Served
    }

    /// Whether it reads metrics.
    fn reads(&self) -> Reads {
        Reads::OwnCounts
    }
}

/// A gateway that follows a rule.
struct Rival<'a> {
    desk: Desk<'a>,
    rule: Box<dyn Rule + 'a>,
    line: line::Line,
}

/// The gateway of a rival's policy; `None` for ours.
pub(super) fn gateway<'a>(run: Run<'a>) -> Option<Box<dyn Gateway + 'a>> {
    let rule: Box<dyn Rule> = match run.policy {
        Policy::RoundRobin => Box::new(counts::RoundRobin::default()),
        Policy::LeastOutstanding => Box::new(counts::LeastOutstanding::default()),
        Policy::PowerOfTwo => Box::new(counts::PowerOfTwo::new(run.seed)),
        Policy::CacheAware(settings) => Box::new(cache_aware::Rule::new(*settings, run)),
        Policy::KvCost => Box::new(kv_cost::Rule::new(run)),
        Policy::FlowControl(settings) => Box::new(flow_control::Rule::new(*settings, run)),
        Policy::Semaphore(settings) => Box::new(counts::Semaphore::new(*settings)),
        Policy::EarlyRejection => Box::new(early::Rule),
        Policy::Reserve(Reserve::WorstCase) => Box::new(reserve::WorstCase),
        Policy::Reserve(Reserve::Prompt) => Box::new(reserve::Prompt),
        Policy::Ours(_) => return None,
    };
    Some(Box::new(Rival {
        desk: Desk::new(run),
        rule,
        line: line::Line::default(),
    }))
}

impl Rival<'_> {
    /// Sends, refuses or leaves waiting, as the rule says.
    fn decide(&mut self, now: Time, call: usize, out: &mut Vec<Order>) -> Choice {
        let choice = if self.desk.usable(call).next().is_some() {
            self.rule.choose(now, call, &self.desk)
        } else {
            Choice::Wait
        };
        match choice {
            Choice::Send(node) => {
                self.desk.send(call, node);
                self.rule.on_sent(call, node, &self.desk);
                out.push(Order::Send {
                    call,
                    node,
                    bound: self.desk.run.calls[call].asked,
                });
            }
            Choice::Refuse => out.push(Order::Refuse {
                call,
                reject: Reject::Overloaded {
                    bound: QueueBound::PredictedWait,
                    retry_after: Duration::from_secs(1),
                },
            }),
            Choice::Wait => {}
        }
        choice
    }

    /// Looks at the line from its head on.
    fn walk(&mut self, now: Time, out: &mut Vec<Order>) {
        self.drop_late(now, out);
        for call in self.line.calls() {
            if self.decide(now, call, out) != Choice::Wait {
                self.line.leave(call);
            } else if self.rule.late() == Late::Served {
                return;
            }
        }
    }

    fn drop_late(&mut self, now: Time, out: &mut Vec<Order>) {
        while let Some((call, since)) = self.line.pop_late(now) {
            let reject = Reject::QueueTimeout {
                waited: now - since,
                retry_after: Duration::from_secs(1),
            };
            out.push(Order::Refuse { call, reject });
        }
    }
}

impl Gateway for Rival<'_> {
    fn scrapes(&self) -> Option<Duration> {
        (self.rule.reads() == Reads::Scrapes).then_some(self.desk.run.conditions.rival_scrape)
    }

    fn on_call(&mut self, now: Time, call: usize, out: &mut Vec<Order>) {
        if !self.desk.could_ever_hold(call) {
            let reject = Reject::ContextTooLong {
                prompt: self.desk.run.calls[call].prompt,
                output: Tokens::ZERO,
                limit: self.desk.longest(),
            };
            return out.push(Order::Refuse { call, reject });
        }
        let first = self.line.is_empty() || self.rule.late() == Late::Dropped;
        if first && self.decide(now, call, out) != Choice::Wait {
            return;
        }
        let most = QueuePolicy::default().max_requests;
        if self.line.len() >= usize::try_from(most).unwrap_or(usize::MAX) {
            let reject = Reject::Overloaded {
                bound: QueueBound::Requests,
                retry_after: Duration::from_secs(1),
            };
            return out.push(Order::Refuse { call, reject });
        }
        let by = match self.rule.late() {
            Late::Served => Time::NEVER,
            Late::Dropped => self.desk.first_token_by(call),
        };
        self.line.join(call, now, by);
        out.push(Order::Expect {
            call,
            q50: None,
            q80: None,
        });
    }

    fn on_return(&mut self, now: Time, call: usize, out: &mut Vec<Order>) {
        self.on_call(now, call, out);
    }

    fn on_tokens(&mut self, now: Time, call: usize, generated: Tokens, out: &mut Vec<Order>) {
        self.desk.on_tokens(call, generated);
        self.walk(now, out);
    }

    fn on_end(&mut self, now: Time, call: usize, _: End, out: &mut Vec<Order>) {
        self.desk.on_end(call);
        self.walk(now, out);
    }

    fn on_scrape(&mut self, now: Time, scrape: Scrape, out: &mut Vec<Order>) {
        self.desk.on_scrape(scrape);
        self.walk(now, out);
    }

    fn on_reach(&mut self, now: Time, node: usize, reach: Reach, out: &mut Vec<Order>) {
        self.desk.on_reach(node, reach);
        self.walk(now, out);
    }

    fn poll_timeout(&self, _: Time) -> Option<Time> {
        self.line.next_late()
    }

    fn handle_timeout(&mut self, now: Time, out: &mut Vec<Order>) {
        self.drop_late(now, out);
    }
}
