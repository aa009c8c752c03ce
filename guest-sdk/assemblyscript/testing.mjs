// Runs a module in Node.js, for unit tests: messages in, rows out, no pipeline needed.
//
//     const guest = await load("orders.wasm", { large_from: 500 });
//     const { rows, rejected } = guest.transform([{ value: "…", key: "k" }, { value: null }]);
//
// A message is { value, key, eventTimeMs, attributes }, all optional; values are strings or null, and a missing value is null: a tombstone.
// A row has the same and `route` (null: the main output) and `origin`, the place of the message that it was made of.

import { readFileSync } from "node:fs";
import assert from "node:assert/strict";

const encoder = new TextEncoder();
const decoder = new TextDecoder();
const LEVELS = ["trace", "debug", "info", "warn", "error"];

/** Makes a guest of a module. Throws the reason for which it refuses the config. `logs` takes what it logs. */
export async function load(path, config = null, logs = []) {
  const imports = {
    "weir:udf/log@1.1.0": {
      log: (level, ptr, length) => logs.push(`${LEVELS[level]}: ${guest.text(ptr, length)}`),
    },
  };
  const { instance } = await WebAssembly.instantiate(readFileSync(path), imports);
  const guest = new Guest(instance.exports);
  guest.configure(JSON.stringify(config));
  return guest;
}

class Guest {
  routes = [];

  constructor(exports) {
    this.exports = exports;
    exports._initialize?.();
  }

  configure(config) {
    const bytes = encoder.encode(config);
    const result = this.exports.configure(this.bytes(bytes), bytes.length);
    this.check(result, 4);
    this.routes = this.list(result + 4, 8).map((at) => this.text(this.u32(at), this.u32(at + 4)));
    this.exports.cabi_post_configure?.(result);
  }

  /** Hands messages in as one batch. */
  transform(messages) {
    const batch = this.alloc(120);
    this.writeBatch(batch, messages);
    const result = this.exports.transform(batch);
    this.check(result, 8);
    const output = this.readOutput(result + 8, messages.length);
    this.exports.cabi_post_transform?.(result);
    return output;
  }

  /**
   * Hands messages in as one window of the first one's key and fires it: once with all in one batch, and then with each in a batch
   * of its own, merged at once and one by one. All must give the same rows. What `add` rejected is among `rejected`; panes
   * that could not be emitted are `failed`.
   */
  aggregate(messages, window = { start: 0, end: 60_000 }) {
    const key = messages[0]?.key ?? null;
    const [whole, rejected] = this.accumulate(messages);
    if (whole === null) return { rows: [], rejected, failed: [] };
    const fired = this.fire(key, whole, window);
    const pieces = messages.map((message) => this.accumulate([message])[0]).filter((piece) => piece !== null);
    const ways = { "at once": this.merge(pieces), "one by one": pieces.reduce((sum, piece) => this.merge([sum, piece])) };
    for (const [way, merged] of Object.entries(ways)) {
      assert.deepEqual(this.fire(key, merged, window), fired, `merging ${way} gives other rows than one batch`);
    }
    return { rows: fired.rows, rejected, failed: fired.rejected };
  }

  accumulate(messages) {
    const input = this.alloc(136);
    this.writeBatch(input, messages);
    this.writeNumbers(input + 120, Uint32Array, messages.map((_, row) => row));
    this.writeNumbers(input + 128, Uint32Array, [messages.length]);
    const result = this.exports.accumulate(input);
    this.check(result, 4);
    const fragment = this.readColumn(result + 4, 1)[0];
    const rejected = this.readRejected(result + 28);
    this.exports.cabi_post_accumulate?.(result);
    return [fragment, rejected];
  }

  merge(pieces) {
    const column = this.alloc(24);
    const ends = this.alloc(8);
    this.writeColumn(column, pieces);
    this.writeNumbers(ends, Uint32Array, [pieces.length]);
    const lists = [0, 4, 8, 12, 16, 20].map((at) => this.u32(column + at));
    const result = this.exports.merge(...lists, this.u32(ends), 1);
    this.check(result, 4);
    const merged = this.readColumn(result + 4, 1)[0];
    this.exports.cabi_post_merge?.(result);
    return merged;
  }

  fire(key, accumulator, window) {
    const panes = this.alloc(88);
    this.writeColumn(panes, [key === null ? null : encoder.encode(key)]);
    this.writeNumbers(panes + 24, BigInt64Array, [BigInt(window.start)]);
    this.writeNumbers(panes + 32, BigInt64Array, [BigInt(window.end)]);
    this.writeColumn(panes + 40, [accumulator]);
    this.writeNumbers(panes + 64, Uint32Array, [0]);
    this.writeNumbers(panes + 72, Uint8Array, [1]);
    const result = this.exports.emit(panes);
    this.check(result, 8);
    const output = this.readOutput(result + 8, 1);
    this.exports.cabi_post_emit?.(result);
    return output;
  }

  // Memory may move with every allocation, so that views are made anew each time.

