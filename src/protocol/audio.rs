//! Speech to text: a form with a file in it.
//!
//! Decides what the form asks for and how long its audio may be; never decodes
//! any. Fields are read as the engine's framework reads them, by their exact
//! names: an empty one is absent. What two readers could read apart is refused
//! (`multipart.rs`).

use std::borrow::Cow;

use bytes::Bytes;

use super::lax;
use super::multipart::{self, Part};
use super::request::{MAX_SEQUENCES, Padding, Prompt, Request, RequestError, Stream, StreamUsage};
use super::splice::TopLevel;
use super::wave;

/// The fields that are read.
const NAMES: [&str; 8] = [
    "model",
    "prompt",
    "hotwords",
    "to_language",
    "stream",
    "n",
    "use_beam_search",
    "max_completion_tokens",
];
const FILE: &str = "file";

/// Bytes of a second of audio in a container whose rate is not looked up: speech
/// is seldom coded in less than 32 kbit/s. Less would charge music ten times its
/// length.
const BYTES_PER_SECOND: u64 = 4_000;

/// Longest audio that is charged, in seconds: what an engine decodes at most, if
/// its operator has not allowed more.
const MAX_SECONDS: u64 = 600;

/// The values of the fields that are read.
#[derive(Default)]
struct Form<'a> {
    values: [Option<&'a str>; NAMES.len()],
    file: Option<&'a [u8]>,
}

/// Reads the body of a speech-to-text request, sent with this content type.
///
/// Linear in the body, which is not copied.
///
/// # Errors
/// [`RequestError`], with the field or header at fault, for a body that is no
/// form, that another reader could read otherwise or that no engine would serve.
pub fn parse_form(content_type: &[u8], body: &Bytes) -> Result<Request<'static>, RequestError> {
    let boundary = multipart::boundary(content_type)?;
    let mut form = Form::default();
    for part in multipart::parts(body, boundary)? {
        form.take(&part)?;
    }
    form.request()
}

/// Length of audio in seconds, rounded up.
fn seconds(file: &[u8]) -> u64 {
    let size = u64::try_from(file.len()).unwrap_or(u64::MAX);
    let by_size = size.div_ceil(BYTES_PER_SECOND);
    let seconds = match wave::rate(file) {
        Some(rate) if rate.is_sound => size.div_ceil(rate.bytes_per_second),
        // Decoders differ in which of the numbers they go by.
        Some(rate) => size.div_ceil(rate.bytes_per_second).max(by_size),
        None => by_size,
    };
    seconds.clamp(1, MAX_SECONDS)
}

// === impl Form ===

impl<'a> Form<'a> {
    fn take(&mut self, part: &Part<'a>) -> Result<(), RequestError> {
        if part.name == FILE {
            self.file = Some(part.value);
            return Ok(());
        }
        let mut fields = NAMES.into_iter().zip(&mut self.values);
        let Some((name, value)) = fields.find(|(known, _)| *known == part.name) else {
            return Ok(());
        };
        let text = std::str::from_utf8(part.value)
            .map_err(|_| RequestError::Form(format!("`{name}` is not UTF-8 text")))?;
        *value = Some(text);
        Ok(())
    }

    /// A field as the JSON string it would be; `None` where it is empty.
    fn json(&self, name: &'static str) -> Option<String> {
        let text = self.text(name)?;
        Some(serde_json::Value::from(text).to_string())
    }

    fn text(&self, name: &'static str) -> Option<&'a str> {
        let index = NAMES.iter().position(|known| *known == name)?;
        self.values[index].filter(|text| !text.is_empty())
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

    /// The texts that one engine or another makes part of the prompt.
    fn prompt(&self) -> String {
        let texts = ["prompt", "hotwords", "to_language"].map(|name| self.text(name));
        let texts: Vec<&str> = texts.into_iter().flatten().collect();
        texts.join("\n")
    }

    fn request(self) -> Result<Request<'static>, RequestError> {
        let file = self.file.ok_or(RequestError::Missing(FILE))?;
        let beams = self.whole("n", i64::from(MAX_SEQUENCES))?.unwrap_or(1);
        let beams = u32::try_from(beams).unwrap_or(MAX_SEQUENCES);
        Ok(Request {
            model: self.text("model").map(|text| Cow::Owned(text.to_owned())),
            prompt: Prompt::Audio {
                seconds: seconds(file),
                prompt: Cow::Owned(self.prompt()),
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
            brings_template: false,
            fixed_form: false,
            keys: TopLevel::none(),
        })
    }
}

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
        file.extend_from_slice(b"data");
        file.extend_from_slice(&u32::MAX.to_le_bytes());
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
    }

    #[test]
    fn a_forged_wave_header_makes_no_audio_short() {
        assert_eq!(seconds(&wave(300)), 300);
        // The block align: by it, 300 seconds would be one.
        let mut forged = wave(300);
        forged[32..34].copy_from_slice(&u16::MAX.to_le_bytes());
        assert_eq!(seconds(&forged), 600);
        // The rate of bytes, and no samples at all.
        for field in [28..32, 24..28, 22..24, 34..36] {
            let mut forged = wave(5);
            forged[field].fill(0);
            assert_eq!(seconds(&forged), 40);
        }
        // Samples of twelve bits take two bytes.
        let mut odd = wave(5);
        odd[34] = 12;
        assert_eq!(seconds(&odd), 5);
        // A second header, which some decoders go by.
        let mut twice = wave(5);
        let second = twice[12..36].to_vec();
        twice.splice(36..36, second);
        assert_eq!(seconds(&twice), 41);
    }

    #[test]
    fn every_text_that_reaches_a_prompt_is_charged() {
        let fields = [
            ("name=\"to_language\"", "fr"),
            ("name=\"hotwords\"", "b"),
            ("name=\"prompt\"", "a"),
        ];
        let request = parse_form(MEDIA, &form(&fields, b"x")).unwrap();
        let Prompt::Audio { prompt, .. } = &request.prompt else {
            panic!("{:?}", request.prompt)
        };
        assert_eq!(&**prompt, "a\nb\nfr");
    }

    #[test]
    fn beams_are_sequences_and_what_two_readers_could_read_apart_is_refused() {
        let beams = [("name=\"n\"", "4"), ("name=\"use_beam_search\"", "1")];
        let request = parse_form(MEDIA, &form(&beams, b"x")).unwrap();
        assert_eq!(request.samples, 4);
        let twice = [("name=\"model\"", "a"), ("name=\"model\"", "b")];
        let error = |fields: &[(&str, &str)]| parse_form(MEDIA, &form(fields, b"x")).unwrap_err();
        let said = error(&twice).to_string();
        assert_eq!(said, "the body is not a form: `model` is given twice");
        for hidden in [
            "name=\"zz\"; name=\"prompt\"",
            "NAME=\"prompt\"",
            "x=\" name=zz\"; name=\"prompt\"",
            "name*=utf-8''model",
        ] {
            let param = error(&[(hidden, "a")]).param();
            assert_eq!(param, Some("content-disposition"), "{hidden}");
        }
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
