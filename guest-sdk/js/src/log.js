// The log in native tests: lines go to standard error.
const write = (level) => (...words) => console.error(`${level}: ${words.join(" ")}`);

export const debug = write("debug");
export const info = write("info");
export const warn = write("warn");
export const error = write("error");
