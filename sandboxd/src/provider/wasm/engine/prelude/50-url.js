// URL and URLSearchParams for http and https, after the URL standard. Host names are ASCII: others are refused here, since
// nothing in a grant could match them; write the punycode form.

const PORTS = { "http:": "80", "https:": "443" };

function percentEncode(text, keep) {
    let out = "";
    for (const byte of new Uint8Array(native.encode(text.toWellFormed()))) {
        const character = String.fromCharCode(byte);
        out += byte > 0x20 && byte < 0x7f && keep(character) ? character : `%${byte.toString(16).toUpperCase().padStart(2, "0")}`;
    }
    return out;
}

const keepInPath = (character) => !'"<>`#?{}^'.includes(character);
const keepInQuery = (character) => !'"<>#\''.includes(character);
const keepInFragment = (character) => !'"<>`'.includes(character);
const keepInForm = (character) => /[A-Za-z0-9*\-._]/.test(character);

const toForm = (text) => percentEncode(text, keepInForm).replaceAll("%20", "+");
function fromForm(text) {
    const bytes = [];
    const source = new Uint8Array(native.encode(text.replaceAll("+", " ").toWellFormed()));
    for (let at = 0; at < source.length; at++) {
        const hex = source[at] === 0x25 ? String.fromCharCode(source[at + 1], source[at + 2]) : "";
        if (/^[0-9A-Fa-f]{2}$/.test(hex)) { bytes.push(Number.parseInt(hex, 16)); at += 2; } else bytes.push(source[at]);
    }
    return utf8(new Uint8Array(bytes));
}

