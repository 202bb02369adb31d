//! What becomes of an answer that is early, cut, doubtful or long.

use http_body::Body as _;

use super::*;

/// Sends `request` and gives the engine's end, once it has the head.
async fn asked(
    bench: &mut Bench,
    request: Request<Full<Bytes>>,
) -> (
    tokio::task::JoinHandle<Result<Response<Answering>, SendError>>,
    DuplexStream,
) {
    let client = bench.client.clone();
    let sending = tokio::spawn(async move { client.send(&endpoint(), request).await });
    let mut engine = bench.opened.recv().await.unwrap();
    read_until(&mut engine, "\r\n\r\n").await;
    (sending, engine)
}

#[tokio::test(start_paused = true)]
async fn the_rest_of_a_request_is_sent_while_an_early_answer_is_read() {
    let mut bench = bench();
    let request = Request::post("/")
        .body(Full::from(vec![b'x'; 1 << 20]))
        .unwrap();
    let (sending, mut engine) = asked(&mut bench, request).await;
    let head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    engine.write_all(head).await.unwrap();
    let mut body = sending.await.unwrap().unwrap().into_body();
    let reading = tokio::spawn(async move { body.frame().await.unwrap().unwrap() });
    let mut left: usize = (1 << 20) - 1024;
    let mut part = vec![0; 64 * 1024];
    while left > 0 {
        let read = engine.read(&mut part).await.unwrap();
        assert_ne!(read, 0);
        left = left.saturating_sub(read);
    }
    engine.write_all(b"2\r\nok\r\n").await.unwrap();
    assert_eq!(reading.await.unwrap().into_data().unwrap(), "ok");
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_cut_is_an_error_and_never_an_end() {
    for head in ["transfer-encoding: chunked", "content-length: 9"] {
        let mut bench = bench();
        let (sending, mut engine) = asked(&mut bench, post("{}")).await;
        let text = format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\n");
        engine.write_all(text.as_bytes()).await.unwrap();
        let mut body = sending.await.unwrap().unwrap().into_body();
        engine.write_all(b"5\r\nhell").await.unwrap();
        drop(engine);
        assert!(body.frame().await.unwrap().is_ok());
        assert!(!body.is_end_stream());
        assert!(body.frame().await.unwrap().is_err());
        assert!(body.frame().await.is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn chunks_that_come_together_are_one_frame_and_the_end_comes_with_it() {
    let mut bench = bench();
    let (sending, mut engine) = asked(&mut bench, post("{}")).await;
    let chunk = "d\r\ndata: hello\n\n\r\n";
    let text = format!(
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{}0\r\n\r\n",
        chunk.repeat(9)
    );
    engine.write_all(text.as_bytes()).await.unwrap();
    let mut body = sending.await.unwrap().unwrap().into_body();
    let frame = body.frame().await.unwrap().unwrap();
    assert_eq!(frame.into_data().unwrap(), "data: hello\n\n".repeat(9));
    assert!(body.is_end_stream());
    // Its connection went back with it, the body still at hand.
    let client = bench.client.clone();
    let again = tokio::spawn(async move { client.send(&endpoint(), post("{}")).await });
    read_until(&mut engine, "\r\n\r\n{}").await;
    engine.write_all(EMPTY_OK).await.unwrap();
    assert_eq!(again.await.unwrap().unwrap().status(), StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn a_connection_whose_answer_was_doubtful_is_closed() {
    for answer in [
        "content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        "content-length: 2\r\ncontent-length: 2\r\n\r\nok",
        "transfer-encoding: gzip, chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        "connection: close\r\ncontent-length: 2\r\n\r\nok",
        "content-length: 2\r\n\r\nok and more",
    ] {
        let mut bench = bench();
        let (sending, mut engine) = asked(&mut bench, post("{}")).await;
        let text = format!("HTTP/1.1 200 OK\r\n{answer}");
        engine.write_all(text.as_bytes()).await.unwrap();
        let body = sending.await.unwrap().unwrap().into_body();
        assert_eq!(body.collect().await.unwrap().to_bytes(), "ok");
        let start = tokio::time::Instant::now();
        sees_the_end(&mut engine).await;
        assert_eq!(start.elapsed(), Duration::ZERO, "{answer}");
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_read_that_nobody_asks_for() {
    let mut bench = bench();
    let (sending, mut engine) = asked(&mut bench, post("{}")).await;
    let head = b"HTTP/1.1 200 OK\r\ncontent-length: 4000000\r\n\r\n";
    engine.write_all(head).await.unwrap();
    let body = sending.await.unwrap().unwrap().into_body();
    // The pipe holds 64 KiB: what is more waits for somebody to read.
    let flooding = engine.write_all(&[b'x'; 128 * 1024]);
    let flood = tokio::time::timeout(Duration::from_secs(9), flooding).await;
    assert!(flood.is_err());
    drop(body);
}

#[tokio::test(start_paused = true)]
async fn however_many_connections_have_ended_none_is_taken_for_a_quiet_one() {
    let mut bench = bench();
    let mut asking = Vec::new();
    for _ in 0..300 {
        asking.push(asked(&mut bench, post("{}")).await);
    }
    for (sending, mut engine) in asking {
        engine.write_all(EMPTY_OK).await.unwrap();
        sending.await.unwrap().unwrap();
    }
    // More than a task may do in one turn: its reads say by then that nothing came.
    let (sending, mut engine) = asked(&mut bench, post("{}")).await;
    engine.write_all(EMPTY_OK).await.unwrap();
    assert_eq!(sending.await.unwrap().unwrap().status(), StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn an_answer_in_http_1_0_is_passed_on_as_one_of_http_1_1() {
    let mut bench = bench();
    let (sending, mut engine) = asked(&mut bench, post("{}")).await;
    engine
        .write_all(b"HTTP/1.0 200 OK\r\n\r\nall")
        .await
        .unwrap();
    let response = sending.await.unwrap().unwrap();
    assert_eq!(response.version(), Version::HTTP_11);
    drop(engine);
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body, "all");
}
