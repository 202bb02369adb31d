// The gateway's answers: a stream of states that begins again whenever it ends.
// The token, where one is asked for, lives in this tab's session storage alone.

const KEY = "tidegate-admin-token";
const SILENCE = 12000;
const PAUSES = [250, 500, 1000, 2000, 4000];

export function setToken(token) {
  sessionStorage.setItem(KEY, token);
}

export function dropToken() {
  sessionStorage.removeItem(KEY);
}

export function hasToken() {
  return sessionStorage.getItem(KEY) !== null;
}

export class Unauthorized extends Error {}

export async function ask(path, signal) {
  const token = sessionStorage.getItem(KEY);
  const headers = token === null ? {} : { authorization: `Bearer ${token}` };
  const answer = await fetch(path, { headers, signal, cache: "no-store", credentials: "omit" });
  if (answer.status === 401) throw new Unauthorized();
  if (!answer.ok) throw new Error(`${path} answers ${answer.status}`);
  return answer;
}

// Calls `handlers.state` with each state, `lost` when the stream ends, and
// `unauthorized`, once, where the token is wrong or missing.
export async function follow(handlers) {
  for (let failures = 0; ; failures += 1) {
    await visible();
    try {
      await readOnce((state) => {
        failures = 0;
        handlers.state(state);
      });
    } catch (problem) {
      if (problem instanceof Unauthorized) return handlers.unauthorized();
    }
    handlers.lost();
    const pause = PAUSES[Math.min(failures, PAUSES.length - 1)];
    await new Promise((resolve) => setTimeout(resolve, pause));
  }
}

// A tab that nobody sees leaves its connection to others: a browser has six.
function visible() {
  if (!document.hidden) return Promise.resolve();
  return new Promise((resolve) => document.addEventListener("visibilitychange", resolve, { once: true })).then(visible);
}

async function readOnce(onState) {
  const stop = new AbortController();
  const hide = () => document.hidden && stop.abort();
  document.addEventListener("visibilitychange", hide);
  let timer = setTimeout(() => stop.abort(), SILENCE);
  try {
    const answer = await ask("/events", stop.signal);
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      clearTimeout(timer);
      timer = setTimeout(() => stop.abort(), SILENCE);
      const events = (text + value).split("\n\n");
      text = events.pop();
      // Of several that came at once only the newest is worth drawing.
      const newest = events.map(dataOf).filter((data) => data !== null).pop();
      if (newest !== undefined) onState(JSON.parse(newest));
    }
  } finally {
    clearTimeout(timer);
    document.removeEventListener("visibilitychange", hide);
    stop.abort();
  }
}

function dataOf(event) {
  const lines = event.split("\n").filter((line) => line.startsWith("data: "));
  return lines.length === 0 ? null : lines.map((line) => line.slice(6)).join("\n");
}
