// Lines in the host's log. A module that uses this runs only in a step with `grants: [log]`.

// @ts-ignore: decorator
@external("weir:udf/log@1.1.0", "log")
declare function hostLog(level: u32, ptr: usize, length: usize): void;

export enum Level { Trace, Debug, Info, Warn, Error }

export function log(level: Level, line: string): void {
  const buffer = String.UTF8.encode(line);
  hostLog(<u32>level, changetype<usize>(buffer), buffer.byteLength);
}
