use std::sync::mpsc;

use tokio_test::{assert_pending, task};

use super::*;
use crate::core::demand::TenantId;

fn of(tenant: u32) -> Errand {
    Errand {
        tenant: TenantId(tenant),
        weight: 1,
        bytes: 1 << 20,
    }
}

#[tokio::test]
async fn who_leaves_the_line_takes_its_work_along() {
    let threads = Threads::new(1);
    let (go, wait) = mpsc::channel::<()>();
    let mut long = task::spawn(threads.run(of(1), move |_| wait.recv().is_ok()));
    assert_pending!(long.poll());
    let (never, unsent) = mpsc::channel();
    let mut gone = task::spawn(threads.run(of(1), move |_| never.send(())));
    assert_pending!(gone.poll());
    drop(gone);
    // The work is gone, and with it what it held.
    assert_eq!(unsent.try_recv(), Err(mpsc::TryRecvError::Disconnected));
    let mut next = task::spawn(threads.run(of(1), |_| 2));
    assert_pending!(next.poll());
    go.send(()).unwrap();
    assert!(long.await.unwrap());
    assert_eq!(next.await.unwrap(), 2);
}

#[tokio::test]
async fn work_that_runs_is_told_when_its_client_has_left() {
    let threads = Threads::new(1);
    let (began, begun) = mpsc::channel();
    let (told, heard) = mpsc::channel();
    let work = move |abandoned: &AtomicBool| {
        began.send(()).unwrap();
        while !abandoned.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
        told.send(()).unwrap();
    };
    let mut running = task::spawn(threads.run(of(1), work));
    assert_pending!(running.poll());
    begun.recv().unwrap();
    drop(running);
    heard.recv().unwrap();
    assert_eq!(threads.run(of(2), |_| 3).await, Ok(3));
}

#[tokio::test]
async fn a_tenant_is_served_after_the_piece_that_runs_whatever_else_waits() {
    let threads = Threads::new(1);
    let (go, wait) = mpsc::channel::<()>();
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut flood = vec![task::spawn(threads.run(of(1), {
        let order = Arc::clone(&order);
        move |_| {
            wait.recv().unwrap();
            order.lock().unwrap().push(1);
        }
    }))];
    assert_pending!(flood[0].poll());
    let note = |tenant: u32| {
        let order = Arc::clone(&order);
        move |_: &AtomicBool| order.lock().unwrap().push(tenant)
    };
    let mut later: Vec<_> = [1, 1, 1, 2]
        .into_iter()
        .map(|tenant| task::spawn(threads.run(of(tenant), note(tenant))))
        .collect();
    for waiting in &mut later {
        assert_pending!(waiting.poll());
    }
    go.send(()).unwrap();
    flood.remove(0).await.unwrap();
    for waiting in later {
        waiting.await.unwrap();
    }
    assert_eq!(*order.lock().unwrap(), [1, 2, 1, 1, 1]);
}

#[tokio::test]
async fn a_panic_is_an_error_and_the_thread_goes_on() {
    let threads = Threads::new(1);
    let failed = threads.run(of(1), |_| panic!("a tokenizer bug")).await;
    assert_eq!(failed, Err(Undone::Broken));
    assert_eq!(threads.run(of(1), |_| 3).await, Ok(3));
}

#[tokio::test]
async fn a_full_line_refuses_its_own_tenant_only() {
    let threads = Threads::new(1);
    let (go, wait) = mpsc::channel::<()>();
    let mut first = task::spawn(threads.run(of(1), move |_| wait.recv().is_ok()));
    assert_pending!(first.poll());
    // Whether the first has begun or waits, one place more is enough to fill it.
    let mut flood: Vec<_> = (0..PLACES)
        .map(|_| task::spawn(threads.run(of(1), |_| true)))
        .collect();
    let mut refused = 0;
    for waiting in &mut flood {
        refused += usize::from(waiting.poll().is_ready());
    }
    assert!(refused <= 1, "{refused}");
    let full = threads.run(of(1), |_| true).await;
    assert_eq!(full, Err(Undone::LineFull { waiting: 256 }));
    let mut other = task::spawn(threads.run(of(2), |_| true));
    assert_pending!(other.poll());
    go.send(()).unwrap();
    assert_eq!(other.await, Ok(true));
}

#[tokio::test]
async fn work_aside_waits_for_an_empty_line() {
    let threads = Threads::new(1);
    let (go, wait) = mpsc::channel::<()>();
    let (say, said) = mpsc::channel();
    let mut first = task::spawn(threads.run(of(1), move |_| wait.recv().is_ok()));
    assert_pending!(first.poll());
    let aside = say.clone();
    threads.run_aside(move || aside.send("aside").unwrap());
    threads.run_aside(|| panic!("one at a time is enough"));
    let mut second = task::spawn(threads.run(of(1), move |_| say.send("client")));
    assert_pending!(second.poll());
    go.send(()).unwrap();
    second.await.unwrap().unwrap();
    assert_eq!([said.recv(), said.recv()], [Ok("client"), Ok("aside")]);
}
