// Reads JSON text in place: enough for guests that look at some members of an object. Numbers stay text.

import { Bytes } from "./memory";

const DEPTH_MAX = 127;

let at: usize = 0;
let end: usize = 0;

@inline
function peek(): i32 {
  return at < end ? <i32>load<u8>(at) : -1;
}

@inline
function space(): void {
  for (let c = peek(); c == 0x20 || c == 0x0a || c == 0x0d || c == 0x09; c = peek()) at++;
}

function isHex(c: i32): bool {
  return (c >= 0x30 && c <= 0x39) || ((c | 0x20) >= 0x61 && (c | 0x20) <= 0x66);
}

const ONES: u64 = 0x0101010101010101;

/** Past bytes that stand in a string as they are, eight at a time: up to a quote, a backslash or a control character. */
@inline
function plain(): void {
  while (at + 8 <= end) {
    const word = load<u64>(at);
    const quote = word ^ (ONES * 0x22);
    const slash = word ^ (ONES * 0x5c);
    const found = ((quote - ONES) & ~quote) | ((slash - ONES) & ~slash) | ((word - ONES * 0x20) & ~word);
    if (found & (ONES << 7)) return;
    at += 8;
  }
}

/** Past a string. */
function quoted(): bool {
  if (peek() != 0x22) return false;
  at++;
  plain();
  while (at < end) {
    const c = load<u8>(at++);
    if (c == 0x22) return true;
    if (c < 0x20) return false;
    if (c != 0x5c) continue;
    const escape = peek();
    at++;
    if (escape == 0x75) {
      for (let i = 0; i < 4; i++, at++) if (!isHex(peek())) return false;
    } else if (escape != 0x22 && escape != 0x5c && escape != 0x2f && escape != 0x62 && escape != 0x66 && escape != 0x6e && escape != 0x72 && escape != 0x74) {
      return false;
    }
  }
  return false;
}

function digits(): i32 {
  const from = at;
  for (let c = peek(); c >= 0x30 && c <= 0x39; c = peek()) at++;
  return <i32>(at - from);
}

function numeral(): bool {
  if (peek() == 0x2d) at++;
  const zero = peek() == 0x30;
  const whole = digits();
  if (whole == 0 || (zero && whole > 1)) return false;
  if (peek() == 0x2e) {
    at++;
    if (digits() == 0) return false;
  }
  if ((peek() | 0x20) == 0x65) {
    at++;
    if (peek() == 0x2b || peek() == 0x2d) at++;
    if (digits() == 0) return false;
  }
  return true;
}

function word(text: string): bool {
  for (let i = 0; i < text.length; i++, at++) if (peek() != text.charCodeAt(i)) return false;
  return true;
}

/** Past a value of any kind. */
function value(depth: i32): bool {
  const c = peek();
  if (c == 0x22) return quoted();
  if (c == 0x74) return word("true");
  if (c == 0x66) return word("false");
  if (c == 0x6e) return word("null");
  if (c != 0x7b && c != 0x5b) return numeral();
  if (depth >= DEPTH_MAX) return false;
  const close = c + 2; // both kinds
  at++;
  space();
  if (peek() == close) {
    at++;
    return true;
  }
  while (true) {
    if (c == 0x7b && !name()) return false;
    if (!value(depth + 1)) return false;
    space();
    const next = peek();
    at++;
    if (next == close) return true;
    if (next != 0x2c) return false;
    space();
  }
}

/** Past a member's name and colon. */
function name(): bool {
  if (!quoted()) return false;
  space();
  if (peek() != 0x3a) return false;
  at++;
  space();
  return true;
}

/** Some members of an object, looked up again and again. */
@final
export class Members {
  private names: Bytes[] = [];
  /** The values as they stand, in the order of the names; absent: not there. The last one counts if there are several. */
  values: Bytes[] = [];

  constructor(names: string[]) {
    for (let i = 0; i < names.length; i++) {
      this.names.push(Bytes.of(names[i]));
      this.values.push(new Bytes());
    }
  }

  /** Looks them up. False if the text is not one JSON object. Names with escapes in the text are not recognized. */
  find(text: Bytes): bool {
    for (let i = 0; i < this.values.length; i++) this.values[i].set(0, 0, false);
    at = text.ptr;
    end = text.ptr + text.length;
    space();
    if (peek() != 0x7b) return false;
    at++;
    space();
    let more = peek() != 0x7d;
    if (!more) at++;
    while (more) {
      const from = at + 1;
      if (!quoted()) return false;
      const length = <i32>(at - from) - 1;
      space();
      if (peek() != 0x3a) return false;
      at++;
      space();
      const start = at;
      if (!value(1)) return false;
      for (let i = 0; i < this.names.length; i++) {
        const known = this.names[i];
        if (known.length == length && memory.compare(known.ptr, from, length) == 0) this.values[i].set(start, <i32>(at - start), true);
      }
      space();
      const next = peek();
      at++;
      if (next != 0x2c && next != 0x7d) return false;
      more = next == 0x2c;
      space();
    }
    space();
    return at == end;
  }
}

/** Whether a value is a whole number that fits; `toInt` then reads it. */
export function isInt(text: Bytes): bool {
  const negative = text.length > 0 && text.at(0) == 0x2d;
  let i = negative ? 1 : 0;
  const count = text.length - i;
  if (count == 0 || count > 19 || (text.at(i) == 0x30 && count > 1)) return false;
  let sum: u64 = 0;
  for (; i < text.length; i++) {
    const digit = text.at(i) - 0x30;
    if (digit > 9) return false;
    sum = sum * 10 + digit;
  }
  return sum <= (negative ? <u64>1 << 63 : <u64>i64.MAX_VALUE);
}

export function toInt(text: Bytes): i64 {
  const negative = text.length > 0 && text.at(0) == 0x2d;
  let sum: i64 = 0;
  for (let i = negative ? 1 : 0; i < text.length; i++) sum = sum * 10 + (text.at(i) - 0x30);
  return negative ? -sum : sum;
}

/** What lies between the quotes of a string, escapes as they stand; absent for other values. */
export function inner(text: Bytes): Bytes {
  if (text.length < 2 || text.at(0) != 0x22) return new Bytes();
  return text.slice(1, text.length - 1);
}

/** Whether a value is there and not null. */
export function given(text: Bytes): bool {
  return text.present && !(text.length == 4 && text.at(0) == 0x6e);
}