class URLSearchParams {
    #list = []; #changed = () => {};
    constructor(init = "") {
        if (typeof init === "object" && init !== null) {
            const pairs = typeof init[Symbol.iterator] === "function" ? init : Object.entries(init);
            for (const [key, value] of pairs) this.#list.push([String(key), String(value)]);
        } else this.#read(String(init));
    }
    #read(text) {
        this.#list = [];
        for (const part of text.replace(/^\?/, "").split("&")) {
            if (part === "") continue;
            const at = part.indexOf("=");
            this.#list.push(at < 0 ? [fromForm(part), ""] : [fromForm(part.slice(0, at)), fromForm(part.slice(at + 1))]);
        }
    }
    static bind(params, text, changed) { params.#read(text); params.#changed = changed; }
    get size() { return this.#list.length; }
    append(key, value) { this.#list.push([String(key), String(value)]); this.#changed(); }
    delete(key, value) {
        this.#list = this.#list.filter(([k, v]) => !(k === String(key) && (value === undefined || v === String(value))));
        this.#changed();
    }
    get(key) { return this.#list.find(([k]) => k === String(key))?.[1] ?? null; }
    getAll(key) { return this.#list.filter(([k]) => k === String(key)).map(([, value]) => value); }
    has(key, value) { return this.#list.some(([k, v]) => k === String(key) && (value === undefined || v === String(value))); }
    set(key, value) {
        const at = this.#list.findIndex(([k]) => k === String(key));
        if (at < 0) this.#list.push([String(key), String(value)]);
        else this.#list = this.#list.filter(([k], i) => i <= at || k !== String(key)).with(at, [String(key), String(value)]);
        this.#changed();
    }
    sort() { this.#list.sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0)); this.#changed(); }
    forEach(callback, self) { for (const [key, value] of this.#list) callback.call(self, value, key, this); }
    *entries() { yield* this.#list.map((pair) => [...pair]); }
    *keys() { for (const [key] of this.#list) yield key; }
    *values() { for (const [, value] of this.#list) yield value; }
    [Symbol.iterator]() { return this.entries(); }
    toString() { return this.#list.map(([key, value]) => `${toForm(key)}=${toForm(value)}`).join("&"); }
}

const bindParams = URLSearchParams.bind;
delete URLSearchParams.bind;

function badUrl(text) { return new TypeError(`Invalid URL: ${text}`); }

function parseHost(host, whole) {
    if (/^\[[0-9a-fA-F:.]+\]$/.test(host)) return host.toLowerCase();
    let name;
    try { name = decodeURIComponent(host).toLowerCase(); } catch { throw badUrl(whole); }
    if (name === "" || !/^[\x21-\x7e]+$/.test(name) || /[#%/:<>?@[\\\]^|`"{}]/.test(name)) throw badUrl(whole);
    return name;
}

function normalisePath(path) {
    const out = [];
    const segments = path.split("/").slice(1);
    for (const [at, segment] of segments.entries()) {
        const last = at === segments.length - 1;
        if (/^(\.|%2e){2}$/i.test(segment)) { out.pop(); if (last) out.push(""); }
        else if (/^(\.|%2e)$/i.test(segment)) { if (last) out.push(""); }
        else out.push(percentEncode(segment, keepInPath));
    }
    return `/${out.join("/")}`;
}

function parseUrl(text, base) {
    const input = String(text).replace(/^[\0-\x20]+|[\0-\x20]+$/g, "").replace(/[\t\n\r]/g, "");
    const parts = {};
    let rest = input;
    const hash = rest.indexOf("#");
    parts.hash = hash < 0 ? "" : percentEncode(rest.slice(hash + 1), keepInFragment);
    if (hash >= 0) rest = rest.slice(0, hash);
    const query = rest.indexOf("?");
    parts.query = query < 0 ? null : percentEncode(rest.slice(query + 1), keepInQuery);
    if (query >= 0) rest = rest.slice(0, query);
    rest = rest.replaceAll("\\", "/");
    const scheme = /^([A-Za-z][A-Za-z0-9+.-]*):/.exec(rest);
    if (scheme) {
        parts.protocol = `${scheme[1].toLowerCase()}:`;
        if (!own.call(PORTS, parts.protocol)) throw new TypeError(`Invalid URL: only http and https are supported: ${input}`);
        rest = rest.slice(scheme[0].length);
        if (!rest.startsWith("//") && base && base.protocol === parts.protocol) return parseRelative(rest, parts, base, input);
        rest = `//${rest.replace(/^\/*/, "")}`;
    } else {
        if (!base) throw badUrl(input);
        parts.protocol = base.protocol;
        if (!rest.startsWith("//")) return parseRelative(rest, parts, base, input);
    }
    const slash = rest.indexOf("/", 2);
    let authority = slash < 0 ? rest.slice(2) : rest.slice(2, slash);
    const at = authority.lastIndexOf("@");
    const [username, ...password] = at < 0 ? [""] : authority.slice(0, at).split(":");
    parts.username = username;
    parts.password = password.join(":");
    authority = authority.slice(at + 1);
    const port = /:(\d*)$/.exec(authority);
    if (port) authority = authority.slice(0, port.index);
    if (port && Number(port[1]) > 65535) throw badUrl(input);
    parts.hostname = parseHost(authority, input);
    parts.port = port && port[1] !== "" ? String(Number(port[1])) : "";
    if (parts.port === PORTS[parts.protocol]) parts.port = "";
    parts.pathname = normalisePath(slash < 0 ? "/" : rest.slice(slash));
    return parts;
}

function parseRelative(path, parts, base) {
    const { username, password, hostname, port } = base;
    Object.assign(parts, { username, password, hostname, port });
    if (path === "") {
        parts.pathname = base.pathname;
        parts.query ??= base.query;
    } else {
        const folder = base.pathname.slice(0, base.pathname.lastIndexOf("/") + 1);
        parts.pathname = normalisePath(path.startsWith("/") ? path : folder + path);
    }
    return parts;
}

class URL {
    #parts; #params;
    constructor(text, base) {
        this.#parts = parseUrl(text, base === undefined ? undefined : parseUrl(base));
    }
    static canParse(text, base) { try { new URL(text, base); return true; } catch { return false; } }
    static parse(text, base) { try { return new URL(text, base); } catch { return null; } }
    #change(parts) {
        Object.assign(this.#parts, parts);
        if (this.#params && own.call(parts, "query")) this.#bind();
    }
    #bind() {
        bindParams(this.#params, this.#parts.query ?? "", () => {
            const text = this.#params.toString();
            this.#parts.query = text === "" ? null : text;
        });
    }
    get searchParams() {
        if (!this.#params) { this.#params = new URLSearchParams(); this.#bind(); }
        return this.#params;
    }
    get protocol() { return this.#parts.protocol; }
    get username() { return this.#parts.username; }
    get password() { return this.#parts.password; }
    get hostname() { return this.#parts.hostname; }
    set hostname(value) { this.#change({ hostname: parseHost(String(value), value) }); }
    get port() { return this.#parts.port; }
    set port(value) { this.#change({ port: parseUrl(`${this.protocol}//a:${value}`).port }); }
    get host() { return this.hostname + (this.port ? `:${this.port}` : ""); }
    set host(value) { const { hostname, port } = parseUrl(`${this.protocol}//${value}`); this.#change({ hostname, port }); }
    get origin() { return `${this.protocol}//${this.host}`; }
    get pathname() { return this.#parts.pathname; }
    set pathname(value) { this.#change({ pathname: normalisePath(`/${String(value).replace(/^\//, "")}`) }); }
    get search() { return this.#parts.query ? `?${this.#parts.query}` : ""; }
    set search(value) {
        const text = String(value).replace(/^\?/, "");
        this.#change({ query: text === "" ? null : percentEncode(text, keepInQuery) });
    }
    get hash() { return this.#parts.hash ? `#${this.#parts.hash}` : ""; }
    set hash(value) { this.#change({ hash: percentEncode(String(value).replace(/^#/, ""), keepInFragment) }); }
    get href() {
        const { username, password, query } = this.#parts;
        const user = username || password ? `${username}${password ? `:${password}` : ""}@` : "";
        return `${this.protocol}//${user}${this.host}${this.pathname}${query === null ? "" : `?${query}`}${this.hash}`;
    }
    toString() { return this.href; }
    toJSON() { return this.href; }
}

expose("URL", URL);
expose("URLSearchParams", URLSearchParams);
