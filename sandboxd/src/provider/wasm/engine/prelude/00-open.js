// The guest's surroundings, evaluated once before the snapshot: one function over what main.c hands in. Files are joined in
// the order of their names. `native` never becomes reachable for guest code.
(function (native) {
"use strict";

const hooks = { configure() {}, fire() {}, deliver() {}, report() {} };
const own = Object.prototype.hasOwnProperty;

// Adds a global as the platform does: writable, configurable, not listed.
function expose(name, value) {
    Object.defineProperty(globalThis, name, { value, writable: true, configurable: true, enumerable: false });
}
