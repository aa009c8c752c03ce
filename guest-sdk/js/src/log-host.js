// The log as a module sees it: its import makes the module ask for the grant `log`.
import { log } from "weir:udf/log@1.1.0";

const write = (level) => (...words) => log(level, words.join(" "));

export const debug = write("debug");
export const info = write("info");
export const warn = write("warn");
export const error = write("error");
