use super::*;
use std::net::Ipv4Addr;
use tokio_test::{assert_pending, assert_ready, task};

fn places(total: usize, strangers: usize) -> Places {
    Places::new(move || Room { total, strangers })
}

fn from(last: u8) -> IpAddr {
    Ipv4Addr::new(192, 0, 2, last).into()
}

/// Whether it still has its place.
fn stays(place: &mut Place) -> bool {
    task::spawn(place.crowded_out()).poll().is_pending()
}

#[tokio::test]
async fn a_newcomer_takes_the_place_of_whoever_is_silent_for_longest() {
    let places = places(2, 10);
    let mut first = places.enter(from(1)).unwrap();
    let mut second = places.enter(from(2)).unwrap();
    let mut third = places.enter(from(3)).unwrap();
    assert_eq!((stays(&mut first), stays(&mut second)), (false, true));
    // The second asks: it goes last from now on.
    let mut asked = second.reports().asked();
    asked.was_read();
    let fourth = places.enter(from(4)).unwrap();
    assert_eq!((stays(&mut second), stays(&mut third)), (true, false));
    fourth.reports().asked().was_read();
    let mut other = fourth.reports().asked();
    other.was_read();
    assert!(places.enter(from(5)).is_none());
    // Once its answer is over it is silent, since then.
    drop(asked);
    let crowd = places.crowd();
    assert_eq!((crowd.open, crowd.silent), (2, 1));
    assert_eq!((crowd.crowded_out, crowd.turned_away), (2, 1));
    assert!(places.enter(from(5)).is_some());
    assert!(!stays(&mut second));
    drop((first, second, third, fourth, other));
    assert_eq!(places.crowd().open, 0);
    assert_eq!(places.book().strangers.len(), 0);
    assert_eq!(places.book().silent.len(), 0);
}

/// Those of `mine` that still have their places, as their own tasks see it.
fn staying(mine: &mut [task::Spawn<impl Future<Output = ()>>]) -> usize {
    let stays = mine.iter_mut().map(|one| one.poll().is_pending());
    stays.filter(|stays| *stays).count()
}

async fn until_out(mut place: Place) {
    place.crowded_out().await;
}

#[tokio::test(start_paused = true)]
async fn an_address_keeps_so_many_that_never_asked_and_the_oldest_go() {
    let places = places(1000, 3);
    let enter = || task::spawn(until_out(places.enter(from(1)).unwrap()));
    let mut mine: Vec<_> = (0..10).map(|_| enter()).collect();
    assert_eq!(staying(&mut mine), 10, "a burst is let in");
    tokio::time::advance(GRACE).await;
    let mut other = places.enter(from(2)).unwrap();
    let mut later = Vec::new();
    for _ in 0..6 {
        later.push(enter());
        assert_eq!(staying(&mut mine), 10, "each has a last chance");
    }
    tokio::time::advance(GRACE).await;
    assert_eq!((staying(&mut mine), staying(&mut later)), (0, 6));
    assert!(stays(&mut other), "another address changes nothing");
    assert_eq!(places.crowd().crowded_out, 10);
}

#[tokio::test(start_paused = true)]
async fn one_that_spoke_while_nobody_listened_is_not_crowded_out() {
    let places = places(1000, 1);
    let busy = places.enter(from(1)).unwrap();
    let reports = busy.reports();
    let mut busy = task::spawn(until_out(busy));
    tokio::time::advance(GRACE).await;
    let mut next = task::spawn(until_out(places.enter(from(1)).unwrap()));
    // In doubt, and looked at only much later: its chance begins then.
    tokio::time::advance(GRACE * 5).await;
    assert_pending!(busy.poll());
    let mut asked = reports.asked();
    asked.was_read();
    tokio::time::advance(GRACE).await;
    assert_pending!(busy.poll());
    drop(asked);
    // Silent once more, and once more the oldest.
    let _last = places.enter(from(1)).unwrap();
    assert_pending!(next.poll());
    tokio::time::advance(GRACE).await;
    assert_pending!(busy.poll());
    assert_ready!(next.poll());
}

#[tokio::test(start_paused = true)]
async fn half_a_request_ends_a_doubt_once() {
    let places = places(1000, 1);
    let half = places.enter(from(1)).unwrap();
    let reports = half.reports();
    let mut half = task::spawn(until_out(half));
    for pending in [true, false] {
        tokio::time::advance(GRACE).await;
        let _next = places.enter(from(1)).unwrap();
        assert_pending!(half.poll());
        drop(reports.asked());
        tokio::time::advance(GRACE).await;
        assert_eq!(half.poll().is_pending(), pending);
    }
}

#[tokio::test(start_paused = true)]
async fn one_that_had_a_good_answer_is_no_stranger() {
    let places = places(1000, 1);
    let mut known = places.enter(from(1)).unwrap();
    let mut asked = known.reports().asked();
    asked.was_read();
    asked.went_well();
    drop(asked);
    let mut stranger = task::spawn(until_out(places.enter(from(1)).unwrap()));
    tokio::time::advance(GRACE * 60).await;
    let mut next = places.enter(from(1)).unwrap();
    assert_pending!(stranger.poll());
    tokio::time::advance(GRACE).await;
    assert!(stays(&mut known) && stays(&mut next));
    assert_ready!(stranger.poll());
}

#[tokio::test(start_paused = true)]
async fn silence_is_counted_without_a_break() {
    let places = places(10, 10);
    let place = places.enter(from(1)).unwrap();
    let reports = place.reports();
    let mut silence = task::spawn(reports.silent_for(Duration::from_secs(10)));
    assert_pending!(silence.poll());
    tokio::time::advance(Duration::from_secs(9)).await;
    let mut asked = place.reports().asked();
    asked.was_read();
    tokio::time::advance(Duration::from_secs(60)).await;
    assert_pending!(silence.poll());
    drop(asked);
    tokio::time::advance(Duration::from_secs(9)).await;
    assert_pending!(silence.poll());
    tokio::time::advance(Duration::from_secs(1)).await;
    assert!(silence.is_woken());
    assert_ready!(silence.poll());
}

#[test]
fn an_address_is_a_64_of_ipv6_and_one_of_ipv4_however_written() {
    let of = |text: &str| network(text.parse().unwrap());
    assert_eq!(of("2001:db8:1:2:3::4"), of("2001:db8:1:2:9::1"));
    assert_ne!(of("2001:db8:1:2::1"), of("2001:db8:1:3::1"));
    assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
    assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
}

#[test]
fn files_are_left_for_backends_and_the_process_itself() {
    let room = Room {
        total: 8192,
        strangers: 1,
    };
    assert_eq!(room.within(1024).total, 448);
    assert_eq!(room.within(1 << 20).total, 8192);
    assert_eq!(room.within(10).total, 1);
}
