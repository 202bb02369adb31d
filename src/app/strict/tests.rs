use super::*;
use tokio::io::AsyncReadExt;

/// What the parser sees of `text` that comes in pieces of `size` bytes.
async fn seen(text: &str, size: usize) -> String {
    let mut mock = tokio_test::io::Builder::new();
    for piece in text.as_bytes().chunks(size) {
        mock.read(piece);
    }
    let mut out = Vec::new();
    let mut strict = Strict::new(mock.build());
    strict.read_to_end(&mut out).await.unwrap();
    // What came behind a refused request is never read.
    if strict.poison.is_some() {
        std::mem::forget(strict);
    }
    String::from_utf8(out).unwrap()
}

const HEAD: &str = "POST /v1/completions HTTP/1.1\r\nHost: a\r\n";

#[tokio::test]
async fn requests_with_one_reading_pass_untouched_in_pieces_of_any_size() {
    let fine = [
        "GET / HTTP/1.1\r\nhost: a.b:80\r\n\r\n".to_owned(),
        "GET / HTTP/1.0\r\n\r\n".to_owned(),
        "GET / HTTP/1.0\r\nhost: a\r\n\r\nGET / HTTP/1.0\r\n\r\n".to_owned(),
        format!("\r\n{HEAD}Content-Length: 5\r\n\r\nab\ncd{HEAD}\r\n"),
        format!("{HEAD}content-length: 4\r\nContent-Length:  4 \r\n\r\n#\r\n\r\r\n{HEAD}\r\n"),
        format!(
            "{HEAD}transfer-encoding:\tChunked\r\n\r\n5;a=b\r\n1\n\r\n5\r\n0\r\n\r\n{HEAD}\r\n"
        ),
        format!(
            "{HEAD}transfer-encoding: chunked\r\n\r\na \r\n0123456789\r\n0\r\nx: y\r\n\r\n{HEAD}\r\n"
        ),
        format!("{HEAD}x: {}\r\n\r\n", "y".repeat(3 * LOOKED_AT)),
        format!("{HEAD}x: #\r\n\r\n"),
    ];
    for text in fine {
        for size in [1, 2, 3, 7, 10_000] {
            assert_eq!(seen(&text, size).await, text, "{size}");
        }
    }
}

#[tokio::test]
async fn of_a_request_with_two_readings_the_end_of_the_head_is_not_shown() {
    let long = format!("host: {}\r\n", "y".repeat(LOOKED_AT));
    let bad = [
        "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n",
        "content-length: 4\r\ncontent-length: 5\r\n",
        "content-length: 4, 4\r\n",
        "content-length: +4\r\n",
        "content-length: 0x4\r\n",
        "content-length:\r\n",
        "content-length: 111111111111111111111111111111\r\n",
        "transfer-encoding: gzip, chunked\r\n",
        "transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n",
        "transfer-encoding: \"chunked\"\r\n",
        "transfer-encoding: identity\r\n",
        "x: a\nb: c\r\n",
        "x: a\rb: c\r\n",
        "x: a\r\r\n",
        "x: a\r\n folded: c\r\n",
        "host: b\r\n",
        "host: a b\r\n",
        "host: a/b\r\n",
        &long,
    ];
    for lines in bad {
        let text = format!("{HEAD}{lines}\r\n0\r\n\r\n");
        for size in [1, 2, 3, 7, 10_000] {
            let seen = seen(&text, size).await;
            let clear = seen.strip_suffix("\0\r\n\r\n").unwrap();
            assert!(text.starts_with(clear), "{lines}");
            assert!(!clear.contains("\r\n\r\n"), "{lines}");
        }
    }
}

#[tokio::test]
async fn a_first_line_or_a_host_that_is_wrong_ends_the_connection() {
    let bad = [
        "GET / HTTP/1.1\r\n\r\n",
        "GET /#x HTTP/1.1\r\nhost: a\r\n\r\n",
        "GET / HTTP/1.0\r\nhost: a\r\nhost: a\r\n\r\n",
        "GET / HTTP/1.0\r\ntransfer-encoding: chunked\r\n\r\n",
        "GET /\n\r\n",
        "\n",
    ];
    for text in bad {
        let seen = seen(text, 1000).await;
        assert!(seen.ends_with("\0\r\n\r\n"), "{text}");
    }
}

#[tokio::test]
async fn a_chunk_with_two_sizes_is_not_shown_nor_what_follows_it() {
    let bad = [
        "5\n",
        "0x5\r\n",
        "+5\r\n",
        " 5\r\n",
        "\r\n",
        "ffffffffffffffff\r\n",
        "11111111111111111\r\n",
        "5;a\nb\r\n",
        "5\r\n12345\r\n\n",
    ];
    for body in bad {
        let text = format!("{HEAD}transfer-encoding: chunked\r\n\r\n{body}{HEAD}");
        let seen = seen(&text, 10_000).await;
        assert!(seen.ends_with("\0\r\n\r\n"), "{body}");
        assert!(!seen[HEAD.len()..].contains(HEAD), "{body}");
    }
}
