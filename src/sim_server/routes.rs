//! Which route answers what.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::{Value, json};

use super::answer::{Choice, Frame};
use super::apis;
use super::job::{JobHandle, Progress};
use super::page;
use super::prompt::{Opening, Prompt};
use super::read::{self, Delivery, Kind, Order, Served};
use super::refuse::{PromptSize, Refused};
use super::state::{Mode, Refusal, Shared};
use super::stream::{Answer, EventStream};
use super::{Seen, SimServerSpec};
use crate::core::units::{BlockSize, Tokens};
use crate::sim::random::Random;

/// Answers one request. Dropping the future aborts what it has asked of the engine.
pub(super) async fn handle(shared: Arc<Shared>, request: Request<Incoming>) -> Response<Answer> {
    let (head, body) = request.into_parts();
    let Ok(body) = body
        .collect()
        .await
        .map(http_body_util::Collected::to_bytes)
    else {
        // The client left while sending: nobody reads this.
        return empty(StatusCode::BAD_REQUEST);
    };
    shared.record(Seen {
        method: head.method.clone(),
        path: head.uri.to_string(),
        headers: head.headers.clone(),
        body: body.clone(),
    });
    match route(&shared, &head, &body).await {
        Ok(response) => response,
        Err(refused) => refusal(&refused),
    }
}

async fn route(
    shared: &Arc<Shared>,
    head: &Parts,
    body: &Bytes,
) -> Result<Response<Answer>, Refused> {
    let path = head.uri.path();
    authorize(&shared.spec, head)?;
    let expected = match path {
        "/v1/chat/completions"
        | "/v1/completions"
        | "/v1/responses"
        | "/v1/messages"
        | "/v1/messages/count_tokens"
        | "/tokenize" => Method::POST,
        "/v1/models" | "/health" | "/ping" | "/metrics" | "/version" | "/load" => Method::GET,
        _ => return Err(Refused::detail(StatusCode::NOT_FOUND, "Not Found")),
    };
    if head.method != expected {
        let mut response = refusal(&Refused::detail(
            StatusCode::METHOD_NOT_ALLOWED,
            "Method Not Allowed",
        ));
        let allow = HeaderValue::from_str(expected.as_str()).expect("a method is a header value");
        response.headers_mut().insert(header::ALLOW, allow);
        return Ok(response);
    }
    match path {
        "/v1/chat/completions" => generate(shared, Kind::Chat, head, body).await,
        "/v1/completions" => generate(shared, Kind::Text, head, body).await,
        "/v1/responses" => generate(shared, Kind::Responses, head, body).await,
        "/v1/messages" => generate(shared, Kind::Messages, head, body)
            .await
            .map_err(Refused::told_by_messages),
        "/v1/messages/count_tokens" => count(shared, head, body).map_err(Refused::told_by_messages),
        "/tokenize" => tokenize(shared, head, body),
        "/v1/models" => Ok(models(shared)),
        "/metrics" => Ok(metrics(shared)),
        "/version" => Ok(json_answer(StatusCode::OK, &json!({"version": "0.32.0"}))),
        "/load" => Ok(json_answer(StatusCode::OK, &json!({"server_load": 0}))),
        _ => Ok(health(shared)),
    }
}

fn authorize(spec: &SimServerSpec, head: &Parts) -> Result<(), Refused> {
    let Some(key) = &spec.api_key else {
        return Ok(());
    };
    let sent = head.headers.get(header::AUTHORIZATION);
    let right = sent.is_some_and(|value| value.as_bytes() == format!("Bearer {key}").as_bytes());
    if right || !head.uri.path().starts_with("/v1") {
        Ok(())
    } else {
        Err(Refused::unauthorized())
    }
}

async fn generate(
    shared: &Arc<Shared>,
    kind: Kind,
    head: &Parts,
    body: &Bytes,
) -> Result<Response<Answer>, Refused> {
    let fields = read::object(&head.headers, body)?;
    let now_serving = serving(shared);
    let served = Served {
        models: &shared.spec.models,
        context: now_serving.context,
    };
    let order = if kind.names_events() {
        let body = apis::Body {
            bytes: body,
            fields: &fields,
        };
        apis::order(kind, served, &head.headers, body)?
    } else {
        Order::read(kind, served, &head.headers, &fields)?
    };
    let random = now_serving.random.fork(1);
    let requests = order.requests(now_serving.block_size, shared.spec.output, random);
    let suffix = now_serving.random.fork(0).next_u64();
    let job = shared.submit(requests).map_err(|refusal| match refusal {
        Refusal::Busy => Refused::busy(),
        Refusal::Dead => Refused::dead(),
    })?;
    let frame = Frame::new(&order, suffix, now().as_secs());
    let samples = usize::try_from(order.samples).unwrap_or(usize::MAX);
    let choices = order.prompts.len() * samples;
    if !now_serving.header_delay.is_zero() {
        tokio::time::sleep(now_serving.header_delay).await;
    }
    match order.delivery {
        Delivery::Once => once(&job, &frame, choices).await,
        Delivery::Stream { usage } => {
            let stream = EventStream::new(job, frame, usage, choices);
            let media = HeaderValue::from_static("text/event-stream; charset=utf-8");
            Ok(answer(
                StatusCode::OK,
                Some(media),
                Answer::Stream(Box::new(stream)),
            ))
        }
    }
}

