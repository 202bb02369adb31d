use super::*;
use crate::upstream::scrape;

const THRESHOLDS: Thresholds = Thresholds {
    down_after: 3,
    slow: Duration::from_secs(1),
};

fn at(seconds: u64) -> Time {
    Time::from_start(Duration::from_secs(seconds))
}

struct Bench {
    machine: Machine,
    now: u64,
}

impl Bench {
    fn starting() -> Self {
        Self {
            machine: Machine::new(THRESHOLDS),
            now: 0,
        }
    }

    fn up() -> Self {
        let mut bench = Self::starting();
        bench.answered("");
        assert_eq!(bench.health(), Health::Up);
        bench
    }

    fn health(&self) -> Health {
        self.machine.health(at(self.now))
    }

    fn trust(&self) -> Trust {
        self.machine.trust(at(self.now))
    }

    fn running(&self) -> Health {
        self.machine.health_of_running(at(self.now))
    }

    fn problem(&self) -> Option<Problem> {
        self.machine.problem(at(self.now))
    }

    /// A second later, an answer with these metrics.
    fn answered(&mut self, metrics: &str) -> Step {
        self.answered_in(Duration::from_millis(20), metrics)
    }

    fn answered_in(&mut self, latency: Duration, metrics: &str) -> Step {
        self.now += 1;
        let scrape = scrape::read(metrics.as_bytes());
        let event = Event::Answered {
            latency,
            scrape: Some(&scrape),
        };
        self.machine.on_event(at(self.now), event)
    }

    fn failed(&mut self, failure: Failure) -> Health {
        self.now += 1;
        self.machine.on_event(at(self.now), Event::Failed(failure));
        self.health()
    }

    fn passive(&mut self, outcome: Outcome) -> Health {
        self.machine.on_event(at(self.now), Event::Passive(outcome));
        self.health()
    }
}

fn engine(running: u32, waiting: u32, generated: u64) -> String {
    format!(
        "process_start_time_seconds 100.5\n\
         vllm:num_requests_running{{engine=\"0\"}} {running}\n\
         vllm:num_requests_waiting{{engine=\"0\"}} {waiting}\n\
         vllm:generation_tokens_total{{engine=\"0\"}} {generated}\n"
    )
}

#[test]
fn refused_connections_while_starting_are_normal_for_as_long_as_it_takes() {
    let mut bench = Bench::starting();
    for _ in 0..1200 {
        assert_eq!(bench.failed(Failure::Refused), Health::Starting);
    }
    assert_eq!(bench.problem(), Some(Problem::Probe(Failure::Refused)));
    assert_eq!(bench.answered(""), Step::Same);
    assert_eq!((bench.health(), bench.problem()), (Health::Up, None));
}

#[test]
fn a_refused_probe_takes_an_endpoint_down_at_once_with_what_it_was_doing() {
    let mut bench = Bench::up();
    assert_eq!(bench.failed(Failure::Refused), Health::Down);
    assert_eq!(bench.running(), Health::Down);
}

#[test]
fn three_silent_probes_take_it_down_and_leave_running_requests_alone() {
    let mut bench = Bench::up();
    assert_eq!(bench.failed(Failure::Unresponsive), Health::Up);
    assert_eq!(bench.failed(Failure::Unresponsive), Health::Up);
    assert_eq!(bench.failed(Failure::Unresponsive), Health::Down);
    assert_eq!(bench.running(), Health::Degraded);
    bench.answered("");
    assert_eq!(bench.health(), Health::Up);
}

#[test]
fn an_answer_between_two_silent_probes_starts_the_count_anew() {
    let mut bench = Bench::up();
    for _ in 0..10 {
        bench.failed(Failure::Unresponsive);
        bench.failed(Failure::Unresponsive);
        bench.answered("");
        assert_eq!(bench.health(), Health::Up);
    }
}

#[test]
fn an_unresponsive_endpoint_that_refuses_later_is_lost() {
    let mut bench = Bench::up();
    for _ in 0..3 {
        bench.failed(Failure::Unresponsive);
    }
    bench.failed(Failure::Refused);
    assert_eq!(bench.running(), Health::Down);
    bench.failed(Failure::Unresponsive);
    assert_eq!(bench.running(), Health::Down);
}

#[test]
fn a_wrong_key_is_named_and_takes_no_requests() {
    let mut bench = Bench::up();
    assert_eq!(bench.failed(Failure::Unauthorized), Health::Down);
    assert_eq!(bench.problem(), Some(Problem::Probe(Failure::Unauthorized)));
    assert_eq!(bench.running(), Health::Degraded);
    let mut bench = Bench::starting();
    assert_eq!(bench.failed(Failure::Unauthorized), Health::Starting);
    assert_eq!(bench.problem().map(Problem::name), Some("unauthorized"));
}

