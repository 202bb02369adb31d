//! Looks up the names of backends, anew for each connection.
//!
//! Decides nothing: a name may point elsewhere at any time and is followed. One
//! backend is one engine, with books of its own: a name behind which several
//! stand is told to the operator, once per number of them.

use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use hyper_util::client::legacy::connect::dns::{GaiResolver, Name};
use tower::Service;

/// The system's resolver, with an eye on how many answer to a name.
#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    /// How many each name stood for last. Held for one look into the map.
    told: Arc<Mutex<BTreeMap<String, usize>>>,
}

// === impl Names ===

impl Names {
    fn note(&self, name: &str, found: &[SocketAddr]) {
        let engines = most_of_one_family(found);
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let before = told.insert(name.to_owned(), engines);
        drop(told);
        if engines > 1 && before != Some(engines) {
            tracing::warn!(
                name,
                addresses = engines,
                "the name of a backend has several addresses: give each engine a backend of its own"
            );
        }
    }
}

impl Service<Name> for Names {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let looking = GaiResolver::new().call(name.clone());
        let names = self.clone();
        Box::pin(async move {
            let found: Vec<SocketAddr> = looking.await?.collect();
            names.note(name.as_str(), &found);
            Ok(found.into_iter())
        })
    }
}

/// Distinct addresses of the family that has more: one host often has one of
/// each.
fn most_of_one_family(found: &[SocketAddr]) -> usize {
    let distinct = |v4: bool| {
        let of_family = found.iter().filter(|address| address.is_ipv4() == v4);
        let hosts: std::collections::BTreeSet<_> = of_family.map(SocketAddr::ip).collect();
        hosts.len()
    };
    distinct(true).max(distinct(false))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_host_with_both_families_is_one_engine_and_two_of_a_family_are_two() {
        let found = |hosts: &[&str]| -> Vec<SocketAddr> {
            let with_port = hosts
                .iter()
                .map(|host| format!("{host}:0").parse().unwrap());
            with_port.collect()
        };
        assert_eq!(most_of_one_family(&found(&["127.0.0.1", "[::1]"])), 1);
        assert_eq!(most_of_one_family(&found(&["10.0.0.1", "10.0.0.1"])), 1);
        assert_eq!(
            most_of_one_family(&found(&["10.0.0.1", "10.0.0.2", "[::1]"])),
            2
        );
    }

    #[tokio::test]
    async fn a_name_is_looked_up_each_time() {
        let mut names = Names::default();
        for _ in 0..2 {
            let name = "localhost".parse().unwrap();
            let found: Vec<_> = names.call(name).await.unwrap().collect();
            assert!(found.iter().all(|address| address.ip().is_loopback()));
        }
        assert_eq!(names.told.lock().unwrap().get("localhost"), Some(&1));
    }
}
