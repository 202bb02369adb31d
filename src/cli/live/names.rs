//! The names behind which there are several backends, looked up once.

use super::findings::{Finding, failure};
use crate::app::{Resolver, SystemResolver};
use crate::config::{Config, Found};

/// `config` with what is behind its names, and a finding for each name that has
/// nothing behind it.
pub(super) async fn look_up(config: &Config) -> (Config, Vec<Finding>) {
    let (mut found, mut findings) = (Found::default(), Vec::new());
    for (_, backend, _) in config.discovered() {
        let name = backend.host_port();
        let problem = match SystemResolver.addresses(&name).await {
            Ok(addresses) if addresses.is_empty() => "it has no addresses".to_owned(),
            Ok(addresses) => {
                found.take(&name, &addresses, |_| true);
                continue;
            }
            Err(error) => error.to_string(),
        };
        let of = &backend.name;
        findings.push(failure(format!(
            "{of}: {name} is not found, and its engines neither: {problem}"
        )));
    }
    (config.expanded(&found), findings)
}
