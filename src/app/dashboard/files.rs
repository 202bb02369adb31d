//! The page's own files, and the headers that keep it to them.

use http::HeaderMap;
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, HeaderValue, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS,
};

/// Nothing but these files and this listener's answers: no script or style in the
/// page itself, no other host, no frame around it, no form that leaves it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
    connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
    require-trusted-types-for 'script'; trusted-types 'none'";

const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");

/// One file of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::app) struct File {
    path: &'static str,
    media: &'static str,
    /// Its text.
    pub(in crate::app) text: &'static str,
}

const SCRIPT: &str = "text/javascript; charset=utf-8";

const FILES: [File; 9] = [
    File {
        path: "/",
        media: "text/html; charset=utf-8",
        text: include_str!("page/index.html"),
    },
    File {
        path: "/dashboard/style.css",
        media: "text/css; charset=utf-8",
        text: include_str!("page/style.css"),
    },
    File {
        path: "/dashboard/icon.svg",
        media: "image/svg+xml",
        text: include_str!("page/icon.svg"),
    },
    File {
        path: "/dashboard/main.js",
        media: SCRIPT,
        text: include_str!("page/main.js"),
    },
    File {
        path: "/dashboard/feed.js",
        media: SCRIPT,
        text: include_str!("page/feed.js"),
    },
    File {
        path: "/dashboard/view.js",
        media: SCRIPT,
        text: include_str!("page/view.js"),
    },
    File {
        path: "/dashboard/hour.js",
        media: SCRIPT,
        text: include_str!("page/hour.js"),
    },
    File {
        path: "/dashboard/chart.js",
        media: SCRIPT,
        text: include_str!("page/chart.js"),
    },
    File {
        path: "/dashboard/dom.js",
        media: SCRIPT,
        text: include_str!("page/dom.js"),
    },
];

// === impl File ===

impl File {
    /// The file at `path`. It is public: whoever reaches the listener may read it.
    pub(in crate::app) fn at(path: &str) -> Option<Self> {
        FILES.into_iter().find(|file| file.path == path)
    }

    /// Says what it is and what it may do. It changes with the program only, and is
    /// asked for anew each time, since no name tells one version from another.
    pub(in crate::app) fn describe(self, headers: &mut HeaderMap) {
        let fixed = [
            (CONTENT_TYPE, self.media),
            (CONTENT_SECURITY_POLICY, POLICY),
            (X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (REFERRER_POLICY, "no-referrer"),
            (RESOURCE_POLICY, "same-origin"),
            (CACHE_CONTROL, "no-cache"),
        ];
        headers.extend(fixed.map(|(name, value)| (name, HeaderValue::from_static(value))));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_asks_no_other_host_and_has_no_script_or_style_of_its_own() {
        let page = File::at("/").unwrap().text;
        for foreign in [
            "http://",
            "https://",
            "//",
            "style=",
            "onclick",
            "<style",
            "javascript:",
        ] {
            assert!(!page.contains(foreign), "{foreign}");
        }
        assert_eq!(page.matches("<script").count(), 1);
        for file in FILES.iter().filter(|file| file.media == SCRIPT) {
            for way in [
                "innerHTML",
                "insertAdjacentHTML",
                "eval(",
                "document.write",
                "outerHTML",
            ] {
                assert!(!file.text.contains(way), "{}: {way}", file.path);
            }
            let known = |line: &&str| line.starts_with("import ");
            for line in file.text.lines().filter(known) {
                let (_, from) = line.rsplit_once("from \"./").unwrap();
                let path = format!("/dashboard/{}", from.trim_end_matches("\";"));
                assert!(File::at(&path).is_some(), "{line}");
            }
        }
    }

    #[test]
    fn every_file_that_the_page_names_is_there() {
        let page = File::at("/").unwrap().text;
        let named = page
            .split('"')
            .filter(|part| part.starts_with("/dashboard/"));
        let named: Vec<_> = named.collect();
        assert!(named.len() >= 3, "{named:?}");
        for path in named {
            assert!(File::at(path).is_some(), "{path}");
        }
        let bytes: usize = FILES.iter().map(|file| file.text.len()).sum();
        assert!(bytes < 100_000, "{bytes}");
    }
}
