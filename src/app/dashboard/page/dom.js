// Small tools: elements without markup, words for figures.
// Names come from configurations and clients: they are text, never markup.

export function $(id) {
  return document.getElementById(id);
}

export function el(tag, options = {}, ...children) {
  const node = document.createElement(tag);
  if (options.className) node.className = options.className;
  for (const [name, value] of Object.entries(options.attrs ?? {})) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

export function svg(tag, attrs = {}) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attrs)) node.setAttribute(name, value);
  return node;
}

// Writes a text where it has changed, and beside it the figure it stands for.
export function put(node, text, value) {
  if (node.textContent !== text) node.textContent = text;
  if (value !== undefined) node.dataset.value = value;
}

export function attr(node, name, value) {
  if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value);
}

// One child for each item, in order; children stay where they are.
export function list(parent, items, create, update) {
  while (parent.children.length > items.length) parent.lastElementChild.remove();
  items.forEach((item, index) => {
    if (!parent.children[index]) parent.append(create());
    update(parent.children[index], item);
  });
}

const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const compact = new Intl.NumberFormat("en-US", { notation: "compact", maximumFractionDigits: 1 });

export function count(value) {
  return value === null || value === undefined ? "–" : whole.format(value);
}

export function short(value) {
  if (value === null || value === undefined) return "–";
  return value < 10000 ? whole.format(value) : compact.format(value);
}

export function share(part, all) {
  return all > 0 ? `${Math.round((100 * part) / all)} %` : "–";
}

export function seconds(value) {
  if (value === null || value === undefined) return "–";
  if (value < 0.0005) return "0 ms";
  if (value < 0.9995) return `${Math.round(value * 1000)} ms`;
  if (value < 9.95) return `${value.toFixed(1)} s`;
  if (value < 119.5) return `${Math.round(value)} s`;
  if (value < 7170) return `${Math.round(value / 60)} min`;
  if (value < 172800) return `${Math.round(value / 3600)} h`;
  return `${Math.round(value / 86400)} d`;
}
