// Lines and stacked bars over time, as SVG. A chart is drawn in the pixels it
// has, is read by keys as well as by pointer, and says in words what it shows.

import { attr, el, put, svg } from "./dom.js";

const HEIGHT = 150;
// More than this cannot be told apart; what lies closer is drawn as one.
const MOST_STEPS = 240;
const PAD = { top: 8, right: 4, bottom: 20, left: 46 };

export class Chart {
  // `spec`: title, kind ("lines" or "bars"), format (a figure to words), and the
  // axis' top: `most` where it is always that, `least` where it is never lower.
  constructor(figure, spec) {
    this.spec = spec;
    this.data = null;
    this.cursor = null;
    this.width = 0;
    this.title = el("span", { className: "title" }, spec.title);
    this.when = el("span", { className: "when muted" });
    this.keys = el("ul", { className: "keys" });
    const caption = el("figcaption", {}, el("div", { className: "caption" }, this.title, this.when), this.keys);
    this.plot = svg("svg", { role: "img", tabindex: "0", height: HEIGHT, class: "plot" });
    figure.append(caption, this.plot);
    new ResizeObserver(([entry]) => {
      this.width = Math.floor(entry.contentRect.width);
      this.draw();
    }).observe(this.plot);
    this.plot.addEventListener("pointermove", (event) => this.point(event));
    this.plot.addEventListener("pointerleave", () => this.move(null));
    this.plot.addEventListener("blur", () => this.move(null));
    this.plot.addEventListener("keydown", (event) => this.key(event));
  }

  // `series`: name, values (oldest first, null where none), style (a number).
  // `end`: when the last step ended, in seconds since 1970; `step`: its length.
  show(data) {
    const size = Math.ceil(data.steps / MOST_STEPS);
    const merge = this.spec.kind === "bars" ? sum : mean;
    const series = data.series.map((one) => ({ ...one, values: condense(tail(one.values, data.steps), size, merge) }));
    this.data = { ...data, series, steps: Math.ceil(data.steps / size), step: data.step * size };
    this.cursor = this.cursor === null ? null : Math.min(this.cursor, this.data.steps - 1);
    this.draw();
  }

  get steps() {
    return this.data === null ? 0 : this.data.steps;
  }

  point(event) {
    const inner = this.width - PAD.left - PAD.right;
    const at = (event.offsetX - PAD.left) / inner;
    this.move(Math.max(0, Math.min(this.steps - 1, Math.round(at * (this.steps - 1)))));
  }

  key(event) {
    const from = this.cursor ?? this.steps - 1;
    const to = { ArrowLeft: from - 1, ArrowRight: from + 1, Home: 0, End: this.steps - 1 }[event.key];
    if (event.key === "Escape") this.move(null);
    if (to === undefined) return;
    event.preventDefault();
    this.move(Math.max(0, Math.min(this.steps - 1, to)));
  }

  move(cursor) {
    this.cursor = cursor;
    this.draw();
  }

  draw() {
    if (this.data === null || this.width === 0) return;
    const { series, end, step } = this.data;
    const shown = series.map((one) => one.values);
    const top = this.spec.most ?? niceTop(this.highest(shown), this.spec.least ?? 1);
    this.plot.replaceChildren();
    attr(this.plot, "viewBox", `0 0 ${this.width} ${HEIGHT}`);
    this.grid(top);
    if (this.spec.kind === "bars") this.bars(shown, top);
    else shown.forEach((values, index) => this.line(values, top, series[index].style));
    const at = this.cursor ?? this.steps - 1;
    if (this.cursor !== null) this.mark(at);
    const time = end === null ? null : new Date((end - (this.steps - 1 - at) * step) * 1000);
    put(this.when, this.cursor === null || time === null ? "" : clock(time));
    this.legend(series, shown, at);
    attr(this.plot, "aria-label", this.words(series, shown, at));
  }

  highest(shown) {
    if (this.spec.kind !== "bars") return Math.max(0, ...shown.flat().filter((value) => value !== null));
    const sums = Array.from({ length: this.steps }, (_, at) => shown.reduce((sum, values) => sum + (values[at] ?? 0), 0));
    return Math.max(0, ...sums);
  }

  x(at) {
    const inner = this.width - PAD.left - PAD.right;
    return PAD.left + (this.steps > 1 ? (at / (this.steps - 1)) * inner : inner);
  }

  y(value, top) {
    return HEIGHT - PAD.bottom - (value / top) * (HEIGHT - PAD.top - PAD.bottom);
  }

