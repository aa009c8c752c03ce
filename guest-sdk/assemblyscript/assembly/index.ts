// Write user-defined functions for Weir in AssemblyScript: contract weir:udf@1.1.0. See README.md.

export { Buffer, Bytes } from "./memory";
export { Emitter, Message, Row } from "./emitter";
export { Aggregator, Pane, Transform, setAggregator, setTransform } from "./guest";

/** Runs where AssemblyScript's own abort would be imported: asc's `--use abort=…` names it. */
export function trap(message: string | null, file: string | null, line: u32, column: u32): void {
  unreachable();
}
