/*
 * Values in a pickle, read without calling anything that the pickle names: an object is the name of
 * its class with its arguments. Source: the opcodes of Python's pickletools, protocols 0 to 5.
 */

export interface Dict {
  kind: "dict";
  items: [Value, Value][];
}
export interface Global {
  kind: "global";
  name: string; // "torch._utils._rebuild_tensor_v2"
}
/* An object that a pickle makes: by a call of `of` with `args`, after which `state` is set. */
export interface Made {
  kind: "made";
  of: string;
  args: Value[];
  items: [Value, Value][]; // set later, as in a dict
  state: Value;
}
/* A value that is stored outside of the pickle, which has only its id. */
export interface Kept {
  kind: "kept";
  id: Value;
}
export type Value =
  null | boolean | number | bigint | string | Uint8Array | Value[] | Dict | Global | Made | Kept;

const LONGEST_NUMBER = 256; // bytes

class Reader {
  at = 0;
  private data: Uint8Array;
  private view: DataView;

  constructor(data: Uint8Array) {
    this.data = data;
    this.view = new DataView(data.buffer, data.byteOffset, data.byteLength);
  }
  bytes(n: number): Uint8Array {
    if (!(n >= 0) || this.at + n > this.data.length) throw new Error("the pickle ends early");
    this.at += n;
    return this.data.subarray(this.at - n, this.at);
  }
  number(n: 1 | 2 | 4 | 8): number {
    let value = 0;

    for (const byte of [...this.bytes(n)].reverse()) value = value * 256 + byte;
    return value;
  }
  int32(): number {
    this.bytes(4);
    return this.view.getInt32(this.at - 4, true);
  }
  float(): number {
    this.bytes(8);
    return this.view.getFloat64(this.at - 8, false);
  }
  /* Two's complement, the lowest byte first. */
  long(n: number): number | bigint {
    if (n > LONGEST_NUMBER) throw new Error("the pickle has a number that is too long");
    const bytes = this.bytes(n);
    let value = 0n;

    for (const byte of [...bytes].reverse()) value = value * 256n + BigInt(byte);
    if (n && bytes[n - 1]! >= 128) value -= 1n << BigInt(8 * n);
    return Number.isSafeInteger(Number(value)) ? Number(value) : value;
  }
  text(n: number): string {
    return new TextDecoder().decode(this.bytes(n));
  }
  line(): string {
    const end = this.data.indexOf(10, this.at);

    if (end < 0) throw new Error("the pickle ends early");
    const text = this.text(end - this.at);
    this.at++;
    return text;
  }
}

class Machine {
  private reader: Reader;
  private stack: Value[] = [];
  private marks: number[] = [];
  private memo = new Map<number, Value>();

  /* Opcodes that push a value and read nothing from the stack. */
  private pushed: Record<string, () => Value> = {
    N: () => null,
    "\x88": () => true,
    "\x89": () => false,
    "]": () => [],
    ")": () => [],
    "\x8f": () => [],
    "}": () => ({ kind: "dict", items: [] }),
    J: () => this.reader.int32(),
    K: () => this.reader.number(1),
    M: () => this.reader.number(2),
    "\x8a": () => this.reader.long(this.reader.number(1)),
    "\x8b": () => this.reader.long(this.reader.number(4)),
    G: () => this.reader.float(),
    F: () => Number(this.reader.line()),
    L: () => Number(this.reader.line().replace(/L$/, "")),
    X: () => this.reader.text(this.reader.number(4)),
    "\x8c": () => this.reader.text(this.reader.number(1)),
    "\x8d": () => this.reader.text(this.reader.number(8)),
    V: () => this.reader.line(),
    S: () => this.reader.line().slice(1, -1),
    T: () => this.reader.text(this.reader.number(4)),
    U: () => this.reader.text(this.reader.number(1)),
    B: () => this.reader.bytes(this.reader.number(4)),
    C: () => this.reader.bytes(this.reader.number(1)),
    "\x8e": () => this.reader.bytes(this.reader.number(8)),
    "\x96": () => this.reader.bytes(this.reader.number(8)),
    c: () => ({ kind: "global", name: `${this.reader.line()}.${this.reader.line()}` }),
    P: () => ({ kind: "kept", id: this.reader.line() }),
    h: () => this.get(this.reader.number(1)),
    j: () => this.get(this.reader.number(4)),
    g: () => this.get(Number(this.reader.line())),
    I: () => {
      const line = this.reader.line();

      return line === "01" ? true : line === "00" ? false : Number(line);
    },
  };