#[test]
fn scaling_degrades_for_as_long_as_it_lasts_and_never_takes_down() {
    let mut bench = Bench::up();
    for _ in 0..100 {
        assert_eq!(bench.failed(Failure::Scaling), Health::Degraded);
    }
    bench.answered("");
    assert_eq!(bench.health(), Health::Up);
}

#[test]
fn another_process_start_is_a_restart_and_the_same_is_not() {
    let mut bench = Bench::starting();
    assert_eq!(
        bench.answered("process_start_time_seconds 100.5\n"),
        Step::Same
    );
    assert_eq!(
        bench.answered("process_start_time_seconds 100.5\n"),
        Step::Same
    );
    let other = scrape::read(b"process_start_time_seconds 200\n");
    assert!(bench.machine.wants_facts(Some(&other)));
    assert_eq!(
        bench.answered("process_start_time_seconds 200\n"),
        Step::Restarted
    );
    assert_eq!(
        bench.answered("process_start_time_seconds 200\n"),
        Step::Same
    );
}

#[test]
fn counters_that_go_backwards_are_a_restart() {
    let mut bench = Bench::starting();
    let counted = |tokens| format!("vllm:generation_tokens_total{{engine=\"0\"}} {tokens}\n");
    assert_eq!(bench.answered(&counted(500)), Step::Same);
    assert_eq!(bench.answered(&counted(501)), Step::Same);
    assert_eq!(bench.answered(&counted(3)), Step::Restarted);
    assert_eq!(bench.answered(&counted(4)), Step::Same);
}

#[test]
fn a_process_that_was_gone_and_tells_no_start_is_a_new_one() {
    let mut bench = Bench::up();
    bench.failed(Failure::Refused);
    assert_eq!(bench.answered(""), Step::Restarted);
    let mut bench = Bench::starting();
    bench.answered("process_start_time_seconds 100.5\n");
    bench.failed(Failure::Refused);
    assert_eq!(
        bench.answered("process_start_time_seconds 100.5\n"),
        Step::Same
    );
    bench.failed(Failure::EngineDead);
    assert_eq!(
        bench.answered("process_start_time_seconds 101\n"),
        Step::Restarted
    );
}

#[test]
fn a_refused_request_takes_it_down_at_once_and_the_next_probe_brings_it_back() {
    let mut bench = Bench::up();
    assert_eq!(bench.passive(Outcome::Refused), Health::Down);
    assert_eq!(bench.running(), Health::Degraded);
    assert_eq!(bench.answered(""), Step::Same);
    assert_eq!(bench.health(), Health::Up);
}

#[test]
fn five_failed_requests_in_a_row_cost_it_its_trust_for_10_seconds_whatever_probes_say() {
    let mut bench = Bench::up();
    for _ in 0..4 {
        assert_eq!(bench.passive(Outcome::Failed), Health::Up);
        assert_eq!(bench.trust(), Trust::Whole);
    }
    // What requests say alone never takes it down: it may be the last one.
    assert_eq!(bench.passive(Outcome::Failed), Health::Degraded);
    assert_eq!(bench.problem(), Some(Problem::Failing));
    for _ in 0..9 {
        bench.answered("");
        assert_eq!(bench.trust(), Trust::Withheld);
    }
    bench.answered("");
    assert_eq!(bench.trust(), Trust::Trial);
    assert_eq!(bench.health(), Health::Degraded);
    assert_eq!(bench.passive(Outcome::Served), Health::Up);
    assert_eq!(bench.trust(), Trust::Whole);
}

#[test]
fn a_failed_trial_costs_its_trust_twice_as_long_up_to_60_seconds() {
    let mut bench = Bench::up();
    for _ in 0..5 {
        bench.passive(Outcome::Failed);
    }
    bench.now += 10;
    for hold in [20, 40, 60, 60] {
        assert_eq!(bench.trust(), Trust::Trial);
        bench.passive(Outcome::Failed);
        bench.now += hold - 1;
        assert_eq!(bench.trust(), Trust::Withheld, "{hold}");
        bench.now += 1;
    }
}

#[test]
fn failures_of_requests_sent_before_an_ejection_do_not_lengthen_it() {
    let mut bench = Bench::up();
    for _ in 0..50 {
        bench.passive(Outcome::Failed);
    }
    bench.now += 10;
    assert_eq!(bench.trust(), Trust::Trial);
}

#[test]
fn a_connection_that_did_not_come_about_costs_its_trust_until_the_next_probe() {
    let mut bench = Bench::up();
    assert_eq!(bench.passive(Outcome::Unreachable), Health::Degraded);
    assert_eq!(bench.problem(), Some(Problem::Unreachable));
    assert_eq!(bench.trust(), Trust::Withheld);
    bench.answered("");
    assert_eq!((bench.health(), bench.trust()), (Health::Up, Trust::Whole));
}

#[test]
fn a_served_request_between_failures_keeps_it_up() {
    let mut bench = Bench::up();
    for _ in 0..100 {
        for _ in 0..4 {
            bench.passive(Outcome::Failed);
        }
        assert_eq!(bench.passive(Outcome::Served), Health::Up);
    }
}

