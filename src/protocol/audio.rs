//! Speech to text: a form with a file in it.
//!
//! Decides what the form asks for and how long its audio may be; never decodes
//! any. Fields are read as the engine's framework reads them: an empty one is
//! absent. Refused are forms that two readers could read apart: a field we read
//! given twice, names in the extended notation.

use std::borrow::Cow;
use std::convert::Infallible;

use bytes::Bytes;
use futures_util::{FutureExt, stream};
use http::header::CONTENT_DISPOSITION;
use multer::{Field, Multipart};

use super::lax;
use super::request::{MAX_SEQUENCES, Padding, Prompt, Request, RequestError, Stream, StreamUsage};
use super::splice::TopLevel;

/// The fields that are read.
const NAMES: [&str; 7] = [
    "model",
    "prompt",
    "stream",
    "n",
    "use_beam_search",
    "max_completion_tokens",
    FILE,
];
const FILE: &str = "file";

/// Bytes handed to the reader at a time, so that it never holds a second copy.
const SLICE: usize = 64 * 1024;

/// Bytes of a second of audio in a container whose rate is not looked up: speech
/// is seldom coded in less than 32 kbit/s. Less would charge music ten times its
/// length.
const BYTES_PER_SECOND: u64 = 4_000;

/// Longest audio that is charged, in seconds: what an engine decodes at most, if
/// its operator has not allowed more.
const MAX_SECONDS: u64 = 600;

/// The values of the fields that are read.
#[derive(Default)]
struct Form {
    values: [Option<String>; NAMES.len()],
    /// The file's size and first bytes.
    file: Option<(u64, Bytes)>,
}

/// Reads the body of a speech-to-text request, sent with this content type.
///
/// Linear in the body, which is not copied as a whole.
///
/// # Errors
/// [`RequestError`], with the field at fault, for a body that is no form or that
/// no engine would serve.
pub fn parse_form(content_type: &[u8], body: &Bytes) -> Result<Request<'static>, RequestError> {
    let boundary = std::str::from_utf8(content_type)
        .ok()
        .and_then(|media| multer::parse_boundary(media).ok())
        .ok_or_else(|| RequestError::Form("it names no boundary".into()))?;
    let form = read(body.clone(), boundary)
        .now_or_never()
        .unwrap_or_else(|| Err(RequestError::Form("it has no end".into())))?;
    form.request()
}

async fn read(body: Bytes, boundary: String) -> Result<Form, RequestError> {
    let slices = (0..body.len()).step_by(SLICE).map(move |at| {
        let end = body.len().min(at + SLICE);
        Ok::<_, Infallible>(body.slice(at..end))
    });
    let mut parts = Multipart::new(stream::iter(slices), boundary);
    let broken = |error: multer::Error| RequestError::Form(error.to_string());
    let mut form = Form::default();
    while let Some(part) = parts.next_field().await.map_err(broken)? {
        form.take(part).await?;
    }
    Ok(form)
}

/// Length of audio in seconds, rounded up.
fn seconds(head: &[u8], size: u64) -> u64 {
    let rate = wave_rate(head).unwrap_or(BYTES_PER_SECOND);
    size.div_ceil(rate).clamp(1, MAX_SECONDS)
}

/// Bytes per second of a plain wave file, from the numbers that decoders go by.
fn wave_rate(head: &[u8]) -> Option<u64> {
    let number = |at: usize, bytes: usize| -> Option<u64> {
        let little_endian = head.get(at..at + bytes)?.iter().rev();
        Some(little_endian.fold(0, |number, byte| number << 8 | u64::from(*byte)))
    };
    let is_wave = head.starts_with(b"RIFF") && head.get(8..16) == Some(b"WAVEfmt ");
    // Samples as they are, whole or floating: other codings have no fixed rate.
    let is_plain = is_wave && matches!(number(20, 2), Some(1 | 3));
    let frames = number(24, 4).filter(|_| is_plain)?;
    let rate = frames * number(32, 2)?;
    (rate > 0).then_some(rate)
}

// === impl Form ===

