//! One run: the fleet, the load, what is done to the fleet, and the reckoning.
//!
//! The timeline is real time, drawn from the seed. Nothing is asserted of time:
//! what must come to pass is waited for, and only a run that hangs is ended.

use std::time::{Duration, Instant};

use serde_json::Value;
use tidegate::sim::random::Random;

use crate::books;
use crate::fleet::{Engine, Gateway, free_ports, until};
use crate::load::{Duty, Generator};
use crate::options::Options;
use crate::report::{Course, Deeds, Report, Sample};
use crate::settings::{Listed, Settings};
use crate::tally::Tally;

/// Time between two looks at what is due.
const TICK: Duration = Duration::from_millis(100);
/// Descriptors that may be open more than before: connections to engines that idle.
const SPARE_FDS: u64 = 8;
/// Tasks that may live more than before: two for each such connection.
const SPARE_TASKS: u64 = 16;
/// Growth of memory after the first minute that a long run may have, in percent.
const GROWTH: f64 = 5.0;
/// From which length on growth is judged.
const LONG: Duration = Duration::from_secs(600);

/// A fleet under load.
pub(crate) struct Run {
    options: Options,
    settings: Settings,
    gateway: Gateway,
    engines: Vec<Engine>,
    generators: Vec<Generator>,
    random: Random,
    started: Instant,
    next: Next,
    deeds: Deeds,
    before: Sample,
    samples: Vec<Sample>,
    faults: Vec<String>,
}

/// When each thing is done next.
struct Next {
    kill: Instant,
    reload: Instant,
    storm: Instant,
    stall: Instant,
    sample: Instant,
}

// === impl Next ===

impl Next {
    fn first(now: Instant, options: &Options) -> Self {
        Self {
            kill: now + options.kill_every,
            reload: now + options.reload_every,
            storm: now + options.storm_every,
            stall: now + options.stall_every,
            sample: now,
        }
    }
}

// === impl Run ===

impl Run {
    /// Starts the fleet and the load.
    pub(crate) fn start(options: &Options) -> Self {
        let mut random = Random::new(options.seed);
        // Other runs on this machine look for ports too.
        let mut ports = free_ports(
            options.engines + 2,
            &mut random.fork(u64::from(std::process::id())),
        );
        let (gateway, admin) = (ports.remove(0), ports.remove(0));
        let settings = Settings::new(options.seed, (gateway, admin), ports.clone());
        settings.write(&settings.text());
        let mut engines: Vec<Engine> = ports.into_iter().map(Engine::new).collect();
        for engine in &mut engines {
            let listens = engine.start(options, &mut random);
            assert!(listens, "an engine cannot listen");
        }
        let gateway = Gateway::start(&settings);
        until("every engine is up", || {
            books::engines_up(&gateway.state()) == options.engines
        });
        let now = Instant::now();
        let mut run = Self {
            options: options.clone(),
            settings,
            gateway,
            engines,
            generators: Vec::new(),
            random,
            started: now,
            next: Next::first(now, options),
            deeds: Deeds::default(),
            before: Sample::default(),
            samples: Vec::new(),
            faults: Vec::new(),
        };
        run.before = run.look(now);
        run.generators = run.generators();
        run
    }

    fn generators(&self) -> Vec<Generator> {
        let (streams, number) = (self.options.streams, self.options.generators.max(1));
        let share = streams.div_ceil(number);
        let firsts = (0..number)
            .map(|index| index * share)
            .filter(|first| *first < streams);
        let duty = |first| Duty {
            port: self.settings.gateway,
            clients: share.min(streams - first),
            first,
            seed: self.options.seed,
            longest_answer: self.options.longest_answer,
            temper: self.options.temper,
        };
        firsts.map(|first| Generator::start(&duty(first))).collect()
    }

    /// Lets things happen until `over`, or until something is broken for good.
    pub(crate) fn play(&mut self, over: impl Fn(&Self) -> bool) {
        while !over(self) {
            std::thread::sleep(TICK);
            let now = Instant::now();
            self.engines_due(now);
            self.deeds_due(now);
            if now >= self.next.sample {
                let sample = self.look(now);
                self.samples.push(sample);
                self.next.sample = now + Duration::from_secs(1);
            }
            if self.gateway.process.has_ended() {
                self.faults.push("the gateway's process ended".to_owned());
                return;
            }
            if self.generators.iter_mut().any(Generator::has_ended) {
                self.faults.push("a load generator ended".to_owned());
                return;
            }
        }
    }

