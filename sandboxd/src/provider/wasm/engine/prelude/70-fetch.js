// fetch, Headers, Request, Response. The answer is read whole and bounded by the worker; redirects are handed back.

const TOKEN = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;
const VALUE = /^[\t\x20-\x7e\x80-\xff]*$/;

class Headers {
    #map = new Map();
    constructor(init) {
        if (init === undefined || init === null) return;
        const pairs = typeof init[Symbol.iterator] === "function" ? init : Object.entries(init);
        for (const [key, value] of pairs) this.append(key, value);
    }
    #key(name) {
        if (!TOKEN.test(String(name))) throw new TypeError(`not a header name: ${name}`);
        return String(name).toLowerCase();
    }
    #value(value) {
        const text = String(value).replace(/^[\t\n\r ]+|[\t\n\r ]+$/g, "");
        if (!VALUE.test(text)) throw new TypeError("not a header value");
        return text;
    }
    append(name, value) {
        const key = this.#key(name), text = this.#value(value), list = this.#map.get(key);
        if (list) list.push(text); else this.#map.set(key, [text]);
    }
    set(name, value) { this.#map.set(this.#key(name), [this.#value(value)]); }
    get(name) { return this.#map.get(this.#key(name))?.join(", ") ?? null; }
    has(name) { return this.#map.has(this.#key(name)); }
    delete(name) { this.#map.delete(this.#key(name)); }
    getSetCookie() { return [...(this.#map.get("set-cookie") ?? [])]; }
    forEach(callback, self) { for (const [key, value] of this) callback.call(self, value, key, this); }
    *entries() { for (const key of [...this.#map.keys()].sort()) yield [key, this.#map.get(key).join(", ")]; }
    *keys() { for (const [key] of this.entries()) yield key; }
    *values() { for (const [, value] of this.entries()) yield value; }
    [Symbol.iterator]() { return this.entries(); }
}

// A body as given: its bytes, and the type that goes with it.
function readBody(body) {
    if (body === undefined || body === null) return {};
    if (typeof body === "string") return { bytes: native.encode(body.toWellFormed()), type: "text/plain;charset=UTF-8" };
    if (body instanceof URLSearchParams)
        return { bytes: native.encode(body.toString()), type: "application/x-www-form-urlencoded;charset=UTF-8" };
    if (body instanceof ArrayBuffer) return { bytes: body.slice(0) };
    if (ArrayBuffer.isView(body)) return { bytes: body.buffer.slice(body.byteOffset, body.byteOffset + body.byteLength) };
    return { bytes: native.encode(String(body).toWellFormed()), type: "text/plain;charset=UTF-8" };
}

class Body {
    #bytes; #used = false;
    constructor(bytes) { this.#bytes = bytes; }
    get bodyUsed() { return this.#used; }
    async #take() {
        if (this.#used) throw new TypeError("the body was read before");
        this.#used = this.#bytes !== undefined;
        return this.#bytes ?? new ArrayBuffer(0);
    }
    async arrayBuffer() { return this.#take(); }
    async bytes() { return new Uint8Array(await this.#take()); }
    async text() { return new TextDecoder().decode(await this.#take()); }
    async json() { return JSON.parse(await this.text()); }
    static peek(body) {
        if (body.#used) throw new TypeError("the body was read before");
        return body.#bytes?.slice(0);
    }
}
const peekBody = Body.peek;
delete Body.peek;

class Response extends Body {
    #status; #statusText; #headers; #url;
    constructor(body, { status = 200, statusText = "", headers } = {}, url = "") {
        const { bytes, type } = readBody(body);
        super(bytes);
        this.#status = Number(status);
        this.#statusText = String(statusText);
        this.#headers = new Headers(headers);
        this.#url = url;
        if (type && !this.#headers.has("content-type")) this.#headers.set("content-type", type);
    }
    static json(value, init = {}) {
        const headers = new Headers(init.headers);
        if (!headers.has("content-type")) headers.set("content-type", "application/json");
        return new Response(JSON.stringify(value), { ...init, headers });
    }
    get status() { return this.#status; }
    get statusText() { return this.#statusText; }
    get ok() { return this.#status >= 200 && this.#status < 300; }
    get headers() { return this.#headers; }
    get url() { return this.#url; }
    get type() { return "basic"; }
    get redirected() { return false; }
    clone() { return new Response(peekBody(this), this, this.#url); }
}

class Request extends Body {
    #method; #url; #headers; #signal;
    constructor(input, init = {}) {
        const from = input instanceof Request ? input : undefined;
        const method = String(init.method ?? from?.method ?? "GET");
        const given = init.body !== undefined ? init.body : from ? peekBody(from) : undefined;
        const { bytes, type } = readBody(given);
        const upper = method.toUpperCase();
        super(bytes);
        this.#method = ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"].includes(upper) ? upper : method;
        if (bytes !== undefined && (this.#method === "GET" || this.#method === "HEAD"))
            throw new TypeError("a GET or HEAD request cannot have a body");
        const url = new URL(from ? from.url : input);
        if (url.username || url.password) throw new TypeError("a URL with credentials cannot be fetched");
        url.hash = "";
        this.#url = url.href;
        this.#headers = new Headers(init.headers ?? from?.headers);
        if (type && !this.#headers.has("content-type")) this.#headers.set("content-type", type);
        this.#signal = init.signal ?? from?.signal ?? null;
    }
    get method() { return this.#method; }
    get url() { return this.#url; }
    get headers() { return this.#headers; }
    get signal() { return this.#signal; }
    clone() { return new Request(this); }
}

const pending = new Map();  // number of a request -> what to do with its answer

hooks.deliver = (number, head, body) => {
    const answer = pending.get(number);
    pending.delete(number);
    answer?.(head, body);
};

// One exchange with the run's gate.
function exchange(request) {
    const { method, url, headers, signal } = request;
    const list = [...headers];
    if (!headers.has("accept")) list.push(["accept", "*/*"]);
    // The worker does not decompress.
    if (!headers.has("accept-encoding")) list.push(["accept-encoding", "identity"]);
    return new Promise((resolve, reject) => {
        if (signal?.aborted) return reject(signal.reason);
        const number = native.request(JSON.stringify({ method, url, headers: list }), peekBody(request));
        if (number < 0) return reject(new TypeError("fetch failed: too many requests at once"));
        const abort = () => {
            if (!pending.delete(number)) return;
            native.cancel(number);
            reject(signal.reason);
        };
        signal?.addEventListener("abort", abort);
        pending.set(number, (head, body) => {
            signal?.removeEventListener("abort", abort);
            if (head.error !== undefined) return reject(new TypeError(`fetch failed: ${head.error}`));
            resolve(new Response(head.status === 204 || head.status === 304 ? undefined : body, head, url));
        });
    });
}

async function fetch(input, init) { return exchange(new Request(input, init)); }

expose("Headers", Headers);
expose("Request", Request);
expose("Response", Response);
expose("fetch", fetch);
