// The only thing that this program knows is the address of the API. It has no token.
const API = "@API@";
(async () => {
  const items = await fetch(API + "/v1/items?limit=2");
  console.log("GET /v1/items?limit=2 ->", items.status, JSON.stringify(await items.json()));
  const note = await fetch(API + "/v1/notes", {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ text: "written by JavaScript" }),
  });
  console.log("POST /v1/notes ->", note.status, JSON.stringify(await note.json()));
})();
