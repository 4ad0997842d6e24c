// host: the APIs of the run's grants in one object. Paths are relative to the first API; absolute URLs reach the others.

let apis = [];

async function call(method, path, body) {
    let target;
    if (/^https?:\/\//i.test(path)) target = String(path);
    else {
        if (apis.length === 0) throw new Error("this run has no grants, so there is no API to call");
        target = apis[0].base_url.replace(/\/$/, "") + (String(path).startsWith("/") ? path : `/${path}`);
    }
    const init = { method: String(method).toUpperCase(), headers: { accept: "application/json" } };
    if (body !== undefined && init.method !== "GET" && init.method !== "HEAD") {
        init.headers["content-type"] = "application/json";
        init.body = JSON.stringify(body);
    }
    const response = await fetch(target, init);
    const text = await response.text();
    if (!response.ok) {
        const error = new Error(`${init.method} ${path} answered ${response.status}${text ? `: ${text.slice(0, 500)}` : ""}`);
        error.status = response.status;
        error.body = text;
        throw error;
    }
    if (text === "") return null;
    try { return JSON.parse(text); } catch { return text; }
}

const host = Object.freeze({
    call,
    get: (path) => call("GET", path),
    post: (path, body) => call("POST", path, body),
    put: (path, body) => call("PUT", path, body),
    patch: (path, body) => call("PATCH", path, body),
    del: (path, body) => call("DELETE", path, body),
    // What was granted, for programs that want to look.
    get apis() { return structuredClone(apis); },
});

expose("host", host);

hooks.configure = (surface) => { apis = surface; };
