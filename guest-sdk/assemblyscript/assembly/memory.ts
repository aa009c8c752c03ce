// Memory that the host reads and writes: views of it, bytes that grow, and columns built row by row.

/** Bytes that somebody else owns: a view. Absent (a tombstone, no key) is not the same as empty. */
@final
export class Bytes {
  constructor(public ptr: usize = 0, public length: i32 = 0, public present: bool = false) {}

  /** A view of a string literal or another text, as UTF-8. */
  static of(text: string): Bytes {
    const buffer = String.UTF8.encode(text);
    return new Bytes(changetype<usize>(buffer), buffer.byteLength, true).keep(buffer);
  }

  private owner: ArrayBuffer | null = null;

  private keep(buffer: ArrayBuffer): Bytes {
    this.owner = buffer;
    return this;
  }

  @inline
  set(ptr: usize, length: i32, present: bool): void {
    this.ptr = ptr;
    this.length = length;
    this.present = present;
  }

  @inline
  at(i: i32): u8 {
    return load<u8>(this.ptr + i);
  }

  slice(from: i32, to: i32): Bytes {
    return new Bytes(this.ptr + from, to - from, true);
  }

  /** The place of a byte; -1 if it is not there. */
  indexOf(byte: u8): i32 {
    for (let i = 0; i < this.length; i++) if (this.at(i) == byte) return i;
    return -1;
  }

  equals(other: Bytes): bool {
    return this.present == other.present && this.length == other.length && memory.compare(this.ptr, other.ptr, this.length) == 0;
  }

  /** As text; absent is the empty string. */
  toString(): string {
    return this.present ? String.UTF8.decodeUnsafe(this.ptr, this.length) : "";
  }

  /** A copy. */
  toArray(): Uint8Array {
    const array = new Uint8Array(this.length);
    memory.copy(array.dataStart, this.ptr, this.length);
    return array;
  }
}

/** Bytes that grow: what `encode` and `migrate` write to. */
@final
export class Buffer {
  ptr: usize = 0;
  length: i32 = 0;
  private capacity: i32 = 0;

  /** Room for more bytes behind those that are there. */
  @inline
  reserve(more: i32): void {
    if (this.length + more > this.capacity) this.grow(more);
  }

  private grow(more: i32): void {
    this.capacity = max(this.capacity * 2, this.length + more + 64);
    this.ptr = this.ptr ? heap.realloc(this.ptr, this.capacity) : heap.alloc(this.capacity);
  }

  @inline
  put(ptr: usize, length: i32): void {
    this.reserve(length);
    memory.copy(this.ptr + this.length, ptr, length);
    this.length += length;
  }

  write(bytes: Bytes): void {
    this.put(bytes.ptr, bytes.length);
  }

  writeText(text: string): void {
    const length = String.UTF8.byteLength(text);
    this.reserve(length);
    String.UTF8.encodeUnsafe(changetype<usize>(text), text.length, this.ptr + this.length);
    this.length += length;
  }

  @inline
  writeU8(value: u8): void {
    this.reserve(1);
    store<u8>(this.ptr + this.length++, value);
  }

  @inline
  writeU32(value: u32): void {
    this.reserve(4);
    store<u32>(this.ptr + this.length, value);
    this.length += 4;
  }

  @inline
  writeI64(value: i64): void {
    this.reserve(8);
    store<i64>(this.ptr + this.length, value);
    this.length += 8;
  }

  @inline
  u32At(i: i32): u32 {
    return load<u32>(this.ptr + 4 * i);
  }
}

// A column lies in memory as three lists, each a pointer and a length: bytes, ends, present.

/** Points a view at a row of a column. */
@inline
export function look(column: usize, row: i32, into: Bytes): void {
  const ends = load<usize>(column, 8);
  if (load<i32>(column, 12) == 0 || (load<i32>(column, 20) > 0 && ((load<u8>(load<usize>(column, 16) + (row >> 3)) >> <u8>(row & 7)) & 1) == 0)) {
    into.set(0, 0, false);
    return;
  }
  const start = row == 0 ? 0 : load<u32>(ends + 4 * (row - 1));
  into.set(load<usize>(column) + start, load<u32>(ends + 4 * row) - start, true);
}

/** The bits of a byte that stand for rows before this one. */
@inline
function below(row: i32): u8 {
  return ((<u8>1) << <u8>(row & 7)) - 1;
}

/** A column that grows. Ends stay empty while all rows are absent, `present` while none is. */
@final
export class Builder {
  bytes: Buffer = new Buffer();
  private ends: Buffer = new Buffer();
  private bits: Buffer = new Buffer();
  rows: i32 = 0;

  reset(): void {
    this.bytes.length = this.ends.length = this.bits.length = this.rows = 0;
  }

