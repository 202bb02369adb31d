//! Cells are played once.

use std::sync::atomic::AtomicU64;

use super::*;
use crate::replay::fleet::FleetFile;
use crate::replay::policy::PolicyKind;
use crate::replay::traces::{read, schedule::Part};

const FLEET: &str = r#"
assumed_max_tokens = 64
[slo]
first_token = "2s"
prompt_tokens_per_second = 4000
token_pace = "100ms"
[[nodes]]
name = "gpu"
count = 1
tier = "standard"
profile = "rtx_pro_6000_8b"
kv_tokens = 4096
max_model_len = 4096
"#;

#[derive(Default)]
struct Counted {
    before: AtomicU64,
    now: AtomicU64,
    seconds: AtomicU64,
}

impl Watch for Counted {
    fn moved(&self, seconds: u64) {
        self.seconds.fetch_add(seconds, Ordering::Relaxed);
    }

    fn done(&self, _: &Cell, kept: Kept) {
        let counter = match kept {
            Kept::Before => &self.before,
            Kept::Now => &self.now,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

fn schedule() -> Schedule {
    let mut text = "t_s,prompt_tokens,output_tokens\n".to_owned();
    for second in 0..40 {
        text += &format!("{second},{},{}\n", 200 + second, 20 + second);
    }
    Schedule::new(
        &[read(text.as_bytes(), "t.csv", None).unwrap()],
        &Part::whole(),
    )
    .unwrap()
}

/// Plays three policies at two loads with two seeds; returns figures and counts.
fn played(folder: Option<&Path>, identity: &str, jobs: usize) -> (Vec<Played>, [u64; 3]) {
    let (schedule, plan) = (schedule(), FleetFile::read(FLEET).unwrap().plan().unwrap());
    let kinds = [
        PolicyKind::LeastOutstanding,
        PolicyKind::WorstCase,
        PolicyKind::Ours,
    ];
    let study = Study {
        schedule: &schedule,
        plan: &plan,
        policies: kinds.iter().flat_map(|kind| kind.candidates()).collect(),
        loads: vec![1.0, 2.0],
        seeds: 2,
        conditions: Conditions::default(),
        sample: 5,
        identity: identity.to_owned(),
    };
    let counted = Counted::default();
    let store = folder.map(|folder| Store::open(folder).unwrap());
    let played = study.play((store.as_ref(), jobs), &counted).unwrap();
    let counts = [counted.now, counted.before, counted.seconds].map(AtomicU64::into_inner);
    (played, counts)
}

fn folder(name: &str) -> PathBuf {
    let folder = format!("tidegate-cells-{}-{name}", std::process::id());
    std::env::temp_dir().join(folder)
}

#[test]
fn a_second_run_plays_nothing_and_tells_the_same() {
    let folder = folder("second");
    let (first, counts) = played(Some(&folder), "a", 2);
    assert_eq!(counts, [12, 0, 6 * 39 + 6 * 19]);
    let (second, counts) = played(Some(&folder), "a", 1);
    assert_eq!(counts, [0, 12, 6 * 39 + 6 * 19]);
    let goodputs = |played: &[Played]| -> Vec<(String, f64)> {
        let cell = |played: &Played| (format!("{:?}", played.cell), played.figures.goodput);
        played.iter().map(cell).collect()
    };
    assert_eq!(goodputs(&first), goodputs(&second));
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn another_identity_or_a_broken_file_is_played_again() {
    let folder = folder("other");
    assert_eq!(played(Some(&folder), "a", 1).1[0], 12);
    assert_eq!(played(Some(&folder), "b", 1).1[0], 12);
    let file = fs::read_dir(&folder)
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    fs::write(file, "{\"key\": \"").unwrap();
    let again = played(Some(&folder), "a", 1).1[0] + played(Some(&folder), "b", 1).1[0];
    assert_eq!(again, 1);
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn figures_do_not_depend_on_the_number_of_threads() {
    assert_eq!(played(None, "a", 1).0, played(None, "a", 3).0);
}
