// console: log, info and debug to standard output, the others to standard error.

let indent = "";
const counts = Object.create(null);
const times = Object.create(null);

function write(stream, text) {
    const lines = indent ? indent + text.replaceAll("\n", `\n${indent}`) : text;
    native.output(stream, `${lines}\n`.toWellFormed());
}

const toOut = (...values) => write(1, format(values));
const toErr = (...values) => write(2, format(values));

function table(rows) {
    if (typeof rows !== "object" || rows === null) return toOut(rows);
    const keys = [...new Set(Object.values(rows).flatMap((row) => (typeof row === "object" && row ? Object.keys(row) : [])))];
    const plain = Object.values(rows).some((row) => typeof row !== "object" || row === null);
    const head = ["(index)", ...keys, ...(plain ? ["Values"] : [])];
    const cells = Object.entries(rows).map(([index, row]) => {
        const isObject = typeof row === "object" && row !== null;
        const shown = keys.map((key) => (isObject && own.call(row, key) ? show(row[key], 1, []) : ""));
        return [index, ...shown, ...(plain ? [isObject ? "" : show(row, 1, [])] : [])];
    });
    const widths = head.map((title, at) => Math.max(title.length, ...cells.map((row) => row[at].length)) + 2);
    const line = (row) => `│${row.map((cell, at) => ` ${cell}`.padEnd(widths[at])).join("│")}│`;
    const rule = (left, middle, right) => left + widths.map((width) => "─".repeat(width)).join(middle) + right;
    write(1, [rule("┌", "┬", "┐"), line(head), rule("├", "┼", "┤"), ...cells.map(line), rule("└", "┴", "┘")].join("\n"));
}

const time = (label = "default") => { times[label] = native.monotonic(); };
const elapsed = (label) => `${label}: ${(native.monotonic() - (times[label] ?? native.monotonic())).toFixed(3)}ms`;

expose("console", {
    log: toOut, info: toOut, debug: toOut, error: toErr, warn: toErr,
    trace(...values) { toErr(...values, `\n${new Error().stack}`); },
    dir(value) { toOut(inspect(value)); },
    table,
    assert(condition, ...values) { if (!condition) toErr("Assertion failed", ...values); },
    count(label = "default") { counts[label] = (counts[label] ?? 0) + 1; toOut(`${label}: ${counts[label]}`); },
    countReset(label = "default") { delete counts[label]; },
    group(...values) { if (values.length) toOut(...values); indent += "  "; },
    groupEnd() { indent = indent.slice(2); },
    time,
    timeLog(label = "default", ...values) { toOut(elapsed(label), ...values); },
    timeEnd(label = "default") { toOut(elapsed(label)); delete times[label]; },
});

hooks.report = (error) => {
    indent = "";
    write(2, `Uncaught ${show(error, 0, [], false)}`);
};
