// A message as one row of a batch, and what collects the rows that are made of it.

import { Buffer, Builder, Bytes, look, setList } from "./memory";

// Where the lists of a batch lie within it.
export const KEYS: usize = 0;
export const VALUES: usize = 24;
export const TIMES: usize = 48;
const ATTRIBUTE_ROWS: usize = 56;
const ATTRIBUTE_NAMES: usize = 64;
const ATTRIBUTE_VALUES: usize = 88;
export const RECEIVED: usize = 112;
export const BATCH_SIZE: usize = 120;

/** One message: a view, used again for the next one. */
@final
export class Message {
  key: Bytes = new Bytes();
  /** Absent: a tombstone, which is not the same as empty. */
  value: Bytes = new Bytes();
  /** Milliseconds since the Unix epoch. */
  eventTimeMs: i64 = 0;
  /** When the host received the message. The only clock there is. */
  receivedMs: i64 = 0;
  row: i32 = 0;
  private batch: usize = 0;
  private first: i32 = 0;
  private last: i32 = 0;

  attributesLength(): i32 {
    return this.last - this.first;
  }

  attributeName(i: i32): Bytes {
    const name = new Bytes();
    look(this.batch + ATTRIBUTE_NAMES, this.first + i, name);
    return name;
  }

  attributeValue(i: i32): Bytes {
    const value = new Bytes();
    look(this.batch + ATTRIBUTE_VALUES, this.first + i, value);
    return value;
  }

  /** The value of the first attribute of this name; absent if there is none. */
  attribute(name: string): Bytes {
    const wanted = Bytes.of(name);
    for (let i = 0; i < this.attributesLength(); i++) {
      if (this.attributeName(i).equals(wanted)) return this.attributeValue(i);
    }
    return new Bytes();
  }

  /** Points at a row. `next` is the first attribute that may be its own; handed back is that of the next row. */
  at(batch: usize, row: i32, next: i32): i32 {
    this.batch = batch;
    this.row = row;
    look(batch + KEYS, row, this.key);
    look(batch + VALUES, row, this.value);
    this.eventTimeMs = load<i64>(load<usize>(batch + TIMES) + 8 * row);
    this.receivedMs = load<i64>(batch + RECEIVED);
    const rows = load<usize>(batch + ATTRIBUTE_ROWS);
    const count = load<i32>(batch + ATTRIBUTE_ROWS + 4);
    while (next < count && <i32>load<u32>(rows + 4 * next) < row) next++;
    this.first = next;
    while (next < count && <i32>load<u32>(rows + 4 * next) == row) next++;
    this.last = next;
    return next;
  }

  /** Points at a row among others in any order. */
  seek(batch: usize, row: i32): void {
    const rows = load<usize>(batch + ATTRIBUTE_ROWS);
    let low = 0;
    let high = load<i32>(batch + ATTRIBUTE_ROWS + 4);
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (<i32>load<u32>(rows + 4 * middle) < row) low = middle + 1;
      else high = middle;
    }
    this.at(batch, row, low);
  }
}

/** A row to be emitted: `Emitter.row` makes one that is like the message at hand. */
@final
export class Row {
  /** 0 is the main output, n the n-th of `routes`. */
  route: u8 = 0;
  /** Leave out the message's own attributes. */
  withoutAttributes: bool = false;
  names: Bytes[] = [];
  values: Bytes[] = [];

  constructor(public key: Bytes, public value: Bytes, public eventTimeMs: i64) {}

  /** With this attribute, in place of those of the message that have the same name. */
  attribute(name: string, value: Bytes): void {
    this.names.push(Bytes.of(name));
    this.values.push(value);
  }
}

/** Takes what becomes of the message at hand. */
@final
export class Emitter {
  private input: usize = 0;
  private message: Message = new Message();
  // Rows that were forwarded and not copied yet; they follow all others.
  private runFrom: i32 = 0;
  private runTo: i32 = 0;
  private keys: Builder = new Builder();
  private values: Builder = new Builder();
  private times: Buffer = new Buffer();
  private attributeRows: Buffer = new Buffer();
  private attributeNames: Builder = new Builder();
  private attributeValues: Builder = new Builder();
  private origins: Buffer = new Buffer();
  private routes: Buffer = new Buffer();
  private rejectedRows: Buffer = new Buffer();
  private reasons: Builder = new Builder();
  private scratch: Bytes = new Bytes();
  private copied: Message = new Message();

  /** Emits a row with this value; key, event time and attributes are the message's. */
  emit(value: Bytes): void {
    this.write(value);
    this.end();
  }

  /** The same, of a text. */
  emitText(value: string): void {
    this.writeText(value);
    this.end();
  }

  /** The same piece by piece, written into the output's buffer: any number of `write` and `writeText`, then `end` or `endRow`. */
  write(bytes: Bytes): void {
    this.flush();
    this.values.bytes.put(bytes.ptr, bytes.length);
  }

  writeText(text: string): void {
    this.flush();
    this.values.bytes.writeText(text);
  }

  /** Emits what was written. */
  end(): void {
    this.values.endRow();
    this.keys.push(this.message.key);
    this.keepAttributes(null);
    this.put(this.message.eventTimeMs, 0);
  }

  /** Emits what was written, with everything else as in the row. */
  endRow(row: Row): void {
    this.flush();
    this.values.endRow();
    this.finishRow(row);
  }

  /** Passes the message on unchanged. An aggregator passes on its accumulator as it was written down. */
  forward(): void {
    const at = this.message.row;
    if (this.runFrom == this.runTo || this.runTo != at) {
      this.flush();
      this.runFrom = at;
    }
    this.runTo = at + 1;
  }