/// What the engine is like as a request comes; copied so that the lock is not held while
/// the prompt is counted.
struct Serving {
    context: Tokens,
    block_size: BlockSize,
    header_delay: Duration,
    /// Numbers of this request's own.
    random: Random,
}

fn serving(shared: &Shared) -> Serving {
    let mut state = shared.lock();
    let draw = state.random.next_u64();
    Serving {
        context: state.engine.spec().max_model_len,
        block_size: state.engine.spec().block_size,
        header_delay: state.header_delay,
        random: state.random.fork(draw),
    }
}

async fn once(job: &JobHandle, frame: &Frame, choices: usize) -> Result<Response<Answer>, Refused> {
    let mut choices = vec![Choice::default(); choices];
    loop {
        match job.next().await {
            Progress::Deltas(deltas) => {
                for delta in deltas {
                    let choice = &mut choices[delta.choice];
                    choice.tokens += delta.tokens;
                    choice.finish = delta.finish;
                }
            }
            Progress::Dead => return Err(Refused::dead()),
            Progress::Done => return Ok(json_answer(StatusCode::OK, &frame.whole(&choices))),
        }
    }
}

fn count(shared: &Shared, head: &Parts, body: &Bytes) -> Result<Response<Answer>, Refused> {
    let fields = read::object(&head.headers, body)?;
    let body = apis::Body {
        bytes: body,
        fields: &fields,
    };
    let tokens = apis::counted(body, &shared.spec.models)?.tokens();
    let context = serving(shared).context;
    if tokens > context {
        return Err(Refused::prompt_too_long(
            context,
            PromptSize::AtLeast(context + Tokens::new(1)),
        ));
    }
    let count = tokens.get();
    let answer = json!({
        "input_tokens": count,
        "context_management": {"original_input_tokens": count},
    });
    Ok(json_answer(StatusCode::OK, &answer))
}

fn tokenize(shared: &Shared, head: &Parts, body: &Bytes) -> Result<Response<Answer>, Refused> {
    let fields = read::object(&head.headers, body)?;
    read::model(&fields, &shared.spec.models)?;
    let prompt = match (fields.get("messages"), fields.get("prompt")) {
        (Some(Value::Array(messages)), _) => {
            let opening = match fields.get("add_generation_prompt") {
                Some(Value::Bool(false)) => Opening::Nothing,
                _ => Opening::Assistant,
            };
            Prompt::from_chat(messages, opening)
        }
        (_, Some(Value::String(text))) => Prompt::from_text(text),
        _ => return Err(Refused::field("prompt", "missing", "Field required", "")),
    };
    let pieces = match fields.get("return_token_strs") {
        Some(Value::Bool(true)) => Some(prompt.pieces()),
        _ => None,
    };
    let answer = json!({
        "count": prompt.tokens().get(),
        "max_model_len": serving(shared).context.get(),
        "tokens": prompt.ids,
        "token_strs": pieces,
    });
    Ok(json_answer(StatusCode::OK, &answer))
}

fn models(shared: &Shared) -> Response<Answer> {
    let created = now().as_secs();
    let limit = shared.lock().engine.spec().max_model_len.get();
    let cards: Vec<Value> = shared
        .spec
        .models
        .iter()
        .map(|model| {
            json!({
                "id": model, "object": "model", "created": created, "owned_by": "vllm", "root": model,
                "parent": null, "max_model_len": limit,
                "permission": [{
                    "id": format!("modelperm-{created:016x}"), "object": "model_permission", "created": created,
                    "allow_create_engine": false, "allow_sampling": true, "allow_logprobs": true,
                    "allow_search_indices": false, "allow_view": true, "allow_fine_tuning": false,
                    "organization": "*", "group": null, "is_blocking": false,
                }],
            })
        })
        .collect();
    json_answer(StatusCode::OK, &json!({"object": "list", "data": cards}))
}

fn metrics(shared: &Shared) -> Response<Answer> {
    let model = shared
        .spec
        .models
        .first()
        .map(String::as_str)
        .unwrap_or_default();
    let text = page::render(&shared.lock(), model);
    let media = HeaderValue::from_static(page::CONTENT_TYPE);
    answer(StatusCode::OK, Some(media), Answer::bytes(text))
}

fn health(shared: &Shared) -> Response<Answer> {
    match shared.lock().mode {
        Mode::Dead => empty(StatusCode::SERVICE_UNAVAILABLE),
        Mode::Working | Mode::Held | Mode::Asleep => empty(StatusCode::OK),
    }
}

fn refusal(refused: &Refused) -> Response<Answer> {
    json_answer(refused.status, &refused.body)
}

fn json_answer(status: StatusCode, body: &Value) -> Response<Answer> {
    let media = HeaderValue::from_static("application/json");
    answer(status, Some(media), Answer::bytes(body.to_string()))
}

fn empty(status: StatusCode) -> Response<Answer> {
    answer(status, None, Answer::bytes(Bytes::new()))
}

fn answer(status: StatusCode, media: Option<HeaderValue>, body: Answer) -> Response<Answer> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::SERVER, HeaderValue::from_static("uvicorn"));
    if let Some(media) = media {
        headers.insert(header::CONTENT_TYPE, media);
    }
    headers.insert(header::VARY, HeaderValue::from_static("Origin"));
    response
}

fn now() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}
