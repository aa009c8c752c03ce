// The exports of a transform: `export * from "…/transformer"` in the entry file, which calls `setTransform`.

import { Emitter, Message, TIMES } from "./emitter";
import { configureGuest, done, theTransform } from "./guest";

export { cabi_realloc } from "./memory";

const message: Message = new Message();
const out: Emitter = new Emitter();
const result: usize = memory.data(176, 8);

export function configure(ptr: usize, length: i32): usize {
  return configureGuest(theTransform, ptr, length);
}

export function transform(input: usize): usize {
  const rows = load<i32>(input + TIMES + 4);
  let next = 0;
  out.begin(input, message);
  for (let row = 0; row < rows; row++) {
    next = message.at(input, row, next);
    const reason = theTransform.transform(message, out);
    if (reason) out.reject(reason);
    else out.settle();
  }
  out.finish(result + 8);
  return result;
}

export function cabi_post_configure(ptr: usize): void {
  done(ptr);
}

export function cabi_post_transform(ptr: usize): void {
  done(ptr);
}