  alloc(size) {
    const at = this.exports.cabi_realloc(0, 0, 8, size);
    new Uint8Array(this.exports.memory.buffer, at, size).fill(0);
    return at;
  }

  bytes(array) {
    if (array.byteLength === 0) return 0;
    const at = this.alloc(array.byteLength);
    new Uint8Array(this.exports.memory.buffer).set(new Uint8Array(array.buffer, array.byteOffset, array.byteLength), at);
    return at;
  }

  view() {
    return new DataView(this.exports.memory.buffer);
  }

  u32(at) {
    return this.view().getUint32(at, true);
  }

  text(ptr, length) {
    return decoder.decode(new Uint8Array(this.exports.memory.buffer, ptr, length).slice());
  }

  check(result, payload) {
    if (this.view().getUint8(result) !== 0) throw new Error(this.text(this.u32(result + payload), this.u32(result + payload + 4)));
  }

  /** Addresses of a list's elements. */
  list(at, size) {
    const [ptr, length] = [this.u32(at), this.u32(at + 4)];
    return Array.from({ length }, (_, i) => ptr + size * i);
  }

  writeNumbers(at, Kind, numbers) {
    const ptr = this.bytes(Kind.from(numbers));
    this.view().setUint32(at, ptr, true);
    this.view().setUint32(at + 4, numbers.length, true);
  }

  /** Rows are bytes or null. */
  writeColumn(at, rows) {
    const some = rows.some((row) => row !== null);
    if (!some) return;
    const all = new Uint8Array(rows.reduce((sum, row) => sum + (row?.length ?? 0), 0));
    const present = new Uint8Array(Math.ceil(rows.length / 8));
    const ends = [];
    let end = 0;
    rows.forEach((row, i) => {
      if (row !== null) {
        all.set(row, end);
        end += row.length;
        present[i >> 3] |= 1 << (i & 7);
      }
      ends.push(end);
    });
    this.writeNumbers(at, Uint8Array, all);
    this.writeNumbers(at + 8, Uint32Array, ends);
    if (rows.includes(null)) this.writeNumbers(at + 16, Uint8Array, present);
  }

  writeBatch(at, messages) {
    const text = (value) => (value === null || value === undefined ? null : encoder.encode(value));
    const attributes = messages.flatMap((message, row) => Object.entries(message.attributes ?? {}).map(([name, value]) => ({ row, name, value })));
    this.writeColumn(at, messages.map((message) => text(message.key)));
    this.writeColumn(at + 24, messages.map((message) => text(message.value)));
    this.writeNumbers(at + 48, BigInt64Array, messages.map((message) => BigInt(message.eventTimeMs ?? 0)));
    this.writeNumbers(at + 56, Uint32Array, attributes.map(({ row }) => row));
    this.writeColumn(at + 64, attributes.map(({ name }) => text(name)));
    this.writeColumn(at + 88, attributes.map(({ value }) => text(value)));
  }

  readColumn(at, rows) {
    const ends = this.list(at + 8, 4).map((end) => this.u32(end));
    if (ends.length === 0) return Array(rows).fill(null);
    assert.equal(ends.length, rows, "a column has one end for each row");
    const [ptr, bits, bitsLength] = [this.u32(at), this.u32(at + 16), this.u32(at + 20)];
    const absent = (i) => bitsLength > 0 && ((this.view().getUint8(bits + (i >> 3)) >> (i & 7)) & 1) === 0;
    const memory = this.exports.memory.buffer;
    return ends.map((end, i) => (absent(i) ? null : new Uint8Array(memory.slice(ptr + (i === 0 ? 0 : ends[i - 1]), ptr + end))));
  }

  readRejected(at) {
    const rows = this.list(at, 4).map((row) => this.u32(row));
    const reasons = this.readColumn(at + 8, rows.length);
    return rows.map((message, i) => ({ message, reason: decoder.decode(reasons[i]) }));
  }

  readOutput(at, messages) {
    const text = (bytes) => (bytes === null ? null : decoder.decode(bytes));
    const times = this.list(at + 48, 8).map((time) => Number(this.view().getBigInt64(time, true)));
    const [keys, values] = [this.readColumn(at, times.length), this.readColumn(at + 24, times.length)];
    const origins = this.list(at + 120, 4).map((origin) => this.u32(origin));
    const routes = this.list(at + 128, 1).map((route) => this.view().getUint8(route));
    assert.ok(origins.length === times.length || (origins.length === 0 && times.length === messages), "one origin for each row");
    const rows = times.map((eventTimeMs, i) => ({
      key: text(keys[i]),
      value: text(values[i]),
      eventTimeMs,
      attributes: {},
      route: routes[i] ? this.routes[routes[i] - 1] : null,
      origin: origins.length === 0 ? i : origins[i],
    }));
    const of = this.list(at + 56, 4).map((row) => this.u32(row));
    const [names, attributes] = [this.readColumn(at + 64, of.length), this.readColumn(at + 88, of.length)];
    of.forEach((row, i) => (rows[row].attributes[text(names[i])] = text(attributes[i])));
    return { rows, rejected: this.readRejected(at + 136) };
  }
}