  constructor(reader: Reader) {
    this.reader = reader;
  }

  private pop(): Value {
    if (this.stack.length <= (this.marks.at(-1) ?? 0)) throw new Error("the pickle is damaged");
    return this.stack.pop()!;
  }
  private top(): Value {
    const value = this.pop();

    this.stack.push(value);
    return value;
  }
  private popMark(): Value[] {
    const mark = this.marks.pop();

    if (mark === undefined) throw new Error("the pickle is damaged");
    return this.stack.splice(mark);
  }
  private popMany(n: number): Value[] {
    return Array.from({ length: n }, () => this.pop()).reverse();
  }
  private get(n: number): Value {
    if (!this.memo.has(n)) throw new Error("the pickle is damaged");
    return this.memo.get(n)!;
  }
  private make(of: Value, args: Value): Made {
    const name = of && typeof of === "object" && "kind" in of && of.kind === "global" ? of.name : "?";

    return { kind: "made", of: name, args: Array.isArray(args) ? args : [], items: [], state: null };
  }
  private setItems(pairs: Value[]): void {
    const target = this.top();

    for (let i = 0; i + 1 < pairs.length; i += 2) {
      if (target && typeof target === "object" && "items" in target)
        target.items.push([pairs[i]!, pairs[i + 1]!]);
    }
  }
  private append(values: Value[]): void {
    const target = this.top();

    if (Array.isArray(target)) for (const value of values) target.push(value);
  }
  private dict(pairs: Value[]): void {
    this.stack.push({ kind: "dict", items: [] });
    this.setItems(pairs);
  }

  /* Runs until the end of the pickle. */
  run(): Value {
    const { reader, stack, marks, memo } = this;

    for (;;) {
      const op = reader.number(1);
      const char = String.fromCharCode(op);

      if (this.pushed[char]) stack.push(this.pushed[char]());
      else if (char === ".") return this.pop();
      else if (char === "\x80") reader.bytes(1);
      else if (char === "\x95") reader.bytes(8);
      else if (char === "(") marks.push(stack.length);
      else if (char === "0") this.pop();
      else if (char === "1") this.popMark();
      else if (char === "2") stack.push(this.top());
      else if (char === "a") this.append([this.pop()]);
      else if (char === "e" || char === "\x90") this.append(this.popMark());
      else if (char === "l" || char === "t" || char === "\x91") stack.push(this.popMark());
      else if (op >= 0x85 && op <= 0x87) stack.push(this.popMany(op - 0x84));
      else if (char === "s") this.setItems(this.popMany(2));
      else if (char === "u") this.setItems(this.popMark());
      else if (char === "d") this.dict(this.popMark());
      else if (char === "q") memo.set(reader.number(1), this.top());
      else if (char === "r") memo.set(reader.number(4), this.top());
      else if (char === "p") memo.set(Number(reader.line()), this.top());
      else if (char === "\x94") memo.set(memo.size, this.top());
      else if (char === "Q") stack.push({ kind: "kept", id: this.pop() });
      else if (char === "\x93") {
        const [module, name] = this.popMany(2);

        if (typeof module !== "string" || typeof name !== "string")
          throw new Error("the pickle is damaged");
        stack.push({ kind: "global", name: `${module}.${name}` });
      } else if (char === "R" || char === "\x81") {
        const [of, args] = this.popMany(2);

        stack.push(this.make(of!, args!));
      } else if (char === "\x92") {
        const [of, args] = this.popMany(3);

        stack.push(this.make(of!, args!));
      } else if (char === "o" || char === "i") {
        const name = char === "i" ? `${reader.line()}.${reader.line()}` : null;
        const values = this.popMark();

        stack.push(this.make(name ? { kind: "global", name } : values.shift()!, values));
      } else if (char === "b") {
        const state = this.pop();
        const target = this.top();

        if (target && typeof target === "object" && "state" in target) target.state = state;
      } else throw new Error(`the pickle has the unknown opcode ${op}`);
    }
  }
}

/* Returns the value, or throws if the pickle is damaged. */
export function readPickle(data: Uint8Array): Value {
  return new Machine(new Reader(data)).run();
}