impl Form {
    async fn take(&mut self, mut part: Field<'static>) -> Result<(), RequestError> {
        let disposition = part.headers().get(CONTENT_DISPOSITION);
        let is_extended = disposition
            .is_some_and(|header| memchr::memmem::find(header.as_bytes(), b"*=").is_some());
        let name = part.name().unwrap_or_default();
        let mut fields = NAMES.into_iter().zip(&mut self.values);
        let known = fields.find(|(known, _)| *known == name);
        let is_file = name == FILE;
        if is_extended && !is_file {
            return Err(RequestError::Form("a field's name is encoded".into()));
        }
        let broken = |error: multer::Error| RequestError::Form(error.to_string());
        let mut text = Vec::new();
        let (mut size, mut head) = (0, Bytes::new());
        while let Some(chunk) = part.chunk().await.map_err(broken)? {
            size += u64::try_from(chunk.len()).unwrap_or(u64::MAX);
            if is_file && head.len() < WAVE_HEAD {
                head = [&head[..], &chunk[..chunk.len().min(WAVE_HEAD)]]
                    .concat()
                    .into();
            }
            if !is_file && known.is_some() {
                text.extend_from_slice(&chunk);
            }
        }
        let Some((name, value)) = known else {
            return Ok(());
        };
        if value.is_some() {
            return Err(RequestError::Duplicate(name));
        }
        if is_file {
            self.file = Some((size, head));
        }
        let text = String::from_utf8(text)
            .map_err(|_| RequestError::Form(format!("`{name}` is not UTF-8 text")))?;
        *value = Some(text);
        Ok(())
    }

    /// A field as the JSON string it would be; `None` where it is empty.
    fn json(&self, name: &'static str) -> Option<String> {
        let text = self.text(name)?;
        Some(serde_json::Value::from(text).to_string())
    }

    fn text(&self, name: &'static str) -> Option<&str> {
        let index = NAMES.iter().position(|known| *known == name)?;
        self.values[index]
            .as_deref()
            .filter(|text| !text.is_empty())
    }

    fn flag(&self, name: &'static str) -> Result<bool, RequestError> {
        self.json(name)
            .map_or(Ok(false), |json| lax::flag(name, &json))
    }

    fn whole(&self, name: &'static str, most: i64) -> Result<Option<u64>, RequestError> {
        let expected = "a whole number, at least 1";
        let read = |json: String| lax::whole(name, &json, 1..=most, expected);
        let value = self.json(name).map(read).transpose()?;
        Ok(value.map(i64::unsigned_abs))
    }

    fn request(self) -> Result<Request<'static>, RequestError> {
        let (size, head) = self.file.as_ref().ok_or(RequestError::Missing(FILE))?;
        let beams = self.whole("n", i64::from(MAX_SEQUENCES))?.unwrap_or(1);
        let beams = u32::try_from(beams).unwrap_or(MAX_SEQUENCES);
        let owned = |text: &str| Cow::Owned(text.to_owned());
        Ok(Request {
            model: self.text("model").map(owned),
            prompt: Prompt::Audio {
                seconds: seconds(head, *size),
                prompt: self.text("prompt").map_or(Cow::Borrowed(""), owned),
            },
            max_tokens: self.whole("max_completion_tokens", i64::MAX)?,
            write_max_tokens: false,
            min_tokens: 0,
            samples: match self.flag("use_beam_search")? {
                true => beams,
                false => 1,
            },
            stream: match self.flag("stream")? {
                // A form is not edited, so no usage is asked for on our account.
                true => Stream::Events {
                    usage: StreamUsage::Asked,
                },
                false => Stream::Once,
            },
            truncate: None,
            padding: Padding::None,
            priority: None,
            request_id: None,
            cache_salt: None,
            kv_transfer_params: None,
            keys: TopLevel::none(),
        })
    }
}

/// Bytes at the beginning of a file that tell what it is.
const WAVE_HEAD: usize = 36;

#[cfg(test)]
mod tests {
    use super::*;

    const MEDIA: &[u8] = b"multipart/form-data; boundary=xyz";