  /** The same, to a route. */
  forwardTo(route: u8): void {
    if (route == 0) return this.forward();
    const row = this.row();
    row.route = route;
    this.emitRow(row);
  }

  /** A row like the message at hand, to be changed and emitted. */
  row(): Row {
    return new Row(this.message.key, this.message.value, this.message.eventTimeMs);
  }

  emitRow(row: Row): void {
    this.flush();
    this.values.undoRow();
    this.values.push(row.value);
    this.finishRow(row);
  }

  private finishRow(row: Row): void {
    this.keys.push(row.key);
    for (let i = 0; i < row.names.length; i++) this.putAttribute(row.names[i], row.values[i]);
    if (!row.withoutAttributes) this.keepAttributes(row);
    this.put(row.eventTimeMs, row.route);
  }

  private keepAttributes(row: Row | null): void {
    for (let i = 0; i < this.message.attributesLength(); i++) {
      const name = this.message.attributeName(i);
      let replaced = false;
      if (row) for (let j = 0; j < row.names.length; j++) replaced = replaced || row.names[j].equals(name);
      if (!replaced) this.putAttribute(name, this.message.attributeValue(i));
    }
  }

  private putAttribute(name: Bytes, value: Bytes): void {
    this.attributeRows.writeU32(this.origins.length / 4);
    this.attributeNames.push(name);
    this.attributeValues.push(value);
  }

  @inline
  private put(eventTimeMs: i64, route: u8): void {
    this.putOf(eventTimeMs, this.message.row, route);
  }

  @inline
  private putOf(eventTimeMs: i64, origin: i32, route: u8): void {
    if (route != 0 || this.routes.length > 0) {
      while (this.routes.length < this.origins.length / 4) this.routes.writeU8(0);
      this.routes.writeU8(route);
    }
    this.times.writeI64(eventTimeMs);
    this.origins.writeU32(origin);
  }

  /** Copies the rows that were only forwarded so far. */
  @inline
  private flush(): void {
    if (this.runFrom != this.runTo) this.copyRun();
  }

  private copyRun(): void {
    const from = this.runFrom, to = this.runTo;
    this.runFrom = this.runTo = 0;
    this.keys.pushRows(this.input + KEYS, from, to, this.scratch);
    this.values.pushRows(this.input + VALUES, from, to, this.scratch);
    const any = load<i32>(this.input + ATTRIBUTE_ROWS + 4) > 0;
    for (let row = from; row < to; row++) {
      if (any) {
        this.copied.seek(this.input, row);
        for (let i = 0; i < this.copied.attributesLength(); i++) this.putAttribute(this.copied.attributeName(i), this.copied.attributeValue(i));
      }
      this.putOf(load<i64>(load<usize>(this.input + TIMES) + 8 * row), row, 0);
    }
  }

  begin(input: usize, message: Message): void {
    this.keys.reset();
    this.values.reset();
    this.attributeNames.reset();
    this.attributeValues.reset();
    this.reasons.reset();
    this.times.length = this.attributeRows.length = this.origins.length = this.routes.length = this.rejectedRows.length = 0;
    this.runFrom = this.runTo = 0;
    this.input = input;
    this.message = message;
  }

  /** Gives up what was written and not ended. */
  @inline
  settle(): void {
    this.values.undoRow();
  }

  /** Undoes what the message at hand emitted, and rejects it. */
  reject(reason: string): void {
    const row = this.message.row;
    if (this.runFrom < this.runTo && this.runTo == row + 1) this.runTo = row;
    // Only the message at hand emits with its own number, so its rows are the last ones.
    let kept = this.origins.length / 4;
    while (kept > 0 && <i32>this.origins.u32At(kept - 1) == row) kept--;
    this.keys.truncate(kept);
    this.values.truncate(kept);
    this.values.undoRow();
    this.times.length = kept * 8;
    this.origins.length = kept * 4;
    this.routes.length = min(this.routes.length, kept);
    let attributes = this.attributeRows.length / 4;
    while (attributes > 0 && <i32>this.attributeRows.u32At(attributes - 1) >= kept) attributes--;
    this.attributeRows.length = attributes * 4;
    this.attributeNames.truncate(attributes);
    this.attributeValues.truncate(attributes);
    this.rejectedRows.writeU32(row);
    this.reasons.push(Bytes.of(reason));
  }

  /** Writes the output record. */
  finish(output: usize): void {
    const rows = load<i32>(this.input + TIMES + 4);
    memory.fill(output, 0, BATCH_SIZE + 48);
    if (this.origins.length == 0 && this.rejectedRows.length == 0 && this.runFrom == 0 && this.runTo == rows) {
      memory.copy(output, this.input, BATCH_SIZE); // all was forwarded: the input goes back as it is
      return;
    }
    this.flush();
    this.keys.finish(output + KEYS);
    this.values.finish(output + VALUES);
    setList(output + TIMES, this.times.ptr, this.times.length / 8);
    setList(output + ATTRIBUTE_ROWS, this.attributeRows.ptr, this.attributeRows.length / 4);
    this.attributeNames.finish(output + ATTRIBUTE_NAMES);
    this.attributeValues.finish(output + ATTRIBUTE_VALUES);
    store<i64>(output + RECEIVED, load<i64>(this.input + RECEIVED));
    setList(output + BATCH_SIZE, this.origins.ptr, this.origins.length / 4);
    setList(output + BATCH_SIZE + 8, this.routes.ptr, this.routes.length);
    setList(output + BATCH_SIZE + 16, this.rejectedRows.ptr, this.rejectedRows.length / 4);
    this.reasons.finish(output + BATCH_SIZE + 24);
  }
}
