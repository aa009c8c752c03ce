// Passthrough: what a message costs without any work.

import { Emitter, Message, Transform, setTransform } from "../../../guest-sdk/assemblyscript/assembly";

export * from "../../../guest-sdk/assemblyscript/assembly/transformer";

class Passthrough extends Transform {
  transform(message: Message, out: Emitter): string | null {
    out.forward();
    return null;
  }
}

setTransform(new Passthrough());
