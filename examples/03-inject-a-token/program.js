// No token here. A made-up one of the program's own is taken off and replaced.
for (const headers of [{}, { authorization: "Bearer made-up" }]) {
    const response = await fetch("https://api.example.test:8443/v1/whoami", { headers });
    const body = await response.json();
    console.log(response.status, body.user ?? body.error);
}
