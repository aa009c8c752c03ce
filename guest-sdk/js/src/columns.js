// Columns of byte strings, as the contract has them: {bytes, ends, present}. Row i is bytes[ends[i - 1]..ends[i]];
// no ends at all: every row is absent; an empty `present`: none is.
//
// The engine interprets, so every step of JavaScript for each row counts, and its built-in functions over long texts cost next
// to nothing: texts are joined and encoded all at once.

export const NO_BYTES = new Uint8Array(0);
export const NO_ROWS = new Uint32Array(0);
export const ABSENT = { bytes: NO_BYTES, ends: NO_ROWS, present: NO_BYTES };
const encoder = new TextEncoder();

/** True if a row is absent. */
export function absent(column, row) {
  return column.ends.length === 0 || (column.present.length !== 0 && (column.present[row >> 3] & (1 << (row & 7))) === 0);
}

/** A row's bytes, or null. */
export function get(column, row) {
  if (absent(column, row)) return null;
  return column.bytes.subarray(row === 0 ? 0 : column.ends[row - 1], column.ends[row]);
}

/** True for what a key or value can be given as. */
export function isPiece(piece) {
  return typeof piece === "string" || piece === null || piece instanceof Uint8Array;
}

/** A column of texts, bytes and nulls. */
export function columnOf(pieces) {
  return joined(pieces) ?? new Builder(pieces.length).add(pieces).column();
}

/**
 * A column of as many rows as there are origins: a piece, or, where that is undefined, the row of the input that the origin
 * names. `identity`: each row's origin is the row itself.
 */
export function columnFrom(pieces, input, origins, identity) {
  if (pieces.length === 0 && (identity || input.ends.length === 0)) return input;
  pieces.length = origins.length;
  return joined(pieces) ?? new Builder(origins.length).add(pieces, input, origins).column();
}

/** The column if all pieces are texts of one byte for each character, as most are. */
function joined(pieces) {
  const rows = pieces.length;
  if (typeof pieces[0] !== "string") return undefined;
  const ends = new Uint32Array(rows);
  let length = 0;
  for (let row = 0; row < rows; row++) {
    const piece = pieces[row];
    if (typeof piece !== "string") return undefined;
    ends[row] = length += piece.length;
  }
  const bytes = encoder.encode(pieces.join(""));
  return bytes.length === length ? { bytes, ends, present: NO_BYTES } : undefined;
}

/** Makes a column row by row, of anything. */
class Builder {
  constructor(rows) {
    this.bytes = new Uint8Array(1024);
    this.length = 0;
    this.ends = new Uint32Array(rows);
    this.rows = 0;
    this.absent = [];
  }

  add(pieces, input, origins) {
    for (let row = 0; row < pieces.length; row++) {
      const piece = pieces[row];
      if (typeof piece === "string") this.text(piece);
      else if (piece instanceof Uint8Array) this.copy(piece);
      else if (piece === null) this.absent.push(row);
      else {
        // As many neighbours of the input as go on side by side.
        let last = row + 1;
        while (last < pieces.length && pieces[last] === undefined && origins[last] === origins[last - 1] + 1) last++;
        this.extend(input, origins[row], origins[row] + last - row);
        row = last - 1;
        continue;
      }
      this.ends[this.rows++] = this.length;
    }
    return this;
  }

  room(length) {
    if (this.length + length <= this.bytes.length) return;
    const larger = new Uint8Array(Math.max(this.length + length, this.bytes.length * 2));
    larger.set(this.bytes);
    this.bytes = larger;
  }

  text(piece) {
    this.room(piece.length * 3); // a character becomes three bytes at most
    this.length += encoder.encodeInto(piece, this.bytes.subarray(this.length)).written;
  }

  copy(bytes) {
    this.room(bytes.length);
    this.bytes.set(bytes, this.length);
    this.length += bytes.length;
  }

  extend(input, first, last) {
    const whole = input.ends.length !== 0;
    const start = !whole || first === 0 ? 0 : input.ends[first - 1];
    const shift = this.length - start;
    if (whole) this.copy(input.bytes.subarray(start, input.ends[last - 1]));
    for (let row = first; row < last; row++) {
      if (absent(input, row)) this.absent.push(this.rows);
      this.ends[this.rows++] = whole ? input.ends[row] + shift : this.length;
    }
  }

  column() {
    if (this.absent.length === this.rows) return ABSENT;
    let present = NO_BYTES;
    if (this.absent.length !== 0) {
      present = new Uint8Array((this.rows + 7) >> 3).fill(255);
      for (const row of this.absent) present[row >> 3] &= ~(1 << (row & 7));
    }
    return { bytes: this.bytes.subarray(0, this.length), ends: this.ends, present };
  }
}
