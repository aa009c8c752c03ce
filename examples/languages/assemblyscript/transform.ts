// Orders in AssemblyScript: checks orders, masks e-mail addresses, and tells large orders from small ones.

import { Bytes, Emitter, Message, Transform, setTransform } from "../../../guest-sdk/assemblyscript/assembly";
import { Members, given, inner, isInt, toInt } from "../../../guest-sdk/assemblyscript/assembly/json";

export * from "../../../guest-sdk/assemblyscript/assembly/transformer";

const LARGE: u8 = 1;
const yes = Bytes.of("true");
const no = Bytes.of("false");
const large = Bytes.of("large");
const small = Bytes.of("small");
const absent = new Bytes();
// The pieces between the fields, encoded once.
const ID = Bytes.of('{"id":');
const EMAIL = Bytes.of(',"email":"');
const STARS = Bytes.of('***');
const AMOUNT = Bytes.of('","amount":');
const SIZE = Bytes.of(',"size":"');
const NOTE = Bytes.of('","note":"');
const END = Bytes.of('"}');

class Orders extends Transform {
  private largeFrom: i64 = 10_000;
  private members: Members = new Members(["id", "deleted", "email", "amount", "ts", "note"]);

  routes(): string[] {
    return ["large"];
  }

  configure(config: Bytes): string | null {
    if (!given(config)) return null;
    const members = new Members(["large_from"]);
    if (!members.find(config)) return "config: expected an object";
    const value = members.values[0];
    if (!value.present) return null;
    if (!isInt(value) || toInt(value) < 1) return "config: large_from: expected a whole number of at least 1";
    this.largeFrom = toInt(value);
    return null;
  }

  transform(message: Message, out: Emitter): string | null {
    if (!message.value.present) {
      out.forward();
      return null;
    }
    if (!this.members.find(message.value)) return "not a JSON object";
    const values = this.members.values;
    const id = values[0], deleted = values[1], amount = values[3], ts = values[4];
    if (!isInt(id)) return "id: expected a whole number";
    const row = out.row();
    row.key = id;
    const gone = deleted.equals(yes);
    if (given(deleted) && !gone && !deleted.equals(no)) return "deleted: expected true or false";
    if (gone) {
      row.value = absent; // a tombstone
      out.emitRow(row);
      return null;
    }
    const email = inner(values[2]);
    const sign = email.indexOf(0x40);
    if (sign < 1 || email.at(0) == 0x5c) return "email: expected an address";
    if (!isInt(amount) || toInt(amount) < 0) return "amount: expected a whole number of cents";
    if (given(ts)) {
      if (!isInt(ts)) return "ts: expected milliseconds";
      row.eventTimeMs = toInt(ts);
    }
    const note = inner(values[5]);
    if (given(values[5]) && !note.present) return "note: expected a text";

    const isLarge = toInt(amount) >= this.largeFrom;
    const size = isLarge ? large : small;
    row.route = isLarge ? LARGE : 0;
    row.attribute("size", size);
    out.write(ID);
    out.write(id);
    out.write(EMAIL);
    out.write(email.slice(0, 1));
    out.write(STARS);
    out.write(email.slice(sign, email.length));
    out.write(AMOUNT);
    out.write(amount);
    out.write(SIZE);
    out.write(size);
    out.write(NOTE);
    out.write(note);
    out.write(END);
    out.endRow(row);
    return null;
  }
}

setTransform(new Orders());
