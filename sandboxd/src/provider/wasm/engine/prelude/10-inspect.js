// Values as people read them, in the manner of other runtimes' consoles.

const DEPTH = 2;            // levels of nested objects that are shown
const ENTRIES = 100;        // entries of one array, map or object that are shown
const WIDTH = 72;           // characters up to which an object stays on one line

function quote(text) {
    const marks = text.includes("'") ? (text.includes('"') ? (text.includes("`") ? "'" : "`") : '"') : "'";
    const escaped = JSON.stringify(text).slice(1, -1).replaceAll('\\"', '"');
    return marks + (marks === "'" ? escaped.replaceAll("'", "\\'") : escaped) + marks;
}

function showKey(key) {
    if (typeof key === "symbol") return `[${key.toString()}]`;
    return /^[A-Za-z_$][\w$]*$/.test(key) ? key : quote(key);
}

function nameOf(value) {
    for (let at = value; at; at = Object.getPrototypeOf(at)) {
        const made = Object.getOwnPropertyDescriptor(at, "constructor");
        if (made && typeof made.value === "function" && made.value.name) return made.value.name;
    }
    return "";
}

function showFunction(value) {
    const text = Function.prototype.toString.call(value);
    if (text.startsWith("class")) return `[class ${value.name || "(anonymous)"}]`;
    const kind = nameOf(value) || "Function";
    return value.name ? `[${kind}: ${value.name}]` : `[${kind} (anonymous)]`;
}

function showError(error) {
    const head = `${error.name}: ${error.message}`;
    const stack = typeof error.stack === "string" ? error.stack.trimEnd() : "";
    const lines = stack.split("\n").filter((line) => line && !line.includes("freeboard:"));
    return lines.length ? `${head}\n${lines.join("\n")}` : head;
}

function show(value, depth, seen, top) {
    switch (typeof value) {
        case "string": return top ? value : quote(value);
        case "bigint": return `${value}n`;
        case "number": return Object.is(value, -0) ? "-0" : String(value);
        case "symbol": return value.toString();
        case "function": {
            const keys = Object.keys(value);
            return keys.length ? `${showFunction(value)} ${showEntries(value, keys, depth, seen)}` : showFunction(value);
        }
        case "object": return value === null ? "null" : showObject(value, depth, seen);
        default: return String(value);
    }
}

function showObject(value, depth, seen) {
    if (seen.includes(value)) return "[Circular]";
    const inner = [...seen, value];
    if (value instanceof Error) {
        let text = showError(value);
        if (value.cause !== undefined) text += `\n  [cause]: ${show(value.cause, depth + 1, inner)}`;
        if (value instanceof AggregateError) text += `\n  [errors]: ${show(value.errors, depth + 1, inner)}`;
        return text;
    }
    if (value instanceof Date) return Number.isNaN(value.getTime()) ? "Invalid Date" : value.toISOString();
    if (value instanceof RegExp) return String(value);
    if (value instanceof Number || value instanceof String || value instanceof Boolean)
        return `[${nameOf(value)}: ${show(value.valueOf(), depth, inner)}]`;
    const name = nameOf(value);
    const promise = native.promise(value);
    if (promise) {
        const [state, result] = promise;
        return `Promise { ${["<pending>", show(result, depth + 1, inner), `<rejected> ${show(result, depth + 1, inner)}`][state]} }`;
    }
    const isArray = Array.isArray(value);
    if (depth > DEPTH) return isArray ? "[Array]" : `[${name || "Object"}]`;
    if (isArray) return showList(name === "Array" ? "" : `${name}(${value.length}) `, value, value.length, depth, inner, value);
    if (ArrayBuffer.isView(value) && !(value instanceof DataView))
        return showList(`${name}(${value.length}) `, value, value.length, depth, inner);
    if (value instanceof ArrayBuffer) return `ArrayBuffer { byteLength: ${value.byteLength} }`;
    if (value instanceof Map) {
        const parts = [];
        for (const [key, item] of value) {
            if (parts.length === ENTRIES) { parts.push(`... ${value.size - ENTRIES} more`); break; }
            parts.push(`${show(key, depth + 1, inner)} => ${show(item, depth + 1, inner)}`);
        }
        return wrap(`Map(${value.size}) `, "{", parts, "}", depth);
    }
    if (value instanceof Set) return showList(`Set(${value.size}) `, value, value.size, depth, inner, undefined, "{", "}");
    if (value instanceof WeakMap || value instanceof WeakSet) return `${name} { <items unknown> }`;
    const prefix = name === "Object" ? "" : name ? `${name} ` : "[Object: null prototype] ";
    return prefix + showEntries(value, Reflect.ownKeys(value).filter((key) => isListed(value, key)), depth, inner);
}

function isListed(value, key) {
    const property = Object.getOwnPropertyDescriptor(value, key);
    return property !== undefined && property.enumerable;
}

function showList(prefix, items, size, depth, seen, array, open = "[", close = "]") {
    const parts = [];
    for (const item of items) {
        if (parts.length === ENTRIES) { parts.push(`... ${size - ENTRIES} more`); break; }
        parts.push(show(item, depth + 1, seen));
    }
    if (array) for (const key of Object.keys(array)) {
        if (!/^\d+$/.test(key)) parts.push(`${showKey(key)}: ${showProperty(array, key, depth, seen)}`);
    }
    return wrap(prefix, open, parts, close, depth);
}

function showProperty(value, key, depth, seen) {
    const property = Object.getOwnPropertyDescriptor(value, key);
    if (!property) return "undefined";
    if (property.get) return property.set ? "[Getter/Setter]" : "[Getter]";
    if (property.set) return "[Setter]";
    return show(property.value, depth + 1, seen);
}

function showEntries(value, keys, depth, seen) {
    const parts = keys.slice(0, ENTRIES).map((key) => `${showKey(key)}: ${showProperty(value, key, depth, seen)}`);
    if (keys.length > ENTRIES) parts.push(`... ${keys.length - ENTRIES} more`);
    return wrap("", "{", parts, "}", depth);
}

function wrap(prefix, open, parts, close, depth) {
    if (parts.length === 0) return prefix + open + close;
    const room = open === "[" ? "" : " ";
    const length = parts.reduce((sum, part) => sum + part.length + 2, prefix.length);
    if (length <= WIDTH && !parts.some((part) => part.includes("\n")))
        return `${prefix}${open} ${parts.join(", ")} ${close}`;
    const indent = "  ".repeat(depth + 1);
    return `${prefix}${open}\n${indent}${parts.join(`,\n${indent}`)}\n${"  ".repeat(depth)}${close}`;
}

function inspect(value) { return show(value, 0, []); }

// The arguments of console.log as one line, with the usual %-directives in a first string.
function format(values) {
    let rest = values;
    let text = "";
    if (typeof values[0] === "string" && values.length > 1 && values[0].includes("%")) {
        let at = 1;
        text = values[0].replace(/%[sdifjoOc%]/g, (directive) => {
            if (directive === "%%") return "%";
            if (at >= values.length) return directive;
            const value = values[at++];
            switch (directive) {
                case "%s": return typeof value === "object" ? inspect(value) : String(value);
                case "%d": return typeof value === "bigint" ? `${value}n` : String(Number(value));
                case "%i": return String(Number.parseInt(value, 10));
                case "%f": return String(Number.parseFloat(value));
                case "%j": return JSON.stringify(value);
                case "%c": return "";
                default: return inspect(value);
            }
        });
        rest = values.slice(at);
        if (rest.length) text += " ";
    }
    return text + rest.map((value) => show(value, 0, [], true)).join(" ");
}
