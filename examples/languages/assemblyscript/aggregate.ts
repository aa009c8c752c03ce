// Totals in AssemblyScript: how many messages of a key and window there are, and the sum of one of their fields.

import { Aggregator, Buffer, Bytes, Emitter, Message, Pane, setAggregator } from "../../../guest-sdk/assemblyscript/assembly";
import { Members, inner, isInt, toInt } from "../../../guest-sdk/assemblyscript/assembly/json";

export * from "../../../guest-sdk/assemblyscript/assembly/aggregator";

class Totals extends Aggregator {
  private field: string = "";
  private members: Members = new Members([]);
  private count: i64 = 0;
  private sum: i64 = 0;

  configure(config: Bytes): string | null {
    const members = new Members(["field"]);
    const object = members.find(config);
    this.field = inner(members.values[0]).toString();
    if (!object || this.field == "") return "config: field: name the field to sum up";
    this.members = new Members([this.field]);
    return null;
  }

  clear(): void {
    this.count = this.sum = 0;
  }

  add(message: Message): string | null {
    if (!this.members.find(message.value)) return "not a JSON object";
    const number = this.members.values[0];
    if (!isInt(number)) return `${this.field}: expected a whole number`;
    this.count++;
    this.sum += toInt(number);
    return null;
  }

  encode(out: Buffer): void {
    out.writeI64(this.count);
    out.writeI64(this.sum);
  }

  merge(encoded: Bytes): string | null {
    if (encoded.length != 16) return "not a total";
    this.count += load<i64>(encoded.ptr);
    this.sum += load<i64>(encoded.ptr + 8);
    return null;
  }

  emit(pane: Pane, out: Emitter): string | null {
    out.emitText(`{"count":${this.count},"sum":${this.sum}}`);
    return null;
  }
}

setAggregator(new Totals());
