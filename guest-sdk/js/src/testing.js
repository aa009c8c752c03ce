// Runs the exports of a module natively, as the host would: see testing.d.ts.

import { columnOf as column, get } from "./columns.js";

const decoder = new TextDecoder();

function batch(messages, received) {
  const of = messages.map((message) => (typeof message === "string" || message instanceof Uint8Array ? { value: message } : message));
  const attributes = of.flatMap((message, row) => Object.entries(message.attributes ?? {}).map(([name, value]) => [row, name, value]));
  return {
    keys: column(of.map((message) => message.key ?? null)),
    values: column(of.map((message) => message.value ?? null)),
    eventTimes: BigInt64Array.from(of, (message) => BigInt(message.eventTime ?? 0)),
    attributes: {
      rows: Uint32Array.from(attributes, ([row]) => row),
      names: column(attributes.map(([, name]) => name)),
      values: column(attributes.map(([, , value]) => value)),
    },
    receivedMs: BigInt(received),
  };
}

function text(bytes) {
  return bytes === null ? null : decoder.decode(bytes);
}

function read(output, routes, inputs) {
  const { batch, origins, routes: numbers, rejected } = output;
  const seen = new Array(inputs).fill(false);
  const rows = Array.from(batch.eventTimes, (eventTime, row) => {
    const number = numbers.length === 0 ? 0 : numbers[row];
    if (number > routes.length) throw new Error(`a row went to route ${number}, but only ${routes.length} were named`);
    const origin = origins.length === 0 ? row : origins[row];
    seen[origin] = true;
    const attributes = {};
    batch.attributes.rows.forEach((of, i) => {
      if (of === row) attributes[text(get(batch.attributes.names, i))] = text(get(batch.attributes.values, i));
    });
    const made = { key: text(get(batch.keys, row)), value: text(get(batch.values, row)), eventTime: Number(eventTime), attributes, origin };
    return number === 0 ? made : { ...made, route: routes[number - 1] };
  });
  const refused = Array.from(rejected.rows, (row, i) => {
    if (seen[row]) throw new Error(`message ${row} was both rejected and emitted`);
    seen[row] = true;
    return { row, reason: text(get(rejected.reasons, i)) };
  });
  const filtered = seen.flatMap((seen, row) => (seen ? [] : [row]));
  return { rows, rejected: refused, filtered, values: rows.map((row) => row.value), reasons: refused.map(({ reason }) => reason) };
}

function configured(exports, config) {
  try {
    return exports.configure(JSON.stringify(config ?? null));
  } catch (reason) {
    throw new Error(String(reason));
  }
}

export function run(exports, config, messages, { received = 0 } = {}) {
  const routes = configured(exports, config);
  return read(exports.transform(batch(messages, received)), routes, messages.length);
}

export const WINDOW = { start: 0, end: 60_000 };

export function aggregate(exports, config, messages) {
  const routes = configured(exports, config);
  const bytes = (fragment) => fragment && Uint8Array.from(fragment);
  const accumulate = (some, shift) => {
    const groups = { rows: Uint32Array.from(some.keys()), ends: Uint32Array.of(some.length) };
    const { fragments, rejected } = exports.accumulate(batch(some, 0), groups);
    const refused = Array.from(rejected.rows, (row, i) => ({ row: row + shift, reason: text(get(rejected.reasons, i)) }));
    return { fragment: bytes(get(fragments, 0)), refused };
  };
  const merge = (...fragments) => {
    const some = fragments.filter((fragment) => fragment !== null);
    if (some.length === 0) return null;
    return bytes(get(exports.merge({ fragments: column(some), ends: Uint32Array.of(some.length) }), 0));
  };
  const emit = (accumulator) =>
    read(
      exports.emit({
        keys: column(["key"]), starts: BigInt64Array.of(BigInt(WINDOW.start)), ends: BigInt64Array.of(BigInt(WINDOW.end)),
        accumulators: column([accumulator]), firings: Uint32Array.of(0), timings: Uint8Array.of(1), receivedMs: 0n,
      }),
      routes,
      1,
    );
  const none = { rows: [], rejected: [], filtered: [], values: [], reasons: [] };
  if (messages.length === 0) return none;
  const { fragment: whole, refused } = accumulate(messages, 0);
  const found = whole === null ? none : emit(whole);
  if (whole !== null) {
    const same = (law, accumulator) => {
      const other = emit(accumulator).values;
      if (JSON.stringify(other) !== JSON.stringify(found.values)) throw new Error(`${law}: ${other} instead of ${found.values}`);
    };
    const each = messages.map((message, row) => accumulate([message], row).fragment);
    same("a fragment merged alone", merge(whole));
    same("merged all at once", merge(...each));
    same("merged one by one", each.reduce((left, fragment) => merge(left, fragment), null));
    same("merged from the right", each.reduceRight((right, fragment) => merge(fragment, right), null));
  }
  const rejected = [...refused, ...found.rejected];
  return { ...found, rejected, reasons: rejected.map(({ reason }) => reason) };
}
