console.log("list:", await host.get("/v1/things"));
console.log("one:", await host.get("/v1/things/2"));
for (const change of [() => host.post("/v1/things", { name: "crane" }), () => host.del("/v1/things/1"), () => host.get("/v1/things/all")]) {
    try { console.log(await change()); } catch (error) { console.log("refused:", error.status); }
}
console.log("still:", (await host.get("/v1/things")).length);