    fn form(fields: &[(&str, &str)], file: &[u8]) -> Bytes {
        let mut body = Vec::new();
        for (name, value) in fields {
            let part =
                format!("--xyz\r\nContent-Disposition: form-data; {name}\r\n\r\n{value}\r\n");
            body.extend_from_slice(part.as_bytes());
        }
        body.extend_from_slice(
            b"--xyz\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a\"\r\n\
            Content-Type: audio/wav\r\n\r\n",
        );
        body.extend_from_slice(file);
        body.extend_from_slice(b"\r\n--xyz--\r\n");
        body.into()
    }

    /// A wave file of this many seconds, 16,000 samples of two bytes in each.
    fn wave(seconds: usize) -> Vec<u8> {
        let mut file = b"RIFF\0\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0".to_vec();
        file.extend_from_slice(&16_000_u32.to_le_bytes());
        file.extend_from_slice(&32_000_u32.to_le_bytes());
        file.extend_from_slice(&[2, 0, 16, 0]);
        file.resize(32_000 * seconds, 1);
        file
    }

    #[test]
    fn a_form_says_what_is_asked_and_how_long_it_is() {
        let fields = [
            ("name=\"model\"", "whisper"),
            ("name=\"prompt\"", "so be it"),
            ("name=\"stream\"", "True"),
            ("name=\"n\"", "3"),
            ("name=\"language\"", "en"),
            ("name=\"max_completion_tokens\"", ""),
        ];
        let request = parse_form(MEDIA, &form(&fields, &wave(45))).unwrap();
        assert_eq!(request.model.as_deref(), Some("whisper"));
        let Prompt::Audio { seconds, prompt } = &request.prompt else {
            panic!("{:?}", request.prompt)
        };
        assert_eq!((*seconds, &**prompt), (45, "so be it"));
        assert_eq!((request.max_tokens, request.samples), (None, 1));
        let usage = StreamUsage::Asked;
        assert_eq!(request.stream, Stream::Events { usage });
    }

    #[test]
    fn audio_of_an_unknown_rate_is_taken_for_dense_speech() {
        let long = |size| {
            let request = parse_form(MEDIA, &form(&[], &vec![7; size])).unwrap();
            match request.prompt {
                Prompt::Audio { seconds, .. } => seconds,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!((long(0), long(4_001), long(300_000)), (1, 2, 75));
        assert_eq!(long(25 << 20), 600);
        let mut forged = wave(1);
        forged[24..28].fill(0);
        assert_eq!(seconds(&forged, 8_000), 2);
    }

    #[test]
    fn beams_are_sequences_and_what_two_readers_could_read_apart_is_refused() {
        let beams = [("name=\"n\"", "4"), ("name=\"use_beam_search\"", "1")];
        let request = parse_form(MEDIA, &form(&beams, b"x")).unwrap();
        assert_eq!(request.samples, 4);
        let twice = [("name=\"model\"", "a"), ("name=\"model\"", "b")];
        let error = |fields: &[(&str, &str)]| parse_form(MEDIA, &form(fields, b"x")).unwrap_err();
        assert_eq!(error(&twice), RequestError::Duplicate("model"));
        let encoded = [("name*=utf-8''model", "a")];
        assert!(matches!(error(&encoded), RequestError::Form(_)));
        for (name, value) in [("name=\"n\"", "0"), ("name=\"stream\"", "maybe")] {
            assert!(matches!(
                error(&[(name, value)]),
                RequestError::Unreadable { .. }
            ));
        }
        let no_file =
            b"--xyz\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\na\r\n--xyz--";
        let no_file = Bytes::from_static(no_file);
        assert_eq!(
            parse_form(MEDIA, &no_file).unwrap_err(),
            RequestError::Missing("file")
        );
        for (media, body) in [
            (&b"multipart/form-data"[..], &b"--xyz--"[..]),
            (MEDIA, b""),
            (MEDIA, b"{}"),
            (
                MEDIA,
                b"--xyz\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\nx",
            ),
        ] {
            let broken = parse_form(media, &Bytes::from_static(body));
            assert!(broken.is_err(), "{body:?}");
        }
    }
}
