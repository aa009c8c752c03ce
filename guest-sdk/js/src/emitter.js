// Collects what becomes of a batch. What is emitted is only noted at first, in plain lists with holes for what stays as it is
// in the input; the flat lists that go back to the host are made at the end of the batch, at once.

import { ABSENT, columnFrom, columnOf, get, isPiece, NO_BYTES, NO_ROWS } from "./columns.js";

export class Emitter {
  constructor(message, routes) {
    this.message = message;
    this.numbers = new Map(routes.map((name, place) => [name, place + 1]));
  }

  start(batch) {
    this.batch = batch;
    /** As long as all that happened is that rows 0, 1, 2, … were forwarded: how many. */
    this.forwarded = 0;
    // Of each output row:
    this.origins = [];
    this.keys = [];
    this.values = [];
    this.times = [];
    this.attributes = [];
    this.routes = [];
    // Of each rejected row:
    this.rejectedRows = [];
    this.reasons = [];
  }

  forward(route) {
    const row = this.message.row;
    if (route === undefined) {
      if (this.forwarded === row) {
        this.forwarded = row + 1;
        return;
      }
      this.spell();
      this.origins.push(row);
      return;
    }
    const number = this.number(route);
    this.spell();
    if (number !== 0) this.routes[this.origins.length] = number;
    this.origins.push(row);
  }

  emit(value, changes) {
    if (typeof value !== "string" && !isPiece(value)) throw new TypeError("a value is a text, a Uint8Array or null: use json() for anything else");
    if (this.forwarded !== -1) this.spell();
    const row = this.origins.length;
    if (changes !== undefined) this.change(row, changes);
    this.values[row] = value;
    this.origins[row] = this.message.row;
  }

  json(value, changes) {
    this.emit(JSON.stringify(value), changes);
  }

  change(row, { key, eventTime, attributes, add, route }) {
    // What can fail comes first: nothing is noted of a row that is not emitted.
    const number = route === undefined ? 0 : this.number(route);
    if (eventTime !== undefined && !Number.isSafeInteger(eventTime)) {
      eventTime = Number(eventTime);
      if (!Number.isSafeInteger(eventTime)) throw new TypeError("an event time is a whole number of milliseconds");
    }
    if (key !== undefined && !isPiece(key)) throw new TypeError("a key is a text, a Uint8Array or null");
    if (attributes !== undefined) {
      this.attributes[row] = flat([], attributes);
    } else if (add !== undefined) {
      const message = this.message;
      const kept = message.firstAttribute === message.lastAttribute ? [] : flat([], message.attributes);
      this.attributes[row] = flat(kept, add);
    }
    if (key !== undefined) this.keys[row] = key;
    if (eventTime !== undefined) this.times[row] = eventTime;
    if (number !== 0) this.routes[row] = number;
  }

  number(route) {
    const number = this.numbers.get(route);
    if (number === undefined) throw new Error(`the route \`${route}\` was not named in \`routes\``);
    return number;
  }

  /** Notes the rows one by one that were only counted: from here on something else happens. */
  spell() {
    for (let row = 0; row < this.forwarded; row++) this.origins.push(row);
    this.forwarded = -1;
  }

  /** Rejects the message at hand: what it emitted is taken back. */
  reject(reason) {
    const row = this.message.row;
    this.spell();
    let rows = this.origins.length;
    while (rows > 0 && this.origins[rows - 1] === row) rows--;
    for (const list of [this.origins, this.keys, this.values, this.times, this.attributes, this.routes]) {
      if (list.length > rows) list.length = rows;
    }
    this.rejectedRows.push(row);
    this.reasons.push(reason);
  }

  output() {
    const { batch, origins } = this;
    if (this.forwarded === batch.eventTimes.length && this.forwarded !== 0) {
      return { batch, origins: NO_ROWS, routes: NO_BYTES, rejected: { rows: NO_ROWS, reasons: ABSENT } };
    }
    this.spell();
    const rows = new Uint32Array(origins);
    const identity = rows.length === batch.eventTimes.length && isIdentity(origins);
    return {
      batch: {
        keys: columnFrom(this.keys, batch.keys, rows, identity),
        values: columnFrom(this.values, batch.values, rows, identity),
        eventTimes: this.eventTimes(rows, identity),
        attributes: this.allAttributes(rows, identity),
        receivedMs: 0n,
      },
      origins: rows,
      routes: this.allRoutes(rows.length),
      rejected: { rows: new Uint32Array(this.rejectedRows), reasons: columnOf(this.reasons) },
    };
  }

  allRoutes(rows) {
    const { routes } = this;
    if (routes.length === 0) return NO_BYTES;
    routes.length = rows;
    return new Uint8Array(routes); // a hole becomes 0, the main output
  }

  eventTimes(origins, identity) {
    const { times, message, batch } = this;
    if (times.length === 0 && identity) return batch.eventTimes;
    const made = new BigInt64Array(origins.length);
    const halves = new Int32Array(made.buffer);
    for (let row = 0, at = 0; row < origins.length; row++, at += 2) {
      const time = times[row];
      if (time === undefined) {
        const origin = origins[row] * 2;
        halves[at] = message.times[origin];
        halves[at + 1] = message.times[origin + 1];
      } else {
        halves[at] = time;
        halves[at + 1] = Math.floor(time / 4294967296);
      }
    }
    return made;
  }

  allAttributes(origins, identity) {
    const { attributes, batch } = this;
    const old = batch.attributes;
    if (attributes.length === 0 && (identity || old.rows.length === 0)) return old;
    // Where each input row's attributes begin.
    const first = new Map();
    for (let i = old.rows.length - 1; i >= 0; i--) first.set(old.rows[i], i);
    const rows = [], names = [], values = [];
    for (let row = 0; row < origins.length; row++) {
      const changed = attributes[row];
      if (changed !== undefined) {
        for (let i = 0; i < changed.length; i += 2) {
          rows.push(row);
          names.push(changed[i]);
          values.push(changed[i + 1]);
        }
        continue;
      }
      for (let i = first.get(origins[row]) ?? old.rows.length; old.rows[i] === origins[row]; i++) {
        rows.push(row);
        names.push(get(old.names, i));
        values.push(get(old.values, i));
      }
    }
    return { rows: new Uint32Array(rows), names: columnOf(names), values: columnOf(values) };
  }
}

/** Adds attributes to a list of name, value, name, value, … */
function flat(list, attributes) {
  if (Array.isArray(attributes)) for (const [name, value] of attributes) list.push(name, value);
  else for (const name in attributes) list.push(name, attributes[name]);
  for (let i = 1; i < list.length; i += 2) {
    if (typeof list[i] !== "string" && !isPiece(list[i])) throw new TypeError("the value of an attribute is a text, a Uint8Array or null");
  }
  return list;
}

function isIdentity(origins) {
  for (let row = 0; row < origins.length; row++) if (origins[row] !== row) return false;
  return true;
}
