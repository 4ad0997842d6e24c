// Text, bytes, random numbers, copies.

class TextEncoder {
    get encoding() { return "utf-8"; }
    encode(text = "") { return new Uint8Array(native.encode(String(text).toWellFormed())); }
    encodeInto(text, target) {
        let read = 0, written = 0;
        for (const character of String(text).toWellFormed()) {
            const bytes = this.encode(character);
            if (written + bytes.length > target.length) break;
            target.set(bytes, written);
            written += bytes.length;
            read += character.length;
        }
        return { read, written };
    }
}

// The bytes of an ArrayBuffer or a view of one.
function bytesOf(source) {
    if (source instanceof ArrayBuffer) return new Uint8Array(source);
    if (ArrayBuffer.isView(source)) return new Uint8Array(source.buffer, source.byteOffset, source.byteLength);
    throw new TypeError("neither an ArrayBuffer nor a view of one");
}

const utf8 = (bytes, fatal = false) => native.decode(bytes.buffer, bytes.byteOffset, bytes.byteLength, fatal);

class TextDecoder {
    #fatal; #keepMark;
    constructor(label = "utf-8", { fatal = false, ignoreBOM = false } = {}) {
        if (!/^\s*(utf-?8|unicode-1-1-utf-8)\s*$/i.test(label)) throw new RangeError(`the encoding ${label} is not supported`);
        this.#fatal = Boolean(fatal);
        this.#keepMark = Boolean(ignoreBOM);
    }
    get encoding() { return "utf-8"; }
    get fatal() { return this.#fatal; }
    get ignoreBOM() { return this.#keepMark; }
    decode(source = new Uint8Array()) {
        const text = utf8(bytesOf(source), this.#fatal);
        return !this.#keepMark && text.startsWith("\ufeff") ? text.slice(1) : text;
    }
}

const MOST_RANDOM = 65536;

const crypto = {
    getRandomValues(target) {
        if (!ArrayBuffer.isView(target) || target instanceof Float32Array || target instanceof Float64Array || target instanceof DataView)
            throw new TypeError("not an array of integers");
        if (target.byteLength > MOST_RANDOM) throw new RangeError(`at most ${MOST_RANDOM} bytes at once`);
        bytesOf(target).set(new Uint8Array(native.random(target.byteLength)));
        return target;
    },
    randomUUID() {
        const bytes = new Uint8Array(native.random(16));
        bytes[6] = (bytes[6] & 0x0f) | 0x40;
        bytes[8] = (bytes[8] & 0x3f) | 0x80;
        const hex = Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
        return hex.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");
    },
};

const started = Symbol("started");

expose("TextEncoder", TextEncoder);
expose("TextDecoder", TextDecoder);
expose("crypto", crypto);
expose("structuredClone", function structuredClone(value) { return native.clone(value); });
expose("performance", { now: () => native.monotonic() });