    fn engines_due(&mut self, now: Instant) {
        for engine in &mut self.engines {
            if engine.due.is_none_or(|due| due > now) {
                continue;
            }
            if !engine.is_dead() {
                engine.go_on();
            } else if engine.start(&self.options, &mut self.random) {
                self.deeds.engines_started_again += 1;
            } else {
                // Somebody has its port for a moment.
                engine.due = Some(now + Duration::from_secs(1));
            }
        }
    }

    fn deeds_due(&mut self, now: Instant) {
        let options = &self.options;
        if now >= self.next.kill {
            self.next.kill = now + options.kill_every;
            self.kill(now);
        } else if now >= self.next.reload {
            self.next.reload = now + options.reload_every;
            self.reload();
        } else if now >= self.next.storm {
            self.next.storm = now + options.storm_every;
            self.deeds.storms += 1;
            self.generators.iter_mut().for_each(Generator::storm);
        } else if now >= self.next.stall {
            self.next.stall = now + options.stall_every;
            self.stall(now);
        }
    }

    /// An engine dies, and comes back after up to half the time to the next death.
    fn kill(&mut self, now: Instant) {
        let share = self.random.between(10, 50);
        let away = self
            .options
            .kill_every
            .mul_f64(f64::from(u32::try_from(share).expect("small")) / 100.0);
        if let Some(engine) = self.well() {
            engine.kill(now + away);
            self.deeds.engines_killed += 1;
        }
    }

    fn stall(&mut self, now: Instant) {
        let still = Duration::from_millis(self.random.between(300, 3000));
        if let Some(engine) = self.well() {
            engine.stop(now + still);
            self.deeds.engines_stopped_for_a_while += 1;
        }
    }

    fn well(&mut self) -> Option<&mut Engine> {
        let last = u64::try_from(self.engines.len()).expect("a few engines") - 1;
        let place = usize::try_from(self.random.between(0, last)).expect("a small number");
        let after = self.engines.len() - place;
        let mut order: Vec<_> = self.engines.iter_mut().collect();
        order.rotate_right(after);
        order.into_iter().find(|engine| engine.is_well())
    }

    /// Another configuration, one in five of them broken.
    fn reload(&mut self) {
        if self.random.between(0, 4) == 0 {
            let text = self.settings.text();
            self.settings.write(&text[..text.len() / 2]);
            self.deeds.reloads_of_a_bad_file += 1;
        } else {
            self.settings.shuffle(&mut self.random);
            self.settings.write(&self.settings.text());
            self.deeds.reloads += 1;
        }
        self.gateway.reload();
    }

    fn look(&self, now: Instant) -> Sample {
        let state = self.gateway.state();
        Sample {
            at: now.duration_since(self.started),
            weight: self.gateway.weigh(),
            leases: books::leases(&state),
            waiting: books::waiting(&state),
            tasks: state["tasks"].as_u64().unwrap_or_default(),
            engines: books::endpoints(&state),
        }
    }

    /// What the load has come to so far.
    pub(crate) fn tally(&self) -> Tally {
        let mut all = Tally::default();
        for generator in &self.generators {
            all.merge(&generator.tally());
        }
        all
    }

    /// The most requests that held KV in one sample.
    pub(crate) fn most_leases(&self) -> u64 {
        let leases = self.samples.iter().map(|sample| sample.leases);
        leases.max().unwrap_or_default()
    }

