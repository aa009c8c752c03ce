// A message: one place in a batch, moved on from message to message, so that none costs an object.

import { get } from "./columns.js";

const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

export class Message {
  /** Begins with a batch. */
  start(batch) {
    this.batch = batch;
    this.row = 0;
    this.firstAttribute = this.lastAttribute = 0;
    this.ends = batch.values.ends;
    // All values as one text in which a character is a byte; undefined: not tried yet, null: it is not so.
    this.whole = undefined;
    // Event times in halves: 64-bit numbers of JavaScript cost an object each.
    const times = batch.eventTimes;
    this.times = new Int32Array(times.buffer, times.byteOffset, times.length * 2);
  }

  /** Moves on to a row of a batch with attributes; without, setting `row` is enough. */
  move(row) {
    this.row = row;
    const rows = this.batch.attributes.rows;
    let at = row < rows[this.firstAttribute] ? 0 : this.lastAttribute;
    while (at < rows.length && rows[at] < row) at++;
    this.firstAttribute = at;
    while (at < rows.length && rows[at] === row) at++;
    this.lastAttribute = at;
  }

  get value() {
    return get(this.batch.values, this.row);
  }

  get key() {
    return get(this.batch.keys, this.row);
  }

  get eventTime() {
    return this.times[this.row * 2 + 1] * 4294967296 + (this.times[this.row * 2] >>> 0);
  }

  get received() {
    return Number(this.batch.receivedMs);
  }

  get attributes() {
    const { names, values } = this.batch.attributes;
    const found = [];
    for (let i = this.firstAttribute; i < this.lastAttribute; i++) found.push([decoder.decode(get(names, i)), get(values, i)]);
    return found;
  }

  attribute(name) {
    return this.attributes.find(([found]) => found === name)?.[1] ?? null;
  }

  text() {
    const whole = this.whole;
    if (!whole) return this.oneText();
    const row = this.row;
    return whole.substring(row === 0 ? 0 : this.ends[row - 1], this.ends[row]);
  }

  oneText() {
    const { values } = this.batch;
    if (this.whole === undefined) {
      this.whole = ascii(values);
      if (this.whole) return this.text();
    }
    const bytes = this.value;
    if (bytes === null) return null;
    try {
      return decoder.decode(bytes);
    } catch {
      throw new Error("not UTF-8");
    }
  }

  json() {
    const text = this.text();
    if (text === null) return null;
    try {
      return JSON.parse(text);
    } catch {
      throw new Error("not JSON");
    }
  }
}

/** A column as a text of as many characters as bytes; null where that is not possible. One long text is decoded much faster than many short ones. */
function ascii(column) {
  if (column.ends.length === 0 || column.present.length !== 0) return null;
  try {
    const text = decoder.decode(column.bytes);
    return text.length === column.bytes.length ? text : null;
  } catch {
    return null;
  }
}
