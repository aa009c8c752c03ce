// The exports of an aggregator: `export * from "…/aggregator"` in the entry file, which calls `setAggregator`.

import { BATCH_SIZE, Emitter, KEYS, Message, RECEIVED, TIMES, VALUES } from "./emitter";
import { Pane, configureGuest, done, refuse, theAggregator } from "./guest";
import { Buffer, Builder, Bytes, look, setList } from "./memory";

export { cabi_realloc } from "./memory";

const message: Message = new Message();
const out: Emitter = new Emitter();
const pane: Pane = new Pane();
const piece: Bytes = new Bytes();
const column: Builder = new Builder();
const reasons: Builder = new Builder();
const rejected: Buffer = new Buffer();
const times: Buffer = new Buffer();
const input: usize = memory.data(120, 8);
const emitted: usize = memory.data(176, 8);
const columns: usize = memory.data(28, 4);
const accumulated: usize = memory.data(60, 4);
let rejectedRows: i32[] = [];
let rejectedReasons: string[] = [];

export function configure(ptr: usize, length: i32): usize {
  return configureGuest(theAggregator, ptr, length);
}

export function accumulate(grouped: usize): usize {
  const rows = load<usize>(grouped + BATCH_SIZE);
  const ends = load<usize>(grouped + BATCH_SIZE + 8);
  const groups = load<i32>(grouped + BATCH_SIZE + 12);
  column.reset();
  rejectedRows.length = rejectedReasons.length = 0;
  let at = 0;
  for (let group = 0; group < groups; group++) {
    const end = <i32>load<u32>(ends + 4 * group);
    let took = false;
    theAggregator.clear();
    for (; at < end; at++) {
      const row = <i32>load<u32>(rows + 4 * at);
      message.seek(grouped, row);
      const reason = theAggregator.add(message);
      if (reason) {
        rejectedRows.push(row);
        rejectedReasons.push(reason);
      } else {
        took = true;
      }
    }
    if (took) {
      theAggregator.encode(column.bytes);
      column.endRow();
    } else {
      column.pushAbsent();
    }
  }
  finishRejected();
  column.finish(accumulated + 4);
  setList(accumulated + 28, rejected.ptr, rejected.length / 4);
  reasons.finish(accumulated + 36);
  return accumulated;
}

/** Rejected rows must ascend, whatever the order of the groups. */
function finishRejected(): void {
  reasons.reset();
  rejected.length = 0;
  const order: i32[] = [];
  for (let i = 0; i < rejectedRows.length; i++) order.push(i);
  order.sort((a, b) => rejectedRows[a] - rejectedRows[b]);
  for (let i = 0; i < order.length; i++) {
    rejected.writeU32(rejectedRows[order[i]]);
    reasons.push(Bytes.of(rejectedReasons[order[i]]));
  }
}

/** Points a column record at lists that came as single parameters. */
function pointAt(record: usize, bytes: usize, bytesLen: i32, ends: usize, endsLen: i32, present: usize, presentLen: i32): void {
  setList(record, bytes, bytesLen);
  setList(record + 8, ends, endsLen);
  setList(record + 16, present, presentLen);
}

export function merge(bytes: usize, bytesLen: i32, ends: usize, endsLen: i32, present: usize, presentLen: i32, lists: usize, listsLen: i32): usize {
  pointAt(input, bytes, bytesLen, ends, endsLen, present, presentLen);
  column.reset();
  let at = 0;
  for (let list = 0; list < listsLen; list++) {
    const end = <i32>load<u32>(lists + 4 * list);
    if (end - at == 1) { // what is alone means the same as it is
      look(input, at++, piece);
      column.push(piece);
      continue;
    }
    theAggregator.clear();
    for (; at < end; at++) {
      look(input, at, piece);
      const reason = theAggregator.merge(piece);
      if (reason) return refuse(columns, 4, reason);
    }
    theAggregator.encode(column.bytes);
    column.endRow();
  }
  store<u8>(columns, 0);
  column.finish(columns + 4);
  return columns;
}

export function emit(panes: usize): usize {
  const starts = load<usize>(panes + 24);
  const ends = load<usize>(panes + 32);
  const count = load<i32>(panes + 36);
  const firings = load<usize>(panes + 64);
  const timings = load<usize>(panes + 72);
  times.length = 0;
  for (let i = 0; i < count; i++) {
    const end = load<i64>(ends + 8 * i);
    times.writeI64(end == i64.MIN_VALUE ? end : end - 1);
  }
  // Panes as a batch of keys and accumulators.
  memory.fill(input, 0, BATCH_SIZE);
  memory.copy(input + KEYS, panes, 24);
  memory.copy(input + VALUES, panes + 40, 24);
  setList(input + TIMES, times.ptr, count);
  pane.receivedMs = load<i64>(panes + 80);
  store<i64>(input + RECEIVED, pane.receivedMs);
  out.begin(input, message);
  for (let row = 0; row < count; row++) {
    message.at(input, row, 0);
    pane.key = message.key;
    pane.startMs = load<i64>(starts + 8 * row);
    pane.endMs = load<i64>(ends + 8 * row);
    pane.firings = load<u32>(firings + 4 * row);
    pane.timing = load<u8>(timings + row);
    theAggregator.clear();
    let reason = theAggregator.merge(message.value);
    if (!reason) reason = theAggregator.emit(pane, out);
    if (reason) out.reject(reason);
    else out.settle();
  }
  out.finish(emitted + 8);
  return emitted;
}

export function state_version(): u32 {
  return theAggregator.stateVersion();
}

export function migrate(version: u32, bytes: usize, bytesLen: i32, ends: usize, endsLen: i32, present: usize, presentLen: i32): usize {
  pointAt(input, bytes, bytesLen, ends, endsLen, present, presentLen);
  column.reset();
  for (let row = 0; row < endsLen; row++) {
    look(input, row, piece);
    if (version == theAggregator.stateVersion()) {
      column.push(piece);
      continue;
    }
    const reason = theAggregator.migrate(version, piece, column.bytes);
    if (reason) return refuse(columns, 4, reason);
    column.endRow();
  }
  store<u8>(columns, 0);
  column.finish(columns + 4);
  return columns;
}

export function cabi_post_configure(ptr: usize): void {
  done(ptr);
}

export function cabi_post_accumulate(ptr: usize): void {
  done(ptr);
}

export function cabi_post_merge(ptr: usize): void {
  done(ptr);
}

export function cabi_post_emit(ptr: usize): void {
  done(ptr);
}

export function cabi_post_migrate(ptr: usize): void {
  done(ptr);
}
