// Debian's Chromium, driven by playwright-core, and what a page of ours must
// never do: report an error, break its policy, ask another host.

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { chromium } from "playwright-core";

const FLAGS = [
  "--headless",
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];

export class Browser {
  static async open(options = {}) {
    const browser = new Browser();
    browser.folder = mkdtempSync(join(tmpdir(), "tidegate-chromium-"));
    browser.context = await chromium.launchPersistentContext(browser.folder, {
      executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
      args: FLAGS,
      viewport: { width: 1280, height: 900 },
      locale: "en-GB",
      ...options,
    });
    return browser;
  }

  // A page that keeps what it complains of, and how far things have moved.
  async page(url) {
    const page = await this.context.newPage();
    page.complaints = [];
    page.foreign = [];
    page.on("console", (message) => {
      if (["error", "warning"].includes(message.type())) page.complaints.push(message.text());
    });
    page.on("pageerror", (problem) => page.complaints.push(String(problem)));
    page.on("request", (request) => {
      if (!request.url().startsWith(url)) page.foreign.push(request.url());
    });
    await page.addInitScript(() => {
      window.shifted = 0;
      window.violations = [];
      new PerformanceObserver((list) => {
        for (const entry of list.getEntries()) if (!entry.hadRecentInput) window.shifted += entry.value;
      }).observe({ type: "layout-shift", buffered: true });
      document.addEventListener("securitypolicyviolation", (event) => window.violations.push(event.violatedDirective));
    });
    await page.goto(url);
    return page;
  }

  async close() {
    await this.context.close();
    rmSync(this.folder, { recursive: true, force: true });
  }
}

// The lowest contrast of any text against what is behind it (WCAG 2.2), and whose it is.
export function contrast(page) {
  return page.evaluate(() => {
    const parse = (color) => color.match(/[\d.]+/g).map(Number);
    const light = (color) => {
      const [r, g, b] = parse(color).slice(0, 3).map((part) => {
        const share = part / 255;
        return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
      });
      return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const behind = (node) => {
      for (let at = node; at; at = at.parentElement) {
        const color = getComputedStyle(at).backgroundColor;
        const [, , , alpha = 1] = parse(color);
        if (alpha > 0) return color;
      }
      return "rgb(255, 255, 255)";
    };
    let worst = { ratio: 21, text: "" };
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
      const node = walker.currentNode.parentElement;
      const text = walker.currentNode.textContent.trim();
      if (text === "" || !node.checkVisibility() || node.closest("noscript, script, .hidden, .skip")) continue;
      const style = getComputedStyle(node);
      const ink = node instanceof SVGElement ? style.fill : style.color;
      const [one, other] = [light(ink), light(behind(node))].sort((a, b) => b - a);
      const ratio = (one + 0.05) / (other + 0.05);
      if (ratio < worst.ratio) worst = { ratio, text };
    }
    return worst;
  });
}