  grid(top) {
    for (const part of [0, 0.5, 1]) {
      const y = this.y(part * top, top);
      this.plot.append(svg("line", { x1: PAD.left, x2: this.width - PAD.right, y1: y, y2: y, class: part === 0 ? "axis" : "grid" }));
      this.text(PAD.left - 8, y + 4, this.spec.format(part * top), "end");
    }
    const span = (this.steps - 1) * this.data.step;
    const marks = this.width > 300 ? [1, 0.5, 0] : [1, 0];
    for (const back of marks) {
      const anchor = { 1: "start", 0: "end" }[back] ?? "middle";
      const label = back === 0 ? "now" : `−${ago(back * span)}`;
      this.text(this.x((1 - back) * (this.steps - 1)), HEIGHT - 4, label, anchor);
    }
  }

  text(x, y, words, anchor) {
    const node = svg("text", { x, y, "text-anchor": anchor });
    node.textContent = words;
    this.plot.append(node);
  }

  line(values, top, style) {
    let path = "";
    let drawing = false;
    values.forEach((value, at) => {
      if (value === null) {
        drawing = false;
        return;
      }
      const alone = !drawing && (values[at + 1] ?? null) === null;
      const place = `${this.x(at).toFixed(1)} ${this.y(value, top).toFixed(1)}`;
      path += `${drawing ? "L" : "M"}${place}${alone ? "h0.1" : ""}`;
      drawing = true;
    });
    if (path !== "") this.plot.append(svg("path", { d: path, class: `line s${style}` }));
  }

  bars(shown, top) {
    const wide = Math.max(1, ((this.width - PAD.left - PAD.right) / this.steps) * 0.85);
    const paths = shown.map(() => "");
    for (let at = 0; at < this.steps; at += 1) {
      let sum = 0;
      shown.forEach((values, index) => {
        const value = values[at] ?? 0;
        if (value === 0) return;
        const from = this.y(sum, top);
        sum += value;
        const to = this.y(sum, top);
        paths[index] += `M${Math.max(PAD.left, this.x(at) - wide).toFixed(1)} ${from.toFixed(1)}h${wide.toFixed(1)}V${to.toFixed(1)}h${(-wide).toFixed(1)}z`;
      });
    }
    paths.forEach((path, index) => {
      if (path !== "") this.plot.append(svg("path", { d: path, class: `bar s${this.data.series[index].style}` }));
    });
  }

  mark(at) {
    const x = this.x(at);
    this.plot.append(svg("line", { x1: x, x2: x, y1: PAD.top, y2: HEIGHT - PAD.bottom, class: "cursor" }));
  }

  // Without a cursor the last value that there is.
  value(values, at) {
    if (this.cursor !== null) return values[at];
    const known = values.filter((value) => value !== null);
    return known.length === 0 ? null : known[known.length - 1];
  }

  legend(series, shown, at) {
    while (this.keys.children.length > series.length) this.keys.lastElementChild.remove();
    series.forEach((one, index) => {
      if (!this.keys.children[index]) {
        const swatch = el("i", { className: "key" });
        this.keys.append(el("li", {}, swatch, el("span", { className: "name" }), el("b")));
      }
      const [swatch, name, value] = this.keys.children[index].children;
      swatch.className = `key s${one.style}`;
      put(name, one.name);
      const figure = this.spec.kind === "bars" && this.cursor === null ? sum(shown[index]) : this.value(shown[index], at);
      put(value, this.spec.format(figure));
    });
  }

  words(series, shown, at) {
    const parts = series.map((one, index) => {
      const peak = Math.max(0, ...shown[index].filter((value) => value !== null));
      return `${one.name} ${this.spec.format(this.value(shown[index], at))}, at most ${this.spec.format(peak)}`;
    });
    return `${this.spec.title}: ${parts.length === 0 ? "nothing yet" : parts.join("; ")}`;
  }
}

// The last `count` values, with nothing before the first.
function tail(values, count) {
  const kept = values.slice(-count);
  return kept.length < count ? new Array(count - kept.length).fill(null).concat(kept) : kept;
}

function condense(values, size, merge) {
  if (size === 1) return values;
  return Array.from({ length: Math.ceil(values.length / size) }, (_, at) => merge(values.slice(at * size, (at + 1) * size)));
}

function mean(values) {
  const known = values.filter((value) => value !== null);
  return known.length === 0 ? null : sum(known) / known.length;
}

function sum(values) {
  return values.reduce((all, value) => all + (value ?? 0), 0);
}

// A round figure that is not below `value`.
function niceTop(value, least) {
  if (!(value > least)) return least;
  const unit = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 4, 6, 8, 10].find((times) => times * unit >= value) * unit;
}

function ago(span) {
  return span < 120 ? `${Math.round(span)} s` : `${Math.round(span / 30) / 2} min`;
}

function clock(time) {
  return time.toLocaleTimeString("en-GB");
}
