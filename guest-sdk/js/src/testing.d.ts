// Runs a module's exports natively, in ordinary tests: no WebAssembly is involved, so that debuggers and coverage work as ever.

import type { AggregatorExports, Bytes, TransformerExports } from "./index.js";

/** A message to be handed in: its value, or all of it. What isn't given is absent. */
export type Input = string | Uint8Array | { key?: Bytes; value?: Bytes; eventTime?: number; attributes?: Record<string, Bytes> };

/** A row that came out, with bytes as text. */
export interface Row {
  key: string | null;
  value: string | null;
  eventTime: number;
  attributes: Record<string, string | null>;
  /** The message that it was made of, by its place; of an aggregator, the pane. */
  origin: number;
  /** Its route; absent: the main output. */
  route?: string;
}

/** What came out. */
export interface Results {
  rows: Row[];
  rejected: { row: number; reason: string }[];
  /** Messages of which nothing came out, by their place. */
  filtered: number[];
  /** The values of all rows. */
  values: (string | null)[];
  /** The reasons of all rejections. */
  reasons: string[];
}

/** Runs a transformer over messages as one batch. Throws if the configuration is refused. */
export function run(exports: TransformerExports, config: unknown, messages: Input[], options?: { received?: number }): Results;

/** The window that `aggregate` takes its messages to fall into. */
export const WINDOW: { start: number; end: number };

/**
 * Runs an aggregator over messages of one key and window, and fires it. On the way it checks the laws of merging on these very
 * messages. Throws if the configuration is refused or a law is broken.
 */
export function aggregate(exports: AggregatorExports, config: unknown, messages: Input[]): Results;