#[test]
fn shedding_degrades_for_5_seconds() {
    let mut bench = Bench::up();
    assert_eq!(bench.passive(Outcome::Shed), Health::Degraded);
    assert_eq!(bench.problem(), Some(Problem::Shedding));
    assert_eq!(bench.passive(Outcome::Served), Health::Degraded);
    bench.now += 4;
    assert_eq!(bench.health(), Health::Degraded);
    bench.now += 1;
    assert_eq!(bench.health(), Health::Up);
}

#[test]
fn three_slow_answers_degrade_and_one_quick_one_mends() {
    let mut bench = Bench::up();
    for expected in [Health::Up, Health::Up, Health::Degraded, Health::Degraded] {
        bench.answered_in(Duration::from_secs(1), "");
        assert_eq!(bench.health(), expected);
    }
    bench.answered("");
    assert_eq!(bench.health(), Health::Up);
}

#[test]
fn waiting_for_10_seconds_with_nothing_running_degrades() {
    let mut bench = Bench::starting();
    for second in 0..=10 {
        assert_ne!(bench.problem(), Some(Problem::NoProgress), "{second}");
        bench.answered(&engine(0, 1 + second, 500));
    }
    assert_eq!(bench.health(), Health::Degraded);
    assert_eq!(bench.problem(), Some(Problem::NoProgress));
    assert_eq!(bench.trust(), Trust::Withheld);
    bench.answered(&engine(1, 10, 501));
    assert_eq!(bench.health(), Health::Up);
}

#[test]
fn running_for_60_seconds_without_a_token_degrades_and_idling_does_not() {
    let mut bench = Bench::starting();
    bench.answered(&engine(1, 0, 500));
    bench.now += 58;
    bench.answered(&engine(1, 0, 500));
    assert_eq!(bench.health(), Health::Up);
    bench.answered(&engine(1, 0, 500));
    assert_eq!(bench.health(), Health::Degraded);
    bench.answered(&engine(0, 0, 500));
    bench.now += 3600;
    bench.answered(&engine(0, 0, 500));
    assert_eq!(bench.health(), Health::Up);
}

#[test]
fn a_stall_is_not_held_against_an_engine_whose_metrics_stop_coming() {
    let mut bench = Bench::starting();
    for _ in 0..=10 {
        bench.answered(&engine(0, 1, 500));
    }
    assert_eq!(bench.problem(), Some(Problem::NoProgress));
    bench.now += 11;
    assert_eq!(bench.health(), Health::Up);
}

#[test]
fn a_long_prefill_that_fills_blocks_is_progress() {
    let mut bench = Bench::starting();
    for step in 0..20 {
        bench.now += 30;
        let usage = f64::from(step) / 20.0;
        let text =
            engine(1, 0, 500) + &format!("vllm:kv_cache_usage_perc{{engine=\"0\"}} {usage}\n");
        bench.answered(&text);
        assert_eq!(bench.health(), Health::Up);
    }
}

#[test]
fn a_sleeping_engine_takes_nothing_until_it_wakes() {
    let mut bench = Bench::up();
    let state =
        |awake| format!("vllm:engine_sleep_state{{engine=\"0\",sleep_state=\"awake\"}} {awake}\n");
    bench.answered(&state(0));
    assert_eq!(bench.health(), Health::Sleeping);
    bench.answered(&state(1));
    assert_eq!(bench.health(), Health::Up);
}

#[test]
fn draining_outlasts_probes_and_ends_with_the_operators_word() {
    let mut bench = Bench::up();
    bench.machine.on_event(at(1), Event::Duty(Duty::Drain));
    bench.answered("");
    assert_eq!(bench.health(), Health::Draining);
    assert_eq!(bench.failed(Failure::Refused), Health::Down);
    bench.answered("");
    assert_eq!(bench.health(), Health::Draining);
    bench.machine.on_event(at(9), Event::Duty(Duty::Serve));
    assert_eq!(bench.health(), Health::Up);
}

#[test]
fn an_answer_without_metrics_is_as_good_as_one_with() {
    let mut bench = Bench::starting();
    let event = Event::Answered {
        latency: Duration::ZERO,
        scrape: None,
    };
    bench.machine.on_event(at(1), event);
    assert_eq!(bench.health(), Health::Up);
}

#[test]
fn dead_engines_and_old_failures_are_forgotten_by_a_new_process() {
    let mut bench = Bench::starting();
    bench.answered("process_start_time_seconds 1\n");
    for _ in 0..5 {
        bench.passive(Outcome::Failed);
    }
    assert_eq!(bench.failed(Failure::EngineDead), Health::Down);
    assert_eq!(bench.running(), Health::Down);
    bench.answered("process_start_time_seconds 2\n");
    assert_eq!(bench.health(), Health::Up);
}
