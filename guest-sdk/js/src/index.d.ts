// Write user-defined functions for Weir in JavaScript and TypeScript. A module exports what one of these two returns:
//
//   export const { configure, transform } = transformer((config) => ({ transform(message, out) { … } }));
//   export const { configure, accumulate, merge, emit, stateVersion, migrate } = aggregator((config) => ({ … }));
//
// An instance may be thrown away at any time between two batches, several run side by side, and after a failure parts of a
// batch are handled again: what comes out must depend on the configuration and the message only. Caches are fine.

/** The version of the contract. */
export const VERSION: string;

/** What a key, a value or an attribute can be given as: a text is written as UTF-8; null is absent, which is not the same as empty. */
export type Bytes = string | Uint8Array | null;

/** The message at hand. It is one object for all messages: keep what it returns, not the object. */
export interface Message {
  /** The payload; null is a tombstone. */
  readonly value: Uint8Array | null;
  /** The key; null if there is none. */
  readonly key: Uint8Array | null;
  /** When the thing that the message tells of happened: milliseconds since the Unix epoch. */
  readonly eventTime: number;
  /** When the host received the message: the only clock there is. */
  readonly received: number;
  /** Names and values, in order. */
  readonly attributes: [name: string, value: Uint8Array | null][];
  /** The value of the first attribute with this name; null if it has none. */
  attribute(name: string): Uint8Array | null;
  /** The value as text; null for a tombstone. Rejects the message if it isn't UTF-8. */
  text(): string | null;
  /** The value as JSON; null for a tombstone. Rejects the message if it isn't JSON. */
  json(): any;
}

/** What a row has other than the message that it is made of. */
export interface Changes {
  key?: Bytes;
  /** Milliseconds since the Unix epoch. */
  eventTime?: number | bigint;
  /** All attributes of the row, instead of the message's. */
  attributes?: Record<string, Bytes> | [name: string, value: Bytes][];
  /** Attributes of the row beside the message's. */
  add?: Record<string, Bytes> | [name: string, value: Bytes][];
  /** One of `routes`; without it, the main output. */
  route?: string;
}

/** Takes what becomes of the message at hand. */
export interface Emitter {
  /** Passes the message on, unchanged. */
  forward(route?: string): void;
  /** Emits a row with this value. What isn't changed is the message's. */
  emit(value: Bytes, changes?: Changes): void;
  /** Emits a row whose value is written as JSON. */
  json(value: unknown, changes?: Changes): void;
}

/** Handles messages one at a time. */
export interface Transform {
  /** Outputs besides the main one, at most 254. Sinks name them in `from`. */
  routes?: string[];
  /**
   * Handles one message. What it does says what becomes of it: emit any number of rows, forward it, throw an error to reject
   * it (it goes to the dead letters with the error's message, and what it emitted is undone), or do nothing to drop it.
   */
  transform(message: Message, out: Emitter): void;
}

/** A column of byte strings: row i is `bytes[ends[i - 1]..ends[i]]`. No ends: all rows are absent. */
export interface Column {
  bytes: Uint8Array;
  ends: Uint32Array;
  /** A bitmap, lowest bit first; empty: all rows are present. */
  present: Uint8Array;
}

/** Messages as they cross the boundary. */
export interface Batch {
  keys: Column;
  values: Column;
  eventTimes: BigInt64Array;
  attributes: { rows: Uint32Array; names: Column; values: Column };
  receivedMs: bigint;
}

/** What became of a batch; udf.wit says what each list must hold. */
export interface Output {
  batch: Batch;
  origins: Uint32Array;
  routes: Uint8Array;
  rejected: { rows: Uint32Array; reasons: Column };
}

/** Handles whole batches, for those who want the last bit of speed. */
export interface BatchTransform {
  routes?: string[];
  transformBatch(batch: Batch): Output;
}

/** A row of a column; null if it is absent. */
export function get(column: Column, row: number): Uint8Array | null;

/** The exports of a transformer. */
export interface TransformerExports {
  configure(config: string): string[];
  transform(batch: Batch): Output;
}

/**
 * Makes the exports of a transformer. The function is called once for each instance with the step's `config` (an empty object
 * where it has none); an error that it throws refuses the configuration: the pipeline does not start, and its author reads the text.
 */
export function transformer<C = any>(create: (config: C) => Transform | BatchTransform): TransformerExports;

/** A window of a key that fires. */
export interface Pane {
  /** The text of the key field as JSON, or the bytes of the message's key or attribute, as the step says. */
  readonly key: Uint8Array | null;
  /** Where the window begins and ends: `end` is the first millisecond that is not in it. */
  readonly start: number;
  readonly end: number;
  /** How often the window has fired before. */
  readonly firings: number;
  readonly timing: "early" | "on time" | "late";
  readonly received: number;
}

/**
 * Sums up the messages of a key and window in an accumulator of type A. Between calls the host keeps accumulators as what
 * `encode` returned. Merging must be associative: the host merges what it has when it sees fit, in any grouping, and never what
 * is alone. `weir-udf/testing` checks that on your own messages.
 */
export interface Aggregate<A> {
  routes?: string[];
  /** The version of what `encode` returns: raise it with every change. Without it, 1. */
  stateVersion?: number;
  /** An accumulator without messages. */
  empty(): A;
  /** Takes a message in: returns the new accumulator, or nothing if it changed the one given. An error rejects the message; the accumulator must then be as before. */
  add(accumulator: A, message: Message): A | void;
  /** What is to be known of an accumulator. */
  encode(accumulator: A): string | Uint8Array;
  /** Reads it back. */
  decode(bytes: Uint8Array): A;
  /** Adds another accumulator, whose messages came later. */
  merge(accumulator: A, other: A): A | void;
  /** Makes rows of a window that fires. A row has the pane's key, and the window's last millisecond as event time, unless changed. */
  emit(pane: Pane, accumulator: A, out: Emitter): void;
  /** Encodes anew what an older version encoded. */
  migrate?(version: number, bytes: Uint8Array): string | Uint8Array;
}

/** The exports of an aggregator. */
export interface AggregatorExports {
  configure(config: string): string[];
  accumulate(batch: Batch, groups: { rows: Uint32Array; ends: Uint32Array }): { fragments: Column; rejected: Output["rejected"] };
  merge(lists: { fragments: Column; ends: Uint32Array }): Column;
  emit(panes: unknown): Output;
  stateVersion(): number;
  migrate(version: number, accumulators: Column): Column;
}

/** Makes the exports of an aggregator. */
export function aggregator<A, C = any>(create: (config: C) => Aggregate<A>): AggregatorExports;
