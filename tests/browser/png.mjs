// A screenshot with a palette: pictures of a page need few colours, and a file
// that is committed should be small.

import { readFileSync, writeFileSync } from "node:fs";
import { crc32, deflateSync } from "node:zlib";

const COLOURS = 256;

// Writes the PNG `bytes` to `path` in at most 256 colours. `page` decodes it.
export async function writeSmall(page, bytes, path) {
  const picture = await pixels(page, bytes);
  const palette = popular(picture.data);
  const indices = lookUp(picture.data, palette);
  const rows = Buffer.alloc(picture.height * (picture.width + 1));
  for (let y = 0; y < picture.height; y += 1) {
    indices.copy(rows, y * (picture.width + 1) + 1, y * picture.width, (y + 1) * picture.width);
  }
  const header = Buffer.alloc(13);
  header.writeUInt32BE(picture.width, 0);
  header.writeUInt32BE(picture.height, 4);
  header.set([8, 3, 0, 0, 0], 8);
  const parts = [
    Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]),
    chunk("IHDR", header),
    chunk("PLTE", Buffer.from(palette.flat())),
    chunk("IDAT", deflateSync(rows, { level: 9 })),
    chunk("IEND", Buffer.alloc(0)),
  ];
  writeFileSync(path, Buffer.concat(parts));
  return readFileSync(path).length;
}

async function pixels(page, bytes) {
  const found = await page.evaluate(async (text) => {
    const raw = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    const bitmap = await createImageBitmap(new Blob([raw], { type: "image/png" }));
    const canvas = new OffscreenCanvas(bitmap.width, bitmap.height);
    const context = canvas.getContext("2d");
    context.drawImage(bitmap, 0, 0);
    const { data } = context.getImageData(0, 0, bitmap.width, bitmap.height);
    let binary = "";
    for (let at = 0; at < data.length; at += 32_768) binary += String.fromCharCode(...data.subarray(at, at + 32_768));
    return { width: bitmap.width, height: bitmap.height, data: btoa(binary) };
  }, bytes.toString("base64"));
  return { ...found, data: Buffer.from(found.data, "base64") };
}

// The most frequent colours.
function popular(data) {
  const seen = new Map();
  for (let at = 0; at < data.length; at += 4) {
    const colour = (data[at] << 16) | (data[at + 1] << 8) | data[at + 2];
    seen.set(colour, (seen.get(colour) ?? 0) + 1);
  }
  const first = [...seen].sort((one, other) => other[1] - one[1]).slice(0, COLOURS);
  return first.map(([colour]) => [colour >> 16, (colour >> 8) & 255, colour & 255]);
}

// For each pixel the nearest of them.
function lookUp(data, palette) {
  const known = new Map();
  const nearest = (r, g, b) => {
    let best = 0;
    let least = Infinity;
    palette.forEach(([pr, pg, pb], index) => {
      const off = (r - pr) ** 2 + (g - pg) ** 2 + (b - pb) ** 2;
      if (off < least) [best, least] = [index, off];
    });
    return best;
  };
  const indices = Buffer.alloc(data.length / 4);
  for (let at = 0; at < data.length; at += 4) {
    const colour = (data[at] << 16) | (data[at + 1] << 8) | data[at + 2];
    if (!known.has(colour)) known.set(colour, nearest(data[at], data[at + 1], data[at + 2]));
    indices[at / 4] = known.get(colour);
  }
  return indices;
}

function chunk(name, data) {
  const body = Buffer.concat([Buffer.from(name, "latin1"), data]);
  const framed = Buffer.alloc(body.length + 8);
  framed.writeUInt32BE(data.length, 0);
  body.copy(framed, 4);
  framed.writeUInt32BE(crc32(body), body.length + 4);
  return framed;
}
