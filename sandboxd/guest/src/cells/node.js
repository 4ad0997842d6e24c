// Runs cells: one request after the other on descriptor 3, state in one global scope. Its words are those of cells.rs.
"use strict";
{
  const { Session } = require("node:inspector");
  const { Socket } = require("node:net");
  const { createRequire } = require("node:module");
  const { Readable } = require("node:stream");
  const { inspect } = require("node:util");

  const line = new Socket({ fd: 3, readable: true, writable: true });
  const session = new Session();
  session.connect();
  globalThis.require = createRequire(process.cwd() + "/");
  process.argv.length = 1;
  Object.defineProperty(process, "stdin", { value: Readable.from([]), configurable: true });

  let raised = false;
  let count = 0;
  const complain = (error) => {
    raised = true;
    if (error instanceof Error && typeof error.stack === "string") {
      // Our own frames are nobody's business.
      error.stack = error.stack.split("\n    at Session.post ")[0];
    }
    process.stderr.write((error instanceof Error ? inspect(error) : "Uncaught " + inspect(error)) + "\n");
  };
  process.on("uncaughtException", complain);
  process.on("unhandledRejection", complain);

  const post = (method, options) =>
    new Promise((done, failed) =>
      session.post(method, options, (error, answer) => (error ? failed(error) : done(answer))));
  const argument = ({ type, value, unserializableValue, objectId }) =>
    objectId ? { objectId } : unserializableValue ? { unserializableValue } : type === "undefined" ? {} : { value };
  // Shows or complains of a value that only the inspector holds.
  const show = Symbol.for("freeboard.show");
  Object.defineProperty(globalThis, show, {
    value: (kind, value) => {
      if (kind === "error") complain(value);
      else if (value !== undefined) process.stdout.write(inspect(value) + "\n");
    },
  });
  const tell = async (kind, remote) => {
    const { result } = await post("Runtime.evaluate", { expression: "globalThis" });
    await post("Runtime.callFunctionOn", {
      objectId: result.objectId,
      functionDeclaration: 'function (kind, value) { this[Symbol.for("freeboard.show")](kind, value); }',
      arguments: [{ value: kind }, argument(remote)],
    });
  };
  const cell = async (code) => {
    raised = false;
    count += 1;
    const { result, exceptionDetails } = await post("Runtime.evaluate", {
      expression: code + "\n//# sourceURL=cell-" + count,
      replMode: true,
      awaitPromise: true,
      objectGroup: "cell",
    });
    if (exceptionDetails) await tell("error", exceptionDetails.exception ?? { value: exceptionDetails.text });
    else await tell("value", result);
    await post("Runtime.releaseObjectGroup", { objectGroup: "cell" });
    return raised ? 1 : 0;
  };

  let buffer = Buffer.alloc(0);
  let busy = false;
  const next = async () => {
    if (busy || buffer.length < 17) return;
    const nonce = Buffer.from(buffer.subarray(1, 17));
    if (buffer[0] === 0x50) {
      buffer = buffer.subarray(17);
      line.write(Buffer.concat([Buffer.from("R"), nonce]));
      return next();
    }
    if (buffer.length < 21) return;
    const size = buffer.readUInt32BE(17);
    if (buffer.length < 21 + size) return;
    busy = true;
    const code = buffer.toString("utf8", 21, 21 + size);
    buffer = buffer.subarray(21 + size);
    let exit = 1;
    try {
      exit = await cell(code);
    } catch (error) {
      complain(error);
    }
    line.write(Buffer.concat([Buffer.from("D"), nonce, Buffer.from([exit])]));
    busy = false;
    await next();
  };
  line.on("data", (bytes) => {
    buffer = Buffer.concat([buffer, bytes]);
    next();
  });
  line.on("close", () => process.exit(0));
  line.write("H");
}