    pub(crate) const fn deeds(&self) -> Deeds {
        self.deeds
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Ends the load, waits for every answer, and reckons.
    pub(crate) fn reckon(mut self, scenario: &'static str) -> Report {
        let load = self.elapsed();
        for engine in &mut self.engines {
            engine.go_on();
            if engine.is_dead() && !engine.start(&self.options, &mut self.random) {
                eprintln!("chaos: an engine stays away");
            }
        }
        self.settings.extra = Listed::Yes;
        self.settings.guest = Listed::Yes;
        self.settings.write(&self.settings.text());
        self.gateway.reload();
        self.generators.iter_mut().for_each(Generator::finish);
        let mut tally = Tally::default();
        for generator in std::mem::take(&mut self.generators) {
            tally.merge(&generator.last());
        }
        let after = self.settle();
        self.check(&tally, &after);
        let report = self.report(scenario, (load, after), tally);
        if self.options.keep || !report.faults.is_empty() {
            println!("  kept: {}", self.settings.directory.display());
        } else {
            drop(std::fs::remove_dir_all(&self.settings.directory));
        }
        report
    }

    /// Waits until nothing is held and idle connections are closed.
    fn settle(&mut self) -> Sample {
        let deadline = Instant::now() + crate::fleet::HANG;
        loop {
            let after = self.look(Instant::now());
            let state = self.gateway.state();
            let quiet = books::debts(&state).is_empty()
                && after.weight.fds <= self.before.weight.fds + SPARE_FDS
                && after.tasks <= self.before.tasks + SPARE_TASKS
                && books::endpoints(&state) == self.options.engines;
            if quiet && self.threads_are_back(&after) || Instant::now() > deadline {
                return after;
            }
            std::thread::sleep(TICK);
        }
    }

    /// Threads that block, for files, end after ten idle seconds.
    fn threads_are_back(&self, after: &Sample) -> bool {
        after.weight.threads <= self.before.weight.threads + 1
    }

    fn check(&mut self, tally: &Tally, after: &Sample) {
        let state = self.gateway.state();
        if state == Value::Null {
            self.faults.push("/state does not answer".to_owned());
        }
        self.faults.extend(books::debts(&state));
        self.faults.extend(books::unbalanced(&state));
        let listed = books::endpoints(&state);
        if listed != self.options.engines {
            self.faults
                .push(format!("{listed} engines after the last reload"));
        }
        for engine in &self.engines {
            self.faults.extend(engine.levels());
        }
        if tally.violations > 0 {
            self.faults
                .push(format!("{} requests ended as none may", tally.violations));
        }
        let (fds, threads) = (after.weight.fds, after.weight.threads);
        if fds > self.before.weight.fds + SPARE_FDS {
            self.faults.push(format!(
                "{fds} descriptors, {} before",
                self.before.weight.fds
            ));
        }
        if after.tasks > self.before.tasks + SPARE_TASKS {
            let (tasks, before) = (after.tasks, self.before.tasks);
            self.faults.push(format!("{tasks} tasks, {before} before"));
        }
        if !self.threads_are_back(after) {
            self.faults.push(format!(
                "{threads} threads, {} before",
                self.before.weight.threads
            ));
        }
        self.faults
            .extend(books::written(&self.settings, &self.gateway));
    }

    fn report(&self, scenario: &'static str, end: (Duration, Sample), tally: Tally) -> Report {
        let (load, after) = end;
        let course = |figure: fn(&Sample) -> u64| {
            Course::of(
                &self.samples,
                (figure(&self.before), figure(&after)),
                figure,
            )
        };
        let rss = course(|sample| sample.weight.rss_kib);
        let growth = rss.growth();
        let mut faults = self.faults.clone();
        if load >= LONG && growth.is_some_and(|growth| growth >= GROWTH) {
            faults.push("memory grows".to_owned());
        }
        let long = load > Duration::from_secs(90);
        let counted = self
            .samples
            .iter()
            .filter(|sample| !long || sample.at.as_secs() >= 60);
        let mut leases: Vec<u64> = counted.map(|sample| sample.leases).collect();
        leases.sort_unstable();
        Report {
            scenario,
            seed: self.options.seed,
            clients: self.options.streams,
            load_seconds: load.as_secs(),
            deeds: self.deeds,
            requests: tally.requests(),
            most_leases: leases.last().copied().unwrap_or_default(),
            median_leases: leases.get(leases.len() / 2).copied().unwrap_or_default(),
            fewest_engines: self
                .samples
                .iter()
                .map(|sample| sample.engines)
                .min()
                .unwrap_or_default(),
            most_waiting: self
                .samples
                .iter()
                .map(|sample| sample.waiting)
                .max()
                .unwrap_or_default(),
            tally,
            rss_kib: rss,
            rss_kib_series: self
                .samples
                .iter()
                .step_by(10)
                .map(|sample| sample.weight.rss_kib)
                .collect(),
            rss_growth_percent: growth,
            fds: course(|sample| sample.weight.fds),
            threads: course(|sample| sample.weight.threads),
            tasks: course(|sample| sample.tasks),
            faults,
        }
    }
}
