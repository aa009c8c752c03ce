// What an author extends, and what both worlds share.

import { Buffer, Bytes, freeAll, setList } from "./memory";
import { Emitter, Message } from "./emitter";

/** Everything that is configured: a transform or an aggregator. */
export abstract class Guest {
  /** The outputs besides the main one: at most 254. Their numbers count from 1. */
  routes(): string[] {
    return [];
  }

  /** Called once for each instance with the step's config as JSON text, `null` if there is none. A reason refuses it. */
  configure(config: Bytes): string | null {
    return null;
  }
}

/** Turns messages into messages. What comes out must depend on config and message only. */
export abstract class Transform extends Guest {
  /**
   * Handles a message: emit any number of rows, forward it, do nothing to filter it, or return a reason to reject it
   * (whatever it emitted is undone).
   */
  abstract transform(message: Message, out: Emitter): string | null;
}

/** A window that fires. */
@final
export class Pane {
  key: Bytes = new Bytes();
  startMs: i64 = 0;
  /** The first millisecond that is not in it. */
  endMs: i64 = 0;
  /** How often it has fired before. */
  firings: u32 = 0;
  /** 0 early, 1 on time, 2 late. */
  timing: u8 = 0;
  receivedMs: i64 = 0;
}

/**
 * Sums up the messages of a key and window. The guest itself holds the accumulator at hand, in fields of its own; what it
 * writes down is kept by the host.
 */
export abstract class Aggregator extends Guest {
  /** Raise it with every change of the encoding. */
  stateVersion(): u32 {
    return 1;
  }

  /** Makes the accumulator empty: no message yet. */
  abstract clear(): void;

  /** Takes a message in. After a reason, which rejects it, the accumulator must be as before. */
  abstract add(message: Message): string | null;

  /** Writes the accumulator down. */
  abstract encode(out: Buffer): void;

  /** Takes in what `encode` wrote of another, whose messages came later. Must be associative. */
  abstract merge(encoded: Bytes): string | null;

  /** Makes rows of a window that fires: they have its key, and its last millisecond as event time, unless given others. */
  abstract emit(pane: Pane, out: Emitter): string | null;

  /** Writes down anew what an older version wrote. */
  migrate(version: u32, encoded: Bytes, out: Buffer): string | null {
    return `accumulators of version ${version} cannot be read: the module writes version ${this.stateVersion()}`;
  }
}

class NoTransform extends Transform {
  transform(message: Message, out: Emitter): string | null {
    return "the module never called setTransform";
  }
}

class NoAggregator extends Aggregator {
  clear(): void {}
  add(message: Message): string | null {
    return "the module never called setAggregator";
  }
  encode(out: Buffer): void {}
  merge(encoded: Bytes): string | null {
    return null;
  }
  emit(pane: Pane, out: Emitter): string | null {
    return null;
  }
}

export let theTransform: Transform = new NoTransform();
export let theAggregator: Aggregator = new NoAggregator();

/** Says what the module runs: to be called once, in the entry file. */
export function setTransform(transform: Transform): void {
  theTransform = transform;
}

/** Says what the module runs: to be called once, in the entry file. */
export function setAggregator(aggregator: Aggregator): void {
  theAggregator = aggregator;
}

const names: Buffer = new Buffer();
const lists: Buffer = new Buffer();
const errors: Buffer = new Buffer();
const configured: usize = memory.data(16, 8);

/** Writes a reason as the error of a result whose payload lies at the given offset. */
export function refuse(result: usize, payload: usize, reason: string): usize {
  errors.length = 0;
  errors.writeText(reason);
  store<u8>(result, 1);
  setList(result + payload, errors.ptr, errors.length);
  return result;
}

/** Configures a guest; the result is the list of its routes. */
export function configureGuest(guest: Guest, ptr: usize, length: i32): usize {
  const reason = guest.configure(new Bytes(ptr, length, true));
  if (reason) return refuse(configured, 4, reason);
  const routes = guest.routes();
  names.length = lists.length = 0;
  for (let i = 0; i < routes.length; i++) names.writeText(routes[i]);
  let at = names.ptr;
  for (let i = 0; i < routes.length; i++) {
    const size = String.UTF8.byteLength(routes[i]);
    lists.writeU32(<u32>at);
    lists.writeU32(size);
    at += size;
  }
  store<u8>(configured, 0);
  setList(configured + 4, lists.ptr, routes.length);
  return configured;
}

/** What each export's answer needs no longer. */
export function done(result: usize): void {
  freeAll();
}