  @inline
  push(row: Bytes): void {
    if (row.present) {
      this.bytes.put(row.ptr, row.length);
      this.endRow();
    } else {
      this.pushAbsent();
    }
  }

  pushAbsent(): void {
    if (this.ends.length > 0) {
      this.mark(false, true);
      this.ends.writeU32(this.bytes.length);
    }
    this.rows++;
  }

  /** Ends a present row: all bytes since the last end are its. */
  @inline
  endRow(): void {
    if (this.ends.length == 0 && this.rows > 0) {
      for (let i = 0; i < this.rows; i++) this.ends.writeU32(0);
      this.mark(true, false);
    } else if (this.bits.length > 0) {
      this.mark(true, false);
    }
    this.ends.writeU32(this.bytes.length);
    this.rows++;
  }

  /** Gives up bytes of a row that was not ended. */
  undoRow(): void {
    this.bytes.length = this.ends.length == 0 ? 0 : this.ends.u32At(this.ends.length / 4 - 1);
  }

  /** Adds rows of a column, in one piece where nothing is absent. */
  pushRows(column: usize, from: i32, to: i32, scratch: Bytes): void {
    if (from == to) return;
    const whole = load<i32>(column, 12) > 0 && load<i32>(column, 20) == 0 && this.bits.length == 0 && this.ends.length == this.rows * 4;
    if (!whole) {
      for (let row = from; row < to; row++) {
        look(column, row, scratch);
        this.push(scratch);
      }
      return;
    }
    const ends = load<usize>(column, 8);
    const start = from == 0 ? 0 : load<u32>(ends + 4 * (from - 1));
    const shift = <u32>this.bytes.length - start;
    this.bytes.put(load<usize>(column) + start, load<u32>(ends + 4 * (to - 1)) - start);
    this.ends.reserve(4 * (to - from));
    for (let row = from; row < to; row++) this.ends.writeU32(load<u32>(ends + 4 * row) + shift);
    this.rows += to - from;
  }

  truncate(rows: i32): void {
    if (rows >= this.rows) return;
    this.rows = rows;
    this.ends.length = min(this.ends.length, rows * 4);
    this.undoRow();
    if (this.bits.length > 0) {
      this.bits.length = (rows + 7) / 8;
      const last = this.bits.ptr + rows / 8;
      if (rows % 8 != 0) store<u8>(last, load<u8>(last) & below(rows));
    }
  }

  /** Writes the column's three lists. */
  finish(column: usize): void {
    const all = this.ends.length > 0;
    store<usize>(column, this.bytes.ptr);
    store<i32>(column, all ? this.bytes.length : 0, 4);
    store<usize>(column, this.ends.ptr, 8);
    store<i32>(column, all ? this.rows : 0, 12);
    store<usize>(column, this.bits.ptr, 16);
    store<i32>(column, all ? this.bits.length : 0, 20);
  }

  /** Writes down whether the next row is present and, at first, all before it. */
  private mark(present: bool, before: bool): void {
    const row = this.rows;
    if (this.bits.length == 0) {
      for (let i = 0; i <= row / 8; i++) this.bits.writeU8(before ? 0xff : 0);
      if (before) store<u8>(this.bits.ptr + row / 8, below(row));
    } else if (row % 8 == 0) {
      this.bits.writeU8(0);
    }
    const at = this.bits.ptr + row / 8;
    if (present) store<u8>(at, load<u8>(at) | (below(row) + 1));
  }
}

/** Writes a list: pointer and length. */
@inline
export function setList(at: usize, ptr: usize, length: i32): void {
  store<usize>(at, ptr);
  store<i32>(at, length, 4);
}

// What the host hands in lies in chunks that are used again once the answer has been read. A chunk begins with the one before it.
let chunk: usize = 0;
let capacity: usize = 0;
let used: usize = 0;

export function cabi_realloc(old: usize, oldSize: usize, alignment: usize, size: usize): usize {
  const wanted = (size + 7) & ~7;
  if (chunk == 0 || wanted > capacity - used) {
    capacity = max(max(capacity * 2, wanted), 65536);
    const fresh = heap.alloc(capacity + 8);
    store<usize>(fresh, chunk);
    chunk = fresh;
    used = 0;
  }
  const ptr = chunk + 8 + used;
  used += wanted;
  if (old) memory.copy(ptr, old, min(oldSize, size));
  return ptr;
}

/** Keeps the newest chunk, which is the largest. */
export function freeAll(): void {
  if (chunk == 0) return;
  let before = load<usize>(chunk);
  while (before) {
    const next = load<usize>(before);
    heap.free(before);
    before = next;
  }
  store<usize>(chunk, 0);
  used = 0;
}
