// The last hour, kept in step with the gateway's.

import { ask } from "./feed.js";

export class Hour {
  constructor() {
    this.clear();
  }

  clear() {
    this.told = null;
  }

  get next() {
    return this.told === null ? 0 : this.told.next;
  }

  // Asks for what is new. Says whether anything was.
  async refresh() {
    const answer = await ask(`/history?after=${this.next}`);
    const news = await answer.json();
    if (this.told === null || news.instance !== this.told.instance || news.first !== this.next) {
      if (this.told !== null && news.first > 0) {
        this.clear();
        return this.refresh();
      }
      this.told = news;
      return true;
    }
    const came = news.next - news.first;
    if (came === 0) return false;
    const most = news.span_seconds / news.step_seconds;
    const grow = (old, tail) => {
      const kept = old ?? new Array(Math.min(this.length, most)).fill(null);
      return kept.concat(tail).slice(-most);
    };
    const before = this.told;
    news.refusals = Object.fromEntries(
      Object.entries(news.refusals).map(([reason, tail]) => [reason, grow(before.refusals[reason], tail)]),
    );
    for (const model of news.models) {
      const known = before.models.find((old) => old.model === model.model);
      for (const [name, tail] of Object.entries(model)) {
        if (Array.isArray(tail) && name !== "backends") model[name] = grow(known?.[name], tail);
      }
      for (const backend of model.backends) {
        const one = known?.backends.find((old) => old.name === backend.name);
        backend.held_share = grow(one?.held_share, backend.held_share);
        backend.foreign_share = grow(one?.foreign_share, backend.foreign_share);
      }
    }
    news.first = Math.max(before.first, news.next - most);
    this.told = news;
    return true;
  }

  // Steps that are known.
  get length() {
    return this.told === null ? 0 : this.told.next - this.told.first;
  }

  model(name) {
    return this.told?.models.find((model) => model.model === name) ?? null;
  }
}

// The last value that there is.
export function latest(values) {
  for (let index = (values?.length ?? 0) - 1; index >= 0; index -= 1) {
    if (values[index] !== null) return values[index];
  }
  return null;
}
